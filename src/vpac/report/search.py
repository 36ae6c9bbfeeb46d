"""Who wins a search: the best mean, and among those that tie with it the least variance."""

from __future__ import annotations

import numpy as np

from vpac.experiments.spec import Arm
from vpac.report.results import Results
from vpac.typing import FloatArray

__all__ = ["winner"]


def winner(results: Results, arms: list[Arm]) -> Arm:
    """The arm that the paper's rule chooses.

    A mean ties with the best one if it is lower by no more than two standard errors of the difference: the paper does not
    say what a tie is, and over few runs means are never equal.
    """
    means = {arm.label: results.final(arm.label, "mean") for arm in arms}
    top = max(arms, key=lambda arm: float(means[arm.label].mean()))

    def ties(arm: Arm) -> bool:
        gap = float(means[top.label].mean() - means[arm.label].mean())
        return gap <= 2.0 * float(np.sqrt(sum(_error(means[label]) ** 2 for label in {top.label, arm.label})))

    return min((arm for arm in arms if ties(arm)), key=lambda arm: float(results.final(arm.label, "variance").mean()))


def _error(sample: FloatArray) -> float:
    return float(sample.std(ddof=1) / np.sqrt(len(sample))) if len(sample) > 1 else 0.0
