"""EnvPool's copies of a MuJoCo task, in two lanes: while one is stepped, what the other is to do is computed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from vpac.deep.vector import Step
from vpac.envs.recipes import Recipe
from vpac.envs.registration import NoisyTask
from vpac.errors import UserError
from vpac.typing import FloatArray

__all__ = ["NoisyPool", "OfEnvPool", "on"]

CORES: ContextVar[int | None] = ContextVar("cores", default=None)
"""How many to use; none: all that the process may."""


@contextmanager
def on(cores: int) -> Iterator[None]:
    """Environments that are made meanwhile are stepped on so many cores: others are at work on the rest of them."""
    before = CORES.set(cores)
    try:
        yield
    finally:
        CORES.reset(before)


class OfEnvPool:
    """Two pools, each with half of the environments and half of the cores.

    They are made anew at each reset: their generators cannot be set otherwise. The halves are the same on every machine, and
    each environment has a seed of its own, so results do not depend on the cores.
    """

    same_step = False
    critic_inputs = 0

    def __init__(self, name: str, n: int, arguments: dict[str, Any] | None = None) -> None:
        self.name, self.n = name, n
        self.recipe: Recipe | None = Recipe(name, dict(arguments or {}))
        self.lanes: tuple[slice, ...] = (slice(0, n),) if n == 1 else (slice(0, n // 2), slice(n // 2, n))
        self._task, self._options = name, dict(arguments or {})
        self._ids = [np.arange(lane.stop - lane.start, dtype=np.int32) for lane in self.lanes]
        self.pools = self._make(range(n))
        self.observation_space, self.action_space = self.pools[0].observation_space, self.pools[0].action_space
        self._dtype, self._names = self.action_space.dtype, self.pools[0]._state_keys
        self.limit: int | None = int(self.pools[0].spec.config.max_episode_steps)

    def _make(self, seeds: Sequence[int]) -> list[Any]:
        """The pools, from one seed for each environment."""
        import envpool

        each = [int(seed) % 2**31 for seed in seeds]
        cores = max(1, (CORES.get() or len(os.sched_getaffinity(0))) // len(self.lanes))
        try:
            return [
                envpool.make(
                    self._task, env_type="gymnasium", num_envs=len(each[lane]), env_seed=each[lane],
                    num_threads=min(len(each[lane]), cores), **self._options,
                )
                for lane in self.lanes
            ]  # fmt: skip
        except (TypeError, ValueError, AssertionError, KeyError) as error:
            raise UserError(f"EnvPool's {self._task} does not take these arguments ({error})") from None

    def reset(self, seeds: Sequence[int]) -> Any:
        """Begin anew."""
        self.close()
        self.pools = self._make(seeds)
        return np.concatenate([pool.reset()[0] for pool in self.pools])

    def first_extras(self) -> FloatArray:
        """Nothing: EnvPool shows nothing to critics alone."""
        return np.zeros((self.n, 0))

    def send(self, lane: int, actions: Any) -> None:
        """Let a lane begin a step. Past EnvPool's `send`, whose checks take longer than our networks."""
        self.pools[lane]._send([self._ids[lane], self._ids[lane], np.ascontiguousarray(actions, self._dtype)])

    def receive(self, lane: int) -> Step:
        """Wait for it."""
        return self._step(self._answer(lane))

    def _answer(self, lane: int) -> dict[str, Any]:
        """What a lane's step returned, by EnvPool's names; past its `recv`, for the same reason as in `send`."""
        return dict(zip(self._names, self.pools[lane]._recv(), strict=True))

    @staticmethod
    def _step(found: dict[str, Any]) -> Step:
        return Step(found["obs"], found["reward"], found["done"] & ~found["trunc"], found["trunc"], found["obs"])

    def step(self, actions: Any) -> Step:
        """One step of each."""
        for k, lane in enumerate(self.lanes):
            self.send(k, actions[lane])
        columns = zip(*(self.receive(k)[:5] for k in range(len(self.lanes))), strict=True)
        return Step(*(np.concatenate(column) for column in columns))

    def close(self) -> None:
        """Let go of them."""
        for pool in self.pools:
            pool.close()


class NoisyPool(OfEnvPool):
    """A noisy task of ours on EnvPool: rewards of steps that end in its region get noise, as by `RegionalRewardNoise`."""

    def __init__(self, task: NoisyTask, n: int, arguments: dict[str, Any]) -> None:
        super().__init__(task.base, n, {"exclude_current_positions_from_observation": False, **arguments})
        self.name, self.recipe = task.id, Recipe(task.id, dict(arguments))
        self._std, self._where = float(task.noise["std"]), str(task.noise["where"])
        low, high = task.noise.get("low"), task.noise.get("high")
        self._low, self._high = -np.inf if low is None else low, np.inf if high is None else high
        self._noise = [np.random.default_rng() for _ in self.lanes]

    def reset(self, seeds: Sequence[int]) -> Any:
        """Begin anew."""
        self._noise = [np.random.default_rng([int(seed) for seed in seeds[lane]]) for lane in self.lanes]
        return super().reset(seeds)

    def receive(self, lane: int) -> Step:
        """Wait for a lane's step; steps that only begin an episode have no reward, and so no noise."""
        found = self._answer(lane)
        step, where = self._step(found), found[f"info:{self._where}"]
        noise = self._std * self._noise[lane].standard_normal(len(where))
        noisy = (self._low < where) & (where < self._high) & (found["elapsed_step"] > 0)
        return step._replace(rewards=step.rewards + noise * noisy)
