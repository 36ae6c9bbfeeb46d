"""What critics of the variance converge to when the value they are given is wrong.

The critics take Q̂ for Q. Held at any Q̂, and with P₂ for one step of the weights b·ρ² (on-policy π), they settle at

    direct      σ = E[δ² + γ² ρ'² σ'],                     δ = R + γ ρ' Q̂' − Q̂
    indirect    M = E[R² + 2 γ R ρ' Q̂' + γ² ρ'² M'],       and M − Q̂² is taken for the variance

whatever λ is, because the table has an entry for every pair. With Q̂ = Q + ε they are wrong by

    direct      (1 − γ²P₂)⁻¹ (2 γ E[δ* ρ' ε'] + E[(γ ρ' ε' − ε)²])         δ* = R + γ ρ' Q' − Q
    indirect    (1 − γ²P₂)⁻¹  2 γ E[R ρ' ε'] − 2 Q ε − ε²

so errors meet the true TD error on the direct way and the value itself on the indirect one; but the squares of errors
add up along the direct way.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from vpac.envs.finite_mdp import FiniteMDP
from vpac.errors import UserError
from vpac.oracle.linear import Chain, OracleError, backup, look_ahead
from vpac.oracle.moments import average, check_gamma, mean_squared_error
from vpac.oracle.occupancy import surely_ends, without_unmet
from vpac.oracle.off_policy import GROWS, Critics, check_behaviour, ratio_weights, spectral_radius
from vpac.oracle.policies import check_policy
from vpac.typing import FloatArray


def variance_given_value(
    mdp: FiniteMDP,
    policy: ArrayLike,
    action_value: ArrayLike,
    gamma: float,
    behaviour: ArrayLike | None = None,
    critics: Critics = "importance",
) -> tuple[FloatArray, FloatArray]:
    """The variance that the direct and the indirect critic converge to with Q̂ held at `action_value`, two of [S, A].

    Args:
        mdp: the process.
        policy: the target policy, [S, A].
        action_value: Q̂, [S, A].
        gamma: discount factor in [0, 1].
        behaviour: the behaviour policy, [S, A]; default: the target policy.
        critics: the kind of critics; see `vpac.oracle.off_policy`.
    """
    gamma = check_gamma(gamma)
    policy = check_policy(mdp, policy)
    behaviour = policy if behaviour is None else check_behaviour(mdp, policy, behaviour)
    q = np.asarray(action_value, np.float64)
    if q.shape != policy.shape:
        raise UserError(f"action_value must have shape {list(policy.shape)}, got {list(q.shape)}")
    if gamma == 1.0:
        surely_ends(mdp, policy)
        mdp = without_unmet(mdp)
    first, second = ratio_weights(policy, behaviour, critics)
    chain = Chain(mdp, second)
    if spectral_radius(chain, gamma**2) >= GROWS:
        raise OracleError("the variance of the importance-weighted return does not exist: γ² E_b[ρ²] grows")
    q = np.where(mdp.terminal[:, None], 0.0, q)
    value = average(first, q)

    def settled(source: FloatArray) -> FloatArray:
        return source + gamma**2 * look_ahead(mdp, chain.accumulate(gamma**2, average(second, source)))

    direct = settled(mean_squared_error(mdp, first, second, value, q, gamma))
    ahead = gamma * value[mdp.successor]
    indirect = settled(backup(mdp, mdp.reward**2 + mdp.noise + 2.0 * mdp.reward * ahead)) - q**2
    return direct, indirect
