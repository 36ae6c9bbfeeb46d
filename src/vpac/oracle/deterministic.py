"""All deterministic policies of a small process, and how good they are."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from vpac.envs.finite_mdp import FiniteMDP, reachable
from vpac.oracle.ending import end_surely
from vpac.oracle.moments import VarianceOf, evaluate
from vpac.typing import FloatArray, IntArray

__all__ = ["deterministic_policies", "every_deterministic"]

MOST_DETERMINISTIC = 100_000
"""Up to this many deterministic policies are all tried."""
BATCH = 4096
"""They are evaluated this many at a time."""


def deterministic_policies(mdp: FiniteMDP) -> Iterator[IntArray]:
    """Every deterministic policy, in batches of action choices [N, S]; states that are never entered keep action 0."""
    free: IntArray = np.flatnonzero(reachable(mdp) & ~mdp.terminal)
    batch: list[tuple[int, ...]] = []
    for choice in product(range(mdp.n_actions), repeat=len(free)):
        batch.append(choice)
        if len(batch) == BATCH:
            yield _spread(mdp, free, batch)
            batch = []
    if batch:
        yield _spread(mdp, free, batch)


def _spread(mdp: FiniteMDP, free: IntArray, batch: list[tuple[int, ...]]) -> IntArray:
    actions = np.zeros((len(batch), mdp.n_states), np.int64)
    actions[:, free] = batch
    return actions


def every_deterministic(
    mdp: FiniteMDP, gamma: float, variance_of: VarianceOf
) -> tuple[IntArray, FloatArray, FloatArray] | None:
    """Actions, means and variances of all deterministic policies, or None if they are too many or may not end."""
    choices = int((reachable(mdp) & ~mdp.terminal).sum())
    if mdp.n_actions**choices > MOST_DETERMINISTIC:
        return None
    actions, means, variances = [], [], []
    for batch in deterministic_policies(mdp):
        policies = np.eye(mdp.n_actions)[batch]
        if gamma == 1.0:
            ends = end_surely(mdp, policies)
            batch, policies = batch[ends], policies[ends]
        if len(batch):
            moments = evaluate(mdp, policies, gamma)
            actions.append(batch)
            means.append(moments.mean)
            variances.append(moments.variance_of(variance_of))
    if not actions:
        return None
    return np.concatenate(actions), np.concatenate(means), np.concatenate(variances)
