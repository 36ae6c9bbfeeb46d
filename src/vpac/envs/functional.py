"""Environments as pure functions of JAX: trainings in them are compiled as a whole (`vpac.deep.compiled`).

`reset` begins an episode and `step` takes an action in it, both for a single environment; JAX vectorises them. Nothing here
imports JAX before an environment is used.
"""

from __future__ import annotations

import importlib
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from vpac.envs.finite_mdp import FiniteMDP
from vpac.envs.make import EnvRecipe, spec_of
from vpac.envs.vector import Environments, VectorStep
from vpac.errors import UserError, needs_extra, suggestion

RETURNED = {
    "reset": ("state", "observation"),
    "step": ("state", "observation", "reward", "terminated", "truncated"),
}
"""Names of what the functions of an environment return."""


class FunctionalEnv(ABC):
    """An environment whose `reset` and `step` are pure functions that `jax.jit` and `jax.vmap` can trace.

    A state is any tree of arrays whose shapes and types never change. Resets are automatic: the next episode begins after the
    end of one, and episodes are truncated after `limit` steps.
    """

    observation_space: spaces.Space[Any]
    """Box or Discrete."""
    action_space: spaces.Space[Any]
    """Box or Discrete."""
    limit: int | None = None
    """Steps after which an episode is truncated; None: never."""

    @abstractmethod
    def reset(self, key: Any) -> tuple[Any, Any]:
        """The first state and its observation."""

    @abstractmethod
    def step(self, key: Any, state: Any, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        """The next state, its observation, the reward, and whether the episode terminated or was truncated."""

    def draws(self, key: Any, shape: tuple[int, ...]) -> Any:
        """Keys of `reset` and `step` for a batch of this shape.

        An environment that needs few random numbers may draw those of all steps at once, which is faster, and use them as keys.
        """
        import jax

        return jax.random.split(key, shape)

    @property
    def name(self) -> str:
        """Its name in messages."""
        return type(self).__name__


class FiniteEnv(FunctionalEnv):
    """A `FiniteMDP` in JAX: it samples the same transitions and rewards.

    Args:
        mdp: the process.
        features: the observation of each state, [state, …]; default: the state itself, a Discrete observation.
        limit: steps after which an episode is truncated.
    """

    def __init__(self, mdp: FiniteMDP, features: Any = None, limit: int | None = None) -> None:
        self.mdp, self.limit = mdp, limit
        self.features = None if features is None else np.asarray(features, np.float32)
        if self.features is not None and len(self.features) != mdp.n_states:
            raise UserError(f"features of {len(self.features)} states for a process of {mdp.n_states}")
        seen = self.features
        self.observation_space = spaces.Discrete(mdp.n_states)
        if seen is not None:
            self.observation_space = spaces.Box(-np.inf, np.inf, seen.shape[1:], np.float32)
        self.action_space = spaces.Discrete(mdp.n_actions)
        first, last = mdp.indptr[:-1], mdp.indptr[1:]
        sums = np.cumsum(mdp.probability)
        before = np.where(first > 0, sums[np.maximum(first, 1) - 1], 0.0)
        self._sums = (sums - before[mdp.row]).astype(np.float32)
        self._first, self._last = first.astype(np.int32), np.maximum(last - 1, first).astype(np.int32)
        self._halvings = int(np.diff(mdp.indptr).max()).bit_length()
        self._starts = np.cumsum(mdp.start).astype(np.float32)

    @property
    def name(self) -> str:
        """Its name in messages."""
        return repr(self.mdp)

    def draws(self, key: Any, shape: tuple[int, ...]) -> Any:
        """A uniform number for the transition and a normal one for the reward."""
        import jax

        one, two = jax.random.split(key)
        return jax.random.uniform(one, shape), jax.random.normal(two, shape)

    def reset(self, key: Any) -> tuple[Any, Any]:
        """Draw a first state."""
        import jax.numpy as jnp

        state = jnp.searchsorted(self._starts, key[0] * self._starts[-1], side="right").astype(jnp.int32)
        return self._seen(state)

    def step(self, key: Any, state: Any, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Draw a transition, by bisection over those of the state and the action."""
        import jax.numpy as jnp

        mdp, row = self.mdp, state * self.mdp.n_actions + action
        low, high = jnp.asarray(self._first)[row], jnp.asarray(self._last)[row]
        for _ in range(self._halvings):
            middle = (low + high) // 2
            right = (jnp.asarray(self._sums)[middle] <= key[0]) & (low < high)
            low, high = jnp.where(right, middle + 1, low), jnp.where(right, high, middle)
        mean, std = (jnp.asarray(x, jnp.float32)[low] for x in (mdp.reward, np.sqrt(mdp.noise)))
        after = jnp.asarray(mdp.successor, jnp.int32)[low]
        return *self._seen(after), mean + std * key[1], jnp.asarray(mdp.terminal)[after], False

    def _seen(self, state: Any) -> tuple[Any, Any]:
        """A state and its observation."""
        import jax.numpy as jnp

        return state, state if self.features is None else jnp.asarray(self.features)[state]


class GymnaxEnv(FunctionalEnv):
    """An environment of gymnax 1.x.

    Args:
        task: its name in gymnax, e.g. CartPole-v1.
        params: fields of its parameters that differ from the defaults.
    """

    def __init__(self, task: str, **params: Any) -> None:
        try:
            import gymnax
            from gymnax.environments.spaces import gymnax_space_to_gym_space as space_of
        except ModuleNotFoundError as error:
            raise needs_extra(f"gymnax:{task}", error, "functional") from None
        if task not in gymnax.registered_envs:
            known = suggestion(task, gymnax.registered_envs) or f"; it has {', '.join(gymnax.registered_envs)}"
            raise UserError(f"gymnax has no environment {task!r}{known}")
        self._env, defaults = gymnax.make(task)
        fields = list(defaults.__dataclass_fields__)
        for field in params:
            if field not in fields:
                raise UserError(f"gymnax:{task} has no parameter {field!r}{suggestion(field, fields)}")
        self.task, self._params = task, defaults.replace(**params)
        self.observation_space = space_of(self._env.observation_space(self._params))
        self.action_space = space_of(self._env.action_space(self._params))
        self.limit = int(self._params.max_steps_in_episode)

    @property
    def name(self) -> str:
        """Its name in messages."""
        return f"gymnax:{self.task}"

    def reset(self, key: Any) -> tuple[Any, Any]:
        """The first state and its observation."""
        seen, state = self._env.reset_env(key, self._params)
        return state, seen

    def step(self, key: Any, state: Any, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Take a step; gymnax distinguishes termination and truncation."""
        seen, state, reward, terminated, _ = self._env.step_env(key, state, action, self._params)
        return state, seen, reward, terminated, self._env.is_truncated(state, self._params)


class BraxEnv(FunctionalEnv):
    """An environment of Brax. Its `done` is a termination; episodes are truncated after 1000 steps, as Brax's own trainings do.

    Args:
        task: its name in Brax, e.g. inverted_pendulum.
        arguments: of its constructor, e.g. backend="positional".
    """

    limit = 1000

    def __init__(self, task: str, **arguments: Any) -> None:
        try:
            from brax import envs
        except ModuleNotFoundError as error:
            raise UserError(f"brax:{task} needs Brax: pip install brax ({error})") from None
        if task not in envs._envs:
            known = suggestion(task, envs._envs) or f"; it has {', '.join(sorted(envs._envs))}"
            raise UserError(f"Brax has no environment {task!r}{known}")
        try:
            self._env = envs.get_environment(task, **arguments)
        except TypeError as error:
            raise UserError(f"brax:{task}: {error}") from None
        self.task = task
        self.observation_space = spaces.Box(-np.inf, np.inf, (int(self._env.observation_size),), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (int(self._env.action_size),), np.float32)

    @property
    def name(self) -> str:
        """Its name in messages."""
        return f"brax:{self.task}"

    def reset(self, key: Any) -> tuple[Any, Any]:
        """The first state and its observation."""
        state = self._env.reset(key)
        return state, state.obs

    def step(self, key: Any, state: Any, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Take a step; only `reset` is random."""
        state = self._env.step(state, action)
        return state, state.obs, state.reward, state.done > 0.0, False


class FunctionalGym(gymnasium.Env[Any, Any]):
    """A single functional environment with Gymnasium's interface, for evaluation and not for training."""

    def __init__(self, env: FunctionalEnv) -> None:
        self.env, self.observation_space, self.action_space = env, env.observation_space, env.action_space
        self._copies = FunctionalEnvironments(env, 1)
        if isinstance(env, FiniteEnv) and env.features is None:
            self.mdp = env.mdp

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        return self._seen(self._copies.reset([int(self.np_random.integers(2**32))])[0]), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a step."""
        found = self._copies.step(np.asarray(action)[None])
        return (
            self._seen(found.successors[0]), float(found.rewards[0]), bool(found.terminated[0]), bool(found.truncated[0]), {},
        )  # fmt: skip

    def _seen(self, observation: Any) -> Any:
        """An observation with the dtype of the space."""
        return np.int64(observation) if isinstance(self.observation_space, spaces.Discrete) else observation


@dataclass(frozen=True)
class FunctionalMaker:
    """Makes a functional environment from its name: `gymnax:NAME`, `brax:NAME`, `jax:ID`, or the import path of its class."""

    name: str

    def functional(self, **arguments: Any) -> FunctionalEnv:
        """The environment itself; `max_episode_steps` is its limit."""
        try:
            return _functional(self.name, tuple(sorted(arguments.items())))
        except TypeError:  # an argument that is not hashable
            return _functional.__wrapped__(self.name, tuple(sorted(arguments.items())))

    def __call__(self, **arguments: Any) -> FunctionalGym:
        """The environment with Gymnasium's interface."""
        return FunctionalGym(self.functional(**arguments))


@lru_cache(maxsize=64)
def _functional(path: str, given: tuple[tuple[str, Any], ...]) -> FunctionalEnv:
    """The environment of a name, cached, so that the runs of a worker share its compiled programs."""
    arguments, (module, _, name) = dict(given), path.partition(":")
    if module == "jax":
        from vpac.envs.jax_worlds import jax_version

        return jax_version(name, **arguments)
    limit = arguments.pop("max_episode_steps", None)
    libraries = {"gymnax": GymnaxEnv, "brax": BraxEnv}
    kind: Any = libraries.get(module) or getattr(importlib.import_module(module), name)
    made: FunctionalEnv = kind(name, **arguments) if module in libraries else kind(**arguments)
    made.limit = made.limit if limit is None else int(limit)
    return made


def functional_of(env: Any, arguments: dict[str, Any]) -> FunctionalEnv | None:
    """The functional environment that `env` is, or whose class or name it is; None if it is none."""
    if isinstance(env, FunctionalEnv):
        return env
    if isinstance(env, type) and issubclass(env, FunctionalEnv):
        env = f"{env.__module__}:{env.__qualname__}"
    spec = spec_of(env) if isinstance(env, str) and ":" in env else env
    if not isinstance(spec, EnvSpec) or not isinstance(spec.entry_point, FunctionalMaker) or spec.additional_wrappers:
        return None
    limit = {} if spec.max_episode_steps is None else {"max_episode_steps": spec.max_episode_steps}
    return spec.entry_point.functional(**limit, **spec.kwargs | arguments)


class FunctionalEnvironments(Environments):
    """Copies of a functional environment. Trainings are compiled; stepped from Python, they are a vector environment."""

    same_step = True

    def __init__(self, env: FunctionalEnv, n: int, recipe: EnvRecipe | None = None) -> None:
        self.env, self.n, self.name, self.limit, self.recipe = env, n, env.name, env.limit, recipe
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self._check()

    def _check(self) -> None:
        """Trace `draws`, `reset` and `step` once, so that an error names the one that cannot be traced."""
        import jax

        tree: Any = jax.tree
        if not isinstance(self.action_space, spaces.Discrete | spaces.Box):
            raise UserError(f"{self.name}: environments in JAX have Discrete or Box actions, got {self.action_space}")
        if self.limit is not None and self.limit < 1:
            raise UserError(f"{self.name}: limit must be None or at least 1, got {self.limit!r}")
        copies = (self.n,)
        draws = self._traced("draws", lambda: self.env.draws(jax.random.key(0), copies))
        first = self._traced("reset", jax.vmap(self.env.reset), draws)
        act = self.action_space
        kind: Any = np.int32 if isinstance(act, spaces.Discrete) else np.float32
        action = np.zeros((*copies, *(act.shape or ())), kind)
        after = self._traced("step", jax.vmap(self.env.step), draws, first[0], action)
        for what, found in zip(RETURNED["step"][2:], after[2:], strict=True):
            if (shapes := [list(leaf.shape[1:]) for leaf in tree.leaves(found)]) != [[]]:
                raise UserError(f"{self.name}: step returns {what} of shapes {shapes}, expected one number")
            kinds, expected = ("iuf", "a real number") if what == "reward" else ("bi", "a truth value")
            if (dtype := np.result_type(tree.leaves(found)[0])).kind not in kinds:
                raise UserError(f"{self.name}: step returns {what} as {dtype}, expected {expected}")
        for what, was, now in zip(("state", "observation"), first, after, strict=False):
            before, later = ([(leaf.shape[1:], leaf.dtype.name) for leaf in tree.leaves(one)] for one in (was, now))
            if before != later or tree.structure(was) != tree.structure(now):
                raise UserError(f"{self.name}: the {what} changes from {before} in reset to {later} in step")
        seen, shape = tree.leaves(first[1]), self.observation_space.shape or ()
        if len(seen) != 1 or seen[0].shape != (*copies, *shape):
            found = [list(leaf.shape[1:]) for leaf in seen]
            raise UserError(f"{self.name}: reset observes {found}, the observation space is {self.observation_space}")
        if isinstance(self.observation_space, spaces.Discrete) and np.result_type(seen[0]).kind not in "iu":
            raise UserError(
                f"{self.name}: reset observes {np.result_type(seen[0])}, a Discrete space needs whole numbers"
            )

    def _traced(self, what: str, function: Any, *given: Any) -> Any:
        """The shapes of a function's results."""
        import jax

        try:
            with jax.checking_leaks():  # of values that a function keeps: JAX finds them much later otherwise
                found = jax.eval_shape(function, *given)
        except UserError:
            raise
        except Exception as error:
            sentences = re.split(r"\. | (?:This \w*Tracer|The problem|See https)", " ".join(str(error).split()))
            said = sentences[0].removesuffix(".")
            raise UserError(f"{self.name}: JAX cannot trace {what} ({type(error).__name__}: {said:.300})") from error
        expected = RETURNED.get(what)
        if expected and not (isinstance(found, tuple) and len(found) == len(expected)):
            things = f"{len(found)} things" if isinstance(found, tuple) else "one thing"
            raise UserError(
                f"{self.name}: {what} must return {', '.join(expected[:-1])} and {expected[-1]}, got {things}"
            )
        return found

    def reset(self, seeds: Sequence[int]) -> Any:
        """Start episodes."""
        import jax

        words = np.random.SeedSequence([int(seed) for seed in seeds]).generate_state(2)
        self._key, first = jax.random.split(jax.random.wrap_key_data(jax.numpy.asarray(words)))
        self._state, seen = _compiled()[0](self.env, self.n, first)
        self._elapsed = np.zeros(self.n, np.float32)
        return np.asarray(seen)

    def step(self, actions: Any) -> VectorStep:
        """Step each once; finished episodes restart within the step."""
        import jax

        self._key, now = jax.random.split(self._key)
        found = _compiled()[1](self.env, self.n, now, self._state, self._elapsed, actions)
        self._state, seen, after, rewards, over, cut = found
        ended = np.asarray(over | cut)
        self._elapsed = np.where(ended, 0.0, self._elapsed + 1.0).astype(np.float32)
        seen, rewards, over, cut, after = map(np.asarray, (seen, rewards, over, cut, after))
        return VectorStep(seen, rewards.astype(np.float64), over, cut, after)

    def close(self) -> None:
        """Do nothing: nothing is open."""


@cache
def _compiled() -> tuple[Any, Any]:
    """`reset` and `step` of all copies."""
    import jax

    def reset(env: FunctionalEnv, n: int, key: Any) -> Any:
        return jax.vmap(env.reset)(env.draws(key, (n,)))

    def step(env: FunctionalEnv, n: int, key: Any, state: Any, elapsed: Any, actions: Any) -> Any:
        one, two = jax.random.split(key)
        return advance(env, env.draws(one, (n,)), env.draws(two, (n,)), state, elapsed, actions)

    return jax.jit(reset, static_argnums=(0, 1)), jax.jit(step, static_argnums=(0, 1))


def advance(env: FunctionalEnv, draws: Any, fresh: Any, state: Any, elapsed: Any, actions: Any) -> tuple[Any, ...]:
    """Step all copies, `elapsed` steps after their episodes began; finished episodes restart with the draws `fresh`.

    Returns the next state and observations, the observations after this step, rewards, and which episodes terminated or were
    truncated.
    """
    import jax
    import jax.numpy as jnp

    later, after, rewards, over, cut = jax.vmap(env.step)(draws, state, actions)
    over = jnp.asarray(over, bool)
    cut = ~over & (jnp.asarray(cut, bool) | (False if env.limit is None else elapsed + 1.0 >= env.limit))
    ended = over | cut

    def begun(new: Any, old: Any) -> Any:
        return jnp.where(ended.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    later, seen = jax.tree.map(begun, jax.vmap(env.reset)(fresh), (later, after))
    later = jax.tree.map(lambda x: x.astype(x.dtype), later)  # fix weak types
    return later, seen, after, jnp.asarray(rewards, jnp.float32), over, cut
