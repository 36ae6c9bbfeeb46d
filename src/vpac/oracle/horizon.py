"""Moments of the return when episodes are cut off after H steps, by backward recursion.

With h steps to go, V_0 = 0, Var_0 = 0, M_0 = 0 and

    V_h(s)   = E[R + γ V_{h−1}(S')]
    Var_h(s) = E[(R + γ V_{h−1}(S') − V_h(s))² + γ² Var_{h−1}(S')]
    M_h(s)   = E[R² + 2γ R V_{h−1}(S') + γ² M_{h−1}(S')]

The last step of the recursion is taken given the action, too, which gives Q, σ and M by state and action.
"""

from __future__ import annotations

import numpy as np

from vpac.envs.finite_mdp import FiniteMDP
from vpac.envs.validation import row_sums
from vpac.errors import UserError
from vpac.oracle.linear import backup
from vpac.typing import FloatArray

LONGEST = 100_000
"""Steps of a horizon, each of which is computed."""


def check_horizon(horizon: int) -> int:
    """A whole number of steps, at least one."""
    if isinstance(horizon, bool) or not isinstance(horizon, int | np.integer) or not 1 <= horizon <= LONGEST:
        raise UserError(
            f"horizon must be a whole number from 1 to {LONGEST:,}, got {horizon!r}; without one it has no end"
        )
    return int(horizon)


def action_moments_to_go(
    mdp: FiniteMDP, policy: FloatArray, gamma: float, horizon: int
) -> tuple[FloatArray, FloatArray]:
    """Q[..., S, A] and σ[..., S, A] of the return of the next `horizon` steps."""
    value, variance = _zeros(mdp, policy), _zeros(mdp, policy)
    for _ in range(horizon - 1):
        target = mdp.reward + gamma * value[..., mdp.successor]
        value = _under(mdp, policy, target)
        error = target - value[..., mdp.row // mdp.n_actions]
        variance = _under(mdp, policy, error**2 + mdp.noise + gamma**2 * variance[..., mdp.successor])
    target = mdp.reward + gamma * value[..., mdp.successor]
    action_value = backup(mdp, target)
    error = target - action_value.reshape(*action_value.shape[:-2], -1)[..., mdp.row]
    return action_value, backup(mdp, error**2 + mdp.noise + gamma**2 * variance[..., mdp.successor])


def action_second_moment_to_go(mdp: FiniteMDP, policy: FloatArray, gamma: float, horizon: int) -> FloatArray:
    """M[..., S, A] of the return of the next `horizon` steps."""

    def target() -> FloatArray:
        ahead, square = value[..., mdp.successor], moment[..., mdp.successor]
        return mdp.reward**2 + mdp.noise + 2.0 * gamma * mdp.reward * ahead + gamma**2 * square

    value, moment = _zeros(mdp, policy), _zeros(mdp, policy)
    for _ in range(horizon - 1):
        new_moment = _under(mdp, policy, target())
        value = _under(mdp, policy, mdp.reward + gamma * value[..., mdp.successor])
        moment = new_moment
    return backup(mdp, target())


def _zeros(mdp: FiniteMDP, policy: FloatArray) -> FloatArray:
    return np.zeros((*policy.shape[:-2], mdp.n_states))


def _under(mdp: FiniteMDP, policy: FloatArray, entries: FloatArray) -> FloatArray:
    """The mean over actions and transitions of each state, [..., S]."""
    share = policy.reshape(*policy.shape[:-2], -1)[..., mdp.row] * mdp.probability
    return row_sums(mdp.indptr[:: mdp.n_actions], share * entries)
