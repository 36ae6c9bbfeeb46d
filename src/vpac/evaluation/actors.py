"""Whatever can choose an action, asked in one way: observations of several episodes in, an action for each out.

Agents of ours have `act(observations, generator, deterministic)`. Models like those of Stable-Baselines3 have
`predict(observation, deterministic=…)` and draw from the global generators of their libraries; so may plain functions.
These generators are seeded for the time of an evaluation and put back afterwards, so that the seed decides everything.
"""

from __future__ import annotations

import inspect
import random
import sys
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

from vpac.errors import UserError
from vpac.evaluation.fitting import check_fits

__all__ = ["Actor", "gamma_of"]

CHECKED = 50
"""How often an agent's answers are compared with the space of actions: mistakes show early, and comparing costs time."""
GAMMA = 0.99
"""The discount factor of agents that do not have one."""


class Actor:
    """An agent, asked for the actions of `count` episodes at a time.

    Args:
        agent: has `act` or `predict`, or is a function of an observation.
        seen: the space of one observation.
        acts: the space of one action.
        count: episodes at a time.
        deterministic: the most preferred action instead of a drawn one; functions decide for themselves.
    """

    def __init__(
        self, agent: Any, seen: spaces.Space[Any], acts: spaces.Space[Any], count: int, deterministic: bool
    ) -> None:
        check_fits(agent, seen, acts, "the environment")
        self.agent, self.acts, self.deterministic = agent, acts, deterministic
        self.seen, self.count = batch_space(seen, count), count
        self.remembers = False
        """Whether the agent has shown that it carries a state from step to step."""
        self._state: Any = None
        self._unchecked = CHECKED
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
        """Whether the agent is a plain function, which nobody can ask for its most preferred action."""
        return self._ask == self._call_each

    def begin(self, seed: np.random.SeedSequence) -> None:
        """Forget what was, and draw from a new stream of random numbers."""
        self._rng, self._state = np.random.default_rng(seed), None
        if self._ask != self._act:
            _seed_globals(int(seed.generate_state(1)[0]))

    def actions(self, observations: Any, fresh: Any) -> Any:
        """An action for each observation, as the vector environment takes them; `fresh` says where episodes begin."""
        chosen = self._ask(observations, fresh)
        if isinstance(self.acts, spaces.Dict | spaces.Tuple):
            return chosen
        found = np.asarray(chosen)
        if found.dtype.kind not in "biuf":
            raise UserError(
                f"the agent answered with {next(iter(found.ravel().tolist()), None)!r:.80}: expected an action in {self.acts}"
            )
        shape = (self.count, *(self.acts.shape or ()))
        if found.shape != shape:
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
        """Whether these are actions; an environment may take others without a word, and what it does then is no measurement."""
        for one, read in zip(found, typed, strict=True):
            if not (np.array_equal(one, read) or isinstance(self.acts, spaces.Box)) or not self.acts.contains(read):
                raise UserError(f"the agent answered with {one.tolist()!r:.80}: expected an action in {self.acts}")

    def _act(self, observations: Any, fresh: Any) -> Any:
        return self.agent.act(observations, self._rng, self.deterministic)

    def _predict_batch(self, observations: Any, fresh: Any) -> Any:
        state = {"state": self._state, "episode_start": np.asarray(fresh, bool)} if self._carries else {}
        chosen, self._state = _pair(self.agent.predict(observations, deterministic=self.deterministic, **state))
        self.remembers |= self._state is not None
        return chosen

    def _predict_each(self, observations: Any, fresh: Any) -> Any:
        found = [
            _pair(self.agent.predict(one, deterministic=self.deterministic)) for one in iterate(self.seen, observations)
        ]
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
                    raise UserError(f"the agent answered with {action!r:.80}: expected an action in {self.acts}")
            return concatenate(self.acts, actions, create_empty_array(self.acts, len(actions)))  # type: ignore[arg-type]
        found = [np.asarray(action) for action in actions]
        if len({one.shape for one in found}) > 1:
            shapes = " and ".join(str(list(shape)) for shape in sorted({one.shape for one in found}))
            raise UserError(f"the agent answered with actions of shapes {shapes}: expected actions in {self.acts}")
        return np.stack(found)


def gamma_of(agent: Any) -> float:
    """The agent's own discount factor, or 0.99."""
    for holder in (agent, getattr(agent, "options", None), getattr(agent, "settings", None)):
        gamma = getattr(holder, "gamma", None)
        if isinstance(gamma, int | float) and 0.0 <= gamma <= 1.0:
            return float(gamma)
    return GAMMA


def _seed_globals(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    if torch := sys.modules.get("torch"):
        torch.manual_seed(seed)


def _pair(answer: Any) -> tuple[Any, Any]:
    """Action and state, of a `predict` that may leave the state out."""
    return answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, None)
