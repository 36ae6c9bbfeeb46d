"""What the measured quantities are called on figures, in tables and in claims."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vpac.lab.report.chart import Chart, Line, Lines
from vpac.lab.report.results import Curve, Results
from vpac.risk.intervals import Interval, mean_interval, not_negative
from vpac.typing import FloatArray

__all__ = ["LABELS", "NAMES", "X_LABELS", "band_of", "count_lines", "over_runs", "size_notes", "some_of", "thinned"]

LABELS = {
    "return": "return", "mean": "mean", "variance": "variance", "sharpe": "Sharpe ratio", "risky": "share of risky steps",
    "within": "variance within starts", "length": "steps", "ratio": "error of the direct critic ÷ the indirect one's",
    "cvar": "CVaR (mean of the worst tenth)", "discounted_mean": "mean, discounted",
    "discounted_variance": "variance, discounted", "discounted_sharpe": "Sharpe ratio, discounted",
    "discounted_cvar": "CVaR, discounted", "fixed_mean": "mean, one start", "fixed_variance": "variance, one start",
    "fixed_discounted_variance": "variance, one start, discounted", "score_mean": "mean score",
    "score_variance": "variance of scores", "return_mean": "mean discounted return",
    "return_variance": "variance of discounted returns", "length_mean": "steps of an episode",
    "predicted_variance": "variance ahead, predicted", "measured_variance": "variance ahead, measured",
}  # fmt: skip
"""On axes and in the heads of tables."""
NAMES = {
    "mean": "mean return", "variance": "variance of the return", "sharpe": "Sharpe ratio",
    "within": "variance from a given start cell", "risky": "share of steps in risky cells",
    "fixed_mean": "mean score from one fixed start", "fixed_variance": "variance of the score from one fixed start",
    "fixed_discounted_variance": "variance of the discounted return from one fixed start", "cvar": "mean of the worst tenth",
    "discounted_mean": "mean discounted return", "discounted_variance": "variance of the discounted return",
}  # fmt: skip
"""In sentences."""
NEVER_NEGATIVE = ("variance", "within", "risky", "length", "length_mean", "ratio", "_error", "_norm")
"""How the names of quantities end that cannot be below 0."""
X_LABELS = {"episode": "episodes", "timesteps": "steps"}
"""Names of the column that says where something was measured."""


def over_runs(values: FloatArray, quantity: str) -> Interval:
    """The mean over runs with Student's interval, cut at 0 for what cannot be less."""
    found = mean_interval(values)
    return not_negative(found) if _never_negative(quantity) else found


def band_of(curve: Curve, quantity: str) -> tuple[FloatArray, FloatArray] | tuple[None, None]:
    """The same along a curve; none of a single run."""
    low, high = curve.band()
    if low is None or high is None:
        return None, None
    return np.maximum(low, 0.0) if _never_negative(quantity) else low, high


def _never_negative(quantity: str) -> bool:
    return quantity.endswith(NEVER_NEGATIVE) and quantity != "predicted_variance"  # a critic may say anything


def size_notes(results: Results) -> list[str]:
    """How much smaller than the full experiment this is; nothing if it is that."""
    study, experiment = results.study, results.study.experiment
    if experiment.kind != "deep":
        small = study.scale != 1.0
        return [f"Scaled down: {study.scale:g} times the episodes of the full experiment."] if small else []
    seeds = max((len(names) for names in study.runs.values()), default=0)
    words = []
    if study.scale != 1.0:
        steps = max(1, round(experiment.steps * study.scale))
        words.append(f"{steps:,} of {experiment.steps:,} steps a run")
    if seeds < experiment.runs:
        words.append(f"{seeds} of {experiment.runs} seeds")
    return [f"Scaled down: {' and '.join(words)} of the full experiment."] if words else []


def some_of(values: FloatArray, most: int) -> FloatArray:
    """The values, or if they are more, so many of them evenly chosen by rank, the smallest and the largest among them."""
    if len(values) <= most:
        return values
    chosen = np.linspace(0, len(values) - 1, most).round().astype(int)
    return np.asarray(np.sort(values)[chosen], np.float64)


def count_lines(chart: Chart) -> int:
    """How many curves the chart has."""
    return sum(len(panel.series) for panel in chart.panels if isinstance(panel, Lines))


def thinned(chart: Chart, most: int) -> Chart:
    """The chart with at most so many points in each curve, evenly chosen, the first and the last among them."""
    panels = [
        replace(panel, series=[_thinned(line, most) for line in panel.series]) if isinstance(panel, Lines) else panel
        for panel in chart.panels
    ]
    return replace(chart, panels=panels)


def _thinned(line: Line, most: int) -> Line:
    if len(line.x) <= most:
        return line
    chosen = [round(k * (len(line.x) - 1) / (most - 1)) for k in range(most)]
    low, high = ([values[k] for k in chosen] if values else None for values in (line.low, line.high))
    return replace(line, x=[line.x[k] for k in chosen], y=[line.y[k] for k in chosen], low=low, high=high)
