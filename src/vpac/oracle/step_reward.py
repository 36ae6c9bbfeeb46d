"""Mean and variance of the reward of a step, exactly: what MVPI trades, beside the moments of the return.

A step is drawn from the normalised discounted occupancy: the k-th step with probability (1 − γ) γ^k, and an episode that has
ended goes on with rewards of 0. So E[R] = (1 − γ) E[G], and with the visits D(s) = Σ_k γ^k P(S_k = s) of states that are not
terminal, the transitions' mean rewards m and variances v, and y = E[R],

    Var(R) = (1 − γ) Σ_s D(s) Σ_a π(a|s) E[(m − y)² + v]  +  (1 − (1 − γ) Σ_s D(s)) y²

the last term being the steps after the end.
"""

from __future__ import annotations

from typing import NamedTuple

from vpac.envs.finite_mdp import FiniteMDP
from vpac.errors import UserError
from vpac.oracle.moments import check_gamma
from vpac.oracle.occupancy import visits
from vpac.oracle.policies import check_policy
from vpac.typing import FloatArray


class StepReward(NamedTuple):
    """Moments of the reward of a step."""

    mean: float
    """y = (1 − γ) · mean return."""
    variance: float
    """Var(R), the volatility of the reward, squared."""


def step_reward(mdp: FiniteMDP, policy: FloatArray, gamma: float) -> StepReward:
    """Mean and variance of the reward of a step under the normalised discounted occupancy.

    Args:
        mdp: the process.
        policy: π[s, a].
        gamma: discount factor, below 1: with 1 all that counts is what comes after the end.
    """
    gamma = check_gamma(gamma)
    if gamma == 1.0:
        raise UserError("the reward of a step has no distribution with gamma = 1: use gamma below 1")
    pi = check_policy(mdp, policy)
    often = (1.0 - gamma) * visits(mdp, pi, gamma, None)
    by_action = (often[:, None] * pi).reshape(-1)
    weight = by_action[mdp.row] * mdp.probability  # of transitions: none begins in a terminal state
    mean = float((weight * mdp.reward).sum())
    after = max(0.0, 1.0 - float(weight.sum()))
    variance = float((weight * ((mdp.reward - mean) ** 2 + mdp.noise)).sum()) + after * mean**2
    return StepReward(mean, variance)
