"""Steps of the environments, and the episodes that ended in them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from vpac.deep.policy import NumpyPolicy
from vpac.deep.vector import Environments
from vpac.errors import Diverged
from vpac.typing import Numbers

__all__ = ["Episodes", "NotFinite", "Rollout", "Stepper"]


class NotFinite(Diverged):
    """A number that is not finite has stopped a run; the last good checkpoint is kept."""


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


@dataclass
class Episodes:
    """Returns of the episodes that have ended; what is underway is kept for each environment."""

    gamma: float
    score: Numbers
    """Undiscounted sums underway."""
    sums: Numbers
    """Discounted sums underway."""
    lengths: Numbers
    ended: list[tuple[float, float, float]] = field(default_factory=list)
    """(score, discounted return, length) of each that has ended since `take`."""

    @classmethod
    def of(cls, n: int, gamma: float) -> Episodes:
        """Of `n` environments."""
        return cls(gamma, np.zeros(n), np.zeros(n), np.zeros(n))

    def add(self, rewards: Numbers, over: Any, valid: Any) -> None:
        """A step of each environment."""
        self.score += rewards * valid
        self.sums += self.gamma**self.lengths * rewards * valid
        self.lengths += valid
        if over.any():
            for i in np.flatnonzero(over):
                self.ended.append((float(self.score[i]), float(self.sums[i]), float(self.lengths[i])))
            self.restart(over)

    def restart(self, which: Any = slice(None)) -> None:
        """Forget what is underway."""
        self.score[which] = self.sums[which] = self.lengths[which] = 0.0

    def take(self) -> list[tuple[float, float, float]]:
        """The episodes that have ended since it was last asked."""
        found, self.ended = self.ended, []
        return found


class Stepper:
    """Lets a policy act in environments.

    Args:
        envs: the environments.
        gamma: discount of the returns that it keeps.
    """

    def __init__(self, envs: Environments, gamma: float) -> None:
        self.envs = envs
        self.episodes = Episodes.of(envs.n, gamma)
        self._seen: Any = None
        self._over = np.zeros(envs.n, bool)

    def restart(self, seeds: Any) -> None:
        """All environments begin anew; episodes underway are forgotten."""
        self._seen = self.envs.reset(seeds)
        self._over = np.zeros(self.envs.n, bool)
        self.episodes.restart()

    def collect(self, policy: NumpyPolicy, steps: int, generator: np.random.Generator, done: int) -> Rollout:
        """Take `steps` steps in each environment; `done` is how many steps were taken before, for messages."""
        n, interface = self.envs.n, policy.interface
        noise = policy.noise(generator, (steps, n))
        raw = np.empty((steps + 1, n, interface.inputs), np.float32)
        seen = np.empty_like(raw)
        after = np.empty((steps, n, interface.inputs), np.float32) if self.envs.same_step else None
        rewards = np.empty((steps, n))
        terminated, over, valid = (np.zeros((steps, n), bool) for _ in range(3))
        actions: list[Any] = []
        for t in range(steps):
            raw[t] = interface.rows(self._seen)
            seen[t] = policy.normalise(raw[t])
            action = policy.sample(policy.outputs(seen[t]), noise[t])
            actions.append(action)
            step = self.envs.step(interface.commands(action))
            self._seen = step.observations
            valid[t] = ~self._over
            rewards[t], terminated[t] = step.rewards, step.terminated
            over[t] = step.terminated | step.truncated
            if not self.envs.same_step:
                self._over = over[t]
            if after is not None:
                after[t] = policy.normalise(interface.rows(step.successors))
            if not np.isfinite(rewards[t].sum() + raw[t].sum(dtype=np.float64)):
                self._name(raw[t], rewards[t], done + t * n)
            self.episodes.add(rewards[t], over[t], valid[t])
        raw[steps] = interface.rows(self._seen)
        if not np.isfinite(raw[steps]).all():
            self._name(raw[steps], rewards[-1], done + steps * n)
        seen[steps] = policy.normalise(raw[steps])
        continues, running, acted = (x.astype(np.float32) for x in (~terminated, ~over, valid))
        return Rollout(seen, after, np.stack(actions), rewards, continues, running, acted, raw[:-1])

    def _name(self, observations: Numbers, rewards: Numbers, step: int) -> None:
        """Say which quantity is not finite."""
        for name, rows in (("observation", observations), ("reward", rewards[:, None])):
            bad = ~np.isfinite(rows).all(axis=1)
            if bad.any():
                env = int(np.flatnonzero(bad)[0])
                raise NotFinite(f"the {name} of environment {env} of {self.envs.name} is not finite at step {step}")
