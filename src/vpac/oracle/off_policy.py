"""Moments of the return when actions come from a behaviour policy b and the target policy is π.

Three kinds of critics, three pairs of moments, with ρ = π/b:

| critics | what Q and σ are | weights b·ρ and b·ρ² |
|---|---|---|
| `"importance"` | mean and variance of the importance-weighted return G = R + γ ρ' G' (Theorem 3) | π and π²/b |
| `"clipped"` | fixed points of the same recursions with ρ = min(1, π/b) | min(b, π) and b·min(1, π/b)² |
| `"expected"` | mean and variance of the target policy's own return | π and π |

The paper calls the clipped recursion Retrace. It is not: Retrace multiplies only the TD errors of later steps by
clipped ratios and keeps Q_π as its fixed point; here the ratio multiplies the bootstrap itself, so the fixed point is
the value of a process that discounts unlikely actions. The importance-weighted return has a variance only where the
products of γ²ρ² do not grow.

With δ_t = R_{t+1} + γ ρ_{t+1} Q_{t+1} − Q_t, T̄_0 = ρ_0 and T̄_k = γ² ρ_k² T̄_{k−1}, the weight of step k is

    published:  γ^k ρ_{0:k} Q_k − ψ (1 + 1[k ≥ 1]) T̄_k σ_k
    corrected:  the same − 2 ψ X_k Q_k,    X_0 = 0,  X_k = γ ρ_k (X_{k−1} + T̄_{k−1} δ_{k−1})
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from vpac.envs.finite_mdp import FiniteMDP, closed_classes, reached
from vpac.errors import UserError, one_of
from vpac.oracle.linear import Chain, OracleError, backup, look_ahead
from vpac.oracle.moments import VarianceOf, average, check_gamma, evaluate, mean_squared_error
from vpac.oracle.occupancy import surely_ends, without_unmet
from vpac.oracle.policies import check_policy
from vpac.typing import BoolArray, FloatArray

Critics = Literal["importance", "clipped", "expected"]
GROWS = 1.0 - 1e-12
"""A spectral radius from here on is one or more, but for rounding."""
CRITICS: tuple[Critics, ...] = ("importance", "clipped", "expected")


@dataclass(frozen=True)
class OffPolicyMoments:
    """Fixed points of off-policy critics. σ is `inf` where the variance of the weighted return does not exist."""

    critics: Critics
    """Critics whose fixed points these are."""
    action_value: FloatArray
    """Q(s,a), [S, A]."""
    action_variance: FloatArray
    """σ(s,a), [S, A]."""
    spectral_radius: float
    """Growth per step of the squared weights, γ² E_b[ρ²]: the variance exists everywhere if it is below one."""
    mean: float
    """Σ d0(s) π(a|s) Q(s,a)."""
    mean_action_variance: float
    """Σ d0(s) π(a|s) σ(s,a), the variance that the paper's off-policy objective penalises."""


def check_behaviour(mdp: FiniteMDP, policy: FloatArray, behaviour: ArrayLike) -> FloatArray:
    """The behaviour policy as an array, after checking that it takes every action that the target policy takes."""
    found = check_policy(mdp, behaviour, "behaviour policy")
    if found.shape != policy.shape:
        raise UserError(f"behaviour policy must have shape {list(policy.shape)}, got {list(found.shape)}")
    missing = (found == 0.0) & (policy > 0.0)
    if missing.any():
        state, action = (int(i) for i in np.argwhere(missing)[0])
        raise UserError(
            f"the behaviour policy does not cover the target policy: in state {state} it never takes action {action}, "
            f"which the target policy takes with probability {policy[state, action]:g}"
        )
    return found


def ratio_weights(policy: FloatArray, behaviour: FloatArray, critics: Critics) -> tuple[FloatArray, FloatArray]:
    """The weights b·ρ and b·ρ² of a kind of critics."""
    one_of(critics, CRITICS, "kind of critics")
    if critics == "expected":
        return policy, policy
    ratio = np.divide(policy, behaviour, out=np.zeros_like(policy), where=behaviour > 0.0)
    if critics == "clipped":
        ratio = np.minimum(ratio, 1.0)
    return behaviour * ratio, behaviour * ratio**2


def evaluate_off_policy(
    mdp: FiniteMDP, policy: ArrayLike, behaviour: ArrayLike, gamma: float, critics: Critics = "importance"
) -> OffPolicyMoments:
    """The Q and σ that off-policy critics of the given kind converge to, for a target policy and a behaviour policy."""
    gamma = check_gamma(gamma)
    policy = check_policy(mdp, policy)
    if policy.ndim != 2:
        raise UserError(f"off-policy moments are of one policy at a time, got a batch of shape {list(policy.shape)}")
    behaviour = check_behaviour(mdp, policy, behaviour)
    if gamma == 1.0:
        surely_ends(mdp, policy)
        mdp = without_unmet(mdp)
    first, second = ratio_weights(policy, behaviour, critics)
    radius = spectral_radius(Chain(mdp, second), gamma**2)
    if critics == "expected":
        on_policy = evaluate(mdp, policy, gamma)
        action_value, action_variance = on_policy.action_value, on_policy.action_variance
    else:
        action_value, action_variance = _weighted(mdp, first, second, gamma)
    starts = mdp.start > 0.0
    mean, variance = (float(mdp.start[starts] @ average(policy, x)[starts]) for x in (action_value, action_variance))
    return OffPolicyMoments(critics, action_value, action_variance, radius, mean, variance)


