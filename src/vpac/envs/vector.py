"""Many environments with one interface: EnvPool, a Gymnasium vector environment, or a plain loop.

Resets happen in the next step, as in Gymnasium and EnvPool, unless `same_step`: the step that ends an episode returns its last
observation, and the next step ignores its action and returns the first observation of the next episode.
"""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple, get_args

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, VectorEnv

from vpac.envs.check import (
    Findings,
    check_before_use,
    check_observation,
    checked_step,
    critic_inputs,
    critic_row,
    reward_array,
)
from vpac.envs.finite_mdp import FiniteMDP
from vpac.envs.make import EnvRecipe, make_unflattened, name_of, remake, spec_of
from vpac.envs.observations import arranged, has_masks
from vpac.envs.registration import NOISY_TASKS, SidedTask
from vpac.envs.remember import RememberReturn, memory_of
from vpac.errors import UserError, one_of
from vpac.portable import cores as cores_of_process
from vpac.typing import BoolArray, FloatArray

EnvBackend = Literal["auto", "envpool", "gymnasium"]


class VectorStep(NamedTuple):
    """The results of a step of all environments, or of a group of them."""

    observations: Any
    rewards: FloatArray
    terminated: BoolArray
    truncated: BoolArray
    successors: Any
    """Observations after the step; they differ from `observations` only with `same_step`, at ends of episodes."""
    extras: FloatArray | None = None
    """Extra inputs of the critics at `observations`, [n, numbers]."""
    successor_extras: FloatArray | None = None
    """Extra inputs of the critics at `successors`."""


class Environments(ABC):
    """Copies of one environment, stepped together, or in groups: while one group steps, actions of the next are computed."""

    name: str
    n: int
    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    recipe: EnvRecipe | None = None
    """Recipe to make one again; None: it cannot be expressed as plain data."""
    limit: int | None
    """Steps after which an episode is truncated, if known."""
    same_step: bool = False
    """Whether the step that ends an episode also resets; then there are no steps that only reset."""
    critic_inputs: int = 0
    """Number of extra inputs of the critics, in info["critic"]."""
    groups: tuple[slice, ...] = (slice(None),)
    _actions: Any

    @abstractmethod
    def reset(self, seeds: Sequence[int]) -> Any:
        """Start episodes, from one seed for each environment; returns the observations."""

    @abstractmethod
    def step(self, actions: Any) -> VectorStep:
        """Step each environment once."""

    @abstractmethod
    def close(self) -> None:
        """Close them."""

    def first_extras(self) -> FloatArray:
        """Extra inputs of the critics after `reset`."""
        return np.zeros((self.n, 0))

    def send(self, group: int, actions: Any) -> None:
        """Begin a step of a group, perhaps in the background."""
        self._actions = actions

    def receive(self, group: int) -> VectorStep:
        """Wait for the step of a group."""
        return self.step(self._actions)


def environments(
    env: Any, n: int, backend: EnvBackend = "auto", arguments: dict[str, Any] | None = None, masks: bool | None = None
) -> Environments:
    """`n` environments from anything that `vpac.envs.make_env` takes, or a vector environment, which has its own n.

    `masks`: whether they have masks of allowed actions; None: detect them. An object is not reset for that.
    """
    one_of(backend, get_args(EnvBackend), "backend")
    if isinstance(env, Environments):
        return env
    if isinstance(env, VectorEnv):
        return GymnasiumEnvironments(env)
    from vpac.envs.functional import FunctionalEnvironments, functional_of

    if (pure := functional_of(env, dict(arguments or {}))) is not None:
        recipe = None if pure is env else EnvRecipe.of(env, **(arguments or {}))
        return FunctionalEnvironments(pure, n, recipe)
    if isinstance(env, EnvSpec) and env.id in gymnasium.registry and env == gymnasium.spec(env.id):
        env = env.id
    if isinstance(env, FiniteMDP):
        return SerialEnvironments([env.to_gymnasium() for _ in range(n)], repr(env))
    given = arguments or {}
    if isinstance(env, str) and backend != "gymnasium":
        if has_envpool(env):
            return EnvPoolEnvironments(env, n, given)
        noisy = next((task for task in NOISY_TASKS if task.id == env and has_envpool(task.base)), None)
        if noisy is not None:
            return NoisyEnvPool(noisy, n, given)
    if backend == "envpool":
        raise UserError(
            f"EnvPool cannot make {env!r:.80}: it is the fast way for the MuJoCo tasks (pip install 'vpac[envpool]'); use "
            "backend='gymnasium'"
        )
    first = make_unflattened(env, **given)
    check_before_use(env, lambda: make_unflattened(env, **given), arguments=given)
    if isinstance(env, gymnasium.Env):
        why = ": pass envs=1, or its id, its class or a function that makes one"
        others = [remake(env.spec, why) for _ in range(n - 1)]
    else:
        others = [make_unflattened(env, **given) for _ in range(n - 1)]
    made = [first, *others]
    if masks is None:
        masks = has_masks(made[-1], reset=len(made) > 1 or not isinstance(env, gymnasium.Env))
    return SerialEnvironments([arranged(one, masks) for one in made], name_of(first), EnvRecipe.of(env, **given))


