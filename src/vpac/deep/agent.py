"""PPO once. VPACPPO and VAACPPO say which critic of the spread they have; the rest is their penalty."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self

import jax.numpy as jnp
import numpy as np
from threadpoolctl import threadpool_limits

from vpac.deep import compilation
from vpac.deep.assessment import Scene, assess_spread, assess_value
from vpac.deep.estimators import Trace
from vpac.deep.making import make_critic, make_policy
from vpac.deep.networks import Critic, Gaussian, Policy
from vpac.deep.normaliser import RewardScale, RunningMoments
from vpac.deep.options import Options
from vpac.deep.policy import NumpyPolicy
from vpac.deep.ppo import Lesson, Optimiser, improve_policy, regress
from vpac.deep.rollout import NotFinite, Rollout, Stepper
from vpac.deep.spaces import Interface
from vpac.deep.vector import Backend, environments
from vpac.learners.checks import whole
from vpac.risk.schedules import as_schedule

__all__ = ["PPO", "VAACPPO", "VPACPPO", "Networks"]

STREAMS = ("policy weights", "value weights", "spread weights", "act", "policy", "value", "spread", "predict")
"""Independent random streams of an agent; a variant has those of PPO and more, so that ψ = 0 is PPO bit for bit."""
RECENT = 100
"""Episodes that the statistics of recent episodes speak of."""


class Networks(NamedTuple):
    """Everything that learns, with the optimisers' states. A new one is made in each iteration; old ones stay as they were."""

    policy: Policy
    value: Critic
    spread: Critic | None
    policy_state: Any
    value_state: Any
    spread_state: Any


