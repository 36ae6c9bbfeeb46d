"""Gradient steps on policy and critics, from the estimates of a rollout.

Each network learns separately, in one compiled scan over its minibatches. Only the policy is needed to act, so the critics
learn in a separate thread while the environments are stepped again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from vpac.deep.estimate import Batch
from vpac.deep.networks import Critic, Input, Policy, first_numbers, make_critic, make_policy, part
from vpac.deep.options import PPOOptions
from vpac.deep.spaces import Interface

Array = jax.Array


@cache
def configure_jax() -> None:
    """Configure JAX before its first computation: one thread, a compilation cache. Settings made before are kept.

    XLA splits sums among its threads, so the last digits depend on their number; with one thread, results do not depend on the
    number of cores. A second thread costs more processor time than it saves: minibatches are small, and other cores are used by
    threads of ours, for the policy, the critics, the environments and the seeds of a study.
    """
    os.environ.setdefault("PJRT_NPROC", "1")
    config: Any = jax.config
    config.update("jax_cpu_enable_async_dispatch", False)
    if config.jax_compilation_cache_dir or "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    config.update("jax_compilation_cache_dir", str(base / "vpac" / "jax"))
    config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


class Optimiser(NamedTuple):
    """Adam with decoupled weight decay, after clipping the norm of the gradient."""

    max_grad_norm: float | None
    weight_decay: float
    adam_eps: float

    def chain(self) -> optax.GradientTransformation:
        """The Optax transformation, without the step size."""
        parts = [] if self.max_grad_norm is None else [optax.clip_by_global_norm(self.max_grad_norm)]
        parts.append(optax.scale_by_adam(eps=self.adam_eps))
        return optax.chain(*parts, *([optax.add_decayed_weights(self.weight_decay)] if self.weight_decay else []))

    def start(self, network: Any) -> Any:
        """The optimiser's state before the first step."""
        return self.chain().init(network)

    def step(self, network: Any, state: Any, gradient: Any, rate: Array) -> tuple[Any, Any]:
        """Take one step."""
        direction, state = self.chain().update(gradient, state, network)
        return jax.tree.map(lambda p, d: p - rate * d, network, direction), state


class Samples(NamedTuple):
    """Samples of the policy's update, one row for each step."""

    observations: Input
    actions: Array
    log_probs: Any
    """log π of the actions; None: computed with the policy that is improved."""
    weights: Array
    valid: Array


def surrogate(policy: Policy, samples: Samples, clip: float, entropy: Array | float) -> tuple[Array, tuple[Array, ...]]:
    """−J_VPAC − c·H with J = E[min(ρ w, clip(ρ, 1−ε, 1+ε) w)], ρ = π/π_old (Appendix E); KL(π_old‖π), clipped share, H."""
    log_ratio = policy.log_prob(samples.observations, samples.actions) - samples.log_probs
    ratio = jnp.exp(log_ratio)
    gain = jnp.minimum(ratio * samples.weights, jnp.clip(ratio, 1.0 - clip, 1.0 + clip) * samples.weights)
    count = jnp.maximum(samples.valid.sum(), 1.0)

    def mean(rows: Array) -> Array:
        return (samples.valid * rows).sum() / count

    spread = mean(policy.entropy(samples.observations))
    loss = -mean(gain) - entropy * spread
    return loss, (mean(ratio - 1.0 - log_ratio), mean(1.0 * (jnp.abs(ratio - 1.0) > clip)), spread)


class _Cached:
    """A network that computes its outputs for a batch once and caches them."""

    def __init__(self, net: Any) -> None:
        self.net, self.rows, self.outputs = net, None, None

    def __call__(self, rows: Any) -> Any:
        """Its outputs."""
        if rows is not self.rows:
            self.rows, self.outputs = rows, self.net(rows)
        return self.outputs


