"""A common interface to agents: observations of several episodes in, an action for each out.

Agents of vpac have `act(observations, generator, deterministic)`. Models like those of Stable-Baselines3 have
`predict(observation, deterministic=…)` and draw from the global generators of their libraries; so may plain functions.
These generators are seeded during an evaluation and restored afterwards, so that the seed determines everything.
"""

from __future__ import annotations

import inspect
import math
import random
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

from vpac.algorithms import DEFAULT_GAMMA
from vpac.deep.spaces import Interface
from vpac.envs.observations import arranged, flattened
from vpac.envs.remember import RememberReturn, memory_of
from vpac.errors import UserError
from vpac.saved import AGENT, SavedAgent

CHECKED_ACTIONS = 50
"""Number of an agent's actions that are compared with the action space: errors show early, and checking takes time."""


class Actor:
    """An agent that chooses actions for `count` episodes at a time.

    It has `act` or `predict`, or is a function of an observation. `seen` and `acts` are the spaces of one observation and of
    one action. `deterministic`: the most likely action instead of a sampled one; it does not affect functions.
    """

    def __init__(
        self, agent: Any, seen: spaces.Space[Any], acts: spaces.Space[Any], count: int, deterministic: bool
    ) -> None:
        check_fits(agent, seen, acts, "the environment")
        self.agent, self.acts, self.deterministic = agent, acts, deterministic
        self.seen, self.count = batch_space(seen, count), count
        self._one, self._room, self._answer = seen, create_empty_array(seen, 1), batch_space(acts, 1)
        self.remembers = False
        """Whether the agent has returned a state that it carries from step to step."""
        self._state: Any = None
        self._unchecked = CHECKED_ACTIONS
        self._rng = np.random.default_rng(0)
        if callable(getattr(agent, "act", None)):
            self._ask = self._act
        elif callable(getattr(agent, "predict", None)):
            batched = isinstance(getattr(agent, "observation_space", None), gymnasium.Space)
            known = inspect.signature(agent.predict).parameters
            self._carries = {"state", "episode_start"} <= set(known)
            self._ask = self._predict_batch if batched else self._predict_each
        elif callable(agent):
            self._ask = self._call_each
        else:
            raise UserError(
                f"{type(agent).__name__} cannot be asked for actions: expected an agent with act or predict, "
                "or a function of an observation"
            )

    @property
    def decides_itself(self) -> bool:
        """Whether the agent is a plain function, for which `deterministic` has no meaning."""
        return self._ask == self._call_each

    def begin(self, seed: np.random.SeedSequence) -> None:
        """Reset the agent's states, and start a new stream of random numbers."""
        self._rng, self._state = np.random.default_rng(seed), None
        if self._ask != self._act:
            _seed_globals(int(seed.generate_state(1)[0]))

    def action(self, observation: Any) -> Any:
        """The action for a single observation within an episode, of an actor for one episode at a time."""
        batch = concatenate(self._one, [observation], self._room)  # type: ignore[arg-type]
        return next(iter(iterate(self._answer, self.actions(batch, np.zeros(1, bool)))))

    def actions(self, observations: Any, fresh: Any) -> Any:
        """An action for each observation, for a vector environment; `fresh` marks the beginnings of episodes."""
        chosen = self._ask(observations, fresh)
        if isinstance(self.acts, spaces.Dict | spaces.Tuple):
            return chosen
        found = np.asarray(chosen)
        if found.dtype.kind not in "biuf":
            raise self._no_action(next(iter(found.ravel().tolist()), None))
        shape = (self.count, *(self.acts.shape or ()))
        if found.size != np.prod(shape):
            raise UserError(
                f"the agent answered with actions of shape {list(found.shape)}, "
                f"the environment takes {list(shape)} for {self.count} observations ({self.acts} each)"
            )
        found = found.reshape(shape)
        if isinstance(self.acts, spaces.Box):
            found = np.clip(found, self.acts.low, self.acts.high)
        typed = found.astype(self.acts.dtype)
        if self._unchecked > 0:
            self._unchecked -= 1
            self._check(found, typed)
        return typed

    def _check(self, found: Any, typed: Any) -> None:
        """Raise an error unless these are valid actions; an environment may silently accept others."""
        for one, read in zip(found, typed, strict=True):
            if not (np.array_equal(one, read) or isinstance(self.acts, spaces.Box)) or not self.acts.contains(read):
                raise self._no_action(one.tolist())

    def _no_action(self, answer: Any) -> UserError:
        return UserError(f"the agent answered with {answer!r:.80}: expected an action in {self.acts}")

    def _act(self, observations: Any, fresh: Any) -> Any:
        return self.agent.act(observations, self._rng, self.deterministic)

    def _predict_batch(self, observations: Any, fresh: Any) -> Any:
        state = {"state": self._state, "episode_start": np.asarray(fresh, bool)} if self._carries else {}
        chosen, self._state = _pair(self.agent.predict(observations, deterministic=self.deterministic, **state))
        self.remembers |= self._state is not None
        return chosen

    def _predict_each(self, observations: Any, fresh: Any) -> Any:
        each = iterate(self.seen, observations)
        found = [_pair(self.agent.predict(one, deterministic=self.deterministic)) for one in each]
        if any(state is not None for _, state in found):
            raise UserError(
                f"{type(self.agent).__name__}.predict returns a state and does not say for which observations it is: "
                "expected a model with an observation_space that takes state=… and episode_start=…"
            )
        return self._together([action for action, _ in found])

    def _call_each(self, observations: Any, fresh: Any) -> Any:
        return self._together([self.agent(one) for one in iterate(self.seen, observations)])

    def _together(self, actions: list[Any]) -> Any:
        if isinstance(self.acts, spaces.Dict | spaces.Tuple):
            for action in actions[: len(actions) if self._unchecked > 0 else 0]:
                self._unchecked -= 1
                if not self.acts.contains(action):
                    raise self._no_action(action)
            return concatenate(self.acts, actions, create_empty_array(self.acts, len(actions)))  # type: ignore[arg-type]
        found = [np.asarray(action) for action in actions]
        if len({one.shape for one in found}) > 1:
            shapes = " and ".join(str(list(shape)) for shape in sorted({one.shape for one in found}))
            raise UserError(f"the agent answered with actions of shapes {shapes}: expected actions in {self.acts}")
        return np.stack(found)


