"""The gradient of mean − ψ · variance by the complex step: no theorem, only the definition of a derivative.

For an analytic f, f(θ + ih) = f(θ) + ih f'(θ) + O(h²) with h = 1e-30 gives f'(θ) = Im f(θ + ih)/h to the last digit,
because nothing is subtracted. f comes from the second moment's Bellman equations, not from σ's. All closed forms are
compared with this; it takes one solve for each parameter.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vpac.envs.finite_mdp import FiniteMDP
from vpac.errors import one_of
from vpac.oracle.moments import VARIANCES, VarianceOf, check_gamma
from vpac.oracle.occupancy import without_unmet
from vpac.oracle.off_policy import check_behaviour
from vpac.oracle.policies import check_policy, check_price, check_theta, softmax
from vpac.typing import FloatArray

STEP = 1e-30
BATCH_ENTRIES = 4_000_000
ComplexArray = NDArray[np.complex128]


def complex_step_gradient(
    mdp: FiniteMDP, theta: ArrayLike, gamma: float, psi: float, variance_of: VarianceOf = "action",
    behaviour: ArrayLike | None = None,
) -> FloatArray:  # fmt: skip
    """∇θ of mean − ψ · variance of a softmax policy, [S, A].

    With a behaviour policy the variance is that of the importance-weighted return given the first action, whatever
    `variance_of` says: Theorem 4 is about this one only.
    """
    one_of(variance_of, VARIANCES, "variance_of")
    gamma = check_gamma(gamma)
    psi = check_price(psi)
    policy = check_policy(mdp, softmax(check_theta(mdp, theta)))
    if gamma == 1.0:
        mdp = without_unmet(mdp)
    b = None if behaviour is None else check_behaviour(mdp, policy, behaviour)
    parameters = [(s, a) for s in np.flatnonzero(~mdp.terminal) for a in range(mdp.n_actions)]
    size = max(1, BATCH_ENTRIES // mdp.n_states**2)
    result = np.zeros(policy.shape)
    for first in range(0, len(parameters), size):
        state, action = np.array(parameters[first : first + size]).T
        nudged = np.tile(policy.astype(np.complex128), (len(state), 1, 1))
        # dπ(·|s) = π(a|s) (e_a − π(·|s)) is the softmax's own derivative, so the step in θ can be applied to π directly.
        slope = policy[state, action][:, None] * (np.eye(mdp.n_actions)[action] - policy[state])
        nudged[np.arange(len(state)), state] += 1j * STEP * slope
        result[state, action] = _objective(mdp, nudged, gamma, psi, variance_of, b).imag / STEP
    return result


def _objective(
    mdp: FiniteMDP, policy: ComplexArray, gamma: float, psi: float, variance_of: VarianceOf, behaviour: FloatArray | None,
) -> ComplexArray:  # fmt: skip
    """mean − ψ · variance from first and second moments, for a batch of complex policies [N, S, A]."""
    squared = policy if behaviour is None else policy**2 / np.where(behaviour > 0.0, behaviour, 1.0)
    reward, square = (_rows(mdp, mdp.probability * x) for x in (mdp.reward, mdp.reward**2 + mdp.noise))
    value = _fixed_point(mdp, policy, gamma, (policy * reward).sum(-1))
    action_value = reward + gamma * _rows(mdp, mdp.probability * value[:, mdp.successor])
    cross = square + 2.0 * gamma * _rows(mdp, mdp.probability * mdp.reward * value[:, mdp.successor])
    moment = _fixed_point(mdp, squared, gamma**2, (squared * cross).sum(-1))
    action_moment = cross + gamma**2 * _rows(mdp, mdp.probability * moment[:, mdp.successor])

    mean = value @ mdp.start
    subtracted = {
        "action": (policy * action_value**2).sum(-1) @ mdp.start,
        "state": value**2 @ mdp.start,
        "return": mean**2,
    }["action" if behaviour is not None else variance_of]
    return np.asarray(mean - psi * ((policy * action_moment).sum(-1) @ mdp.start - subtracted), np.complex128)


def _rows(mdp: FiniteMDP, entries: Any) -> Any:
    sums = np.zeros((*entries.shape[:-1], mdp.n_states * mdp.n_actions), entries.dtype)
    filled = np.diff(mdp.indptr) > 0
    sums[..., filled] = np.add.reduceat(entries, mdp.indptr[:-1][filled], axis=-1)
    return sums.reshape(*entries.shape[:-1], mdp.n_states, mdp.n_actions)


def _fixed_point(mdp: FiniteMDP, weights: ComplexArray, discount: float, source: ComplexArray) -> ComplexArray:
    """x = source + discount · P_w x for each policy of the batch."""
    n = mdp.n_states
    system = np.tile(np.eye(n, dtype=np.complex128), (len(weights), 1, 1))
    entries = discount * weights.reshape(len(weights), -1)[:, mdp.row] * mdp.probability
    for one, subtracted in zip(system, entries, strict=True):
        np.subtract.at(one, (mdp.row // mdp.n_actions, mdp.successor), subtracted)
    return np.asarray(np.linalg.solve(system, source[..., None])[..., 0], np.complex128)