def surrogate_once(policy: Policy, *given: Any) -> tuple[Array, tuple[Array, ...]]:
    """`surrogate` with one forward and one backward pass through the network, for log π and entropy."""
    return surrogate(eqx.tree_at(lambda whole: whole.net, policy, _Cached(policy.net)), *given)


def policy_gradient(policy: Policy, samples: Samples) -> Any:
    """The gradient of the surrogate at the policy that acted, E[w ∇log π]; tests compare it with the oracle."""
    return jax.tree.map(jnp.negative, jax.grad(lambda p: surrogate(p, samples, jnp.inf, 0.0)[0])(policy))


class Vectors(NamedTuple):
    """A network and its optimiser's state with all parameters in one array: a step is one operation, not one per layer."""

    network: Array
    state: Any
    network_of: Callable[[Array], Any]
    """Restores the network from the array."""
    state_of: Callable[[Any], Any]
    """Restores the optimiser's state."""

    @classmethod
    def of(cls, network: Any, state: Any) -> Vectors:
        """Flatten the trees of a network and its state."""
        tree: Any = jax.tree.structure(network)
        vector, network_of = ravel_pytree(network)

        def whole(part: Any) -> bool:
            return bool(jax.tree.structure(part) == tree)

        def state_of(vectors: Any) -> Any:
            return jax.tree.map(lambda old, x: network_of(x) if whole(old) else x, state, vectors, is_leaf=whole)

        flat = jax.tree.map(lambda part: ravel_pytree(part)[0] if whole(part) else part, state, is_leaf=whole)
        return cls(vector, flat, network_of, state_of)


@partial(jax.jit, static_argnames=("optimiser", "clip", "target_kl", "normalise"))
def improve_policy(
    policy: Policy, state: Any, samples: Samples, rows: Array, rate: Array, entropy: Array, *, optimiser: Optimiser,
    clip: float, target_kl: float | None, normalise: bool,
) -> tuple[Policy, Any, dict[str, Array]]:  # fmt: skip
    """Ascend the surrogate on the minibatches `rows`, one after the other; stop once the KL exceeds 1.5 · `target_kl`."""
    weights = samples.weights
    if normalise:
        count = jnp.maximum(samples.valid.sum(), 1.0)
        mean = (samples.valid * weights).sum() / count
        std = jnp.sqrt((samples.valid * (weights - mean) ** 2).sum() / count)
        weights = (weights - mean) / (std + 1e-8)
    samples = samples._replace(weights=weights)
    if samples.log_probs is None:
        samples = samples._replace(log_probs=policy.log_prob(samples.observations, samples.actions))
    first, state, network_of, state_of = Vectors.of(policy, state)
    slope = jax.value_and_grad(lambda policy, *given: surrogate_once(network_of(policy), *given), has_aux=True)

    def step(carry: tuple[Any, Any, Array], which: Array) -> tuple[Any, tuple[Array, ...]]:
        policy, state, going = carry
        minibatch = jax.tree.map(lambda x: x[which], samples)
        (loss, (kl, clipped, spread)), gradient = slope(policy, minibatch, clip, entropy)
        norm = optax.tree.norm(gradient)
        if target_kl is None:
            policy, state = optimiser.step(policy, state, gradient, rate)
        else:
            going = going & (kl <= 1.5 * target_kl)
            stepped = optimiser.step(policy, state, gradient, rate)
            policy, state = jax.tree.map(lambda new, old: jnp.where(going, new, old), stepped, (policy, state))
        return (policy, state, going), (loss, kl, clipped, spread, norm, 1.0 * going)

    (last, state, _), columns = jax.lax.scan(step, (first, state, jnp.array(True)), rows)
    policy, state = network_of(last), state_of(state)
    names = ("policy_loss", "kl", "clip_fraction", "entropy", "policy_gradient", "updates")
    metrics = {name: column.mean() for name, column in zip(names, columns, strict=True)}
    metrics |= {"kl": columns[1][-1], "updates": columns[5].sum(), "policy_weights": optax.tree.norm(policy)}
    return policy, state, metrics


