"""Letting a policy act in environments."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from vpac.deep.conditioning import Prices
from vpac.deep.episodes import Episodes
from vpac.deep.finiteness import NotFinite
from vpac.deep.policy import NumpyPolicy
from vpac.deep.rollout import Rollout, Tape
from vpac.deep.spaces import Interface
from vpac.deep.vector import Environments
from vpac.liveness import advance, watched
from vpac.typing import Numbers

__all__ = ["Stepper"]


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
