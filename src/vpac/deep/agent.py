"""PPO once. Its variants (`variants.py`) say which critic of the spread they have; the rest is their penalty."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import jax.numpy as jnp
import numpy as np

from vpac.deep import compilation
from vpac.deep.assessment import Scene, assess_spread, assess_value
from vpac.deep.brain import Brain, Networks
from vpac.deep.conditioning import conditions_of
from vpac.deep.episodes import recently
from vpac.deep.estimators import Trace
from vpac.deep.finiteness import NotFinite, finite
from vpac.deep.history import History
from vpac.deep.holding import holder_of, price_path
from vpac.deep.making import numpy_policy
from vpac.deep.networks import Gaussian
from vpac.deep.normaliser import RewardScale, RunningMoments
from vpac.deep.options import Options
from vpac.deep.policy import NumpyPolicy
from vpac.deep.rollout import Rollout, paid
from vpac.deep.spaces import Interface
from vpac.deep.stepping import Stepper
from vpac.deep.streams import starts, streams
from vpac.deep.vector import Backend, environments
from vpac.errors import UserError
from vpac.learners.checks import MOST_STEPS, whole
from vpac.oracle.threads import one_blas_thread
from vpac.risk.budget_report import PricePath
from vpac.risk.schedules import as_schedule

__all__ = ["PPO"]

RECENT = 100
"""Episodes that the statistics of recent episodes speak of."""


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
    volatility: ClassVar[bool] = False
    """Whether ψ is a price of the variance of a step's reward (MVPI), which the reward pays."""

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
        self.holder = holder_of(self.options.budget, self.spread is not None, type(self).__name__)
        """What holds the budget, if there is one."""
        if self.options.psi not in (0, "conditioned") and self.spread is None and not self.volatility:
            raise UserError(f"{type(self).__name__} has no price of variance, got psi={settings['psi']!r}: use VPACPPO")
        self.seed, self.preset = whole(seed, "seed"), preset
        self.environments = environments(env, self.options.envs, backend, arguments)
        self.interface = Interface.of(
            self.environments.observation_space, self.environments.action_space, self.environments.name
        )
        n = self.environments.n
        self.generators = streams(self.seed)
        self.conditions = conditions_of(self.options, self.seed, n, type(self).__name__, self.spread is not None)
        """The prices of the episodes underway, of a conditioned policy."""
        if self.conditions is not None:
            self.generators["prices"] = self.conditions.generator
        self.brain = Brain(self.interface, self.options, self.generators, spread=self.spread is not None)
        self.seen = RunningMoments.of((self.interface.inputs,))
        self.rewards = RewardScale.of(self.options.reward_scale, self.options.gamma, n)
        self.trace = Trace.first(n)
        self.timesteps = self.iteration = self.episodes = 0
        self.history = History()
        """One row of numbers for each iteration; of a long run for every second, fourth, … and the last one."""
        self.recent: deque[tuple[float, float, float]] = deque(maxlen=RECENT)
        """(score, discounted return, length) of the last episodes."""
        self.span = (0, 0)
        """Steps at which the present `learn` began and ends, for the decay of the rates."""
        self._stepper = Stepper(self.environments, self.interface, self.options.gamma, self.conditions)
        self._fresh = True
        self._pending: dict[str, Any] = {}
        self._sources: dict[str, Any] = {}
        self._lived: dict[str, float] = {}

    @property
    def networks(self) -> Networks:
        """Policy, value and spread, as they are now."""
        return self.brain.networks

    @property
    def per_iteration(self) -> int:
        """Environment steps of an iteration."""
        return self.environments.n * self.options.steps

    @property
    def psi(self) -> float:
        """The price of variance now, in the units it was given in; with a budget in units of 1/reward; of a conditioned policy,
        the mean over environments."""
        if self.holder is not None:
            return self.holder.state.psi
        if self.conditions is not None:
            return float(self.conditions.now.mean())
        return float(as_schedule(self.options.psi, "psi").at(np.array([float(self.timesteps)]))[0])

    @property
    def prices(self) -> PricePath:
        """With a budget: the multiplier ψ after each iteration and the variance that was seen; else nothing."""
        return price_path(self.history)

    def policy(self) -> NumpyPolicy:
        """The policy as it is now, in plain arrays: it runs without JAX, and `save` of it exports it."""
        within = None if self.conditions is None else self.conditions.within
        return numpy_policy(self.networks.policy, self.interface, self.seen, self.options, within)

    def at(self, psi: float) -> NumpyPolicy:
        """The policy for a price of variance, in units of 1/reward; of an agent with psi="conditioned"."""
        return self.policy().at(psi)

    def act(self, observations: Any, generator: np.random.Generator | None, deterministic: bool = False) -> Any:
        """Actions for a batch of observations; the generator is all that is random."""
        return self.policy().act(observations, generator, deterministic)

    def predict(self, observation: Any, deterministic: bool = True) -> Any:
        """The action for an observation, or the actions for a batch of them."""
        found, batch = self.interface.batch(observation, self.environments.observation_space.shape or ())
        actions = self.act(found, self.generators["predict"], deterministic)
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
        total = whole(total_timesteps, "total_timesteps", most=MOST_STEPS)
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
            self._stepper.restart(starts(self.seed, number, self.environments.n))
            self.trace = Trace.first(self.environments.n)
            self.rewards.restart()
        done = self.timesteps + self._underway()
        self._fresh = True  # should this be interrupted
        with one_blas_thread():  # a few rows: more threads would only fight with the environments'
            try:
                rollout = self._stepper.collect(self.policy(), self.options.steps, self.generators["act"], done)
            except NotFinite as error:
                raise NotFinite(f"{error} (seed {self.seed})") from None
        self._fresh = False
        return rollout

    def _update(self, rollout: Rollout) -> None:
        """Learn from a rollout. The policy is new when this returns; the critics may still be learning."""
        ended = self._stepper.episodes.take()
        self.episodes += len(ended)
        self.recent.extend(ended)
        held = {} if self.holder is None else self.holder.look(self.timesteps, ended, self.recent)
        self._lived = {"episodes": float(self.episodes), **recently(self.recent), **held}
        o, old, scale = self.options, self.networks, self.rewards.value
        price = (self.psi if o.psi_units == "raw" else self.psi * scale) if self.volatility else 0.0
        rewards = paid(rollout, o.reward_floor, price)
        scene = Scene.of(rollout, rewards * scale)
        lam = o.gae_lambda if o.target_lambda is None else o.target_lambda
        how = {"gamma": o.gamma, "lam": o.gae_lambda, "target_lam": lam}
        values = assess_value(old.value, scene, **how)
        weights, spread = values.advantage, None
        if old.spread is not None and self.spread is not None:
            psi = self.psi if rollout.prices is None else rollout.prices
            psi = psi / scale if o.psi_units == "raw" or self.holder is not None else psi
            spread = assess_spread(
                old.spread, scene, values, self.trace, jnp.asarray(psi, jnp.float32), jnp.float32(scale), kind=self.spread,
                form=o.form, weighting=o.weighting, **how,
            )  # fmt: skip
            weights, self.trace = spread.weights, spread.trace
        price = self.psi if rollout.prices is None else float(rollout.prices.mean())
        targets = {"value": values.target} | ({} if spread is None else {"spread": spread.target})
        goals = {f"target of the {name} critic": target for name, target in targets.items()}
        self._sources = {"scaled reward": scene.rewards, **goals, "advantage": weights}
        told = self.brain.improve(rollout.actions, scene, weights, targets, self._rate_share())
        self._pending = {
            **self._finite(told), "reward_scale": scale, "psi": price, "steps": float(rollout.valid.sum()),
            "explained_variance": values.explained,
        }  # fmt: skip
        if isinstance(old.policy, Gaussian):
            self._pending["std"] = float(np.exp(np.asarray(old.policy.log_std)).mean())
        if spread is not None:
            self._pending |= {"predicted_variance": spread.predicted, "measured_variance": spread.measured}
        self.rewards.add(rewards, rollout.running, rollout.valid)
        if not self.interface.discrete_observations:
            self.seen.add(rollout.raw[rollout.valid > 0.0])

    def _rate_share(self) -> float:
        """What is left of the learning rates."""
        begin, end = self.span
        return 1.0 - (self.timesteps - begin) / (end - begin) if self.options.decay_learning_rate else 1.0

    def _finish(self, callback: Callable[[Self], bool | None] | None) -> bool:
        """Wait for the critics of the last update, look at its numbers and write them down."""
        if not self._pending:
            return True
        told, self._pending = self._finite(self._pending | self.brain.finish()), {}
        self.timesteps += self.per_iteration
        self.iteration += 1
        self.history.add(self.iteration, {"timesteps": float(self.timesteps), **self._lived, **told})
        return callback is None or callback(self) is not False

    def _finite(self, numbers: dict[str, Any]) -> dict[str, float]:
        """An update's numbers, all finite; else the networks are those from before it again."""
        try:
            return finite(numbers, self._sources)
        except NotFinite as error:
            self.brain.revert()
            self._pending = {}
            raise NotFinite(
                f"{error} in the iteration after step {self.timesteps} (seed {self.seed}); the agent keeps the networks it had "
                "before; a smaller learning rate, a smaller ψ or smaller rewards may help"
            ) from None

    def save(self, path: Path | str) -> Path:
        """Write the agent into a folder: agent.json and weights.safetensors, and its policy for NumPy alone."""
        from vpac.deep.storage import save

        return save(self, Path(path))

    @classmethod
    def load(cls, path: Path | str, env: Any = None) -> Self:
        """An agent that `save` wrote; runs no stored code. `env` replaces the environment it was saved with."""
        from vpac.deep.storage import load

        return load(cls, Path(path), env)
