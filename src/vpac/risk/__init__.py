"""Measures of risk, confidence intervals, comparisons, schedules and budgets of ψ. Works on samples and numbers, not agents."""

from vpac.risk.budget import Budget, BudgetReport, Limit, Multiplier, PricePath, as_budget
from vpac.risk.certificate import PolicyCertificate
from vpac.risk.compare import (
    Comparison,
    PairedComparison,
    compare_paired,
    compare_samples,
    difference_of_means,
    first_order_dominates,
    probability_of_improvement,
    ratio_of_means,
    ratio_of_variances,
    second_order_dominates,
)
from vpac.risk.frontier import FrontierPoint, TradeOff, aversion_of, psi_of
from vpac.risk.intervals import (
    Interval,
    bootstrap,
    bootstrap_many,
    clopper_pearson,
    mean_interval,
    mean_upper_bound,
    probability_below,
    uniform_probability_below,
    variance_interval,
)
from vpac.risk.metrics import (
    METRICS,
    cvar,
    gini_deviation,
    interquartile_mean,
    mean,
    quantile,
    semivariance,
    semivariance_below,
    sharpe,
    std,
    value_at_risk,
    variance,
)
from vpac.risk.monitoring import Alarm, Monitor, monitor
from vpac.risk.sample import MEASURES, ReturnSample, Row
from vpac.risk.schedules import Constant, Exponential, Linear, RobbinsMonro, Schedule, WarmUp, as_schedule

__all__ = [
    "MEASURES", "METRICS", "Alarm", "Budget", "BudgetReport", "Comparison", "Constant", "Exponential", "FrontierPoint",
    "Interval", "Limit", "Linear", "Monitor", "Multiplier", "PairedComparison", "PolicyCertificate", "PricePath",
    "ReturnSample", "RobbinsMonro", "Row", "Schedule", "TradeOff", "WarmUp", "as_budget", "as_schedule", "aversion_of",
    "bootstrap", "bootstrap_many", "clopper_pearson", "compare_paired", "compare_samples", "cvar", "difference_of_means",
    "first_order_dominates", "gini_deviation", "interquartile_mean", "mean", "mean_interval", "mean_upper_bound",
    "monitor", "probability_below", "probability_of_improvement", "psi_of", "quantile", "ratio_of_means", "ratio_of_variances",
    "second_order_dominates", "semivariance", "semivariance_below", "sharpe", "std", "uniform_probability_below",
    "value_at_risk", "variance", "variance_interval",
]  # fmt: skip
