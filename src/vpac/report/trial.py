"""The trial of the theorems as a chart, from its stored runs."""

from __future__ import annotations

import numpy as np

from vpac.execution.theorems import Verdict
from vpac.experiments.theorems import FORMULAS
from vpac.report.chart import Chart, Panel, Points, Reference, Spots
from vpac.report.results import Results

__all__ = ["trial_chart", "verdicts_of"]

SMALLEST = 1e-17
"""Errors below this are drawn here: the axis is logarithmic."""


def verdicts_of(results: Results) -> list[Verdict]:
    """The verdicts as they were found."""
    found: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for arm in results.arms:
        for row in results.rows(arm.label):
            key = (row["world"], row["formula"], row["form"])
            found.setdefault(key, []).append((row["error"], row["cosine"]))
    return [
        Verdict(world, formula, form, tuple(e for e, _ in pairs), tuple(c for _, c in pairs))
        for (world, formula, form), pairs in found.items()
    ]


def trial_chart(results: Results) -> Chart:
    """A panel for each formula; worlds from top to bottom, the error to the right."""
    verdicts = verdicts_of(results)
    panels: list[Panel] = []
    for formula in FORMULAS:
        series = []
        for form in ("published", "corrected"):
            those = [v for v in verdicts if v.formula == formula.key and v.form == form]
            if not those:
                continue
            errors = [np.maximum(v.relative_errors, SMALLEST) for v in those]
            series.append(
                Spots(
                    form, [v.world for v in those], [float(np.median(e)) for e in errors],
                    [float(e.min()) for e in errors], [float(e.max()) for e in errors], style=form,
                )
            )  # fmt: skip
        panels.append(
            Points(
                series, "", "relative error", formula.title, y_log=True, sideways=True,
                references=[Reference(1e-8, "holds below")], y_range=(1e-17, 10.0),
            )
        )  # fmt: skip
    return Chart(
        "theorems", "Relative error of each formula in each world",
        "Of the variance's part of each gradient against the derivative itself (complex steps); median and range over "
        "policies drawn at random. Rounding is below 1e-8.", panels, columns=2,
    )  # fmt: skip