def has_envpool(name: str) -> bool:
    """Whether EnvPool is installed and has a MuJoCo task of this name."""
    if not _is_mujoco(name):
        return False
    try:
        import envpool  # takes a second
    except ImportError:
        return False
    return name in envpool.list_all_envs()


def misses_envpool(envs: Environments) -> bool:
    """Whether these are stepped by Gymnasium only because EnvPool, which is many times as fast, is not installed."""
    serial = isinstance(envs, SerialEnvironments)
    return serial and _is_mujoco(envs.name) and importlib.util.find_spec("envpool") is None


def _is_mujoco(name: str) -> bool:
    spec = gymnasium.registry.get(name)
    return spec is not None and "mujoco" in str(spec.entry_point)


def remembering(
    env: Any, arguments: dict[str, Any] | None, n: int, gamma: float
) -> tuple[Any, dict[str, Any] | None, dict[str, Any]]:
    """An environment, and its arguments, whose observations include the elapsed steps and the return so far.

    The third result is the arguments of its `RememberReturn`: `gamma`, unless the environment has a memory already.
    """
    from vpac.envs.functional import functional_of

    memory: dict[str, Any] = {"gamma": float(gamma)}
    if functional_of(env, arguments or {}) is not None:
        raise UserError('environments in JAX do not remember: pass remember="nothing"')
    if isinstance(env, VectorEnv):
        raise UserError(
            'a vector environment does not remember: put RememberReturn around its parts, or remember="nothing"'
        )
    if isinstance(env, FiniteMDP):
        copies: list[Any] = [RememberReturn(env.to_gymnasium(), **memory) for _ in range(n)]
        return SerialEnvironments(copies, repr(env)), None, memory
    if isinstance(env, SerialEnvironments):
        found = memory_of(env.envs[0])
        if found is None:
            raise UserError('environments that are made already do not remember: pass remember="nothing"')
        return env, arguments, found
    made = make_unflattened(env, **(arguments or {}))
    found = memory_of(made)
    if isinstance(env, gymnasium.Env):
        return (env, None, found) if found is not None else (RememberReturn(made, **memory), None, memory)
    made.close()
    if found is not None:
        return env, arguments, found
    return spec_of(env, [("RememberReturn", memory)], **(arguments or {})), None, memory


