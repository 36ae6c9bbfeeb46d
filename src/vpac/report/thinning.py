"""Fewer points of long curves, where more could not be seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vpac.report.chart import Chart, Line, Lines
from vpac.typing import FloatArray

__all__ = ["count_lines", "some_of", "thinned"]


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
