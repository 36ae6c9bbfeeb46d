"""An iteration's steps.

Where episodes end after a fixed number of steps, the value depends on the time that is left. Critics that do not see it are
wrong, and sums of their errors have a drift. The policy does not change: it sees what the environment shows.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from vpac.deep.finiteness import NotFinite
from vpac.deep.normaliser import RunningMoments
from vpac.deep.policy import SEEN, NumpyPolicy
from vpac.deep.price import Prices
from vpac.deep.spaces import Interface
from vpac.deep.vector import Environments
from vpac.liveness import advance, watched
from vpac.risk.volatility import augmented
from vpac.typing import BoolArray, Numbers

__all__ = ["Context", "Episode", "Episodes", "Rollout", "Stepper", "Tape", "paid", "recently"]


class Rollout(NamedTuple):
    """An iteration's steps, [time, environment, …], as the networks take them."""

    observations: Numbers
    """One row more than there are steps: the last is where they led. Normalised, float32."""
    successors: Numbers | None
    """Where each step led, if that is not the next row of `observations`."""
    actions: Any
    rewards: Numbers
    """As the environments gave them."""
    continues: Numbers
    """0 where the episode terminated."""
    running: Numbers
    """0 where it terminated or was cut off."""
    valid: Numbers
    """0 on steps that only began an episode."""
    raw: Numbers
    """Observations before normalising, without the last row."""
    prices: Numbers | None = None
    """The price of variance of each step's episode, of a conditioned policy."""
    elapsed: Numbers = np.zeros(())
    """Steps of the episode before each row; one row more than there are steps."""
    extras: Numbers | None = None
    """What the environment shows to critics alone, one row more than there are steps."""
    led_to_extras: Numbers | None = None
    """The same of `successors`."""


def paid(rollout: Rollout, floor: float | None, price: float) -> Numbers:
    """The rewards to learn from: not below the floor and, in MVPI, less what their spread over steps costs at a price.

    y, the mean reward of a step of the present policy, is that of these steps.
    """
    rewards = rollout.rewards if floor is None else np.maximum(rollout.rewards, floor)
    if price == 0.0:
        return rewards
    return augmented(rewards, price, float(rewards[rollout.valid > 0.0].mean()))


@dataclass(frozen=True)
class Tape:
    """What is written down while the environments are stepped, [time, environment, …]; see `Rollout`."""

    raw: Numbers
    seen: Numbers
    actions: Any
    rewards: Numbers
    terminated: BoolArray
    over: BoolArray
    valid: BoolArray
    after: Numbers | None
    prices: Numbers | None
    extras: Numbers | None
    after_extras: Numbers | None

    @classmethod
    def blank(cls, steps: int, n: int, interface: Interface, priced: bool, same_step: bool, extras: int) -> Tape:
        """For so many steps of `n` environments."""
        seen = np.empty((steps + 1, n, interface.inputs + priced), np.float32)
        choice = np.empty((steps, n), np.int64)
        return cls(
            raw=np.empty((steps + 1, n, interface.inputs), np.float32),
            seen=seen,
            actions=choice if interface.discrete_actions else np.empty((steps, n, interface.actions), np.float32),
            rewards=np.empty((steps, n)),
            terminated=np.empty((steps, n), bool),
            over=np.empty((steps, n), bool),
            valid=np.empty((steps, n), bool),
            after=np.empty_like(seen[1:]) if same_step else None,
            prices=np.empty((steps, n)) if priced else None,
            extras=np.empty((steps + 1, n, extras)) if extras else None,
            after_extras=np.empty((steps, n, extras)) if extras and same_step else None,
        )

    def rollout(self, elapsed: Numbers) -> Rollout:
        """As the networks take it; `elapsed` is how many steps each episode underway had before the first row."""
        continues, running, acted = (x.astype(np.float32) for x in (~self.terminated, ~self.over, self.valid))
        return Rollout(
            self.seen, self.after, self.actions, self.rewards, continues, running, acted, self.raw[:-1], self.prices,
            self._elapsed(elapsed), self.extras, self.after_extras,
        )  # fmt: skip

    def _elapsed(self, first: Numbers) -> Numbers:
        """Steps of the episode before each row; the row after an episode's last step shows where that step led."""
        rows = np.empty(self.raw.shape[:2])
        rows[0] = first
        begins = ~self.valid if self.after is None else self.over
        for t, begun in enumerate(begins):
            rows[t + 1] = np.where(begun, 0.0, rows[t] + 1.0)
        return rows


class Episode(NamedTuple):
    """An episode that has ended."""

    score: float
    """Undiscounted."""
    discounted: float
    """With the discount of the mean."""
    length: float
    priced: float
    """With the discount of the variance."""