def _weighted(mdp: FiniteMDP, first: FloatArray, second: FloatArray, gamma: float) -> tuple[FloatArray, FloatArray]:
    """Q and σ of the weighted return; σ is inf where the sum of squared weights diverges."""
    reward = backup(mdp, mdp.reward)
    value = Chain(mdp, first).accumulate(gamma, average(first, reward))
    action_value = reward + gamma * backup(mdp, value[mdp.successor])
    surprise = mean_squared_error(mdp, first, second, value, action_value, gamma)
    chain = Chain(mdp, second)
    source = average(second, surprise)
    infinite = _diverges(chain, gamma**2, source)
    variance = chain.accumulate(gamma**2, np.where(infinite, 0.0, source), kept=~infinite)
    variance = np.where(infinite, np.inf, variance)
    with np.errstate(invalid="ignore"):
        later = backup(mdp, np.where(infinite, 0.0, variance)[mdp.successor])
    hits = backup(mdp, infinite[mdp.successor].astype(np.float64)) > 0.0
    return action_value, np.where(hits & (gamma > 0.0), np.inf, surprise + gamma**2 * later)


def _diverges(chain: Chain, discount: float, source: FloatArray) -> BoolArray:
    """States where Σ_k (discount · P_w)^k source is infinite: they lead to a growing class that leads to a source."""
    n = chain.mdp.n_states
    if spectral_radius(chain, discount) < GROWS:
        return np.zeros(n, bool)
    matrix = chain.matrix
    tails, heads = (np.asarray(x, np.int64) for x in matrix.nonzero())
    label, _ = closed_classes(tails, heads, n)
    growing = np.zeros(n, bool)
    for one in np.unique(label):
        inside = np.flatnonzero(label == one)
        growing[inside] = _radius(matrix[np.ix_(inside, inside)], discount) >= GROWS
    feeds = reached(heads, tails, source > 0.0)
    return reached(heads, tails, growing & feeds)


def spectral_radius(chain: Chain, discount: float) -> float:
    """The spectral radius of discount · P_w: the growth per step of the weights along the chain."""
    return _radius(chain.matrix, discount)


def _radius(matrix: Any, discount: float) -> float:
    if isinstance(matrix, np.ndarray):
        return discount * float(np.abs(np.linalg.eigvals(matrix)).max())
    if matrix.shape[0] < 10:
        return _radius(matrix.toarray(), discount)
    return discount * _growth(matrix)


def _growth(matrix: Any) -> float:
    """Spectral radius of a large matrix that is not negative: by Arnoldi iteration, by plain iteration where that fails."""
    from scipy.sparse.linalg import ArpackError, eigs

    ones = np.ones(matrix.shape[0])
    try:
        return float(np.abs(eigs(matrix, k=1, which="LM", v0=ones, maxiter=300, return_eigenvectors=False)[0]))
    except ArpackError:
        logarithm, x, steps = 0.0, ones, 4 * matrix.shape[0]
        for _ in range(steps):
            x = matrix @ x
            size = float(x.max())
            if size == 0.0:
                return 0.0
            logarithm += np.log(size)
            x = x / size
        return float(np.exp(logarithm / steps))


def off_policy_weights(
    mdp: FiniteMDP, policy: FloatArray, behaviour: FloatArray, gamma: float, psi: float, form: str,
    variance_of: VarianceOf, critics: Critics,
) -> FloatArray:  # fmt: skip
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
    mdp: FiniteMDP, first: FloatArray, second: FloatArray, gamma: float, psi: float, action_value: FloatArray,
    action_variance: FloatArray,
) -> FloatArray:  # fmt: skip
    """Ω(s,a) as published, for weights b·ρ and b·ρ²."""
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
        expected = f"γ² E_b[ρ²] has spectral radius {radius:.4g}, expected below 1"
        raise OracleError(f"the squared ratios grow without bound: {expected}")
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


def variance_given_value(
    mdp: FiniteMDP, policy: ArrayLike, action_value: ArrayLike, gamma: float, behaviour: ArrayLike | None = None,
    critics: Critics = "importance",
) -> tuple[FloatArray, FloatArray]:  # fmt: skip
    """The variance that the direct and the indirect critic converge to with Q̂ held at `action_value`, two of [S, A].

    The critics take Q̂ for Q. Held at any Q̂, and with P₂ for one step of the weights b·ρ² (on-policy π), they settle at

        direct      σ = E[δ² + γ² ρ'² σ'],                     δ = R + γ ρ' Q̂' − Q̂
        indirect    M = E[R² + 2 γ R ρ' Q̂' + γ² ρ'² M'],       and M − Q̂² is taken for the variance

    whatever λ is, because the table has an entry for every pair. With Q̂ = Q + ε they are wrong by

        direct      (1 − γ²P₂)⁻¹ (2 γ E[δ* ρ' ε'] + E[(γ ρ' ε' − ε)²])         δ* = R + γ ρ' Q' − Q
        indirect    (1 − γ²P₂)⁻¹  2 γ E[R ρ' ε'] − 2 Q ε − ε²

    so errors meet the true TD error on the direct way and the value itself on the indirect one; but the squares of errors
    add up along the direct way.

    Args:
        mdp: the process.
        policy: the target policy, [S, A].
        action_value: Q̂, [S, A].
        gamma: discount factor in [0, 1].
        behaviour: the behaviour policy, [S, A]; default: the target policy.
        critics: the kind of critics.
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
    next_value = gamma * value[mdp.successor]
    indirect = settled(backup(mdp, mdp.reward**2 + mdp.noise + 2.0 * mdp.reward * next_value)) - q**2
    return direct, indirect
