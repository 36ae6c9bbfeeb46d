"""Wrappers that add noise to actions, rewards, rewards in a region of the state, and start states; and one that seeds noise.

The noise is drawn from the environment's own generator, so `reset(seed=…)` determines it. The wrappers record their arguments,
so that a wrapped environment can be made again from its specification.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from vpac.checks import not_negative, whole
from vpac.envs.observations import allowed_action, read_mask
from vpac.errors import UserError

AnyEnv = gymnasium.Env[Any, Any]
AnyWrapper = gymnasium.Wrapper[Any, Any, Any, Any]
StepResult = tuple[Any, Any, bool, bool, dict[str, Any]]


class _Noise(AnyWrapper, RecordConstructorArgs):
    """A wrapper whose noise has a standard deviation; records its arguments."""

    def __init__(self, env: AnyEnv, std: float) -> None:
        RecordConstructorArgs.__init__(self, std=std)
        gymnasium.Wrapper.__init__(self, env)
        self.std = not_negative(std, "std")


class ActionNoise(_Noise):
    """Adds N(0, std²) to each number of a Box action and clips the sum to the action space.

    Args:
        env: an environment with Box actions.
        std: standard deviation, in the units of the action.
    """

    def __init__(self, env: AnyEnv, std: float) -> None:
        super().__init__(env, std)
        if not isinstance(env.action_space, spaces.Box):
            raise UserError(f"ActionNoise needs Box actions, got {env.action_space}: normal noise has no meaning there")
        self._low, self._high = env.action_space.low, env.action_space.high

    def step(self, action: Any) -> StepResult:
        """Take the noisy action."""
        wanted = np.asarray(action)
        noisy = wanted + self.std * self.np_random.standard_normal(wanted.shape)
        return self.env.step(np.clip(noisy, self._low, self._high).astype(self._low.dtype))


class RewardNoise(_Noise):
    """Adds N(0, std²) to every reward: the mean of the return stays the same, its variance grows for every policy.

    Args:
        env: any environment.
        std: standard deviation, in the units of the reward.
    """

    def step(self, action: Any) -> StepResult:
        """Take an action; its reward is noisy."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, float(reward) + self.std * self.np_random.standard_normal(), terminated, truncated, info


class RegionalRewardNoise(_Noise):
    """Adds N(0, std²) to the rewards of steps that end in a region of the state, so that a policy can avoid the noise.

    The region is where one number of the state lies strictly between `low` and `high`. Luo, Liu, Poupart and Pan (2023,
    "An Alternative to Variance: Gini Deviation") make MuJoCo tasks risky in this way, by the position along x. A policy can
    only avoid what it observes: MuJoCo tasks show that position if they are made with
    exclude_current_positions_from_observation=False.

    Args:
        env: any environment.
        std: standard deviation, in the units of the reward.
        where: the number that decides: the name of an entry of `info`, or an index of the observation.
        low: lower end of the region; None: unbounded.
        high: upper end of the region; None: unbounded.
    """

    def __init__(
        self, env: AnyEnv, std: float, where: str | int = "x_position", low: float | None = None, high: float | None = None,
    ) -> None:  # fmt: skip
        RecordConstructorArgs.__init__(self, std=std, where=where, low=low, high=high)
        super().__init__(env, std)
        self.where = where
        if low is None and high is None:
            raise UserError("the region has no end: pass low=…, high=… or both; RewardNoise makes every reward noisy")
        self.low, self.high = -np.inf if low is None else float(low), np.inf if high is None else float(high)
        if not self.low < self.high:
            raise UserError(f"the region is empty: expected low < high, got low = {low}, high = {high}")
        seen = env.observation_space
        size = seen.shape[0] if isinstance(seen, spaces.Box) and len(seen.shape) == 1 else 0
        if not isinstance(where, str) and not 0 <= where < size:
            expected = f"from 0 to {size - 1}" if size else "of a Box that is a vector"
            raise UserError(f"where = {where} is no place in the observation {seen}: expected one {expected}")

    def noisy(self, observation: Any, info: dict[str, Any]) -> bool:
        """Whether a step that ended here has a noisy reward."""
        if not isinstance(self.where, str):
            value = float(observation[self.where])
        elif self.where in info:
            value = float(info[self.where])
        else:
            known = ", ".join(sorted(info)) or "nothing"
            raise UserError(f"info has no {self.where!r}: it holds {known}; where = 0 looks at observation[0]")
        return self.low < value < self.high

    def step(self, action: Any) -> StepResult:
        """Take an action; `info["noisy"]` says whether the reward got noise. The noise is always drawn, so that two policies
        with the same seed get the same noise."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        noise = self.std * self.np_random.standard_normal()
        noisy = self.noisy(observation, info)
        return observation, float(reward) + noise * noisy, terminated, truncated, {**info, "noisy": noisy}


class RandomStart(_Noise):
    """Spreads the start state of a MuJoCo task: adds N(0, std²) to every position and velocity of its joints.

    MuJoCo tasks have a small noise of their own (`reset_noise_scale`); this is added to it. Wrap the task directly: wrappers of
    observations between the two would not see the new start state. For other environments there is `RandomFirstSteps`.

    Args:
        env: a MuJoCo task of Gymnasium.
        std: standard deviation, in the units of the joints (metres, radians, and these per second).
    """

    def __init__(self, env: AnyEnv, std: float) -> None:
        super().__init__(env, std)
        if not all(hasattr(env.unwrapped, name) for name in ("set_state", "data", "_get_obs")):
            raise UserError(
                f"RandomStart needs a MuJoCo task, got {type(env.unwrapped).__name__}: use RandomFirstSteps, which takes "
                "random actions before an episode begins"
            )
        inner = env
        while isinstance(inner, gymnasium.Wrapper):
            if isinstance(inner, gymnasium.ObservationWrapper):
                raise UserError(f"put RandomStart around the task first and {type(inner).__name__} around both")
            inner = inner.env

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start near the task's own start."""
        _, info = self.env.reset(seed=seed, options=options)
        task: Any = self.unwrapped
        position, velocity = task.data.qpos.copy(), task.data.qvel.copy()
        position += self.std * self.np_random.standard_normal(position.shape)
        velocity += self.std * self.np_random.standard_normal(velocity.shape)
        task.set_state(position, velocity)
        return task._get_obs(), info | task._get_reset_info()