@dataclass
class Episodes:
    """Returns of the episodes that have ended; what is underway is kept for each environment."""

    gamma: float
    score: Numbers
    """Undiscounted sums underway."""
    sums: Numbers
    """Discounted sums underway."""
    lengths: Numbers
    variance_gamma: float
    priced: Numbers
    """Sums underway, with the discount of the variance."""
    ended: list[Episode] = field(default_factory=list)
    """Those that have ended since `take`."""

    @classmethod
    def of(cls, n: int, gamma: float, variance_gamma: float | None = None) -> Episodes:
        """Of `n` environments."""
        other = gamma if variance_gamma is None else variance_gamma
        return cls(gamma, np.zeros(n), np.zeros(n), np.zeros(n), other, np.zeros(n))

    def add(self, rewards: Numbers, over: Any, valid: Any) -> None:
        """A step of each environment."""
        self.score += rewards * valid
        self.sums += self.gamma**self.lengths * rewards * valid
        self.priced += self.variance_gamma**self.lengths * rewards * valid
        self.lengths += valid
        if over.any():
            for i in np.flatnonzero(over):
                found = (self.score[i], self.sums[i], self.lengths[i], self.priced[i])
                self.ended.append(Episode(*(float(x) for x in found)))
            self.restart(over)

    def restart(self, which: Any = slice(None)) -> None:
        """Forget what is underway."""
        self.score[which] = self.sums[which] = self.lengths[which] = self.priced[which] = 0.0

    def take(self) -> list[Episode]:
        """The episodes that have ended since it was last asked."""
        found, self.ended = self.ended, []
        return found


def recently(ended: Collection[Episode]) -> dict[str, float]:
    """Mean and variance of episodes; NaN of none."""
    score, sums, lengths, priced = np.array(list(ended)).reshape(-1, 4).T if ended else np.full((4, 1), np.nan)
    return {
        "score_mean": float(score.mean()), "score_variance": float(score.var()), "return_mean": float(sums.mean()),
        "return_variance": float(sums.var()), "length_mean": float(lengths.mean()), "priced_variance": float(priced.var()),
    }  # fmt: skip


class Context:
    """The columns that critics see and the policy does not.

    Args:
        time_aware: whether the elapsed time is one of them.
        limit: steps after which episodes are cut off; None: no limit is known, and time has a running scale.
        extras: numbers that the environment offers to critics.
    """

    def __init__(self, time_aware: bool, limit: int | None, extras: int) -> None:
        self.time_aware, self.limit, self.extras = time_aware, limit, extras
        self.moments = RunningMoments.of((time_aware + extras,))

    @property
    def columns(self) -> int:
        """How many there are."""
        return self.time_aware + self.extras

    def beside(self, rollout: Rollout) -> Rollout:
        """A rollout whose observations and successors have these columns behind those of the policy."""
        if not self.columns:
            return rollout
        seen = np.concatenate([rollout.observations, self._scaled(self._raw(rollout))], axis=-1, dtype=np.float32)
        after = rollout.successors
        if after is not None:
            led_to = self._scaled(self._stacked(rollout.elapsed[:-1] + 1.0, rollout.led_to_extras))
            after = np.concatenate([after, led_to], axis=-1, dtype=np.float32)
        return rollout._replace(observations=seen, successors=after)

    def add(self, rollout: Rollout) -> None:
        """Take a rollout into account."""
        if self.columns:
            self.moments.add(self._raw(rollout)[:-1][rollout.valid > 0.0])

    def _raw(self, rollout: Rollout) -> Numbers:
        return self._stacked(rollout.elapsed, rollout.extras)

    def _stacked(self, elapsed: Numbers, extras: Numbers | None) -> Numbers:
        parts = [elapsed[..., None]] if self.time_aware else []
        return np.concatenate([*parts, *([] if extras is None else [extras])], axis=-1)

    def _scaled(self, raw: Numbers) -> Numbers:
        """From −1 to 1 up to a known limit; all else less its running mean, in running standard deviations."""
        scaled = (raw - self.moments.mean) / np.sqrt(self.moments.variance + 1e-8)
        if self.time_aware and self.limit is not None:
            scaled[..., 0] = 2.0 * raw[..., 0] / self.limit - 1.0
        return np.asarray(np.clip(scaled, -SEEN, SEEN), np.float32)


