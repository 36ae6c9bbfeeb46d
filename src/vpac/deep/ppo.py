"""The random streams of an agent."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import jax.numpy as jnp
import numpy as np

from vpac.checks import MOST_STEPS, whole
from vpac.deep import update
from vpac.deep.assessment import Scene, Spread, Values, assess_spread, assess_value
from vpac.deep.budget import holder_of, price_path
from vpac.deep.diagnostics import LEARNED, Drift, Episodic
from vpac.deep.estimators import Trace
from vpac.deep.finiteness import NotFinite, finite
from vpac.deep.logs import History
from vpac.deep.networks import Gaussian, numpy_policy
from vpac.deep.normaliser import RewardScale, RunningMoments
from vpac.deep.options import Options
from vpac.deep.policy import NumpyPolicy
from vpac.deep.price import conditions_of
from vpac.deep.rollout import Context, Episode, Rollout, Stepper, paid, recently
from vpac.deep.spaces import Interface
from vpac.deep.update import Brain, Networks
from vpac.deep.vector import Backend, environments, remembering
from vpac.errors import UserError
from vpac.risk.budget import PricePath
from vpac.risk.schedules import as_schedule
from vpac.threads import one_blas_thread

__all__ = ["MVPIPPO", "PPO", "VAACPPO", "VPACPPO", "starts", "streams"]

STREAMS = ("policy weights", "value weights", "spread weights", "act", "policy", "value", "spread", "predict")
"""A variant has those of PPO and more, so that ψ = 0 is PPO bit for bit."""


LATER = {"score weights": 10, "score": 11, "luck weights": 12, "luck": 13}
"""Streams of critics that not every agent has; 8 and 9 are those of starts and of prices."""


def streams(seed: int, critics: Collection[str] = ()) -> dict[str, np.random.Generator]:
    """One generator for each purpose, independent of the others."""
    children = np.random.SeedSequence(seed).spawn(len(STREAMS))
    found = {name: np.random.default_rng(child) for name, child in zip(STREAMS, children, strict=True)}
    for name, key in LATER.items():
        if name.partition(" ")[0] in critics:
            found[name] = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(key,)))
    return found


def starts(seed: int, iteration: int, n: int) -> Any:
    """Seeds of `n` environments that begin anew in an iteration; the same whether or not the run was resumed."""
    return np.random.SeedSequence(seed, spawn_key=(len(STREAMS), iteration)).generate_state(n)


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
        update.prepare()
        self.options = Options.read(settings, preset)
        self.holder = holder_of(self.options.budget, self.spread is not None, type(self).__name__)
        """What holds the budget, if there is one."""
        if self.options.psi not in (0, "conditioned") and self.spread is None and not self.volatility:
            raise UserError(f"{type(self).__name__} has no price of variance, got psi={settings['psi']!r}: use VPACPPO")
        self.seed, self.preset = whole(seed, "seed"), preset
        self.memory: dict[str, Any] | None = None
        """Arguments of the `RememberReturn` around its environments, if it remembers."""
        if self.options.remember == "return":
            env, arguments, self.memory = remembering(env, arguments, self.options.envs, self.variance_gamma)
        self.environments = environments(env, self.options.envs, backend, arguments)
        self.interface = Interface.of(
            self.environments.observation_space, self.environments.action_space, self.environments.name
        )
        n = self.environments.n
        self.generators = {}
        self.conditions = conditions_of(self.options, self.seed, n, type(self).__name__, self.spread is not None)
        """The prices of the episodes underway, of a conditioned policy."""
        if self.conditions is not None:
            self.generators["prices"] = self.conditions.generator
        critics = self._critics()
        self.context = Context(self.options.time_aware, self.environments.limit, self.environments.critic_inputs)
        """What critics see and the policy does not."""
        self.generators |= streams(self.seed, critics)
        self.brain = Brain(self.interface, self.options, self.generators, critics, self.context.columns)
        self.seen = RunningMoments.of((self.interface.inputs,))
        self.rewards = RewardScale.of(self.options.reward_scale, self.options.gamma, n)
        self.trace = Trace.first(n)
        self.timesteps = self.iteration = self.episodes = 0
        self.history = History()
        """One row of numbers for each iteration; of a long run for every second, fourth, … and the last one."""
        self.recent: deque[Episode] = deque(maxlen=RECENT)
        """The last episodes."""
        self.drift, self.ledger = Drift(), Episodic()
        self._warned = False
        self.span = (0, 0)
        """Steps at which the present `learn` began and ends, for the decay of the rates."""
        self._stepper = Stepper(
            self.environments, self.interface, self.options.gamma, self.conditions, self.options.variance_gamma
        )
        self._fresh = True
        self._pending: dict[str, Any] = {}
        self._sources: dict[str, Any] = {}
        self._lived: dict[str, float] = {}

    def _critics(self) -> tuple[str, ...]:
        """Critics beside that of the value."""
        if self.spread is None:
            return ()
        o = self.options
        other, luck = o.variance_gamma is not None, o.luck_critic and o.form == "corrected"
        return ("spread", *(["score"] if other else []), *(["luck"] if luck else []))

    @property
    def networks(self) -> Networks:
        """Policy, value and spread, as they are now."""
        return self.brain.networks

    @property
    def variance_gamma(self) -> float:
        """Discount of the return whose variance has a price."""
        return self.options.gamma if self.options.variance_gamma is None else self.options.variance_gamma

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
        return self.full_psi * self._warmth()

    @property
    def full_psi(self) -> float:
        """ψ without its warm-up."""
        return float(as_schedule(self.options.psi, "psi").at(np.array([float(self.timesteps)]))[0])

    def _warmth(self) -> float:
        """The share of ψ that is asked now."""
        rise = self.options.psi_warm_up * self.span[1]
        steady = self.conditions is not None or isinstance(self.options.psi, float)
        return min(1.0, self.timesteps / rise) if steady and rise else 1.0

    @property
    def prices(self) -> PricePath:
        """With a budget: the multiplier ψ after each iteration and the variance that was seen; else nothing."""
        return price_path(self.history)

    def policy(self) -> NumpyPolicy:
        """The policy as it is now, in plain arrays: it runs without JAX, and `save` of it exports it."""
        within = None if self.conditions is None else self.conditions.within
        return numpy_policy(self.networks.policy, self.interface, self.seen, self.options, within, self.memory)

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
            from vpac.deep.logs import Display

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
                    from vpac.deep.storage import write_checkpoint

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
        scene = Scene.of(self.context.beside(rollout), rewards * scale)
        lam = o.gae_lambda if o.target_lambda is None else o.target_lambda
        values = assess_value(old.value, scene, gamma=o.gamma, lam=o.gae_lambda, target_lam=lam)
        weights, targets = values.advantage, {"value": values.target}
        told = {"explained_variance": values.explained}
        if old.spread is not None:
            spread, more = self._assess_spread(rollout, scene, values, lam, scale)
            weights, targets = spread.weights, targets | more
            told |= spread.numbers
        price = self.psi if rollout.prices is None else float(rollout.prices.mean())
        goals = {f"target of the {name} critic": target for name, target in targets.items()}
        self._sources = {"scaled reward": scene.rewards, **goals, "advantage": weights}
        told |= self.brain.improve(rollout.actions, scene, weights, targets, self._rate_share())
        self._pending = {
            **self._finite(told), "reward_scale": scale, "psi": price, "steps": float(rollout.valid.sum()),
        }  # fmt: skip
        if isinstance(old.policy, Gaussian):
            self._pending["std"] = float(np.exp(np.asarray(old.policy.log_std)).mean())
        self.rewards.add(rewards, rollout.running, rollout.valid)
        self.context.add(rollout)
        if not self.interface.discrete_observations:
            self.seen.add(rollout.raw[rollout.valid > 0.0])

    def _assess_spread(
        self, rollout: Rollout, scene: Scene, values: Values, lam: float, scale: float
    ) -> tuple[Spread, dict[str, Any]]:
        """What the critic of the spread makes of a rollout, and the targets of all critics that serve the variance."""
        o, old = self.options, self.networks
        assert old.spread is not None
        assert self.spread is not None
        how = {"gamma": self.variance_gamma, "lam": o.gae_lambda, "target_lam": lam}
        targets, priced = {}, values
        if old.score is not None:  # a score ends at the time limit
            scene = scene._replace(continues=scene.running)
            priced = assess_value(old.score, scene, **how)
            targets["score"] = priced.target
        psi = self.psi if rollout.prices is None else rollout.prices * self._warmth()
        psi = psi / scale if o.psi_units == "raw" or self.holder is not None else psi
        spread = assess_spread(
            old.spread, scene, values.advantage, priced, self.trace, self.ledger.before(), jnp.asarray(psi, jnp.float32),
            jnp.float32(scale), old.luck, kind=self.spread, form=o.form, weighting=o.weighting, variance_of=o.variance_of,
            **how,
        )  # fmt: skip
        self.trace = spread.trace
        self.ledger.add(spread.ledger)
        before, after = (np.asarray(luck, np.float64) for luck in spread.walk)
        self.drift.add(before, after, rollout.elapsed[:-1], rollout.valid, rollout.running)
        self._lived |= {**self.ledger.numbers, "luck_drift": self.drift.worst.share}
        late = self.iteration >= LEARNED and 2 * self.timesteps > self.span[1]
        if o.form == "corrected" and late and not self._warned:
            self._warned = self.drift.warn(float(np.mean(psi)) * scale)
        if rollout.prices is None:
            price = self.psi if self.holder is not None else self.full_psi
            price *= 1.0 if o.psi_units == "raw" or self.holder is not None else scale
            self._lived["objective"] = self._lived["return_mean"] - price * self._lived["priced_variance"]
        targets["spread"] = spread.target
        if old.luck is not None:
            targets["luck"] = spread.luck
        return spread, targets

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


class VPACPPO(PPO):
    """PPO whose actor pays ψ for the variance of the return, with a direct critic of it (Theorem 1 over states)."""

    spread = "variance"


class VAACPPO(PPO):
    """PPO with a variance-adjusted actor: its critic learns the second moment of the return."""

    spread = "moment"


class MVPIPPO(PPO):
    """Mean-variance policy iteration around PPO: `psi` prices the variance of a step's reward, not of the return.

    y, the mean reward of a step of the present policy, is that of the iteration's own steps, all alike, as PPO weighs them.
    """

    volatility = True
