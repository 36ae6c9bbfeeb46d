"""How much of its time a policy spends where rewards are random: on the frozen patch, in the puddle."""

from __future__ import annotations

import numpy as np

from vpac.envs.continuous_puddle_world import ContinuousPuddleWorld
from vpac.envs.finite_mdp import FiniteMDP
from vpac.learners.learner import Learner
from vpac.learners.watching import paths
from vpac.oracle.occupancy import visits
from vpac.typing import BoolArray, FloatArray

__all__ = ["risky_share", "risky_states", "state_visits"]

WATCHED = 200
"""Episodes that are watched where the share cannot be computed."""


def risky_states(mdp: FiniteMDP) -> BoolArray:
    """The states that pay a random reward, [S]: of a world that is drawn, its frozen cells."""
    if mdp.layout is not None:
        return np.asarray(mdp.layout.letters[tuple(mdp.layout.position.T)] == "f")
    risky = np.zeros(mdp.n_states, bool)
    risky[np.unique(mdp.row[mdp.noise > 0.0] // mdp.n_actions)] = True
    return risky


def state_visits(mdp: FiniteMDP, policy: FloatArray, horizon: int) -> FloatArray:
    """Expected number of steps taken from each state in an episode of at most `horizon` steps, [S]."""
    return np.where(mdp.terminal, 0.0, visits(mdp, policy, 1.0, horizon))


def risky_share(learner: Learner, policy: FloatArray | None, kind: str, horizon: int) -> float | None:
    """Steps taken from risky places, as a share of all steps; None where no place is risky.

    Exact for a finite process, whose `policy` table is given; of watched episodes in the continuous puddle world.
    """
    mdp = learner.sight.mdp
    if mdp is not None and policy is not None:
        risky = risky_states(mdp)
        taken = state_visits(mdp, policy, horizon)
        return float(taken[risky].sum() / taken.sum()) if risky.any() else None
    low, high = ContinuousPuddleWorld().puddle
    walks = paths(learner, kind, WATCHED, horizon, np.random.SeedSequence([learner.seed, 2]))
    places = np.concatenate([walk[:-1] for walk in walks])
    return float(((places >= low) & (places <= high)).all(axis=1).mean())