def quantile_loss(predicted: Array, target: Array) -> Array:
    """Σ_i mean_j (z_j − q_i) (τ_i − 1[z_j < q_i]), smallest if q_i is the quantile τ_i = (i + ½) / n of the targets z."""
    n = predicted.shape[-1]
    share, error = (jnp.arange(n) + 0.5) / n, target[..., None, :] - predicted[..., :, None]
    return (error * (share[:, None] - (error < 0.0))).mean(-1).sum(-1)


@partial(jax.jit, static_argnames="optimiser")
def fit_critic(
    critic: Critic, state: Any, observations: Input, targets: Array, valid: Array, rows: Array, rate: Array, *,
    optimiser: Optimiser,
) -> tuple[Critic, Any, dict[str, Array]]:  # fmt: skip
    """Fit a critic to its targets on the minibatches `rows`: by least squares, quantiles by `quantile_loss`."""
    first, state, network_of, state_of = Vectors.of(critic, state)

    def loss(critic: Any, which: Array) -> Array:
        weight = valid[which]
        made = network_of(critic)
        predicted, target = made(part(observations, which)), targets[which]
        error: Array = quantile_loss(predicted, target) if made.quantiles else (predicted - target) ** 2
        return (weight * error).sum() / jnp.maximum(weight.sum(), 1.0)

    def step(carry: tuple[Any, Any], which: Array) -> tuple[Any, tuple[Array, Array]]:
        critic, state = carry
        error, gradient = jax.value_and_grad(loss)(critic, which)
        return optimiser.step(critic, state, gradient, rate), (error, optax.tree.norm(gradient))

    (last, state), (errors, norms) = jax.lax.scan(step, (first, state), rows)
    critic, state = network_of(last), state_of(state)
    return critic, state, {"loss": errors.mean(), "gradient": norms.mean(), "weights": optax.tree.norm(critic)}


class Networks(NamedTuple):
    """All networks, with the optimisers' states. Immutable: each iteration makes a new one."""

    policy: Policy
    value: Critic
    spread: Critic | None
    policy_state: Any
    value_state: Any
    spread_state: Any
    score: Critic | None = None
    """The value with the discount of the variance, if that differs from the discount of the mean."""
    score_state: Any = None
    luck: Critic | None = None
    """The mean luck, given the state."""
    luck_state: Any = None


class UpdateRules(NamedTuple):
    """Rules for improving networks: optimisers, learning rates and the entropy bonus, from the settings and the spaces."""

    actor: Optimiser
    critics: Optimiser
    rate: float
    critic_rate: float
    entropy: float

    @classmethod
    def of(cls, options: PPOOptions, interface: Interface) -> UpdateRules:
        """Rules from the settings."""
        o = options
        rate = o.learning_rate or (2.5e-3 if interface.discrete_observations else 3e-4)
        default = 0.1 if interface.discrete_observations else 0.01 if interface.discrete_actions else 0.0
        return cls(
            Optimiser(o.max_grad_norm, o.weight_decay, o.adam_eps),
            Optimiser(o.critic_max_grad_norm, o.weight_decay, o.adam_eps),
            rate, o.critic_learning_rate or rate, default if o.entropy is None else o.entropy,
        )  # fmt: skip


def update_samples(batch: Batch, actions: Any, weights: Any, columns: int) -> tuple[Input, Samples]:
    """The critics' inputs at each step, and the policy's samples, whose inputs are the first `columns` of those."""
    observations, valid = jax.tree.map(flat, batch.begun), flat(batch.valid)
    seen = first_numbers(observations, columns)
    return observations, Samples(seen, flat(jnp.asarray(actions)), None, flat(weights), valid)