class RandomFirstSteps(AnyWrapper, RecordConstructorArgs):
    """Takes 0 to `most` random (allowed) actions before an episode begins: other start states.

    Their rewards are not part of the episode, but a step limit inside this wrapper counts them. If the episode ends during
    them, the environment is reset again.

    Args:
        env: any environment.
        most: the largest number of random actions; each number up to it is equally likely.
    """

    def __init__(self, env: AnyEnv, most: int) -> None:
        RecordConstructorArgs.__init__(self, most=most)
        gymnasium.Wrapper.__init__(self, env)
        self.most = whole(most, "most")
        self._actions = deepcopy(env.action_space)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start, and take the random actions."""
        observation, info = self.env.reset(seed=seed, options=options)
        count = int(self.np_random.integers(self.most + 1))
        self._actions.seed(int(self.np_random.integers(2**31)))
        for _ in range(count):
            mask = read_mask(self.env, observation, info, f"{self.env}:")
            space = self._actions
            action = space.sample() if mask is None else allowed_action(space, mask, space.np_random)
            observation, _, terminated, truncated, info = self.env.step(action)
            if terminated or truncated:
                observation, info = self.env.reset(options=options)
        return observation, info


class SeedGlobals(AnyWrapper, RecordConstructorArgs):
    """Makes `reset(seed=…)` determine what an environment draws from the global generators of Python (`random`) and NumPy.

    For environments that ignore the seed of reset. Each has separate streams, so that it neither affects nor is affected by
    other code that draws from the global generators, such as other copies of the environment.

    Args:
        env: any environment.
    """

    def __init__(self, env: AnyEnv) -> None:
        RecordConstructorArgs.__init__(self)
        gymnasium.Wrapper.__init__(self, env)
        self._states: tuple[Any, Any] | None = None

    @contextmanager
    def _own_streams(self) -> Iterator[None]:
        outside = random.getstate(), np.random.get_state()  # noqa: NPY002
        self._set(self._states or outside)
        try:
            yield
        finally:
            self._states = random.getstate(), np.random.get_state()  # noqa: NPY002
            self._set(outside)

    @staticmethod
    def _set(states: tuple[Any, Any]) -> None:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset; a seed restarts the streams."""
        if seed is not None:
            self._states = random.Random(seed).getstate(), np.random.RandomState(seed % 2**32).get_state()
        with self._own_streams():
            return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> StepResult:
        """Take an action."""
        with self._own_streams():
            return self.env.step(action)
