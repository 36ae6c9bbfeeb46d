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
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from vpac.envs.finite_mdp import FiniteMDP
from vpac.envs.graph import closed_classes, reached
from vpac.errors import UserError, one_of
from vpac.oracle.ending import without_unmet
from vpac.oracle.linear import Chain, backup
from vpac.oracle.moments import average, check_gamma, evaluate, mean_squared_error
from vpac.oracle.occupancy import surely_ends
from vpac.oracle.policies import check_policy
from vpac.typing import BoolArray, FloatArray

__all__ = [
    "CRITICS",
    "Critics",
    "OffPolicyMoments",
    "check_behaviour",
    "evaluate_off_policy",
    "ratio_weights",
    "spectral_radius",
]

Critics = Literal["importance", "clipped", "expected"]
GROWS = 1.0 - 1e-12
"""A spectral radius from here on is one or more, but for rounding."""
CRITICS: tuple[Critics, ...] = ("importance", "clipped", "expected")


@dataclass(frozen=True)
class OffPolicyMoments:
    """Fixed points of off-policy critics. σ is `inf` where the variance of the weighted return does not exist."""

    critics: Critics
    """Which critics these are the fixed points of."""
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
        ahead = backup(mdp, np.where(infinite, 0.0, variance)[mdp.successor])
    hits = backup(mdp, infinite[mdp.successor].astype(np.float64)) > 0.0
    return action_value, np.where(hits & (gamma > 0.0), np.inf, surprise + gamma**2 * ahead)


def _diverges(chain: Chain, discount: float, source: FloatArray) -> BoolArray:
    """Where Σ_k (discount · P_w)^k source is infinite: states that lead to a growing class that leads to a source."""
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