def gamma_of(agent: Any) -> float:
    """The agent's own discount factor, or 0.99."""
    for where in (agent, getattr(agent, "options", None), getattr(agent, "settings", None)):
        gamma = getattr(where, "gamma", None)
        if isinstance(gamma, int | float) and 0.0 <= gamma <= 1.0:
            return float(gamma)
    return DEFAULT_GAMMA


def _seed_globals(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    if torch := sys.modules.get("torch"):
        torch.manual_seed(seed)


def _pair(answer: Any) -> tuple[Any, Any]:
    """Action and state from a `predict` that may return no state."""
    return answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, None)


def as_seen(env: gymnasium.Env[Any, Any], agent: Any) -> gymnasium.Env[Any, Any]:
    """The environment with the memory and the observations that an agent learned with.

    Agents of the PPO family get the observations of `arranged`, other agents of vpac vectors. Other agents get the
    environment's own observations, unless their `observation_space` is a vector.
    """
    memory = getattr(getattr(agent, "environment", agent), "memory", None)
    if memory is not None and memory_of(env) is None:
        env = RememberReturn(env, **memory)
    if isinstance(interface := getattr(agent, "interface", None), Interface):
        return arranged(env, interface.masked)
    space = getattr(agent, "observation_space", None)
    vector = isinstance(space, spaces.Box) and len(space.shape) == 1
    return flattened(env) if vector or callable(getattr(agent, "act", None)) else env


def check_fits(agent: Any, seen: spaces.Space[Any], acts: spaces.Space[Any], name: str) -> None:
    """Reject an agent that was made for other spaces, if it names its spaces; `name` is the environment's.

    Policies of the PPO family have an `interface`; models like those of Stable-Baselines3 `observation_space` and
    `action_space`. Other agents are not checked.
    """
    interface = getattr(agent, "interface", None)
    if isinstance(interface, Interface):
        theirs = Interface.of(seen, acts, name)
        if interface.discrete_observations != theirs.discrete_observations:
            kinds = {True: "Discrete", False: "Box"}
            raise UserError(
                f"{name} has {kinds[theirs.discrete_observations]} observations; this policy takes "
                f"{kinds[interface.discrete_observations]} ones"
            )
        if _sizes(interface) != _sizes(theirs):
            raise UserError(f"{name} has {_sizes(theirs)}; this policy takes {_sizes(interface)}")
        return
    for what, ours, expected in (("observations", seen, "observation_space"), ("actions", acts, "action_space")):
        other = getattr(agent, expected, None)
        if isinstance(other, gymnasium.Space) and _differ(ours, other):
            raise UserError(f"{name} has {what} in {ours}; this model was made for {other}")


def _differ(one: spaces.Space[Any], other: spaces.Space[Any]) -> bool:
    """Whether two spaces are surely different; images may have their channels first or last."""
    if isinstance(one, spaces.Discrete) and isinstance(other, spaces.Discrete):
        return bool(one.n != other.n)
    if isinstance(one, spaces.Box) and isinstance(other, spaces.Box):
        return math.prod(one.shape) != math.prod(other.shape)
    simple = spaces.Discrete | spaces.Box
    return isinstance(one, simple) and isinstance(other, simple)


def _sizes(interface: Interface) -> str:
    """The spaces of observations and actions, in words."""
    image = f" beside an image {list(interface.image)}" if interface.image else ""
    of_each = f" in parts {list(interface.choices)}" if interface.choices else ""
    what = "actions to choose from" if interface.discrete_actions else "numbers of an action"
    masked = " with masks" if interface.masked else ""
    return f"{interface.inputs} numbers to see{image} and {interface.actions} {what}{of_each}{masked}"


def load_agent(path: str | Path, env: Any = None) -> Any:
    """Load a saved agent of any kind; for the PPO family, its policy. Runs no stored code.

    Args:
        path: the folder with `agent.json`, or one of `vpac train` that holds a single run.
        env: the environment, or its name as in the file, which then has the arguments and wrappers of training; default: the
            one that was saved.
    """
    return restored(SavedAgent.read(_folder(Path(path))), env)


def restored(saved: SavedAgent, env: Any = None) -> Any:
    """The agent of a saved folder, after checking all of its files."""
    if saved.algorithm.deep:  # the policy suffices to act, and needs neither JAX nor the training environment
        from vpac.deep.policy import load_policy

        saved.weights()
        return load_policy(saved.folder)
    return saved.algorithm.load().restore(saved, env)


def _folder(folder: Path) -> Path:
    """The folder itself, or that of the only run in it."""
    if (folder / AGENT).is_file():
        return folder
    runs = sorted(p.parent for p in folder.glob(f"run-*/{AGENT}"))
    if len(runs) != 1:
        found = f"it holds {len(runs)} runs, name one of them" if runs else f"it has no {AGENT}"
        raise UserError(f"cannot read an agent from {folder}: {found}")
    return runs[0]
