"""The trial of the theorems as a table and a figure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vpac._version import __version__
from vpac.files import read_bytes, write_text
from vpac.lab.experiments.theorems import FORMULAS, SEED, WORLDS, Formula
from vpac.lab.kinds.theorems import HOLDS, Verdict
from vpac.lab.report.chart import Chart, Panel, Points, Reference, Spots
from vpac.lab.report.results import Results
from vpac.lab.report.style import CORRECTED, INK, MUTED, PUBLISHED, figure_style, save_figure

__all__ = ["draw", "table", "trial_chart", "update", "verdicts_of", "write"]


def update(verdicts: Sequence[Verdict], folder: Path) -> None:
    """`write`, unless it was done before for the same verdicts."""
    try:
        known = read_bytes(folder / "theorems.json") == _as_json(verdicts).encode()
    except (OSError, ValueError):
        known = False
    if not known or not all((folder / f"theorems.{kind}").is_file() for kind in ("md", "csv", "png", "svg", "pdf")):
        write(verdicts, folder)


def _as_json(verdicts: Sequence[Verdict]) -> str:
    data = {"version": __version__, "seed": SEED, "holds_below": HOLDS, "verdicts": [v.as_dict() for v in verdicts]}
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def write(verdicts: Sequence[Verdict], folder: Path) -> list[Path]:
    """`theorems.json`, `.md`, `.csv`, `.png`, `.svg` and `.pdf` in the folder."""
    texts = {
        "json": _as_json(verdicts),
        "md": as_markdown(verdicts),
        "csv": as_csv(verdicts),
    }
    paths = [write_text(folder / f"theorems.{kind}", text) for kind, text in texts.items()]
    with figure_style() as plt:
        figure = draw(plt, verdicts)
        return paths + [save_figure(figure, folder / f"theorems.{kind}") for kind in ("png", "svg", "pdf")]


def summary(formula: Formula, verdicts: Sequence[Verdict]) -> str:
    """Holds, or does not, in words."""
    published = [v for v in verdicts if v.formula == formula.key and v.form == "published"]
    corrected = [v for v in verdicts if v.formula == formula.key and v.form == "corrected"]
    right = sum(v.holds for v in published)
    if right == len(published):
        return "holds in every world"
    words = "does not hold" if right == 0 else f"holds in {right} of {len(published)} worlds"
    return f"{words}; corrected: {'holds in every world' if all(v.holds for v in corrected) else 'does not hold'}"


def cell(verdict: Verdict | None) -> str:
    """Median relative error and cosine of one verdict."""
    if verdict is None:
        return "–"
    error, angle = np.median(verdict.relative_errors), np.median(verdict.cosines)
    return f"{error:.0e}" if verdict.holds else f"{error:.2g} (cos {angle:.2f})"


def _rows(verdicts: Sequence[Verdict], formula: Formula) -> list[tuple[str, str, str]]:
    at = {(v.world, v.form): v for v in verdicts if v.formula == formula.key}
    return [(w.name, cell(at.get((w.name, "published"))), cell(at.get((w.name, "corrected")))) for w in WORLDS]


def table(verdicts: Sequence[Verdict]) -> Any:
    """The same table for the terminal."""
    from rich.table import Table
    from rich.text import Text

    shown = Table(
        title="Relative error of the variance term against the derivative itself (median over policies)",
        title_justify="left", caption="cos: cosine of the angle to the truth", caption_justify="left",
    )  # fmt: skip
    for heading in ("", "world", "published", "corrected"):
        shown.add_column(heading)
    for formula in FORMULAS:
        shown.add_section()
        for number, (world, published, corrected) in enumerate(_rows(verdicts, formula)):
            shown.add_row(formula.title if number == 0 else "", world, published, corrected)
        shown.add_row("", Text(summary(formula, verdicts), style="bold"), "", "")
    return shown


def as_markdown(verdicts: Sequence[Verdict]) -> str:
    """The table as Markdown."""
    lines = ["# The theorems on trial", "", "Relative error of the variance term, median over policies.", ""]
    for formula in FORMULAS:
        lines += [f"## {formula.title}: {summary(formula, verdicts)}", "", f"Claim: {formula.claim}.", ""]
        lines += ["| world | published | corrected |", "|---|---|---|"]
        lines += [
            f"| {world} | {published} | {corrected} |" for world, published, corrected in _rows(verdicts, formula)
        ]
        lines.append("")
    return "\n".join(lines)


def as_csv(verdicts: Sequence[Verdict]) -> str:
    """One line a policy."""
    lines = ["world,formula,form,policy,relative_error,cosine"]
    for v in verdicts:
        for number, (error, angle) in enumerate(zip(v.relative_errors, v.cosines, strict=True)):
            lines.append(f'"{v.world}",{v.formula},{v.form},{number},{error:.17g},{angle:.17g}')
    return "\n".join(lines) + "\n"


def draw(plt: Any, verdicts: Sequence[Verdict]) -> Any:
    """One panel a formula, one row a world, the relative error of each policy on a logarithmic axis."""
    figure, panels = plt.subplots(2, 3, figsize=(11.5, 6.6), sharex=True, sharey=True, layout="constrained")
    for panel, formula in zip(panels.flat, FORMULAS, strict=True):
        for row, world in enumerate(reversed(WORLDS)):
            panel.axhline(row, color="#e6e8ec", linewidth=0.8, zorder=0)
            for v in verdicts:
                if (v.world, v.formula) == (world.name, formula.key):
                    _dots(panel, row, v)
        panel.axvline(HOLDS, color=MUTED, linewidth=0.8, linestyle=":")
        panel.set_title(formula.title, pad=18)
        panel.text(0.0, 1.015, summary(formula, verdicts), transform=panel.transAxes, fontsize=8, color=MUTED)
        panel.set_xscale("log")
        panel.set_xlim(1e-17, 10.0)
        panel.set_yticks(range(len(WORLDS)), [w.name for w in reversed(WORLDS)])
        panel.tick_params(axis="y", length=0)
        panel.set_xticks([1e-16, 1e-12, 1e-8, 1e-4, 1.0])
        panel.tick_params(axis="x", labelbottom=True)
    figure.supxlabel("relative error of the gradient of the variance (1 = as wrong as no gradient at all)", color=INK)
    marks = [
        plt.Line2D([], [], marker="x", linestyle="", color=PUBLISHED, label="as published"),
        plt.Line2D([], [], marker="o", linestyle="", color=CORRECTED, label="corrected"),
    ]
    figure.legend(handles=marks, loc="outside upper right", ncols=2)
    figure.suptitle("The paper's theorems on trial", x=0.01, ha="left", fontweight="bold", fontsize=13)
    return figure


def _dots(panel: Any, row: int, verdict: Verdict) -> None:
    errors = np.maximum(verdict.relative_errors, 1e-17)
    if verdict.form == "published":
        panel.plot(errors, np.full(len(errors), row + 0.12), "x", color=PUBLISHED, markersize=5)
    else:
        panel.plot(errors, np.full(len(errors), row - 0.12), "o", color=CORRECTED, markersize=3.5)


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
