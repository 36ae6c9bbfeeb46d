"""Collect a rollout: the policy acts in the environments for one iteration."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from vpac.deep.diagnostics import NotFinite
from vpac.deep.policy import NumpyPolicy
from vpac.deep.price import EpisodePrices
from vpac.deep.spaces import Interface, numbers_of
from vpac.envs.vector import Environments
from vpac.risk.measures.volatility import augmented
from vpac.typing import BoolArray, Numbers, namespace

MOST_REPLAYED = 10_000_000
"""Environment steps; their actions take some 40 MB in a checkpoint, and some minutes to replay."""
RECENT = 100
"""Number of episodes in the statistics of recent episodes."""
LEAST_STEPS = 6400
"""Steps of each environment between two restarts: as many as between two checkpoints by default."""


class Rollout(NamedTuple):
    """The steps of an iteration, [time, environment, …], in NumPy or JAX; observations have one row more than steps."""

    observations: Any
    """Normalised rows (`Interface.row_type`); a conditioned policy has ψ as one more column."""
    successors: Any
    """Observation after each step, where it is not the next row of `observations`."""
    actions: Any
    rewards: Any
    """Rewards as the environments gave them."""
    continues: Any
    """0 where the episode terminated."""
    running: Any
    """0 where it terminated or was truncated."""
    valid: Any
    """0 on steps that only reset an environment."""
    raw: Any
    """Observations before normalisation."""
    prices: Any = None
    """ψ of each step's episode, for a conditioned policy."""
    elapsed: Any = np.zeros(())
    """Steps of the episode before each row."""
    extras: Any = None
    """Extra inputs of the critics (`info["critic"]`)."""
    successor_extras: Any = None
    """The extra inputs at `successors`."""

    @classmethod
    def blank(cls, steps: int, envs: Environments, interface: Interface, priced: bool) -> Rollout:
        """Allocate arrays for `steps` steps."""
        n, extras = envs.n, envs.critic_inputs
        seen = np.empty((steps + 1, n), interface.row_type(priced))
        choice = np.empty((steps, n, *([len(interface.choices)] if interface.choices else [])), np.int64)
        return cls(
            observations=seen,
            successors=np.empty_like(seen[1:]) if envs.same_step else None,
            actions=choice if interface.discrete_actions else np.empty((steps, n, interface.actions), np.float32),
            rewards=np.empty((steps, n)),
            continues=np.empty((steps, n), np.float32),
            running=np.empty((steps, n), np.float32),
            valid=np.empty((steps, n), np.float32),
            raw=np.empty((steps + 1, n), interface.row_type()),
            prices=np.empty((steps, n)) if priced else None,
            elapsed=np.empty((steps + 1, n)),
            extras=np.empty((steps + 1, n, extras)) if extras else None,
            successor_extras=np.empty((steps, n, extras)) if extras and envs.same_step else None,
        )

    def count_steps(self, first: Numbers) -> None:
        """Fill `elapsed`, given that of the first row; the row after an episode's last step has the steps of that episode."""
        self.elapsed[0] = first
        begins = self.valid == 0.0 if self.successors is None else self.running == 0.0
        for t, begun in enumerate(begins):
            self.elapsed[t + 1] = np.where(begun, 0.0, self.elapsed[t] + 1.0)

    def training_rewards(self, floor: float | None, price: Any) -> Any:
        """Rewards raised to the floor and, in MVPI, reduced by `price` times their variance over steps.

        y, the mean reward of a step of the current policy, is the mean over these steps.
        """
        rewards = self.rewards if floor is None else namespace(self.rewards).maximum(self.rewards, floor)
        if price is None:
            return rewards
        mean = (rewards[self.valid > 0.0] if isinstance(rewards, np.ndarray) else rewards).mean()
        return augmented(rewards, price, mean)


class Episode(NamedTuple):
    """A finished episode or, as arrays, the unfinished episodes of all environments."""

    score: Any
    """Undiscounted return."""
    discounted: Any
    """Return with the discount of the mean."""
    length: Any
    priced: Any
    """Return with the discount of the variance."""

    def after(self, rewards: Any, valid: Any, gamma: float, variance_gamma: float) -> Episode:
        """The episode after one more step."""
        return Episode(
            self.score + rewards * valid,
            self.discounted + gamma**self.length * rewards * valid,
            self.length + valid,
            self.priced + variance_gamma**self.length * rewards * valid,
        )