class SerialEnvironments(Environments):
    """Gymnasium environments, stepped one after the other with less overhead than Gymnasium's own vector."""

    def __init__(self, envs: list[gymnasium.Env[Any, Any]], name: str, recipe: EnvRecipe | None = None) -> None:
        self.envs, self.name, self.n, self.recipe = envs, name, len(envs), recipe
        self.observation_space, self.action_space = envs[0].observation_space, envs[0].action_space
        self._over = np.zeros(self.n, bool)
        seen = self.observation_space
        self._parts: dict[str, Any] = dict(seen.spaces) if isinstance(seen, spaces.Dict) else {"": seen}
        self._seen = {name: np.zeros((self.n, *part.shape), part.dtype) for name, part in self._parts.items()}
        self.limit = envs[0].spec.max_episode_steps if envs[0].spec else None
        self.critic_inputs = critic_inputs(self.envs[0], f"{self.name}: ")
        self._extras = np.zeros((self.n, self.critic_inputs))

    def reset(self, seeds: Sequence[int]) -> Any:
        """Start episodes."""
        self._over[:] = False
        for i, (env, seed) in enumerate(zip(self.envs, seeds, strict=True)):
            seen, info = env.reset(seed=int(seed))
            self._keep(i, seen, info, by="reset")
        return self._copy()

    def step(self, actions: Any) -> VectorStep:
        """Step each once; those whose episode is over are reset."""
        rewards, terminated, truncated = np.zeros(self.n), np.zeros(self.n, bool), np.zeros(self.n, bool)
        for i, env in enumerate(self.envs):
            if self._over[i]:
                self._keep(i, *env.reset(), by="reset")
            else:
                seen, rewards[i], terminated[i], truncated[i], info = checked_step(env, actions[i], self.name)
                self._keep(i, seen, info, by="step")
        self._over = terminated | truncated
        found, extras = self._copy(), self._extras.copy() if self.critic_inputs else None
        return VectorStep(found, rewards, terminated, truncated, found, extras, extras)

    def first_extras(self) -> FloatArray:
        """Extra inputs of the critics after `reset`."""
        return self._extras

    def close(self) -> None:
        """Close them."""
        for env in self.envs:
            env.close()

    def _copy(self) -> Any:
        """The current observations: an array, or a dictionary of arrays."""
        copies = {name: part.copy() for name, part in self._seen.items()}
        return copies if isinstance(self.observation_space, spaces.Dict) else copies[""]

    def _keep(self, i: int, seen: Any, info: Any, by: str) -> None:
        """Store an observation, checked because NumPy would broadcast other shapes, and treat negative numbers as indices."""
        for name, space in self._parts.items():
            one = seen[name] if name else seen
            if isinstance(space, spaces.Discrete):
                fits = isinstance(one, int | np.integer) and space.start <= one < space.start + space.n
            else:
                fits = type(one) is np.ndarray and one.shape == space.shape and one.dtype.kind in "fiub"
            if not fits and not (space.shape and np.shape(one) == space.shape and np.asarray(one).dtype.kind in "fiub"):
                check_observation(one, space, f"{self.name}: {by}", Findings())
            self._seen[name][i] = one
        if self.critic_inputs:
            self._extras[i] = critic_row(info, self.critic_inputs, f"{self.name}: ")


class GymnasiumEnvironments(Environments):
    """A vector environment of Gymnasium's, in any of its three autoreset modes."""

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        if "envpool" in type(env).__module__ or hasattr(env, "async_reset"):
            raise UserError(
                "an environment of EnvPool cannot be seeded once it is made: pass its id, 'Hopper-v5' for example, and "
                f"envs={env.num_envs}; backend='envpool' makes it"
            )
        self.env, self.n, self.name = env, env.num_envs, name_of(env)
        self.observation_space, self.action_space = env.single_observation_space, env.single_action_space
        self._mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        self.same_step = self._mode != AutoresetMode.NEXT_STEP
        self.limit = env.spec.max_episode_steps if env.spec else None

    def reset(self, seeds: Sequence[int]) -> Any:
        """Start episodes."""
        each: Any = [int(seed) for seed in seeds]
        try:
            return self.env.reset(seed=each)[0]
        except (gymnasium.error.Error, TypeError):  # vectorised simulators take a single seed
            return self.env.reset(seed=int(np.random.SeedSequence(each).generate_state(1)[0]))[0]

    def step(self, actions: Any) -> VectorStep:
        """Step each once, and reset those that do not reset by themselves."""
        seen, rewards, terminated, truncated, info = self.env.step(actions)
        successors, over = seen, np.asarray(terminated | truncated)
        if self.same_step and over.any():
            successors = np.array(seen)
            if self._mode == AutoresetMode.DISABLED:
                seen, _ = self.env.reset(options={"reset_mask": over})
            else:
                for i in np.flatnonzero(over):
                    successors[i] = info["final_obs"][i]
        return VectorStep(seen, reward_array(rewards, self.name), terminated, truncated, successors)

    def close(self) -> None:
        """Close it."""
        self.env.close()


CORES: ContextVar[int | None] = ContextVar("cores", default=None)
"""Number of cores that EnvPool uses; None: all cores of the process."""


@contextmanager
def limit_cores(cores: int) -> Iterator[None]:
    """Limit the number of cores of EnvPool environments made in this context."""
    before = CORES.set(cores)
    try:
        yield
    finally:
        CORES.reset(before)


