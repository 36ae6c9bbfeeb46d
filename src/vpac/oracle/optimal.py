"""The risk-neutral optimum by policy iteration."""

from __future__ import annotations

import numpy as np

from vpac.envs.finite_mdp import FiniteMDP
from vpac.oracle.linear import Chain, OracleError, backup
from vpac.oracle.moments import average, check_gamma
from vpac.oracle.occupancy import surely_ends
from vpac.oracle.policies import greedy, uniform
from vpac.typing import FloatArray

__all__ = ["optimal_policy"]

MOST_ROUNDS = 1000


def optimal_policy(mdp: FiniteMDP, gamma: float) -> FloatArray:
    """A policy with the largest mean return from every state, [S, A].

    Policy iteration from the uniform policy. An action replaces the policy's own only if it is better by more than
    rounding, and among equally good actions the first is taken; with γ = 1 a tie keeps what the policy did, because
    breaking it could make a policy that never ends.
    """
    gamma = check_gamma(gamma)
    policy = uniform(mdp)
    for _ in range(MOST_ROUNDS):
        value, action_value = _values(mdp, policy, gamma)
        tolerance = 1e-12 * (1.0 + np.abs(action_value).max(initial=0.0))
        rounded = np.where(action_value >= action_value.max(axis=-1, keepdims=True) - tolerance, 1.0, 0.0)
        better = action_value.max(axis=-1) > value + tolerance
        if gamma < 1.0:
            better |= policy.max(axis=-1) < 1.0
        better &= ~mdp.terminal
        if not better.any():
            return policy
        policy = np.where(better[:, None], greedy(rounded), policy)
    raise OracleError(f"policy iteration did not settle in {MOST_ROUNDS} rounds")


def _values(mdp: FiniteMDP, policy: FloatArray, gamma: float) -> tuple[FloatArray, FloatArray]:
    """V and Q; with γ = 1, −inf for actions that may never end."""
    kept = surely_ends(mdp, policy) if gamma == 1.0 else None
    reward = backup(mdp, mdp.reward)
    value = Chain(mdp, policy).accumulate(gamma, average(policy, reward, kept), kept)
    action_value = reward + gamma * backup(mdp, value[mdp.successor])
    if kept is not None and not kept.all():
        lost = backup(mdp, (~kept[mdp.successor]).astype(np.float64)) > 0.0
        value, action_value = np.where(kept, value, -np.inf), np.where(lost, -np.inf, action_value)
    return value, action_value
