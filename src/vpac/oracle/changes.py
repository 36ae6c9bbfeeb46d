"""What changing the policy in a single state does to mean − ψ · variance, exactly and for all states and actions at once.

Moving the share t of the probability of state s to action a, π'(·|s) = (1 − t) π(·|s) + t e_a, changes one row of the
chain, so the new resolvents follow from the old ones, N = (1 − γP)⁻¹ and Ñ = (1 − γ²P)⁻¹, by the rank-one formula. With the
TD errors δ of the old policy the return is G = V(S_0) + Σ γ^k δ_k under every policy. Let Δ = P(·|s,a) − P_π(·|s), let
d = Nᵀd_0 and d̃ = Ñᵀd_0 be visits, and (Bx)(s) = E_π[δ x(S')]. With

    c = t A(s,a) / (1 − t κ),   κ = γ Δ N e_s,      τ = t / (1 − t κ̃),   κ̃ = γ² Δ Ñ e_s,

the values change by V' − V = c N e_s and the second moment of Σ γ^k δ_k by

    τ d̃(s) [σ(s,a) + A(s,a)² − Var(s)] + 2 γ c [(NᵀBᵀd̃)(s) + τ d̃(s) (γ² Δ ÑBN e_s + (B_a − B) N e_s)].
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vpac.oracle.linear import Chain, OracleError, backup
from vpac.oracle.moments import Moments, VarianceOf
from vpac.typing import FloatArray

SINGULAR = 1e-9
"""A change that leaves less of 1 − t κ makes a policy that hardly ends."""


def single_state_gains(
    moments: Moments, psi: float, variance_of: VarianceOf, shares: FloatArray, reference: float | None = None
) -> FloatArray:
    """U(π') − U(π) for each share t, state and action, [T, S, A]; −inf where π' is no policy or never ends.

    `shares` has shape [T] or [T, S, A]. A negative share takes probability from the action.
    """
    mdp, gamma, pi = moments.mdp, moments.gamma, moments.policy
    value, spread = moments.value, moments.variance
    advantage = moments.action_value - value[:, None]
    chain = Chain(mdp, pi, sparse=False)
    near = _inverse(np.eye(mdp.n_states) - gamma * chain.matrix)
    far = near if gamma == 1.0 else _inverse(np.eye(mdp.n_states) - gamma**2 * chain.matrix)
    visits, visits_bar = mdp.start @ near, mdp.start @ far
    tail = mdp.row // mdp.n_actions
    error = mdp.reward + gamma * value[mdp.successor] - value[tail]

    def difference(matrix: FloatArray, entries: Any = 1.0) -> FloatArray:
        """E[entries · matrix(S', s) | s, a], less its mean under the policy, [S, A]."""
        by_action = backup(mdp, entries * matrix[mdp.successor, tail])
        return np.asarray(by_action - (pi * by_action).sum(axis=-1, keepdims=True), np.float64)

    weight = pi.reshape(-1)[mdp.row] * mdp.probability * error
    mixed = np.bincount(tail * mdp.n_states + mdp.successor, weight, near.size).reshape(near.shape) @ near
    kappa, kappa_bar = gamma * difference(near), gamma**2 * difference(far)
    cross = gamma**2 * difference(far @ mixed) + difference(near, error)

    share = shares[:, None, None] if shares.ndim == 1 else shares
    with np.errstate(all="ignore"):
        step, turn = share * advantage / (1.0 - share * kappa), share / (1.0 - share * kappa_bar)
        mass = turn * visits_bar[:, None]
        second = mass * (moments.action_variance + advantage**2 - spread[:, None])
        second = second + 2.0 * gamma * step * ((visits_bar @ mixed)[:, None] + mass * cross)
        if variance_of == "return":
            centre = float(moments.mean) if reference is None else reference
            variance = second + 2.0 * step * ((mdp.start * (value - centre)) @ near)[:, None]
            if reference is None:
                variance = variance - (step * visits[:, None]) ** 2
        else:
            variance = second - step**2 * (mdp.start @ near**2)[:, None]
        if variance_of == "action":
            variance = variance - _first_action(moments, near, advantage, share, step)
        gains = step * visits[:, None] - psi * variance
    moved = pi + share * (1.0 - pi)
    allowed = (1.0 - share * kappa > SINGULAR) & (moved >= -1e-12) & (share <= 1.0) & np.isfinite(gains)
    return np.where(allowed & ~mdp.terminal[:, None], gains, -np.inf)


def _inverse(matrix: FloatArray) -> FloatArray:
    """By its factors: a quarter less work than solving for the unit matrix."""
    from scipy.linalg.lapack import dgetrf, dgetri

    factors, pivots, _ = dgetrf(matrix.T, overwrite_a=True)  # the transpose of an array in C order is in LAPACK's
    found, singular = dgetri(factors, pivots, overwrite_lu=True)
    if singular:
        raise OracleError("the linear system is singular: its solution does not exist or is not unique")
    return np.asarray(found.T, np.float64)


def _first_action(
    moments: Moments, near: FloatArray, advantage: FloatArray, share: FloatArray, step: FloatArray
) -> FloatArray:
    """The change of E[(Q(S_0,A_0) − V(S_0))²], which the variance given the first action leaves out."""
    mdp, pi = moments.mdp, moments.policy
    begun = np.flatnonzero(mdp.start > 0.0)
    onward = (mdp.transition_matrix @ near).reshape(mdp.n_states, mdp.n_actions, -1)
    drift = moments.gamma * onward - near[:, None, :]
    weight = (mdp.start[:, None] * pi)[begun]
    linear = np.einsum("xa,xas->s", weight * advantage[begun], drift[begun])
    square = np.einsum("xa,xas->s", weight, drift[begun] ** 2)
    own = np.einsum("sbs->sb", drift)
    new = (advantage[:, None, :] + step[..., None] * own[:, None, :]) ** 2  # [T, S, action taken, action looked at]
    own_part = np.einsum("...saa->...sa", new) - (new * pi[:, None, :]).sum(axis=-1)
    change = 2.0 * step * linear[:, None] + step**2 * square[:, None] + share * mdp.start[:, None] * own_part
    return np.asarray(change, np.float64)