@dataclass
class EpisodeTracker:
    """Tracks the returns of the unfinished episodes of each environment, and collects the finished ones."""

    gamma: float
    variance_gamma: float
    underway: Episode
    ended: list[Episode] = field(default_factory=list)
    """Episodes finished since `take`."""

    @classmethod
    def of(cls, n: int, gamma: float, variance_gamma: float | None = None) -> EpisodeTracker:
        """A tracker for `n` environments."""
        none = Episode(*np.zeros((4, n)))
        return cls(gamma, gamma if variance_gamma is None else variance_gamma, none)

    def add(self, rewards: Numbers, over: BoolArray, valid: Numbers) -> None:
        """Add a step of each environment."""
        self.underway = self.underway.after(rewards, valid, self.gamma, self.variance_gamma)
        if over.any():
            self.ended += [Episode(*(float(x[i]) for x in self.underway)) for i in np.flatnonzero(over)]
            self.restart(over)

    def restart(self, which: Any = slice(None)) -> None:
        """Discard the unfinished episodes."""
        for sums in self.underway:
            sums[which] = 0.0

    def take(self) -> list[Episode]:
        """The episodes finished since the last call."""
        found, self.ended = self.ended, []
        return found


def episode_metrics(ended: Collection[Episode]) -> dict[str, float]:
    """Mean and variance over episodes; NaN if there are none."""
    score, sums, lengths, priced = np.array(list(ended)).reshape(-1, 4).T if ended else np.full((4, 1), np.nan)
    return {
        "score_mean": float(score.mean()), "score_variance": float(score.var()), "return_mean": float(sums.mean()),
        "return_variance": float(sums.var()), "length_mean": float(lengths.mean()), "priced_variance": float(priced.var()),
    }  # fmt: skip


