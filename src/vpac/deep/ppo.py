"""The updates of PPO: the policy by the clipped surrogate, each critic by regression on its targets.

The three networks learn apart from one another, each in one compiled scan over its minibatches. Only the policy is needed to
act, so critics may still be learning while the environments are stepped again.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from vpac.deep.networks import Critic, Policy

__all__ = ["Lesson", "Optimiser", "improve_policy", "policy_gradient", "regress"]

Array = jax.Array


class Optimiser(NamedTuple):
    """Adam with decoupled weight decay, after clipping the norm of the gradient."""

    max_grad_norm: float | None
    weight_decay: float
    adam_eps: float

    def chain(self) -> optax.GradientTransformation:
        """As Optax writes it, but for the step size."""
        parts = [] if self.max_grad_norm is None else [optax.clip_by_global_norm(self.max_grad_norm)]
        parts.append(optax.scale_by_adam(eps=self.adam_eps))
        return optax.chain(*parts, *([optax.add_decayed_weights(self.weight_decay)] if self.weight_decay else []))

    def start(self, network: Any) -> Any:
        """Its state before the first step."""
        return self.chain().init(network)

    def step(self, network: Any, state: Any, gradient: Any, rate: Array) -> tuple[Any, Any]:
        """One step."""
        direction, state = self.chain().update(gradient, state, network)
        return jax.tree.map(lambda p, d: p - rate * d, network, direction), state


class Lesson(NamedTuple):
    """What the policy learns from: one row for each step."""

    observations: Array
    actions: Array
    log_probs: Array
    weights: Array
    valid: Array


def surrogate(policy: Policy, lesson: Lesson, clip: float, entropy: Array | float) -> tuple[Array, tuple[Array, ...]]:
    """−E[min(ρ w, clip(ρ) w)] − c·H, ρ = π/π_old; with KL(π_old‖π), the share of clipped ratios and the entropy."""
    log_ratio = policy.log_prob(lesson.observations, lesson.actions) - lesson.log_probs
    ratio = jnp.exp(log_ratio)
    gain = jnp.minimum(ratio * lesson.weights, jnp.clip(ratio, 1.0 - clip, 1.0 + clip) * lesson.weights)
    count = jnp.maximum(lesson.valid.sum(), 1.0)

    def mean(rows: Array) -> Array:
        return (lesson.valid * rows).sum() / count

    spread = mean(policy.entropy(lesson.observations))
    loss = -mean(gain) - entropy * spread
    return loss, (mean(ratio - 1.0 - log_ratio), mean(1.0 * (jnp.abs(ratio - 1.0) > clip)), spread)


def policy_gradient(policy: Policy, lesson: Lesson) -> Any:
    """The gradient of the surrogate at the policy that acted: E[w ∇log π], what the oracle judges."""
    return jax.tree.map(jnp.negative, jax.grad(lambda p: surrogate(p, lesson, jnp.inf, 0.0)[0])(policy))


@partial(jax.jit, static_argnames=("optimiser", "clip", "target_kl", "normalise"))
def improve_policy(
    policy: Policy,
    state: Any,
    lesson: Lesson,
    rows: Array,
    rate: Array,
    entropy: Array,
    *,
    optimiser: Optimiser,
    clip: float,
    target_kl: float | None,
    normalise: bool,
) -> tuple[Policy, Any, dict[str, Array]]:
    """Climb the surrogate on the minibatches `rows`, one after the other; stop early once the KL passes `target_kl`."""
    weights = lesson.weights
    if normalise:
        count = jnp.maximum(lesson.valid.sum(), 1.0)
        mean = (lesson.valid * weights).sum() / count
        std = jnp.sqrt((lesson.valid * (weights - mean) ** 2).sum() / count)
        weights = (weights - mean) / (std + 1e-8)
    lesson = lesson._replace(weights=weights, log_probs=policy.log_prob(lesson.observations, lesson.actions))
    slope = jax.value_and_grad(surrogate, has_aux=True)

    def step(carry: tuple[Policy, Any, Array], which: Array) -> tuple[Any, tuple[Array, ...]]:
        policy, state, going = carry
        (loss, (kl, clipped, spread)), gradient = slope(policy, jax.tree.map(lambda x: x[which], lesson), clip, entropy)
        norm = optax.tree.norm(gradient)
        if target_kl is None:
            policy, state = optimiser.step(policy, state, gradient, rate)
        else:
            going = going & (kl <= 1.5 * target_kl)
            stepped = optimiser.step(policy, state, gradient, rate)
            policy, state = jax.tree.map(lambda new, old: jnp.where(going, new, old), stepped, (policy, state))
        return (policy, state, going), (loss, kl, clipped, spread, norm, 1.0 * going)

    (policy, state, _), columns = jax.lax.scan(step, (policy, state, jnp.array(True)), rows)
    names = ("policy_loss", "kl", "clip_fraction", "entropy", "policy_gradient", "updates")
    found = {name: column.mean() for name, column in zip(names, columns, strict=True)}
    found |= {"kl": columns[1][-1], "updates": columns[5].sum(), "policy_weights": optax.tree.norm(policy)}
    return policy, state, found


@partial(jax.jit, static_argnames=("optimiser",))
def regress(
    critic: Critic,
    state: Any,
    observations: Array,
    targets: Array,
    valid: Array,
    rows: Array,
    rate: Array,
    *,
    optimiser: Optimiser,
) -> tuple[Critic, Any, dict[str, Array]]:
    """Fit a critic to its targets by least squares on the minibatches `rows`."""

    def loss(critic: Critic, which: Array) -> Array:
        weight = valid[which]
        error = (critic(observations[which]) - targets[which]) ** 2
        return (weight * error).sum() / jnp.maximum(weight.sum(), 1.0)

    def step(carry: tuple[Critic, Any], which: Array) -> tuple[Any, tuple[Array, Array]]:
        critic, state = carry
        error, gradient = eqx.filter_value_and_grad(loss)(critic, which)
        return optimiser.step(critic, state, gradient, rate), (error, optax.tree.norm(gradient))

    (critic, state), (errors, norms) = jax.lax.scan(step, (critic, state), rows)
    return critic, state, {"loss": errors.mean(), "gradient": norms.mean(), "weights": optax.tree.norm(critic)}