class PPO:
    """Proximal policy optimisation.

    Args:
        env: a Gymnasium id, an import path, an environment, its class, a function that makes one, a `FiniteMDP`, or a vector
            environment; with Box or Discrete observations and actions.
        seed: of everything random in it; the same seed gives the same result.
        preset: "default" (today's good practice) or "paper".
        backend: "envpool" steps the MuJoCo tasks many times as fast as "gymnasium"; "auto" takes it where it can.
        arguments: of the environment, with an id, a class or a function.
        settings: any of the fields of `Options`.
    """

    spread: ClassVar[Literal["variance", "moment"] | None] = None
    """What the critic of the spread learns."""

    def __init__(
        self,
        env: Any,
        *,
        seed: int = 0,
        preset: str = "default",
        backend: Backend = "auto",
        arguments: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        compilation.prepare()
        self.options = Options.read(settings, preset)
        self.seed, self.preset = whole(seed, "seed"), preset
        self.environments = environments(env, self.options.envs, backend, arguments)
        self.interface = Interface.of(
            self.environments.observation_space, self.environments.action_space, self.environments.name
        )
        n = self.environments.n
        spawned = zip(STREAMS, np.random.SeedSequence(self.seed).spawn(len(STREAMS)), strict=True)
        self.generators = {name: np.random.default_rng(child) for name, child in spawned}
        self.networks = self._first_networks()
        self.seen = RunningMoments.of((self.interface.inputs,))
        self.rewards = RewardScale.of(self.options.reward_scale, self.options.gamma, n)
        self.trace = Trace.first(n)
        self.timesteps = self.iteration = self.episodes = 0
        self.history: list[dict[str, float]] = []
        """One row of numbers for each iteration."""
        self.recent: deque[tuple[float, float, float]] = deque(maxlen=RECENT)
        """(score, discounted return, length) of the last episodes."""
        self.span = (0, 0)
        """Steps at which the present `learn` began and ends, for the decay of the rates."""
        self._stepper = Stepper(self.environments, self.options.gamma)
        self._fresh = True
        self._pending: dict[str, Any] = {}
        self._threads = ThreadPoolExecutor(2, "critic")
        self._learning: dict[str, Future[Any]] = {}

    def _first_networks(self) -> Networks:
        o, g = self.options, self.generators
        policy = make_policy(g["policy weights"], self.interface, o)
        value = make_critic(g["value weights"], self.interface, o, positive=False)
        spread = None if self.spread is None else make_critic(g["spread weights"], self.interface, o, positive=True)
        actor, critic = self._optimisers()
        spread_state = None if spread is None else critic.start(spread)
        return Networks(policy, value, spread, actor.start(policy), critic.start(value), spread_state)

    def _optimisers(self) -> tuple[Optimiser, Optimiser]:
        o = self.options
        return (
            Optimiser(o.max_grad_norm, o.weight_decay, o.adam_eps),
            Optimiser(o.critic_max_grad_norm, o.weight_decay, o.adam_eps),
        )

    @property
    def per_iteration(self) -> int:
        """Environment steps of an iteration."""
        return self.environments.n * self.options.steps

    @property
    def psi(self) -> float:
        """The price of variance now, in the units it was given in."""
        return float(as_schedule(self.options.psi, "psi").at(np.array([float(self.timesteps)]))[0])

    def policy(self) -> NumpyPolicy:
        """The policy as it is now, in plain arrays: it runs without JAX, and `save` of it exports it."""
        policy, seen = self.networks.policy, self.seen
        scale = 1.0 / np.sqrt(seen.variance + 1e-8)
        return NumpyPolicy(
            self.interface,
            [np.asarray(W) for W in policy.net.weights],
            [np.asarray(b) for b in policy.net.biases],
            policy.net.activation,
            np.asarray(policy.log_std) if isinstance(policy, Gaussian) else None,
            seen.mean.astype(np.float32),
            scale.astype(np.float32),
            self.options.normalise_observations,
            self.options.gamma,
        )

    def act(self, observations: Any, generator: np.random.Generator | None, deterministic: bool = False) -> Any:
        """Actions for a batch of observations; the generator is all that is random."""
        return self.policy().act(observations, generator, deterministic)

    def predict(self, observation: Any, deterministic: bool = True) -> Any:
        """The action for an observation, or the actions for a batch of them."""
        space = self.environments.observation_space
        batch = np.ndim(observation) > len(space.shape or ())
        rows = np.asarray(observation) if batch else np.asarray(observation)[None]
        actions = self.act(rows, self.generators["predict"], deterministic)
        return actions if batch else actions[0]

    def learn(
        self,
        total_timesteps: int,
        *,
        callback: Callable[[Self], bool | None] | None = None,
        progress: bool = False,
        checkpoints: Path | str | None = None,
        resuming: bool = False,
        kept: Callable[[], object] | None = None,
    ) -> Self:
        """Learn from so many more environment steps, in whole iterations.

        Args:
            total_timesteps: how many.
            callback: called with the agent after every iteration, whose numbers are `history[-1]`; learning stops if it
                returns False.
            progress: show a live display on standard error.
            checkpoints: a folder for checkpoints, one after every `checkpoint_every` iterations; the last two are kept.
            kept: called after each checkpoint.
            resuming: go on with the `learn` that a loaded checkpoint was part of: `total_timesteps` is its total.
        """
        if progress:
            from vpac.deep.display import Display

            with Display(self, total_timesteps, callback) as display:
                return self.learn(
                    total_timesteps, callback=display, checkpoints=checkpoints, resuming=resuming, kept=kept
                )
        total = whole(total_timesteps, "total_timesteps")
        begin = self.span[0] if resuming else self.timesteps
        self.span = (begin, begin + -(-total // self.per_iteration) * self.per_iteration)
        going = True
        while going and self.timesteps + self._underway() < self.span[1]:
            rollout = self._collect()
            going = self._finish(callback)
            if going:
                self._update(rollout)
            due = (self.iteration + 1) % self.options.checkpoint_every == 0
            if due and self._pending:
                going = self._finish(callback)
                self._fresh = True
                if checkpoints is not None:
                    from vpac.deep.checkpoint import write_checkpoint

                    write_checkpoint(self, Path(checkpoints))
                    if kept is not None:
                        kept()
        self._finish(callback)
        self._fresh = True
        return self

    def _underway(self) -> int:
        """Steps that were learned from and are not yet counted."""
        return self.per_iteration if self._pending else 0

    def _collect(self) -> Rollout:
        """Let the policy act."""
        if self._fresh or self.options.reset_every_iteration:
            number = self.iteration + bool(self._pending)
            self._stepper.restart(np.random.SeedSequence(self.seed, spawn_key=(len(STREAMS), number)).generate_state(
                self.environments.n
            ))  # fmt: skip
            self.trace, self._fresh = Trace.first(self.environments.n), False
            self.rewards.restart()
        done = self.timesteps + self._underway()
        with threadpool_limits(1, "blas"):  # a few rows: more threads would only fight with the environments'
            try:
                return self._stepper.collect(self.policy(), self.options.steps, self.generators["act"], done)
            except NotFinite as error:
                raise NotFinite(f"{error} (seed {self.seed})") from None

    def _update(self, rollout: Rollout) -> None:
        """Learn from a rollout. The policy is new when this returns; the critics may still be learning."""
        o, old, scale = self.options, self.networks, self.rewards.value
        rewards = rollout.rewards if o.reward_floor is None else np.maximum(rollout.rewards, o.reward_floor)
        scene = Scene(
            jnp.asarray(rollout.observations),
            None if rollout.successors is None else jnp.asarray(rollout.successors),
            jnp.asarray(rewards * scale * rollout.valid, jnp.float32),
            *(jnp.asarray(x) for x in (rollout.continues, rollout.running, rollout.valid)),
        )
        lam = o.gae_lambda if o.target_lambda is None else o.target_lambda
        how = {"gamma": o.gamma, "lam": o.gae_lambda, "target_lam": lam}
        values = assess_value(old.value, scene, **how)
        weights, spread = values.advantage, None
        if old.spread is not None and self.spread is not None:
            psi = self.psi / scale if o.psi_units == "raw" else self.psi
            spread = assess_spread(
                old.spread, scene, values, self.trace, jnp.float32(psi), jnp.float32(scale), kind=self.spread, form=o.form,
                weighting=o.weighting, **how,
            )  # fmt: skip
            weights, self.trace = spread.weights, spread.trace
        self._improve(rollout, scene, weights, values.target, None if spread is None else spread.target)
        self._pending |= {"reward_scale": scale, "psi": self.psi, "steps": float(rollout.valid.sum())}
        self._pending["explained_variance"] = values.explained
        if isinstance(old.policy, Gaussian):
            self._pending["std"] = jnp.exp(old.policy.log_std).mean()
        if spread is not None:
            self._pending |= {"predicted_variance": spread.predicted, "measured_variance": spread.measured}
        self.rewards.add(rewards, rollout.running, rollout.valid)
        self.seen.add(rollout.raw[rollout.valid > 0.0])

    def _improve(self, rollout: Rollout, scene: Scene, weights: Any, target: Any, spread_target: Any) -> None:
        o, old = self.options, self.networks
        actor, critic = self._optimisers()
        seen, valid = _flat(scene.observations[:-1]), _flat(scene.valid)
        lesson = Lesson(seen, _flat(jnp.asarray(rollout.actions)), jnp.zeros_like(valid), _flat(weights), valid)
        share = self._rate_share()
        rate = jnp.float32(o.learning_rate * share)
        critic_rate = jnp.float32((o.critic_learning_rate or o.learning_rate) * share)
        learn = partial(
            self._threads.submit, regress, observations=seen, valid=valid, rate=critic_rate, optimiser=critic
        )
        self._learning["value"] = learn(old.value, old.value_state, targets=_flat(target), rows=self._rows("value"))
        if old.spread is not None:
            self._learning["spread"] = learn(
                old.spread, old.spread_state, targets=_flat(spread_target), rows=self._rows("spread")
            )
        policy, policy_state, told = improve_policy(
            old.policy, old.policy_state, lesson, self._rows("policy"), rate, optimiser=actor, clip=o.clip,
            entropy=o.entropy, target_kl=o.target_kl, normalise=o.normalise_advantages,
        )  # fmt: skip
        self._good = old
        self.networks = old._replace(policy=policy, policy_state=policy_state)
        self._pending = self._finite(told) | {"learning_rate": float(rate)}

    def _rate_share(self) -> float:
        """What is left of the learning rates."""
        begin, end = self.span
        return 1.0 - (self.timesteps - begin) / (end - begin) if self.options.decay_learning_rate else 1.0

    def _rows(self, name: str) -> Any:
        """Minibatches of this iteration, [gradient step, sample], from the network's own stream."""
        o, rng = self.options, self.generators[name]
        samples = self.per_iteration
        size = min(o.minibatch, samples)
        count = samples // size if o.minibatches is None else min(o.minibatches, samples // size)
        return jnp.asarray(
            np.concatenate([rng.permutation(samples)[: count * size].reshape(count, size) for _ in range(o.epochs)])
        )

    def _finish(self, callback: Callable[[Self], bool | None] | None) -> bool:
        """Wait for the critics of the last update, look at its numbers and write them down."""
        if not self._pending:
            return True
        for name, learning in self._learning.items():
            critic, state, said = learning.result()
            self.networks = self.networks._replace(**{name: critic, f"{name}_state": state})
            self._pending |= {f"{name}_{what}": number for what, number in said.items()}
        told, self._pending, self._learning = self._finite(self._pending), {}, {}
        self.timesteps += self.per_iteration
        self.iteration += 1
        ended = self._stepper.episodes.take()
        self.episodes += len(ended)
        self.recent.extend(ended)
        self.history.append(
            {"timesteps": float(self.timesteps), "episodes": float(self.episodes), **self._recently(), **told}
        )
        return callback is None or callback(self) is not False

    def _finite(self, numbers: dict[str, Any]) -> dict[str, float]:
        """An update's numbers, all finite; else the networks are those from before it again."""
        told = {name: float(number) for name, number in numbers.items()}
        for name, number in told.items():
            if not np.isfinite(number):
                self.networks, self._pending, self._learning = self._good, {}, {}
                raise NotFinite(
                    f"the {name.replace('_', ' ')} is not finite in the iteration after step {self.timesteps} (seed "
                    f"{self.seed}); the agent keeps the networks it had before; a smaller learning rate or a smaller ψ may help"
                )
        return told

    def _recently(self) -> dict[str, float]:
        """Mean and variance of recent episodes; NaN before the first has ended."""
        score, sums, lengths = np.array(self.recent).reshape(-1, 3).T if self.recent else np.full((3, 1), np.nan)
        return {
            "score_mean": float(score.mean()), "score_variance": float(score.var()), "return_mean": float(sums.mean()),
            "return_variance": float(sums.var()), "length_mean": float(lengths.mean()),
        }  # fmt: skip

    def save(self, path: Path | str) -> Path:
        """Write the agent into a folder: agent.json and weights.safetensors, and its policy for NumPy alone."""
        from vpac.deep.storage import save

        return save(self, Path(path))

    @classmethod
    def load(cls, path: Path | str, env: Any = None) -> Self:
        """An agent that `save` wrote; runs no stored code. `env` replaces the environment it was saved with."""
        from vpac.deep.storage import load

        return load(cls, Path(path), env)


def _flat(rows: Any) -> Any:
    """[time, environment, …] as [sample, …]."""
    return rows.reshape(-1, *rows.shape[2:])


class VPACPPO(PPO):
    """PPO whose actor pays ψ for the variance of the return, with a direct critic of it (Theorem 1 over states)."""

    spread = "variance"


class VAACPPO(PPO):
    """PPO with a variance-adjusted actor: its critic learns the second moment of the return."""

    spread = "moment"
