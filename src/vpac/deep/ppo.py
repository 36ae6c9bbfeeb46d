"""Proximal policy optimisation, and the variants that penalise the variance of the return with ψ.

Every iteration (Appendix E of the paper, whose equations have no numbers; (1) to (3) are those of docs/corrections.md):

    collect     T steps of π in n environments: a rollout
    estimate    δ_t = R + γ V(S') − V(S)            A_V = Σ_l (γλ)^l δ_{t+l}
                δ̄_t = δ_t² + γ̄ σ(S') − σ(S)         A_σ = Σ_l (γ̄λ)^l δ̄_{t+l},   γ̄ = γ²
                w = A_V − ψ · penalty               penalty = A_σ as published; corrected, (2) and (3)
    improve     π maximises E[min(ρ w, clip(ρ, 1−ε, 1+ε) w)],  ρ = π/π_old;  each critic is fitted to its targets

Variants differ in the penalty: PPO has none, VPACPPO learns σ, VAACPPO M = σ + V², MVPIPPO changes the reward.
`estimators` and `penalties` have one function for each of these equations.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from vpac.checks import MOST_TRAINING_STEPS, whole
from vpac.deep import diagnostics
from vpac.deep.collect import RECENT, Collector, Episode, Rollout, episode_metrics
from vpac.deep.diagnostics import LEARNED, EpisodeWindow, LuckDriftMonitor, NoEpisodeEnded, NotFinite, check_finite
from vpac.deep.estimate import Batch, EpisodeSums, MeasureEstimate, SpreadEstimate, estimate_update
from vpac.deep.estimators import EpisodeTrace
from vpac.deep.improve import Networks, Updater, configure_jax
from vpac.deep.logs import MetricsHistory
from vpac.deep.normaliser import CriticContext, RewardScale, RunningMoments
from vpac.deep.options import PPOOptions
from vpac.deep.policy import NumpyPolicy
from vpac.deep.price import EpisodePrices, PriceController, PriceRange, looks_of, price_path
from vpac.deep.spaces import Interface, numbers_of
from vpac.envs.functional import FunctionalEnvironments
from vpac.envs.vector import EnvBackend, environments, remembering
from vpac.errors import UserError
from vpac.interruption import is_asked
from vpac.risk.budget import Budget, PricePath
from vpac.risk.schedules import as_schedule
from vpac.saved import frozen, revived
from vpac.threads import one_blas_thread

STREAMS = ("policy weights", "value weights", "spread weights", "act", "policy", "value", "spread", "predict")
"""Random streams of every agent. A variant adds streams to those of PPO, so that ψ = 0 is PPO bit for bit."""
START_STREAM, PRICE_STREAM = 8, 9
CRITIC_STREAMS = {"score weights": 10, "score": 11, "luck weights": 12, "luck": 13}
"""Streams of critics that only some agents have."""
FRAMES = 256
"""Images per iteration that update their normaliser."""


def stream(seed: int, *key: int) -> np.random.SeedSequence:
    """The seed sequence of a stream, independent of the others."""
    return np.random.SeedSequence(seed, spawn_key=key)


def streams(seed: int, critics: Collection[str] = ()) -> dict[str, np.random.Generator]:
    """A generator for each purpose, for an agent with these critics besides the value critic."""
    keys = {name: key for key, name in enumerate(STREAMS)}
    keys |= {name: key for name, key in CRITIC_STREAMS.items() if name.partition(" ")[0] in critics}
    return {name: np.random.default_rng(stream(seed, key)) for name, key in keys.items()}


class UpdateInputs(NamedTuple):
    """Inputs of an update."""

    batch: Batch
    rewards: Any
    """Rewards before scaling."""
    weights: Any
    """Weights of ∇log π."""
    targets: dict[str, Any]
    """Targets of each critic."""
    metrics: dict[str, Any]

    @property
    def by_name(self) -> dict[str, Any]:
        """The arrays of the update by their names in messages, causes before consequences."""
        targets = {f"target of the {name} critic": target for name, target in self.targets.items()}
        return {"scaled reward": self.batch.rewards, **targets, "advantage": self.weights}


class PPO:
    """Proximal policy optimisation.

    Args:
        env: a Gymnasium id, an import path, an environment, its class, a function that makes one, a `FiniteMDP`, or a vector
            environment; observations may have an image, actions several parts or a mask (docs/your-environment.md).
        seed: seed of all randomness; the same seed gives the same result.
        preset: "default" (current practice) or "paper".
        backend: "envpool" steps the MuJoCo tasks many times as fast as "gymnasium"; "auto" uses it where possible.
        arguments: arguments of the environment, with an id, a class or a function.
        settings: any of the fields of `PPOOptions`.
    """

    spread: Literal["variance", "moment", "measure"] | None = None
    """Target of the spread critic; "measure": quantiles or nothing, for a measure penalised by its influence function."""
    volatility: bool = False
    """Whether the penalty is subtracted from the rewards (MVPI: for the variance of the reward per step)."""

    def __init__(
        self, env: Any, *, seed: int = 0, preset: str = "default", backend: EnvBackend = "auto",
        arguments: dict[str, Any] | None = None, **settings: Any,
    ) -> None:  # fmt: skip
        configure_jax()
        self.options = o = PPOOptions.read(settings, preset)
        self._check_price(settings)
        if self.spread == "variance" and o.penalty == "volatility":
            self.spread, self.volatility = None, True
        elif o.measure is not None:
            self.spread = "measure"
        self.seed, self.preset = whole(seed, "seed"), preset
        self.memory: dict[str, Any] | None = None
        """Arguments of the `RememberReturn` around its environments, if there is one."""
        if o.remember == "return":
            env, arguments, self.memory = remembering(env, arguments, o.envs, self.variance_gamma)
        self._env = env
        self.environments = envs = environments(env, o.envs, backend, arguments, o.action_masks)
        self.interface = Interface.of(envs.observation_space, envs.action_space, envs.name)
        if isinstance(envs, FunctionalEnvironments):
            self._check_compilable()
        self.context = CriticContext(o.time_aware, envs.limit, envs.critic_inputs)
        """Inputs of the critics that the policy does not have."""
        self.controller = PriceController(o.budget) if isinstance(o.budget, Budget) else None
        """Adjusts ψ, with a budget."""
        self.generators = {}
        self.episode_prices: EpisodePrices | None = None
        """ψ of the unfinished episodes, for a conditioned policy."""
        if o.conditioned:
            self.generators["prices"] = np.random.default_rng(stream(self.seed, PRICE_STREAM))
            within = PriceRange.read(o.psi_range)
            self.episode_prices = EpisodePrices(within, envs.n, self.generators["prices"])
        critics = self._critics()
        self.generators |= streams(self.seed, critics)
        self.updater = Updater(self.interface, o, self.generators, critics, self.context.columns)
        self.observation_moments = RunningMoments.of((self.interface.inputs,))
        self.pixel_moments = RunningMoments.of((self.interface.sides[-1] if self.interface.image else 0,))
        """Moments of each channel of an image."""
        self.reward_scale = RewardScale.of(o.reward_scale, o.gamma, envs.n)
        self.trace = EpisodeTrace.first(envs.n)
        self.drift, self.window = LuckDriftMonitor(), EpisodeWindow(o.luck_episodes)
        self.timesteps = self.iteration = self.episodes = 0
        self.history = MetricsHistory()
        """One row of metrics for each iteration; in a long run for every second, fourth, … and the last one."""
        self.recent: deque[Episode] = deque(maxlen=RECENT)
        """The last finished episodes."""
        self.span = (0, 0)
        """First and last step of the current `learn`, for the decay of the learning rates."""
        self._collector = Collector(envs, self.interface, o.gamma, self.episode_prices, o.variance_gamma)
        self.diverged: NotFinite | None = None
        """The error that stopped it in `learn_many`, if any."""
        self._restart, self._warned, self._noted_missing = True, False, False
        self.restarted = 0
        """The iteration before which the environments were last restarted."""
        self.env_states: list[Any] = []
        """States of the unfinished episodes, as arrays, in environments that are pure functions."""
        self._episode_metrics: dict[str, float] = {}
        self._ended: list[Episode] = []
        """Episodes finished in the last rollout."""
        self._update_metrics: dict[str, Any] = {}
        """Metrics of an update that is not yet in the history; its critics may still be learning."""

    def _check_compilable(self) -> None:
        """Reject what `compiled` cannot train."""
        name, seen = self.environments.name, self.interface
        if seen.image or seen.masked or seen.choices:
            raise UserError(f"{name}: environments in JAX have no images, masks or actions of several parts yet")
        for part in ("_collect", "_estimate", "_improve"):
            if getattr(type(self), part) is not getattr(PPO, part):
                raise UserError(
                    f"{type(self).__name__} overrides {part}, which a compiled training does not call: use an environment that "
                    f"is stepped in Python instead of {name} (an id without `jax:`)"
                )

    def _check_price(self, settings: dict[str, Any]) -> None:
        """Reject a ψ that would have no effect."""
        o, name = self.options, type(self).__name__
        if self.spread is None and o.budget is not None:
            raise UserError(f"{name} has no price of variance and cannot hold a budget: use VPACPPO")
        if self.spread is None and o.conditioned:
            raise UserError(f'{name} has no price of variance to condition on: use VPACPPO for psi="conditioned"')
        if self.spread is None and not self.volatility and o.psi != 0:
            raise UserError(f"{name} has no price of variance, got psi={settings['psi']!r}: use VPACPPO")
        charged = "volatility" if self.volatility else "variance"
        if self.spread != "variance" and (o.penalty not in ("variance", charged) or o.penalty_critic != "auto"):
            raise UserError(f"{name} has no choice of what is penalised, got {o.penalty_asked}: use VPACPPO")
        if (self.spread is not None or self.volatility) and not {"psi", "budget"} & settings.keys():
            raise UserError(
                f"{name} needs a price of variance, psi=…, in units of 1/reward, or a budget, e.g. budget=Budget(max_std=2). "
                "`vpac frontier ENV --risk-aversion 0.1,0.3,1` says which psi that is; psi=0, or PPO, is risk-neutral"
            )

    def _critics(self) -> tuple[str, ...]:
        """Critics besides the value critic."""
        if self.spread is None:
            return ()
        o = self.options
        if self.spread == "measure":
            return () if o.penalty_critic == "none" else ("spread",)
        other, luck = o.variance_gamma is not None, o.luck_critic and o.form == "corrected"
        return ("spread", *(["score"] if other else []), *(["luck"] if luck else []))

    def learn(
        self, total_timesteps: int, *, callback: Callable[[Self], bool | None] | None = None, progress: bool = False,
        checkpoints: Path | str | None = None, resuming: bool = False, kept: Callable[[], object] | None = None,
    ) -> Self:  # fmt: skip
        """Learn for `total_timesteps` more environment steps, rounded up to whole iterations.

        Args:
            total_timesteps: number of steps.
            callback: called with the agent after every iteration, whose metrics are `history[-1]`; learning stops if it
                returns False.
            progress: show a live display on standard error.
            checkpoints: a folder for checkpoints, one after every `checkpoint_every` iterations; the last two are kept.
            kept: called after each checkpoint.
            resuming: continue the `learn` of a loaded checkpoint: `total_timesteps` is its total.
        """
        if progress:
            from vpac.deep.logs import ProgressDisplay

            with ProgressDisplay(self, total_timesteps, callback) as display:
                how: dict[str, Any] = {"checkpoints": checkpoints, "resuming": resuming, "kept": kept}
                return self.learn(total_timesteps, callback=display, **how)
        self.begin(total_timesteps, resuming)
        if isinstance(self.environments, FunctionalEnvironments):
            return self._learn_compiled(callback, checkpoints, kept)
        going = True
        while going and self._steps_taken() < self.span[1]:
            rollout = self._collect()  # meanwhile the critics learn from the previous rollout
            going = self._record(callback)
            if going:
                self._improve(rollout, self._estimate(rollout))
            due = (self.iteration + 1) % self.options.checkpoint_every == 0
            if self._update_metrics and (due or is_asked()):  # a stopped training stops after this iteration
                going = self._record(callback)
                self._restart = due and (self.options.reset_every_iteration or self._collector.may_restart)
                self.checkpoint(checkpoints, kept)
        self._record(callback)
        self._note_missing_scores()
        self._restart = True
        return self

    def _collect(self) -> Rollout:
        """Let the policy act in all environments for an iteration's steps."""
        if self._restart or self.options.reset_every_iteration:
            self.restarted, n = self.iteration + bool(self._update_metrics), self.environments.n
            self._collector.restart(self._start_seeds())
            self.trace = EpisodeTrace.first(n)
            self.reward_scale.restart()
        self._restart = True  # in case of an interruption
        with one_blas_thread():  # for a few rows more threads would only compete with the environments
            try:
                act, done = self.generators["act"], self._steps_taken()
                rollout = self._collector.collect(self.policy(), self.options.steps, act, done)
            except NotFinite as error:
                raise NotFinite(f"{error} (seed {self.seed})") from None
        self._restart = False
        return rollout

    def _estimate(self, rollout: Rollout) -> UpdateInputs:
        """Estimate advantages, the critics' targets and the policy's weights w = A_V − ψ · penalty."""
        self._count_episodes()
        o, scale = self.options, self.reward_scale.value
        rewards = rollout.training_rewards(o.reward_floor, self.raw_psi(self.psi) if self.volatility else None)
        batch = Batch.of(self.context.beside(rollout), rewards * scale)
        asked = self.psi if rollout.prices is None else rollout.prices * self.warm_up_at(self.timesteps)
        unit = scale**o.price_power if o.psi_units == "raw" or self.controller is not None else 1.0
        psi = asked / unit
        weights, targets, metrics, spread = estimate_update(
            self.networks, batch, self.trace, EpisodeSums(*np.asarray(self.window.sums, np.float32)),
            jnp.asarray(psi, jnp.float32), jnp.float32(scale), kind=self.spread, options=o,
            law=self._recent_law() if self.spread == "measure" else None,
        )  # fmt: skip
        if spread is not None:
            self.trace = spread.trace
        if isinstance(spread, MeasureEstimate):
            known, price = self._episode_metrics, self.raw_psi(self.full_psi)
            known["objective"] = known["return_mean"] - price * float(metrics["penalty_value"])
        elif spread is not None:
            self._diagnose(rollout, spread, float(np.mean(psi)) * scale)
        return UpdateInputs(batch, rewards, weights, targets, metrics)

    def _improve(self, rollout: Rollout, inputs: UpdateInputs) -> None:
        """Improve the policy and start fitting the critics; then update the normalisers."""
        self._inputs, log_std = inputs, getattr(self.networks.policy, "log_std", None)
        share = self.rate_share_at(self.timesteps)
        metrics = self.updater.improve(rollout.actions, inputs.batch, inputs.weights, inputs.targets, share)
        self._update_metrics = {
            **self._checked(inputs.metrics | metrics),
            "reward_scale": self.reward_scale.value,
            "psi": self.psi if rollout.prices is None else float(rollout.prices.mean()),
            "steps": float(rollout.valid.sum()),
        }
        if log_std is not None:
            self._update_metrics["std"] = float(np.exp(np.asarray(log_std)).mean())
        self.reward_scale.add(inputs.rewards, rollout.running, rollout.valid)
        self.context.add(rollout)
        if not self.interface.discrete_observations:
            numbers = numbers_of(rollout.raw)[:-1][rollout.valid > 0.0]
            self.observation_moments = self.observation_moments.joined(numbers)
        if self.interface.image:
            seen = rollout.raw["pixels"][:-1][rollout.valid > 0.0]
            few = seen[:: max(1, len(seen) // FRAMES)].reshape(-1, seen.shape[-1])
            self.pixel_moments = self.pixel_moments.joined(few)

    def _record(self, callback: Callable[[Self], bool | None] | None) -> bool:
        """Wait for the critics of the last update and record its metrics; returns whether to continue."""
        if not self._update_metrics:
            return True
        metrics, self._update_metrics = self._checked(self._update_metrics | self.updater.finish()), {}
        self.timesteps += self.per_iteration
        self.iteration += 1
        self.history.add(self.iteration, {"timesteps": float(self.timesteps), **self._episode_metrics, **metrics})
        return callback is None or callback(self) is not False

    def begin(self, total_timesteps: int, resuming: bool = False) -> None:
        """Set the first and last step of the current `learn`."""
        total = whole(total_timesteps, "total_timesteps", most=MOST_TRAINING_STEPS)
        self._restart |= not resuming
        self.env_states = self.env_states if resuming else []
        begin = self.span[0] if resuming else self.timesteps
        self.span = (begin, begin + -(-total // self.per_iteration) * self.per_iteration)
        if self.controller is not None:
            self.controller.plan(self.span)

    def _learn_compiled(
        self,
        callback: Callable[[Self], bool | None] | None,
        checkpoints: Path | str | None,
        kept: Callable[[], object] | None,
    ) -> Self:
        """`learn` in an environment that is a pure function: many iterations per call, or one with a `callback`."""
        from vpac.deep.compiled import CompiledTraining

        training, going = CompiledTraining(self), True
        while going and training.left:
            training.advance(1 if callback else training.left)
            going = callback is None or callback(self) is not False
            if self.iteration % self.options.checkpoint_every == 0:
                self.checkpoint(checkpoints, kept)
        return self

    def _note_missing_scores(self) -> None:
        """Warn once that no episode has ended so far, and say what to do."""
        if self._noted_missing or not self.history or not np.isnan(self.history[-1]["score_mean"]):
            return
        self._noted_missing, taken = True, self.timesteps // self.environments.n
        advice = "episodes go on across checkpoints; if they never end, cut them off with max_episode_steps=N"
        if self.options.reset_every_iteration:
            taken, advice = self.options.steps, "each iteration begins new ones: raise steps, or cut them off earlier"
        warnings.warn(
            f"no episode of {self.environments.name} has ended in {taken:,} steps of each environment, so that scores are not "
            f"known; {advice}",
            NoEpisodeEnded,
            stacklevel=3,
        )

    def checkpoint(self, folder: Path | str | None, kept: Callable[[], object] | None) -> None:
        """Write a checkpoint, if a folder is given."""
        self._note_missing_scores()
        if folder is not None:
            from vpac.deep.checkpoint import write_checkpoint

            write_checkpoint(self, Path(folder))
            if kept is not None:
                kept()

    @classmethod
    def learn_many(cls, env: Any, total_timesteps: int, *, seeds: Iterable[int], **how: Any) -> list[Self]:
        """Train an agent for each seed and each `psi=[…]` in one compiled program; see `compiled.learn_many`."""
        from vpac.deep.compiled import learn_many

        return learn_many(cls, env, total_timesteps, seeds=seeds, **how)

    def _start_seeds(self) -> Any:
        """Seeds of the environments at their last restart."""
        return stream(self.seed, START_STREAM, self.restarted).generate_state(self.environments.n)

    def underway(self) -> dict[str, Any]:
        """Data of a checkpoint to return to the unfinished episodes; empty if the environments will restart."""
        if isinstance(self.environments, FunctionalEnvironments):
            return {str(i): array for i, array in enumerate(self.env_states)}
        return {} if self._restart else self._collector.underway()

    def return_to(self, restarted: int, underway: dict[str, Any]) -> None:
        """Return the environments to the unfinished episodes of a checkpoint, written by `underway`."""
        self.restarted = restarted
        functional = isinstance(self.environments, FunctionalEnvironments)
        if functional == ("actions" in underway):
            return  # the checkpoint is from the other kind of environment: episodes restart
        if functional:
            self.env_states = [underway[str(i)] for i in range(len(underway))]
            return
        self._restart = not self._collector.replay(self._start_seeds(), **underway)
        if self._restart:
            warnings.warn(
                f"{self.environments.name} does not do the same again from the same seed: the episodes of the checkpoint "
                "cannot go on, new ones begin",
                stacklevel=2,
            )

    def _checked(self, metrics: dict[str, Any]) -> dict[str, float]:
        """An update's metrics, all finite; otherwise restore the networks from before it and raise."""
        try:
            return check_finite(metrics, self._inputs.by_name)
        except NotFinite as error:
            self.updater.revert()
            self._update_metrics = {}
            raise NotFinite(self.undone(str(error))) from None

    def undone(self, why: str) -> str:
        """The message about an undone iteration."""
        return (
            f"{why} in the iteration after step {self.timesteps} (seed {self.seed}); the agent keeps the networks it had "
            "before; a smaller learning rate, a smaller ψ or smaller rewards may help"
        )

    def _count_episodes(self) -> None:
        """Record the finished episodes, and let a budget adjust ψ."""
        self._ended = ended = self._collector.episodes.take()
        self.episodes += len(ended)
        self.recent.extend(ended)
        moved = {} if self.controller is None else self.controller.update(self.timesteps, ended, self.recent)
        self._episode_metrics = {"episodes": float(self.episodes), **episode_metrics(self.recent), **moved}

    def _recent_law(self) -> tuple[Any, Any]:
        """Returns of this iteration's episodes, or of the last hundred if those are more, and a mask of valid entries."""
        sample = self._ended if len(self._ended) > len(self.recent) else self.recent
        found = np.zeros((2, self.per_iteration + RECENT), np.float32)
        found[0, : len(sample)], found[1, : len(sample)] = [one.priced for one in sample], 1.0
        return jnp.asarray(found[0]), jnp.asarray(found[1])

    def _diagnose(self, rollout: Rollout, spread: SpreadEstimate, psi: float) -> None:
        """Add the objective, the critics' predictions at start states and the luck to the metrics; warn of a drift.

        ψ is in units of 1/reward.
        """
        self.window.add(spread.episodes)
        before, after = (np.asarray(luck, np.float64) for luck in (spread.luck_before, spread.luck_after))
        self.drift.add(before, after, rollout.elapsed[:-1], rollout.valid, rollout.running)
        metrics = self._episode_metrics
        metrics |= {**self.window.metrics, "luck_drift": self.drift.worst.share}
        self.warn_of_drift(psi)
        if rollout.prices is None:
            price = self.raw_psi(self.full_psi if self.controller is None else self.psi)
            metrics["objective"] = metrics["return_mean"] - price * metrics["priced_variance"]
        else:
            ended = np.array(self._ended).reshape(-1, 4)
            psi_of = self.raw_psi(rollout.prices[rollout.running == 0.0])
            given = ended[:, 1], ended[:, 3], psi_of, np.ones(len(ended), bool)
            metrics["objective"] = float(diagnostics.conditioned_objective(*given))

    def warn_of_drift(self, psi: float) -> None:
        """Warn of a drift of the luck, once, after the critics had time to learn; ψ is in units of 1/reward."""
        late = self.iteration >= LEARNED and 2 * self.timesteps > self.span[1]
        if self.options.form == "corrected" and late and not self._warned:
            self._warned = self.drift.warn(psi, self.options.time_aware)

    @property
    def networks(self) -> Networks:
        """The current policy and critics."""
        return self.updater.networks

    @property
    def variance_gamma(self) -> float:
        """Discount of the return whose variance is penalised."""
        return self.options.priced_gamma

    @property
    def per_iteration(self) -> int:
        """Environment steps per iteration."""
        return self.environments.n * self.options.steps

    def _steps_taken(self) -> int:
        """Steps so far, including the update that is not in the history yet."""
        return self.timesteps + (self.per_iteration if self._update_metrics else 0)

    def rate_share_at(self, timesteps: int) -> float:
        """Factor of the learning rates after `timesteps` steps."""
        begin, end = self.span if self.controller is None else self.controller.part(self.span, timesteps)
        return 1.0 - (timesteps - begin) / (end - begin) if self.options.decay_learning_rate else 1.0

    @property
    def psi(self) -> float:
        """The current ψ, in the units it was given in; with a budget in units of 1/reward; for a conditioned policy, the mean
        over environments."""
        if self.controller is not None:
            return self.controller.state.psi
        if self.episode_prices is not None:
            return float(self.episode_prices.now.mean())
        return self.full_psi * self.warm_up_at(self.timesteps)

    @property
    def full_psi(self) -> float:
        """ψ without its warm-up."""
        return self.full_psi_at(self.timesteps)

    def full_psi_at(self, timesteps: int) -> float:
        """ψ without its warm-up after `timesteps` steps."""
        return float(as_schedule(self.options.psi, "psi").at(np.array([float(timesteps)]))[0])

    def warm_up_at(self, timesteps: int) -> float:
        """Share of the full ψ after `timesteps` steps."""
        rise = self.options.psi_warm_up * self.span[1]
        steady = self.options.conditioned or isinstance(self.options.psi, float)
        return min(1.0, timesteps / rise) if steady and rise else 1.0

    def raw_psi(self, psi: Any) -> Any:
        """ψ per unit of the environment's own reward."""
        raw = self.options.psi_units == "raw" or self.controller is not None
        return psi if raw else psi * self.reward_scale.value**self.options.price_power

    @property
    def prices(self) -> PricePath:
        """ψ after each iteration and the measured variance, with a budget; otherwise empty."""
        return price_path(self.history)

    @property
    def looks(self) -> dict[str, Any]:
        """Measurements of a budget after each iteration, by the names of its limits; empty without a budget."""
        return {} if self.controller is None else looks_of(self.history, self.controller.budget)

    def policy(self) -> NumpyPolicy:
        """The current policy, in plain arrays: it runs without JAX, and its `save` exports it."""
        net, log_std = self.networks.policy.net, getattr(self.networks.policy, "log_std", None)
        mean, scale = self._levels()
        encoder = net.encoder
        return NumpyPolicy(
            self.interface, weights=[np.asarray(W) for W in net.weights], biases=[np.asarray(b) for b in net.biases],
            activation=net.activation, log_std=None if log_std is None else np.asarray(log_std), mean=mean, scale=scale,
            normalised=self.options.normalise_observations, gamma=self.options.gamma,
            prices=None if self.episode_prices is None else self.episode_prices.within, memory=self.memory,
            kernels=[] if encoder is None else [np.asarray(W) for W in encoder.kernels],
            kernel_biases=[] if encoder is None else [np.asarray(b) for b in encoder.biases],
            strides=() if encoder is None else encoder.strides,
        )  # fmt: skip

    def _levels(self) -> tuple[Any, Any]:
        """Mean and 1 / standard deviation of observations, followed by those of each channel of an image."""
        moments, pixels = self.observation_moments, self.pixel_moments
        mean, scale = moments.mean, moments.per_std
        if self.options.normalise_observations and pixels.count:
            shown = pixels.mean, pixels.per_std
        else:
            bright = 255.0 if self.interface.pixels == "uint8" else 1.0
            shown = np.zeros_like(pixels.mean), np.full_like(pixels.mean, 1.0 / bright)
        return np.append(mean, shown[0]).astype(np.float32), np.append(scale, shown[1]).astype(np.float32)

    def at(self, psi: float) -> NumpyPolicy:
        """The policy at a ψ, in units of 1/reward; for an agent with psi="conditioned"."""
        return self.policy().at(psi)

    def start_from(self, other: PPO) -> Self:
        """Take over what another agent has learned, e.g. to lower the variance of a PPO policy; returns this agent.

        The policy, the critics that both have, and the scales of observations and rewards are copied. Optimisers, schedules,
        counters and random streams are not.
        """
        shared = [n for n in self._critics() if n in other._critics() and self.spread == other.spread]
        names = ("policy", "value", *shared)
        mine, theirs = ({name: getattr(one.networks, name) for name in names} for one in (self, other))
        if str(jax.eval_shape(lambda: mine)) != str(jax.eval_shape(lambda: theirs)):
            raise UserError(
                f"the networks of {other.environments.name} do not fit {self.environments.name}: observations, actions and the "
                "options hidden, critic_hidden, activation, encoder, time_aware and psi_range must be the same"
            )
        self.updater.networks = self.networks._replace(**theirs)
        self.observation_moments, self.pixel_moments = other.observation_moments, other.pixel_moments
        self.context.moments, self.reward_scale.moments = other.context.moments, other.reward_scale.moments
        return self

    def act(self, observations: Any, generator: np.random.Generator | None, deterministic: bool = False) -> Any:
        """Actions for a batch of observations; all randomness comes from the generator."""
        return self.policy().act(observations, generator, deterministic)

    def predict(self, observation: Any, deterministic: bool = True, action_masks: Any = None) -> tuple[Any, None]:
        """The action for an observation, or the actions for a batch of them, and None, where SB3 returns a state.

        `action_masks`: the mask, if it is not in the observation.
        """
        shape = self.environments.observation_space.shape or ()
        found, batch = self.interface.batch(observation, shape, action_masks)
        actions = self.act(found, self.generators["predict"], deterministic)
        return (actions if batch else actions[0]), None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy what `save` writes; an environment without a name is pickled itself."""
        return revived, (type(self), frozen(self), self.environments.recipe is None and self._env)

    def save(self, path: Path | str) -> Path:
        """Write the agent into a folder: agent.json and weights.safetensors, and its NumPy policy."""
        from vpac.deep.checkpoint import save

        return save(self, Path(path))

    @classmethod
    def load(cls, path: Path | str, env: Any = None) -> Self:
        """Load an agent that `save` wrote; runs no stored code. `env` replaces the environment it was saved with."""
        from vpac.deep.checkpoint import load

        return load(cls, Path(path), env)


class VPACPPO(PPO):
    """PPO that penalises the variance of the return with ψ; a critic learns the variance directly (Theorem 1 over states)."""

    spread = "variance"


class VAACPPO(PPO):
    """PPO that penalises the variance of the return with ψ; a critic learns the second moment (VAAC)."""

    spread = "moment"


class MVPIPPO(PPO):
    """Mean-variance policy iteration with PPO: `psi` penalises the variance of the reward per step, not of the return.

    y, the mean reward of a step of the current policy, is the mean over the iteration's steps.
    """

    volatility = True