class EnvPoolEnvironments(Environments):
    """Two pools of EnvPool, each with half of the environments and half of the cores.

    They are recreated at each reset, because their seeds cannot be set otherwise. The halves are the same on every machine, and
    each environment has its own seed, so results do not depend on the number of cores.
    """

    def __init__(self, name: str, n: int, arguments: dict[str, Any]) -> None:
        self.name, self.n, self.recipe = name, n, EnvRecipe(name, dict(arguments))
        self.groups = (slice(0, n),) if n == 1 else (slice(0, n // 2), slice(n // 2, n))
        self._task, self._options = name, dict(arguments)
        self._ids = [np.arange(group.stop - group.start, dtype=np.int32) for group in self.groups]
        self.pools = self._make(range(n))
        self.observation_space, self.action_space = self.pools[0].observation_space, self.pools[0].action_space
        self._dtype, self._names = self.action_space.dtype, self.pools[0]._state_keys
        self.limit = int(self.pools[0].spec.config.max_episode_steps)

    def _make(self, seeds: Sequence[int]) -> list[Any]:
        """The pools, from one seed for each environment."""
        import envpool

        each = [int(seed) % 2**31 for seed in seeds]
        cores = max(1, (CORES.get() or cores_of_process()) // len(self.groups))
        try:
            return [
                envpool.make(
                    self._task, env_type="gymnasium", num_envs=len(each[group]), env_seed=each[group],
                    num_threads=min(len(each[group]), cores), **self._options,
                )
                for group in self.groups
            ]  # fmt: skip
        except (TypeError, ValueError, AssertionError, KeyError) as error:
            raise UserError(f"EnvPool's {self._task} does not take these arguments ({error})") from None

    def reset(self, seeds: Sequence[int]) -> Any:
        """Start episodes."""
        self.close()
        self.pools = self._make(seeds)
        return np.concatenate([pool.reset()[0] for pool in self.pools])

    def send(self, group: int, actions: Any) -> None:
        """Begin a step of a group. Bypasses EnvPool's `send`, whose checks take longer than our networks."""
        self.pools[group]._send([self._ids[group], self._ids[group], np.ascontiguousarray(actions, self._dtype)])

    def receive(self, group: int) -> VectorStep:
        """Wait for the step of a group."""
        return self._read(self._answer(group))

    def _answer(self, group: int) -> dict[str, Any]:
        """The results of a group's step, by EnvPool's names; bypasses its `recv` for the same reason."""
        return dict(zip(self._names, self.pools[group]._recv(), strict=True))

    @staticmethod
    def _read(found: dict[str, Any]) -> VectorStep:
        return VectorStep(found["obs"], found["reward"], found["done"] & ~found["trunc"], found["trunc"], found["obs"])

    def step(self, actions: Any) -> VectorStep:
        """Step each once."""
        for k, group in enumerate(self.groups):
            self.send(k, actions[group])
        columns = zip(*(self.receive(k)[:5] for k in range(len(self.groups))), strict=True)
        return VectorStep(*(np.concatenate(column) for column in columns))

    def close(self) -> None:
        """Close them."""
        for pool in self.pools:
            pool.close()


class NoisyEnvPool(EnvPoolEnvironments):
    """A noisy task of vpac on EnvPool: rewards of steps that end in its region get noise, as in `RegionalRewardNoise`."""

    def __init__(self, task: SidedTask, n: int, arguments: dict[str, Any]) -> None:
        super().__init__(task.base, n, {**task.arguments, **arguments})
        self.name, self.recipe = task.id, EnvRecipe(task.id, dict(arguments))
        self._std, self._low = task.noise["std"], task.noise["low"]
        self._noise = [np.random.default_rng() for _ in self.groups]

    def reset(self, seeds: Sequence[int]) -> Any:
        """Start episodes."""
        self._noise = [np.random.default_rng([int(seed) for seed in seeds[group]]) for group in self.groups]
        return super().reset(seeds)

    def receive(self, group: int) -> VectorStep:
        """Wait for a group's step; steps that only reset have no reward, and so no noise."""
        found = self._answer(group)
        step, where = self._read(found), found["info:x_position"]
        noise = self._std * self._noise[group].standard_normal(len(where))
        noisy = (self._low < where) & (found["elapsed_step"] > 0)
        return step._replace(rewards=step.rewards + noise * noisy)
