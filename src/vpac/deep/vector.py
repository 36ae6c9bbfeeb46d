"""Many environments as one, whatever makes them: EnvPool, a Gymnasium vector environment, or our own loop.

All follow one rule, the next-step rule of Gymnasium and EnvPool: the step that ends an episode returns its last observation,
and the step after that takes no action and returns the first observation of the next episode.
"""

from __future__ import annotations

import importlib.util
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple, Protocol, get_args

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, VectorEnv

from vpac.envs.answers import check_observation, checked_step, reward_array
from vpac.envs.check import check_before_use
from vpac.envs.finite_mdp import FiniteMDP
from vpac.envs.make import EnvRecipe, make_env, name_of, remake, spec_of
from vpac.envs.registration import NOISY_TASKS, NoisyTask
from vpac.envs.remember import RememberReturn, memory_of
from vpac.errors import UserError, one_of
from vpac.typing import BoolArray, FloatArray

__all__ = [
    "Environments",
    "NoisyPool",
    "OfEnvPool",
    "Step",
    "environments",
    "has_envpool",
    "misses_envpool",
    "on",
    "remembering",
]

Backend = Literal["auto", "envpool", "gymnasium"]


class Step(NamedTuple):
    """What a step of all environments returned."""

    observations: Any
    rewards: FloatArray
    terminated: BoolArray
    truncated: BoolArray
    successors: Any
    """What the steps led to; other than `observations` only where an environment starts anew within the same step."""
    extras: FloatArray | None = None
    """What critics alone see beside `observations`, [n, numbers]."""
    successor_extras: FloatArray | None = None
    """What they see beside `successors`."""


class Environments(Protocol):
    """Several copies of one environment, stepped together."""

    name: str
    n: int
    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    same_step: bool
    """Whether the step that ends an episode starts the next one; then there are no steps that only start one."""
    recipe: EnvRecipe | None
    """How one is made again; None: plain data cannot say."""
    limit: int | None
    """Steps after which an episode is cut off, if that is known."""
    critic_inputs: int
    """Numbers that they show to critics alone, in info["critic"]."""

    def reset(self, seeds: Sequence[int]) -> Any:
        """Begin anew, from one seed for each; returns the observations."""

    def first_extras(self) -> FloatArray:
        """What critics alone see after `reset`."""

    def step(self, actions: Any) -> Step:
        """One step of each."""

    def close(self) -> None:
        """Let go of them."""

    lanes: tuple[slice, ...]
    """Groups of environments: while one group is stepped, what the other is to do can be computed."""

    def send(self, lane: int, actions: Any) -> None:
        """Let a lane take a step, perhaps in the background."""

    def receive(self, lane: int) -> Step:
        """What its step returned."""


class OneLane(ABC):
    """Environments that are stepped together, while nothing else is done."""

    lanes: tuple[slice, ...] = (slice(None),)
    critic_inputs: int = 0
    _asked: Any
    _extras: FloatArray

    def first_extras(self) -> FloatArray:
        """What critics alone see after `reset`."""
        return self._extras

    @abstractmethod
    def step(self, actions: Any) -> Step:
        """One step of each."""

    def send(self, lane: int, actions: Any) -> None:
        """Keep what they are to do."""
        self._asked = actions

    def receive(self, lane: int) -> Step:
        """Let them do it."""
        return self.step(self._asked)


def has_envpool(name: str) -> bool:
    """Whether EnvPool is installed and has a MuJoCo task of this name."""
    try:
        import envpool
    except ImportError:
        return False
    spec = gymnasium.registry.get(name)
    return spec is not None and "mujoco" in str(spec.entry_point) and name in envpool.list_all_envs()


def misses_envpool(envs: Environments) -> bool:
    """Whether these are stepped by Gymnasium only because EnvPool, which is many times as fast, is not installed."""
    spec = gymnasium.registry.get(envs.name)
    mujoco = spec is not None and "mujoco" in str(spec.entry_point)
    return mujoco and isinstance(envs, Loop) and importlib.util.find_spec("envpool") is None


