"""Whether an agent and an environment fit: compared before the first step, because arrays that do not fit say little."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
from gymnasium import spaces

from vpac.deep.spaces import Interface
from vpac.errors import UserError

__all__ = ["check_fits", "takes_vectors"]


def takes_vectors(agent: Any) -> bool:
    """Whether observations are flattened for it: ours learn from vectors, others get what the environment gives, unless they
    say that they were made for a vector."""
    if callable(getattr(agent, "act", None)):
        return True
    space = getattr(agent, "observation_space", None)
    return isinstance(space, spaces.Box) and len(space.shape) == 1


def check_fits(agent: Any, seen: spaces.Space[Any], acts: spaces.Space[Any], name: str) -> None:
    """Refuse an agent that was made for other spaces, as far as it says for which.

    Args:
        agent: policies of the PPO family have an `interface`; models like those of Stable-Baselines3 `observation_space` and
            `action_space`. Others check what they are given.
        seen: the space of one observation.
        acts: the space of one action.
        name: the environment's.
    """
    interface = getattr(agent, "interface", None)
    if isinstance(interface, Interface):
        weights = getattr(agent, "weights", None)
        if isinstance(weights, list):
            prices = getattr(agent, "prices", None) is not None
            mine = (weights[0].shape[0] - prices, weights[-1].shape[1], agent.log_std is None)
        else:
            mine = (interface.inputs, interface.actions, interface.discrete_actions)
        theirs = Interface.of(seen, acts, name)
        if interface.discrete_observations != theirs.discrete_observations:
            kinds = {True: "Discrete", False: "Box"}
            raise UserError(
                f"{name} has {kinds[theirs.discrete_observations]} observations; this policy takes "
                f"{kinds[interface.discrete_observations]} ones"
            )
        if mine != (theirs.inputs, theirs.actions, theirs.discrete_actions):
            raise UserError(
                f"{name} has {theirs.inputs} numbers to see and {theirs.actions} {_kind(theirs.discrete_actions)}; this policy "
                f"takes {mine[0]} and {mine[1]} {_kind(mine[2])}"
            )
        return
    for what, ours, expected in (("observations", seen, "observation_space"), ("actions", acts, "action_space")):
        other = getattr(agent, expected, None)
        if isinstance(other, gymnasium.Space) and _differ(ours, other):
            raise UserError(f"{name} has {what} in {ours}; this model was made for {other}")


def _differ(one: spaces.Space[Any], other: spaces.Space[Any]) -> bool:
    """Whether two spaces surely hold different things; pictures may have their channels first or last."""
    if isinstance(one, spaces.Discrete) and isinstance(other, spaces.Discrete):
        return bool(one.n != other.n)
    if isinstance(one, spaces.Box) and isinstance(other, spaces.Box):
        return math.prod(one.shape) != math.prod(other.shape)
    simple = spaces.Discrete | spaces.Box
    return isinstance(one, simple) and isinstance(other, simple)


def _kind(discrete: bool) -> str:
    return "actions to choose from" if discrete else "numbers of an action"