class Collector:
    """Steps the environments with a policy and keeps their state between rollouts.

    Args:
        envs: the environments.
        interface: converts observations to numbers.
        gamma: discount of the recorded returns.
        prices: the ψ of each episode, for a conditioned policy.
        variance_gamma: discount of the returns whose variance is penalised; default: `gamma`.
    """

    def __init__(
        self,
        envs: Environments,
        interface: Interface,
        gamma: float,
        prices: EpisodePrices | None = None,
        variance_gamma: float | None = None,
    ) -> None:
        self.envs, self.interface, self.prices = envs, interface, prices
        self.episodes = EpisodeTracker.of(envs.n, gamma, variance_gamma)
        self._rows = np.zeros(envs.n, interface.row_type())
        self._over = np.zeros(envs.n, bool)
        self._extras = np.zeros((envs.n, envs.critic_inputs))
        self._ended = np.zeros(envs.n, bool)
        self._actions: list[Any] = []

    def restart(self, seeds: Any) -> None:
        """Reset all environments and discard the unfinished episodes."""
        self._ended, self._actions = np.zeros(self.envs.n, bool), []
        self._rows = self.interface.rows(self.envs.reset(seeds))
        if self.envs.critic_inputs:
            self._extras = self.envs.first_extras()
        self._over = np.zeros(self.envs.n, bool)
        self.episodes.restart()
        if self.prices is not None:
            self.prices.draw(np.ones(self.envs.n, bool))

    def collect(self, policy: NumpyPolicy, steps: int, generator: np.random.Generator, done: int) -> Rollout:
        """Take `steps` steps in each environment; `done` is the number of earlier steps, for messages.

        While one group of environments is stepped, the actions of the next group are computed.
        """
        n, groups = self.envs.n, list(enumerate(self.envs.groups))
        noise = policy.noise(generator, (steps, n))
        rollout = Rollout.blank(steps, self.envs, self.interface, self.prices is not None)
        rollout.raw[0] = self._rows
        if rollout.extras is not None:
            rollout.extras[0] = self._extras
        self._check_finite(self._rows, np.zeros(n), slice(None), done)
        for t in range(steps):
            for k, group in groups:
                if t > 0:
                    self._receive(policy, rollout, t - 1, k, group, done)
                rollout.observations[t, group] = self._view(policy, rollout.raw[t, group], group)
                action = policy.sample(policy.outputs(rollout.observations[t, group]), noise[t, group])
                rollout.actions[t, group] = action
                self.envs.send(k, self.interface.commands(action))
        for k, group in groups:
            self._receive(policy, rollout, steps - 1, k, group, done)
            rollout.observations[steps, group] = self._view(policy, rollout.raw[steps, group], group)
        self._rows = rollout.raw[steps]
        if rollout.extras is not None:
            self._extras = rollout.extras[steps]
        rollout.count_steps(self.episodes.underway.length)
        for t in range(steps):
            self.episodes.add(rollout.rewards[t], rollout.running[t] == 0.0, rollout.valid[t])
        self._ended |= (rollout.running == 0.0).any(axis=0)
        self._actions.append(rollout.actions)
        return rollout

    @property
    def may_restart(self) -> bool:
        """Whether each environment has taken `LEAST_STEPS` steps and ended an episode since the last restart.

        A restart cuts off unfinished episodes, so frequent restarts would leave only short ones. It is also allowed once the
        actions are too many to be replayed.
        """
        steps = sum(map(len, self._actions))
        return (steps >= LEAST_STEPS and bool(self._ended.all())) or steps * self.envs.n > MOST_REPLAYED

    def underway(self) -> dict[str, Any]:
        """State for `replay` besides the seeds of the last restart: all actions since then, a digest of the observations."""
        prices = {} if self.prices is None else {"prices": self.prices.now}
        return {"actions": np.concatenate(self._actions), "seen": self._digest(), **prices}

    def replay(self, seeds: Any, actions: Any, seen: Any, prices: Any = None) -> bool:
        """Repeat the same actions from the same seeds, so that unfinished episodes continue where they were.

        Returns whether the observations are the same: they are not if the seed does not determine the environment.
        """
        drawn, self.prices = self.prices, None  # the prices are given, and their generator must not advance
        self.restart(seeds)
        self._rows, self._extras = self._rows.copy(), self._extras.copy()
        for action in actions:
            valid = ~self._over
            rewards, over = np.zeros(self.envs.n), np.zeros(self.envs.n, bool)
            for k, group in enumerate(self.envs.groups):
                self.envs.send(k, self.interface.commands(action[group]))
                step = self.envs.receive(k)
                rewards[group], over[group] = step.rewards, step.terminated | step.truncated
                self._rows[group] = self.interface.rows(step.observations)
                if self.envs.critic_inputs:
                    self._extras[group] = step.extras
            self.episodes.add(rewards, over, valid.astype(np.float32))
            self._over, self._ended = over if not self.envs.same_step else self._over, self._ended | over
        self.episodes.take()
        self._actions, self.prices = [actions], drawn
        if self.prices is not None:
            self.prices.now = np.array(prices)
        return bool(np.array_equal(self._digest(), seen))

    def _digest(self) -> Any:
        """A digest of the current observations."""
        return np.frombuffer(hashlib.sha256(self._rows.tobytes()).digest(), np.uint8)

    def _view(self, policy: NumpyPolicy, rows: Any, group: slice) -> Any:
        """Rows as inputs of the networks, with the ψ of each episode."""
        seen = policy.normalise(rows)
        return seen if self.prices is None else self.prices.within.beside(seen, self.prices.now[group])

    def _receive(self, policy: NumpyPolicy, rollout: Rollout, t: int, k: int, group: slice, done: int) -> None:
        """Write the results of step t of a group to the rollout."""
        step = self.envs.receive(k)
        rows, over, valid = self.interface.rows(step.observations), step.terminated | step.truncated, ~self._over[group]
        self._check_finite(rows, step.rewards, group, done + t * self.envs.n)
        rollout.raw[t + 1, group], rollout.rewards[t, group] = rows, step.rewards
        rollout.continues[t, group], rollout.running[t, group] = 1.0 - step.terminated, 1.0 - over
        rollout.valid[t, group] = valid
        if rollout.extras is not None:
            rollout.extras[t + 1, group] = step.extras
        if rollout.successor_extras is not None:
            rollout.successor_extras[t, group] = step.successor_extras
        if rollout.successors is None:
            self._over[group] = over
        else:
            after = self.interface.rows(step.successors)  # includes the last observation of an episode
            self._check_finite(after, step.rewards, group, done + t * self.envs.n)
            rollout.successors[t, group] = self._view(policy, after, group)
        if self.prices is not None and rollout.prices is not None:
            rollout.prices[t, group] = self.prices.now[group]
            begun = np.zeros(self.envs.n, bool)  # an episode's last state still has the ψ of that episode
            begun[group] = over if self.envs.same_step else ~valid
            self.prices.draw(begun)

    def _check_finite(self, rows: Any, rewards: Numbers, group: slice, step: int) -> None:
        """Raise `NotFinite` if an observation or a reward is not finite."""
        observations = numbers_of(rows)
        if math.isfinite(float(rewards.sum()) + float(observations.sum())):
            return
        for name, found in (("observation", observations), ("reward", rewards[:, None])):
            bad = ~np.isfinite(found).all(axis=1)
            if bad.any():
                env = int(np.flatnonzero(bad)[0]) + (group.start or 0)
                raise NotFinite(f"the {name} of environment {env} of {self.envs.name} is not finite at step {step}")