def environments(env: Any, n: int, backend: Backend = "auto", arguments: dict[str, Any] | None = None) -> Environments:
    """`n` environments from anything that `vpac.envs.make_env` takes, or a vector environment, which has its own n."""

    one_of(backend, get_args(Backend), "backend")
    if isinstance(env, Loop | OfGymnasium | OfEnvPool):
        return env
    if isinstance(env, VectorEnv):
        return OfGymnasium(env)
    if isinstance(env, EnvSpec) and env.id in gymnasium.registry and env == gymnasium.spec(env.id):
        env = env.id
    if isinstance(env, FiniteMDP):
        return Loop([env.to_gymnasium() for _ in range(n)], repr(env))
    given = arguments or {}
    if isinstance(env, str) and backend != "gymnasium":
        if has_envpool(env):
            return OfEnvPool(env, n, given)
        noisy = next((task for task in NOISY_TASKS if task.id == env and has_envpool(task.base)), None)
        if noisy is not None:
            return NoisyPool(noisy, n, given)
    if backend == "envpool":
        raise UserError(
            f"EnvPool cannot make {env!r:.80}: it is the fast way for the MuJoCo tasks (pip install 'vpac[envpool]'); use "
            "backend='gymnasium'"
        )
    first = make_env(env, **given)
    check_before_use(env, lambda: make_env(env, **given), arguments=given)
    if isinstance(env, gymnasium.Env) and n > 1:
        why = ": pass envs=1, or its id, its class or a function that makes one"
        return Loop(
            [first, *(make_env(remake(env.spec, why)) for _ in range(n - 1))], name_of(first), EnvRecipe.of(env)
        )
    return Loop([first, *(make_env(env, **given) for _ in range(n - 1))], name_of(first), EnvRecipe.of(env, **given))


def remembering(
    env: Any, arguments: dict[str, Any] | None, n: int, gamma: float
) -> tuple[Any, dict[str, Any] | None, dict[str, Any]]:
    """An environment, and its arguments, whose observations also say the elapsed steps and the return collected so far.

    The third is what its `RememberReturn` is given: `gamma`, unless the environment has one already.
    """
    memory: dict[str, Any] = {"gamma": float(gamma)}
    if isinstance(env, VectorEnv):
        raise UserError(
            'a vector environment does not remember: wrap its parts in RememberReturn, or pass remember="nothing"'
        )
    if isinstance(env, FiniteMDP):
        return Loop([RememberReturn(env.to_gymnasium(), **memory) for _ in range(n)], repr(env)), None, memory
    if isinstance(env, Loop):
        found = memory_of(env.envs[0])
        if found is None:
            raise UserError('environments that are made already do not remember: pass remember="nothing"')
        return env, arguments, found
    made = make_env(env, **(arguments or {}))
    found = memory_of(made)
    if isinstance(env, gymnasium.Env):
        return (env, None, found) if found is not None else (RememberReturn(made, **memory), None, memory)
    made.close()
    if found is not None:
        return env, arguments, found
    return spec_of(env, [("RememberReturn", memory)], **(arguments or {})), None, memory


def critic_inputs_of(env: Any, name: str) -> int:
    """How many numbers an environment says it shows to critics alone: the size of its `critic_space`, a Box."""
    space = env.get_wrapper_attr("critic_space") if env.has_wrapper_attr("critic_space") else None
    if space is None:
        return 0
    if not isinstance(space, spaces.Box):
        raise UserError(f"{name}: critic_space must be a Box of what info['critic'] holds, got {space!r:.80}")
    return int(np.prod(space.shape))


def critic_row(info: Any, size: int, name: str) -> FloatArray:
    """info["critic"] as numbers."""
    try:
        row = np.asarray(info["critic"], np.float64).ravel()
    except (KeyError, TypeError, ValueError):
        row = np.zeros(0)
    if row.size != size or not np.isfinite(row).all():
        found = info.get("critic", "nothing") if isinstance(info, dict) else info
        raise UserError(
            f"{name}: info['critic'] must hold {size} finite numbers, as critic_space says, got {found!r:.80}"
        )
    return row


