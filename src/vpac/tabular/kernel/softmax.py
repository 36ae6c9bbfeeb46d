"""The actor: a softmax over linear preferences, and its score."""

from __future__ import annotations

import math

import numpy as np

from vpac.tabular.kernel.exponential import (
    LANES,
    add_score_of_four,
    exponentiate,
    exponentiate_four,
    softmax_of_eight,
    softmax_of_four,
)
from vpac.tabular.kernel.jit import inlined, shared
from vpac.typing import FloatArray, IntArray


@inlined
def value(weights: FloatArray, active: IntArray, action: int) -> float:
    """Σ_i weights[i, action] over the active features i: Q̂, σ̂ or M̂ of a state and action."""
    column = np.uint64(action)  # unsigned: no test for negative indices
    total = weights[np.uint64(active[0]), column]
    for index in range(1, len(active)):  # empty for a table
        total += weights[np.uint64(active[index]), column]
    return float(total)


@inlined
def mean_value(weights: FloatArray, active: IntArray, policy: FloatArray) -> float:
    """Σ_a π(a|s) · value(s, a)."""
    total = 0.0
    for action in range(len(policy)):
        total += policy[action] * value(weights, active, action)
    return total


@inlined
def fill_policy(theta: FloatArray, active: IntArray, coldness: float, policy: FloatArray) -> None:
    """π(a|s) ∝ exp(θ(s,a) · coldness) into `policy`; coldness is 1/temperature."""
    if len(active) == 1 and len(policy) == LANES:  # the usual case, without a loop
        softmax_of_four(theta[np.uint64(active[0])], coldness, policy)
    elif len(active) == 1 and len(policy) == 2 * LANES:
        softmax_of_eight(theta[np.uint64(active[0])], coldness, policy)
    else:
        _fill_any_policy(theta, active, coldness, policy)


@shared
def _fill_any_policy(theta: FloatArray, active: IntArray, coldness: float, policy: FloatArray) -> None:
    n_actions = len(policy)
    largest = -math.inf
    for action in range(n_actions):
        preference = value(theta, active, action) * coldness
        policy[action] = preference
        largest = max(largest, preference)
    total = 0.0
    fours = n_actions - n_actions % LANES
    for action in range(0, fours, LANES):
        total += exponentiate_four(policy, action, largest)
    for action in range(fours, n_actions):
        total += exponentiate(policy, action, largest)
    share = 1.0 / total
    for action in range(n_actions):
        policy[action] *= share


@inlined
def policy_at(theta: FloatArray, active: IntArray, coldness: float, policies: FloatArray, slot: int) -> np.uint64:
    """The row of `policies` with the policy of a state: its own, computed if needed; or the given slot."""
    row = np.uint64(active[0] if len(active) == 1 else slot)
    if len(active) > 1 or policies[row, 0] == 0.0:
        fill_policy(theta, active, coldness, policies[row])
    return row


@inlined
def add_score(theta: FloatArray, active: IntArray, policy: FloatArray, action: int, amount: float) -> None:
    """θ ← θ + amount · (1[a] − π(a|s)), on the active features."""
    for index in range(len(active)):
        feature = np.uint64(active[index])
        fours = len(policy) - len(policy) % LANES
        for other in range(0, fours, LANES):
            add_score_of_four(theta[feature], other, policy, action, amount)
        for other in range(fours, len(policy)):
            theta[feature, other] += amount * ((1.0 if other == action else 0.0) - policy[other])


@inlined
def greedy_action(theta: FloatArray, active: IntArray) -> int:
    """The first of the actions with the largest preference."""
    best, largest = 0, -np.inf
    for action in range(theta.shape[1]):
        preference = value(theta, active, action)
        if preference > largest:
            best, largest = action, preference
    return best