def minibatch_sizes(options: PPOOptions, samples: int) -> tuple[int, int]:
    """Number of minibatches in an epoch, and samples in each."""
    size = min(options.minibatch, samples)
    return min(options.minibatches or samples, samples // size), size


class Updater:
    """Makes the networks and improves them: the policy at once, the critics one after the other in a separate thread.

    `generators` are random streams by name: "policy weights" and "policy" for the policy's initial weights and its minibatches,
    likewise "value" and the other `critics`, "spread", "score" and "luck", which have `context` more inputs.
    """

    def __init__(
        self, interface: Interface, options: PPOOptions, generators: Mapping[str, np.random.Generator],
        critics: Collection[str] = (), context: int = 0,
    ) -> None:  # fmt: skip
        self.options, self._generators = options, generators
        self.rules = UpdateRules.of(options, interface)
        policy = make_policy(generators["policy weights"], interface, options)
        self._columns = interface.inputs + options.conditioned
        made: dict[str, Any] = {"spread": None, "spread_state": None}
        for name in ("value", *critics):
            quantiles = name == "spread" and options.measure is not None
            positive = name == "spread" and not quantiles
            critic = make_critic(generators[f"{name} weights"], interface, options, positive, context, quantiles)
            made |= {name: critic, f"{name}_state": self.rules.critics.start(critic)}
        self.networks = Networks(policy=policy, policy_state=self.rules.actor.start(policy), **made)
        self._before = self.networks
        self._thread = ThreadPoolExecutor(1, "critics")
        self._learning: dict[str, Future[Any]] = {}

    def improve(
        self, actions: Any, batch: Batch, weights: Any, targets: dict[str, Any], share: float
    ) -> dict[str, Any]:
        """Improve the policy and start fitting the critics to their `targets`; returns metrics of the policy's update.

        Learning rates are multiplied by `share`, the entropy bonus by its square.
        """
        o, old, rules = self.options, self.networks, self.rules
        observations, samples = update_samples(batch, actions, weights, self._columns)
        rate, critic_rate = jnp.float32(rules.rate * share), jnp.float32(rules.critic_rate * share)
        for name, target in targets.items():
            self._learning[name] = self._thread.submit(
                fit_critic, getattr(old, name), getattr(old, f"{name}_state"), observations=observations,
                targets=flat(target), valid=samples.valid, rows=self._minibatches(name, len(samples.valid)),
                rate=critic_rate, optimiser=rules.critics,
            )  # fmt: skip
        policy, policy_state, metrics = improve_policy(
            old.policy, old.policy_state, samples, self._minibatches("policy", len(samples.valid)), rate,
            jnp.float32(rules.entropy * share**2), optimiser=rules.actor, clip=o.clip, target_kl=o.target_kl,
            normalise=o.normalise_advantages,
        )  # fmt: skip
        self._before = old
        self.networks = old._replace(policy=policy, policy_state=policy_state)
        return {**metrics, "learning_rate": rate}

    def finish(self) -> dict[str, Any]:
        """Wait for the critics; returns metrics of their updates."""
        found: dict[str, Any] = {}
        for name, learning in self._learning.items():
            critic, state, metrics = learning.result()
            self.networks = self.networks._replace(**{name: critic, f"{name}_state": state})
            found |= {f"{name}_{what}": number for what, number in metrics.items()}
        self._learning = {}
        return found

    def revert(self) -> None:
        """Restore the networks from before the last `improve`."""
        self.finish()
        self.networks = self._before

    def _minibatches(self, name: str, samples: int) -> Any:
        """Rows of this iteration's minibatches, [gradient step, sample], from the network's own stream."""
        o, rng = self.options, self._generators[name]
        count, size = minibatch_sizes(o, samples)
        epochs = [rng.permutation(samples)[: count * size].reshape(count, size) for _ in range(o.epochs)]
        return jnp.asarray(np.concatenate(epochs))


def flat(rows: Any) -> Any:
    """[time, environment, …] as [sample, …]."""
    return rows.reshape(-1, *rows.shape[2:])