class Loop(OneLane):
    """Gymnasium environments, one after the other; less work for each step than Gymnasium's own vector."""

    same_step = False

    def __init__(self, envs: list[gymnasium.Env[Any, Any]], name: str, recipe: EnvRecipe | None = None) -> None:
        self.envs, self.name, self.n, self.recipe = envs, name, len(envs), recipe
        self.observation_space, self.action_space = envs[0].observation_space, envs[0].action_space
        self._over = np.zeros(self.n, bool)
        box = isinstance(self.observation_space, spaces.Box)
        self._shape = (self.observation_space.shape if box else ()) or ()
        self._seen = np.zeros((self.n, *self._shape), self.observation_space.dtype)
        self.limit = envs[0].spec.max_episode_steps if envs[0].spec else None
        self.critic_inputs = critic_inputs_of(envs[0], name)
        self._extras = np.zeros((self.n, self.critic_inputs))

    def reset(self, seeds: Sequence[int]) -> Any:
        """Begin anew."""
        self._over[:] = False
        for i, (env, seed) in enumerate(zip(self.envs, seeds, strict=True)):
            seen, info = env.reset(seed=int(seed))
            self._keep(i, seen, info, by="reset")
        return self._seen.copy()

    def step(self, actions: Any) -> Step:
        """One step of each; those whose episode is over begin the next."""
        rewards, terminated, truncated = np.zeros(self.n), np.zeros(self.n, bool), np.zeros(self.n, bool)
        for i, env in enumerate(self.envs):
            if self._over[i]:
                self._keep(i, *env.reset(), by="reset")
            else:
                seen, rewards[i], terminated[i], truncated[i], info = checked_step(env, actions[i], self.name)
                self._keep(i, seen, info, by="step")
        self._over = terminated | truncated
        found, extras = self._seen.copy(), self._extras.copy() if self.critic_inputs else None
        return Step(found, rewards, terminated, truncated, found, extras, extras)

    def _keep(self, i: int, seen: Any, info: Any, by: str) -> None:
        """Write an observation down; NumPy would stretch one of another shape, and count whole numbers below 0 from the end."""
        space = self.observation_space
        if isinstance(space, spaces.Discrete):
            fits = isinstance(seen, int | np.integer) and space.start <= seen < space.start + space.n
        else:
            fits = type(seen) is np.ndarray and seen.shape == self._shape and seen.dtype.kind in "fiub"
        if not fits and not (self._shape and np.shape(seen) == self._shape and np.asarray(seen).dtype.kind in "fiub"):
            check_observation(seen, space, f"{self.name}: {by}", [])
        self._seen[i] = seen
        if self.critic_inputs:
            self._extras[i] = critic_row(info, self.critic_inputs, self.name)

    def close(self) -> None:
        """Let go of them."""
        for env in self.envs:
            env.close()


class OfGymnasium(OneLane):
    """A vector environment of Gymnasium's, in any of its three ways to start episodes."""

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        if "envpool" in type(env).__module__ or hasattr(env, "async_reset"):
            raise UserError(
                "an environment of EnvPool cannot be seeded once it is made: pass its id, 'Hopper-v5' for example, and "
                f"envs={env.num_envs}; backend='envpool' makes it"
            )
        self.env, self.n = env, env.num_envs
        self.recipe: EnvRecipe | None = None
        self.name = env.spec.id if env.spec else type(env.unwrapped).__name__
        self.observation_space, self.action_space = env.single_observation_space, env.single_action_space
        self._mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        self.same_step = self._mode != AutoresetMode.NEXT_STEP
        self.limit = env.spec.max_episode_steps if env.spec else None

    def reset(self, seeds: Sequence[int]) -> Any:
        """Begin anew."""
        each: Any = [int(seed) for seed in seeds]
        try:
            return self.env.reset(seed=each)[0]
        except (gymnasium.error.Error, TypeError):  # those that compute all copies at once take one seed
            return self.env.reset(seed=int(np.random.SeedSequence(each).generate_state(1)[0]))[0]

    def step(self, actions: Any) -> Step:
        """One step of each; what does not start its next episode by itself is told to."""
        seen, rewards, terminated, truncated, info = self.env.step(actions)
        successors, over = seen, np.asarray(terminated | truncated)
        if self.same_step and over.any():
            successors = np.array(seen)
            if self._mode == AutoresetMode.DISABLED:
                seen, _ = self.env.reset(options={"reset_mask": over})
            else:
                for i in np.flatnonzero(over):
                    successors[i] = info["final_obs"][i]
        return Step(seen, reward_array(rewards, self.name), terminated, truncated, successors)

    def close(self) -> None:
        """Let go of it."""
        self.env.close()


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
        self.recipe: EnvRecipe | None = EnvRecipe(name, dict(arguments or {}))
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
        self.name, self.recipe = task.id, EnvRecipe(task.id, dict(arguments))
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