class Stepper:
    """Lets a policy act in environments.

    Args:
        envs: the environments.
        interface: how their observations are written as numbers.
        gamma: discount of the returns that it keeps.
        prices: of a conditioned policy; every episode has its own.
        variance_gamma: discount of the returns whose variance has a price; default: `gamma`.
    """

    def __init__(
        self,
        envs: Environments,
        interface: Interface,
        gamma: float,
        prices: Prices | None = None,
        variance_gamma: float | None = None,
    ) -> None:
        self.envs, self.interface, self.prices = envs, interface, prices
        self.episodes = Episodes.of(envs.n, gamma, variance_gamma)
        self._rows = np.zeros((envs.n, interface.inputs), np.float32)
        self._over = np.zeros(envs.n, bool)
        self._extras = np.zeros((envs.n, envs.critic_inputs))

    def restart(self, seeds: Any) -> None:
        """All environments begin anew; episodes underway are forgotten."""
        self._rows = self.interface.rows(self.envs.reset(seeds))
        if self.envs.critic_inputs:
            self._extras = self.envs.first_extras()
        self._over = np.zeros(self.envs.n, bool)
        self.episodes.restart()
        if self.prices is not None:
            self.prices.draw(np.ones(self.envs.n, bool))

    def _view(self, policy: NumpyPolicy, rows: Numbers, lane: slice) -> Numbers:
        """Rows as the networks see them; each with the price of its episode."""
        seen = policy.normalise(rows)
        return seen if self.prices is None else self.prices.within.beside(seen, self.prices.now[lane])

    @watched()
    def collect(self, policy: NumpyPolicy, steps: int, generator: np.random.Generator, done: int) -> Rollout:
        """Take `steps` steps in each environment; `done` is how many steps were taken before, for messages."""
        n = self.envs.n
        noise = policy.noise(generator, (steps, n))
        tape = Tape.blank(
            steps, n, self.interface, self.prices is not None, self.envs.same_step, self.envs.critic_inputs
        )
        tape.raw[0] = self._rows
        if tape.extras is not None:
            tape.extras[0] = self._extras
        self._look(self._rows, np.zeros(n), slice(None), done)
        for t in range(steps):
            for k, lane in enumerate(self.envs.lanes):
                if t > 0:
                    self._receive(policy, tape, t - 1, k, lane, done)
                tape.seen[t, lane] = self._view(policy, tape.raw[t, lane], lane)
                action = policy.sample(policy.outputs(tape.seen[t, lane]), noise[t, lane])
                tape.actions[t, lane] = action
                self.envs.send(k, self.interface.commands(action))
        for k, lane in enumerate(self.envs.lanes):
            self._receive(policy, tape, steps - 1, k, lane, done)
            tape.seen[steps, lane] = self._view(policy, tape.raw[steps, lane], lane)
        self._rows = tape.raw[steps]
        if tape.extras is not None:
            self._extras = tape.extras[steps]
        elapsed = self.episodes.lengths.copy()
        for t in range(steps):
            self.episodes.add(tape.rewards[t], tape.over[t], tape.valid[t])
        return tape.rollout(elapsed)

    def _receive(self, policy: NumpyPolicy, tape: Tape, t: int, k: int, lane: slice, done: int) -> None:
        """Write down what a lane's step t returned."""
        step = self.envs.receive(k)
        advance()
        rows, over, valid = self.interface.rows(step.observations), step.terminated | step.truncated, ~self._over[lane]
        self._look(rows, step.rewards, lane, done + t * self.envs.n)
        tape.raw[t + 1, lane], tape.rewards[t, lane] = rows, step.rewards
        tape.terminated[t, lane], tape.over[t, lane], tape.valid[t, lane] = step.terminated, over, valid
        if tape.extras is not None:
            tape.extras[t + 1, lane] = step.extras
        if tape.after_extras is not None:
            tape.after_extras[t, lane] = step.successor_extras
        if tape.after is None:
            self._over[lane] = over
        else:
            led_to = self.interface.rows(step.successors)  # ends of episodes are seen here alone
            self._look(led_to, step.rewards, lane, done + t * self.envs.n)
            tape.after[t, lane] = self._view(policy, led_to, lane)
        if self.prices is not None and tape.prices is not None:
            tape.prices[t, lane] = self.prices.now[lane]
            begun = np.zeros(self.envs.n, bool)  # an episode's last state is still seen at its price
            begun[lane] = over if self.envs.same_step else ~valid
            self.prices.draw(begun)

    def _look(self, observations: Numbers, rewards: Numbers, lane: slice, step: int) -> None:
        """Stop if something is not finite, and say what."""
        if math.isfinite(float(rewards.sum()) + float(observations.sum())):
            return
        for name, rows in (("observation", observations), ("reward", rewards[:, None])):
            bad = ~np.isfinite(rows).all(axis=1)
            if bad.any():
                env = int(np.flatnonzero(bad)[0]) + (lane.start or 0)
                raise NotFinite(f"the {name} of environment {env} of {self.envs.name} is not finite at step {step}")
