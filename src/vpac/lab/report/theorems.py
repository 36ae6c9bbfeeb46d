"""The trial of the theorems as tables and a figure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vpac.lab.experiments.theorems import FORMULAS, TRIAL_WORLDS, Formula
from vpac.lab.kinds.theorems import HOLDS, GradientVerdict
from vpac.lab.report.chart import Chart, Panel, Points, Reference, Spots, Table
from vpac.lab.report.results import Results

SMALLEST = 1e-17
"""Smaller errors are drawn here: the axis is logarithmic."""


class Theorems:
    """Verdicts on the paper's formulas, published and corrected."""

    def __init__(self, verdicts: Sequence[GradientVerdict]) -> None:
        self.verdicts = list(verdicts)

    @classmethod
    def of(cls, results: Results) -> Theorems:
        """Read the verdicts of a stored study."""
        found: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
        for arm in results.arms:
            for row in results.first(arm.label).iter_rows(named=True):
                key = (row["world"], row["formula"], row["form"])
                found.setdefault(key, []).append((row["error"], row["cosine"]))
        return cls([GradientVerdict(*key, *zip(*pairs, strict=True)) for key, pairs in found.items()])

    def _of(self, formula: Formula, form: str) -> list[GradientVerdict]:
        return [v for v in self.verdicts if (v.formula, v.form) == (formula.key, form)]

    def summary(self, formula: Formula) -> str:
        """Whether the formula holds, in words."""
        published, corrected = (self._of(formula, form) for form in ("published", "corrected"))
        right = sum(v.holds for v in published)
        if right == len(published):
            return "holds in every world"
        words = "does not hold" if right == 0 else f"holds in {right} of {len(published)} worlds"
        return f"{words}; corrected: {'holds in every world' if all(v.holds for v in corrected) else 'does not hold'}"

    def tables(self) -> list[Table]:
        """Median relative error of each formula and, where it is wrong, the median cosine, in each world."""
        tables = []
        for formula in FORMULAS:
            cells = {form: {v.world: _cell(v) for v in self._of(formula, form)} for form in ("published", "corrected")}
            rows = [(world.name, *(cells[form].get(world.name, "–") for form in cells)) for world in TRIAL_WORLDS]
            tables.append(Table.of(("world", *cells), rows, f"{formula.title}: {self.summary(formula)}"))
        return tables

    def charts(self) -> list[Chart]:
        """A panel for each formula; worlds from top to bottom, the relative error of each policy to the right."""
        panels: list[Panel] = []
        for formula in FORMULAS:
            series = []
            for form in ("published", "corrected"):
                dots = [(v.world, max(error, SMALLEST)) for v in self._of(formula, form) for error in v.relative_errors]
                if dots:
                    worlds, errors = zip(*dots, strict=True)
                    series.append(Spots(form, worlds, errors, style=form))
            panels.append(
                Points(
                    series, "", "relative error", f"{formula.title}: {self.summary(formula)}", y_log=True, sideways=True,
                    references=[Reference(HOLDS, "holds below")], y_range=(SMALLEST, 10.0),
                )
            )  # fmt: skip
        return [
            Chart(
                "theorems", "Relative error of each formula in each world",
                "Relative error of the variance's part of each gradient against the derivative itself (complex steps); one "
                "mark for each random policy. Rounding is below 1e-8, and 1 is as wrong as no gradient at all.",
                panels, [f"{formula.title}: {formula.claim}." for formula in FORMULAS], columns=2,
                foot="Error of the variance's part of each gradient; 1 is as wrong as no gradient at all.",
            )
        ]  # fmt: skip


def _cell(verdict: GradientVerdict) -> str:
    error, angle = np.median(verdict.relative_errors), np.median(verdict.cosines)
    return f"{error:.0e}" if verdict.holds else f"{error:.2g} (cos {angle:.2f})"
