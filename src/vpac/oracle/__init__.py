"""Exact answers for finite MDPs, without sampling: moments of the return, gradients, the mean–variance frontier."""

from vpac.oracle.bound import Bound, upper_bound
from vpac.oracle.complex_step import complex_step_gradient
from vpac.oracle.distribution import ReturnDistribution, distribution
from vpac.oracle.frontier import Certificate, Frontier, best_policy, frontier
from vpac.oracle.gradient import gradient, state_critic_gradient, stationary_distribution
from vpac.oracle.linear import OracleError
from vpac.oracle.moments import Moments, StepReward, evaluate, step_reward
from vpac.oracle.off_policy import OffPolicyMoments, evaluate_off_policy
from vpac.oracle.optimal import optimal_policy
from vpac.oracle.policies import greedy, softmax, uniform
from vpac.oracle.remembering import Remembering, best_remembering
from vpac.oracle.sources import VarianceSources, variance_sources

__all__ = [
    "Bound", "Certificate", "Frontier", "Moments", "OffPolicyMoments", "OracleError", "Remembering", "ReturnDistribution",
    "StepReward", "VarianceSources", "best_policy", "best_remembering", "complex_step_gradient", "distribution", "evaluate",
    "evaluate_off_policy", "frontier", "gradient", "greedy", "optimal_policy", "softmax", "state_critic_gradient",
    "stationary_distribution", "step_reward", "uniform", "upper_bound", "variance_sources",
]  # fmt: skip
