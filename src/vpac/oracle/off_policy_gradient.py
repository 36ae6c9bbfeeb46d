"""Off-policy gradients whose critics carry importance ratios (Theorem 4, published and corrected).

With δ_t = R_{t+1} + γ ρ_{t+1} Q_{t+1} − Q_t, T̄_0 = ρ_0 and T̄_k = γ² ρ_k² T̄_{k−1}, the weight of step k is

    published:  γ^k ρ_{0:k} Q_k − ψ (1 + 1[k ≥ 1]) T̄_k σ_k
    corrected:  the same − 2 ψ X_k Q_k,    X_0 = 0,  X_k = γ ρ_k (X_{k−1} + T̄_{k−1} δ_{k−1})
"""

from __future__ import annotations

import numpy as np

from vpac.envs.finite_mdp import FiniteMDP
from vpac.errors import UserError
from vpac.oracle.linear import Chain, OracleError
from vpac.oracle.moments import VarianceOf
from vpac.oracle.off_policy import GROWS, Critics, evaluate_off_policy, ratio_weights, spectral_radius
from vpac.typing import FloatArray

__all__ = ["off_policy_weights", "theorem_4"]


def off_policy_weights(
    mdp: FiniteMDP,
    policy: FloatArray,
    behaviour: FloatArray,
    gamma: float,
    psi: float,
    form: str,
    variance_of: VarianceOf,
    critics: Critics,
) -> FloatArray:
    """Ω(s,a) with importance or clipped critics; the actor uses the same ratios as its critics."""
    if form == "exact" and variance_of != "action":
        raise UserError(
            f"{critics} critics define the variance of the weighted return given the first action: "
            f"use variance_of='action', or critics='expected' for variance_of={variance_of!r}"
        )
    moments = evaluate_off_policy(mdp, policy, behaviour, gamma, critics)
    if psi > 0.0 and not np.isfinite(moments.action_variance).all():
        raise OracleError(
            "the importance-weighted return has infinite variance: the spectral radius of γ² E_b[ρ²] is "
            f"{moments.spectral_radius:.4g}, expected below 1; use critics='expected' or a behaviour policy nearer to π"
        )
    first, second = ratio_weights(policy, behaviour, critics)
    action_variance = np.where(np.isfinite(moments.action_variance), moments.action_variance, 0.0)
    total = theorem_4(mdp, first, second, gamma, psi, moments.action_value, action_variance)
    if form == "published" or psi == 0.0:
        return total
    return total - psi * _missing_term(mdp, first, second, gamma, moments.action_value)


def theorem_4(
    mdp: FiniteMDP,
    first: FloatArray,
    second: FloatArray,
    gamma: float,
    psi: float,
    action_value: FloatArray,
    action_variance: FloatArray,
) -> FloatArray:
    """Published: Ω(s,a) for weights b·ρ and b·ρ²."""
    visits = Chain(mdp, first).flow(gamma, mdp.start)
    total = visits[:, None] * first * action_value
    if psi == 0.0:
        return total
    at_start, later = _squared_mass(mdp, first, second, gamma)
    return total - psi * (at_start + 2.0 * later) * action_variance


def _squared_mass(mdp: FiniteMDP, first: FloatArray, second: FloatArray, gamma: float) -> tuple[FloatArray, FloatArray]:
    """E_b Σ_k T̄_k 1[S_k = s, A_k = a], split into k = 0 and k ≥ 1."""
    chain = Chain(mdp, second)
    if (radius := spectral_radius(chain, gamma**2)) >= GROWS:
        raise OracleError(
            f"the squared ratios grow without bound: γ² E_b[ρ²] has spectral radius {radius:.4g}, expected below 1"
        )
    at_start = mdp.start[:, None] * first
    arriving = chain.flow(gamma**2, gamma**2 * chain.push(at_start))
    return at_start, arriving[:, None] * second


def _missing_term(
    mdp: FiniteMDP, first: FloatArray, second: FloatArray, gamma: float, action_value: FloatArray
) -> FloatArray:
    """2 E_b Σ_k X_k Q_k 1[S_k = s, A_k = a].

    δ_{k−1} holds ρ_k Q_k, so X_k depends on A_k once through ρ_k (weight `first`) and once through ρ_k² (`second`).
    """
    at_start, later = _squared_mass(mdp, first, second, gamma)
    mass = at_start + later
    chain = Chain(mdp, first)
    through_next_value = gamma**2 * chain.push(mass)[:, None] * second * action_value
    known_before = chain.push(mass, mdp.reward - action_value.reshape(-1)[mdp.row]) + chain.push(through_next_value)
    arriving = chain.flow(gamma, gamma * known_before)
    return 2.0 * (arriving[:, None] * first + through_next_value) * action_value
