"""The exact effect of changing the policy in a single state on mean − ψ · variance, for all states and actions at once.

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

from vpac.envs.finite_mdp import FiniteMDP
from vpac.oracle.linear import Chain, sparse_factors
from vpac.oracle.moments import Moments, VarianceOf
from vpac.typing import FloatArray, IntArray

SINGULAR = 1e-9
"""A smaller 1 − t κ means a policy that hardly ends."""


class Resolvents:
    """N and Ñ of a policy: dense inverses for few states, otherwise sparse factors, which give any of their columns."""

    def __init__(self, moments: Moments, chain: Chain | None = None) -> None:
        self.moments, gamma = moments, moments.gamma
        self.chain = Chain(moments.mdp, moments.policy) if chain is None else chain
        self._near = self._solver(gamma)
        self._far = self._near if gamma == 1.0 else self._solver(gamma**2)
        start = moments.mdp.start
        self.visits_bar = self.chain.flow(gamma**2, start) if self.chain.sparse else start @ self._far

    def _solver(self, discount: float) -> Any:
        if self.chain.sparse:
            return sparse_factors(discount * self.chain.matrix)
        return self.chain.inverse(discount)

    def near(self, states: IntArray) -> FloatArray:
        """Columns of N, [S, state]."""
        return self._columns(self._near, states)

    def far(self, states: IntArray) -> FloatArray:
        """Columns of Ñ."""
        return self._columns(self._far, states)

    def far_onward(self, columns: FloatArray, states: IntArray) -> FloatArray:
        """E[(Ñ column_s)(S') | s, a] for each of the states and its own column, [state, A]."""
        mdp, shape = self.moments.mdp, (len(states), self.moments.mdp.n_actions)
        if self.chain.sparse:
            here, row, column = _transitions(mdp, states)
            found = mdp.probability[here] * self._far(columns)[mdp.successor[here], column]
            return np.asarray(np.bincount(row, found, shape[0] * shape[1]).reshape(shape), np.float64)
        step = mdp.transition_matrix[(states[:, None] * shape[1] + np.arange(shape[1])).reshape(-1)]
        return np.asarray(np.einsum("san,sn->sa", (step @ self._far).reshape(*shape, -1), columns.T), np.float64)

    def _columns(self, solver: Any, states: IntArray) -> FloatArray:
        if not self.chain.sparse:
            return np.asarray(solver if len(states) == len(solver) else solver[:, states], np.float64)
        units = np.zeros((self.moments.mdp.n_states, len(states)))
        units[states, np.arange(len(states))] = 1.0
        return np.asarray(solver(units), np.float64)

    def errors_times(self, columns: FloatArray, error: FloatArray) -> FloatArray:
        """B times columns."""
        from scipy.sparse import csr_array

        mdp, n = self.moments.mdp, self.moments.mdp.n_states
        weight = self.moments.policy.reshape(-1)[mdp.row] * mdp.probability * error
        return np.asarray(
            csr_array((weight, (mdp.row // mdp.n_actions, mdp.successor)), shape=(n, n)) @ columns, np.float64
        )


def single_state_gains(
    moments: Moments, psi: float, variance_of: VarianceOf, shares: FloatArray, reference: float | None = None,
    states: IntArray | None = None, resolvents: Resolvents | None = None,
) -> FloatArray:  # fmt: skip
    """U(π') − U(π) for each share t, state and action, [T, S, A]; −inf if π' is not a policy or never ends.

    `shares` has shape [T] or [T, S, A]. A negative share takes probability from the action. `states` are those to change, in
    ascending order, one row each in the result and in `shares`; None: all.
    """
    mdp, gamma = moments.mdp, moments.gamma
    states = np.arange(mdp.n_states) if states is None else states
    of = Resolvents(moments) if resolvents is None else resolvents
    pi, spread, value = moments.policy[states], moments.variance[states], moments.value
    advantage = moments.action_value[states] - value[states, None]
    near, far = of.near(states), of.far(states)
    tail = mdp.row // mdp.n_actions
    error = mdp.reward + gamma * value[mdp.successor] - value[tail]
    here, row, column = _transitions(mdp, states)

    def centred(by_action: FloatArray) -> FloatArray:
        return np.asarray(by_action - (pi * by_action).sum(axis=-1, keepdims=True), np.float64)

    def difference(matrix: FloatArray, entries: Any = 1.0) -> FloatArray:
        """E[entries · matrix(S', s) | s, a], minus its mean under the policy, for the states."""
        found = mdp.probability[here] * entries * matrix[mdp.successor[here], column]
        return centred(np.asarray(np.bincount(row, found, pi.size).reshape(pi.shape), np.float64))

    mixed = of.errors_times(near, error)
    kappa, kappa_bar = gamma * difference(near), gamma**2 * difference(far)
    cross = gamma**2 * centred(of.far_onward(mixed, states)) + difference(near, error[here])
    visits, weighed, visits_bar = mdp.start @ near, of.visits_bar @ mixed, of.visits_bar[states]

    share = shares[:, None, None] if shares.ndim == 1 else shares
    with np.errstate(all="ignore"):
        step, turn = share * advantage / (1.0 - share * kappa), share / (1.0 - share * kappa_bar)
        mass = turn * visits_bar[:, None]
        second = mass * (moments.action_variance[states] + advantage**2 - spread[:, None])
        second = second + 2.0 * gamma * step * (weighed[:, None] + mass * cross)
        if variance_of == "return":
            centre = float(moments.mean) if reference is None else reference
            variance = second + 2.0 * step * ((mdp.start * (value - centre)) @ near)[:, None]
            if reference is None:
                variance = variance - (step * visits[:, None]) ** 2
        else:
            variance = second - step**2 * (mdp.start @ near**2)[:, None]
        if variance_of == "action":
            variance = variance - _first_action(moments, near, states, share, step)
        gains = step * visits[:, None] - psi * variance
    moved = pi + share * (1.0 - pi)
    allowed = (1.0 - share * kappa > SINGULAR) & (moved >= -1e-12) & (share <= 1.0) & np.isfinite(gains)
    return np.where(allowed & ~mdp.terminal[states, None], gains, -np.inf)


def _transitions(mdp: FiniteMDP, states: IntArray) -> tuple[Any, IntArray, IntArray]:
    """The transitions out of the states, the row of each among theirs, and the index of its state."""
    tail = mdp.row // mdp.n_actions
    if len(states) == mdp.n_states:
        return slice(None), mdp.row, tail
    place = np.full(mdp.n_states, -1)
    place[states] = np.arange(len(states))
    here = np.flatnonzero(place[tail] >= 0)
    column = place[tail[here]]
    return here, column * mdp.n_actions + mdp.row[here] % mdp.n_actions, column


def _first_action(
    moments: Moments, near: FloatArray, states: IntArray, share: FloatArray, step: FloatArray
) -> FloatArray:
    """The change of E[(Q(S_0,A_0) − V(S_0))²], which is not part of the variance given the first action."""
    mdp, pi = moments.mdp, moments.policy
    advantage = moments.action_value - moments.value[:, None]
    begun = np.flatnonzero(mdp.start > 0.0)
    looked = np.concatenate([begun, states])
    rows = (looked[:, None] * mdp.n_actions + np.arange(mdp.n_actions)).reshape(-1)
    onward = (mdp.transition_matrix[rows] @ near).reshape(len(looked), mdp.n_actions, -1)
    drift = moments.gamma * onward - near[looked, None, :]
    weight = (mdp.start[:, None] * pi)[begun]
    linear = np.einsum("xa,xas->s", weight * advantage[begun], drift[: len(begun)])
    square = np.einsum("xa,xas->s", weight, drift[: len(begun)] ** 2)
    own = np.einsum("sbs->sb", drift[len(begun) :])
    new = (
        advantage[states, None, :] + step[..., None] * own[:, None, :]
    ) ** 2  # [T, S, action taken, action looked at]
    own_part = np.einsum("...saa->...sa", new) - (new * pi[states, None, :]).sum(axis=-1)
    change = 2.0 * step * linear[:, None] + step**2 * square[:, None] + share * mdp.start[states, None] * own_part
    return np.asarray(change, np.float64)
