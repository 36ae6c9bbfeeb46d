"""Sources of the variance of the return, exactly.

An episode reveals the start state, then an action, then what the environment makes of it, and so on. Each of these moves
what is to be expected of the return:

    G − E[G] = (V(S₀) − E[G]) + Σ_t γ^t (Q(S_t,A_t) − V(S_t)) + Σ_t γ^t (R_{t+1} + γ V(S_{t+1}) − Q(S_t,A_t))

Given what was revealed before, every term has mean zero, so they are uncorrelated and the law of total variance, applied at
each of them, adds up without a remainder:

    Var(G) = Var(V(S₀)) + E Σ_t γ^{2t} Var(Q(S_t,A_t) | S_t) + E Σ_t γ^{2t} Var(R_{t+1} + γ V(S_{t+1}) | S_t,A_t)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from vpac.envs.finite_mdp import FiniteMDP
from vpac.oracle.linear import Chain, backup
from vpac.oracle.moments import average, check_gamma, check_horizon, evaluate
from vpac.oracle.occupancy import visits
from vpac.oracle.policies import check_policy
from vpac.typing import FloatArray


class VarianceSources(NamedTuple):
    """The three parts of Var(G); their sum is all of it."""

    start: float
    """Var(V(S₀)): where the episode begins."""
    policy: float
    """Variance that the policy's own draws add."""
    environment: float
    """Variance that transitions and noisy rewards add."""

    @property
    def total(self) -> float:
        """Var(G)."""
        return self.start + self.policy + self.environment


def variance_sources(mdp: FiniteMDP, policy: ArrayLike, gamma: float, horizon: int | None = None) -> VarianceSources:
    """The variance of the return of a policy, by where it comes from.

    Args:
        mdp: the process.
        policy: π[s, a].
        gamma: discount factor in [0, 1].
        horizon: cut episodes off after this many steps; then V and Q are those of the steps that are left.
    """
    gamma, pi = check_gamma(gamma), check_policy(mdp, policy)
    if horizon is None:
        moments = evaluate(mdp, pi, gamma)
        chosen, moved = _one_step(mdp, pi, moments.value, moments.action_value, gamma)
        weight = visits(mdp, pi, gamma**2, None)
        met = weight > 0.0
        return VarianceSources(
            _spread(mdp.start, moments.value), float(weight[met] @ chosen[met]), float(weight[met] @ moved[met])
        )
    values = [np.zeros(mdp.n_states)]
    for _ in range(check_horizon(horizon)):
        values.append(average(pi, backup(mdp, mdp.reward + gamma * values[-1][mdp.successor])))
    here, step = mdp.start, gamma**2 * Chain(mdp, pi).matrix.T
    drawn = moving = 0.0
    for left in range(horizon, 0, -1):
        next_value = values[left - 1]
        action_value = backup(mdp, mdp.reward + gamma * next_value[mdp.successor])
        chosen, moved = _one_step(mdp, pi, next_value, action_value, gamma)
        drawn, moving = drawn + float(here @ chosen), moving + float(here @ moved)
        here = step @ here
    return VarianceSources(_spread(mdp.start, values[-1]), drawn, moving)


def _one_step(
    mdp: FiniteMDP, pi: FloatArray, next_value: FloatArray, action_value: FloatArray, gamma: float
) -> tuple[FloatArray, FloatArray]:
    """Var(Q(s,A)) and E[Var(R + γ V(S') | s,A)] of each state, [S] and [S]; `next_value` is V of the next state."""
    chosen = average(pi, (action_value - average(pi, action_value)[:, None]) ** 2)
    error = mdp.reward + gamma * next_value[mdp.successor] - action_value.reshape(-1)[mdp.row]
    return chosen, average(pi, backup(mdp, error**2 + mdp.noise))


def _spread(start: FloatArray, value: FloatArray) -> float:
    begun = start > 0.0
    mean = start[begun] @ value[begun]
    return float(start[begun] @ (value[begun] - mean) ** 2)
