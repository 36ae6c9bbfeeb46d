"""Watching a policy: where its episodes go."""

from __future__ import annotations

from typing import Any

import numpy as np

from vpac.errors import UserError
from vpac.learners.compiled import compiled
from vpac.learners.generator import Words, generator, pick
from vpac.learners.learner import Learner
from vpac.learners.softmax import fill_policy, greedy_action
from vpac.learners.state import Workspace
from vpac.learners.worlds import World, first_place, move, see
from vpac.typing import FloatArray

__all__ = ["paths"]


def paths(learner: Learner, policy: str, count: int, limit: int, seed: np.random.SeedSequence) -> list[Any]:
    """Where `count` episodes of the learner's greedy or softmax policy went, from start to end.

    Returns:
        For each episode its states, [steps + 1], or in the continuous puddle world its points, [steps + 1, 2].
    """
    sight = learner.sight
    if sight.world is None:
        raise UserError(f"{sight.name} is not compiled: its episodes cannot be watched here")
    work, words = Workspace.make(sight.n_active, sight.n_actions), generator(seed)
    coldness, places = 1.0 / learner.options.temperature, np.zeros((limit + 1, 2))
    found = []
    for _ in range(count):
        steps = _walk(sight.world, learner.weights.theta, coldness, policy == "greedy", limit, words, work, places)
        walked = places[: steps + 1]
        found.append(walked[:, 0].copy().view(np.int64) if sight.mdp is not None else walked.copy())
    return found


@compiled
def _walk(
    world: World,
    theta: FloatArray,
    coldness: float,
    greedy: bool,
    limit: int,
    words: Words,
    work: Workspace,
    places: FloatArray,
) -> int:
    """One episode; writes down every place and returns the number of steps."""
    place, here, policy = work.place, work.here, work.policy
    first_place(world, place, words)
    places[0, 0], places[0, 1] = place[0], place[1]
    terminated, steps = False, 0
    while steps < limit and not terminated:
        see(world, place, here)
        if greedy:
            action = greedy_action(theta, here)
        else:
            fill_policy(theta, here, coldness, policy)
            action = pick(policy, words)
        _, terminated = move(world, place, action, words)
        steps += 1
        places[steps, 0], places[steps, 1] = place[0], place[1]
    return steps
