"""What the templates show: plain words, numbers and lists made from a document."""

from __future__ import annotations

import math
import re
import urllib.parse
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from vpac.lab.report.chart import Chart, Grid, Lines, Plane, Points, Table, shown
from vpac.lab.report.document import TAKEN, ClaimRow, Document, Explorer, Section
from vpac.lab.report.interactive import figures, legend, numbers
from vpac.lab.report.style import SCALES, Look
from vpac.lab.report.words import count_lines, thinned

__all__ = ["Paint", "document_view", "duration", "explorer_view", "section_view"]

Paint = Callable[[Chart], str]
"""How a chart becomes SVG."""

MOST_ROWS = 120
"""A longer table is thinned out on the page; what can be saved has more of it."""
SAVED_ROWS, LIVE_POINTS = 1000, 300
"""Rows that can be saved, and points of a curve in the interactive figure: no screen shows more."""
SIGNS = {"holds": "✓", "does not hold": "✗", "undecided": "?"}
SHAPES = {
    "circle": "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0", "square": "M-4,-4h8v8h-8z", "triangle-up": "M0,-5l5,9h-10z",
    "diamond": "M0,-5l5,5l-5,5l-5,-5z", "triangle-down": "M0,5l5,-9h-10z",
    "star": "M0,-6l2,4h4l-3,3l1,5l-4,-3l-4,3l1,-5l-3,-3h4z",
    "cross": "M-2,-5h4v3h3v4h-3v3h-4v-3h-3v-4h3z", "x": "M-5,-3l2,-2l3,3l3,-3l2,2l-3,3l3,3l-2,2l-3,-3l-3,3l-2,-2l3,-3z",
}  # fmt: skip
"""Markers as SVG paths, for the legend."""


def document_view(document: Document, paint: Paint) -> dict[str, Any]:
    """Everything the page's template asks for."""
    names = Counter(chart.name for section in document.sections for chart in section.charts)
    names.update(section.name for section in document.sections)
    names.update(TAKEN)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise ValueError(
            f"names of sections and figures, and the page's own, must differ: {', '.join(twice)} is there twice"
        )
    known = {section.name for section in document.sections}
    numbered = iter(range(1, 1 + sum(len(section.charts) for section in document.sections)))
    return {
        "title": document.title, "subtitle": document.subtitle, "made": document.made, "versions": dict(document.versions),
        "groups": [_group(document, title, known) for title in dict.fromkeys(claim.group for claim in document.claims)],
        "sections": [section_view(section, paint, [next(numbered) for _ in section.charts]) for section in document.sections],
        "failures": document.failures,
        "explorer": document.explorer and explorer_view(document.explorer),
    }  # fmt: skip


def duration(seconds: float) -> str:
    """A length of time for readers."""
    if seconds < 60.0:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _group(document: Document, title: str, known: set[str]) -> dict[str, Any]:
    """The claims under one heading, and how many of them hold."""
    claims = [claim for claim in document.claims if claim.group == title]
    counts: Counter[str] = Counter(claim.verdict for claim in claims)
    return {
        "title": title, "counts": [(SIGNS[verdict], counts[verdict], verdict) for verdict in SIGNS],
        "claims": [_claim(claim, known) for claim in claims],
    }  # fmt: skip


def _claim(claim: ClaimRow, known: set[str]) -> dict[str, Any]:
    ours = claim.ours
    return {
        "experiment": claim.experiment, "sentence": claim.sentence, "paper": claim.paper_number, "verdict": claim.verdict,
        "sign": SIGNS[claim.verdict], "explanation": claim.explanation, "command": claim.command,
        "anchor": claim.anchor if claim.anchor in known else "",
        "ours": ours and {"text": ours.text(), "interval": ours.interval(), "value": repr(ours.value),
                          "low": repr(ours.low), "high": repr(ours.high)},
    }  # fmt: skip


def section_view(section: Section, paint: Paint, numbering: Sequence[int] = ()) -> dict[str, Any]:
    """A section, whose figures have these numbers."""
    numbering = numbering or range(1, len(section.charts) + 1)
    return {
        "name": section.name, "title": section.title, "about": _paragraphs(section.about), "command": section.command,
        "wall": None if section.wall_seconds is None else duration(section.wall_seconds), "wall_seconds": section.wall_seconds,
        "charts": [_chart(chart, number, paint) for chart, number in zip(section.charts, numbering, strict=True)],
        "tables": [_table(table) for table in section.tables],
        "settings": section.settings and _table(section.settings),
        "provenance": [(name, shown(value)) for name, value in section.provenance.items()],
    }  # fmt: skip


def _paragraphs(text: str) -> list[str]:
    return [part.strip() for part in text.split("\n\n") if part.strip()]


def _chart(chart: Chart, number: int, paint: Paint) -> dict[str, Any]:
    table, rows = chart.table(), thinned(chart, max(2, SAVED_ROWS // max(1, count_lines(chart)))).table()
    return {
        "name": chart.name, "number": number, "title": chart.title, "caption": chart.caption, "notes": chart.notes,
        "alternative": chart.alternative or describe(chart), "columns": chart.width,
        "panels": [{"title": panel.title, "about": describe_panel(panel)} for panel in chart.panels],
        "figures": figures(thinned(chart, LIVE_POINTS)), "legend": [_entry(*entry) for entry in legend(chart)],
        "static": svg_link(paint(chart)), "table": _table(table) | {"saved": len(rows.rows)}, "csv": csv_link(rows),
    }  # fmt: skip


def _entry(label: str, look: Look, line: bool) -> dict[str, Any]:
    dash = "" if look.dash == "solid" else look.dash.replace("px", "")
    return {"label": label, "number": look.number, "shape": SHAPES[look.symbol], "dash": dash, "line": line}


def _table(table: Table) -> dict[str, Any]:
    """Cells as text; a column of numbers only is set flush right."""
    rows = table.thinned(MOST_ROWS)
    kinds = list(zip(*table.rows, strict=True)) if table.rows else []
    right = [all(isinstance(cell, int | float) or cell is None for cell in column) for column in kinds]
    return {
        "title": table.title, "columns": list(zip(table.columns, right or [False] * len(table.columns), strict=True)),
        "rows": [list(zip(map(shown, row), right, strict=True)) for row in rows.rows],
        "shown": len(rows.rows), "total": len(table.rows), "saved": len(table.rows),
    }  # fmt: skip


def svg_link(svg: str) -> str:
    """A picture as an address: percent-encoded, a quarter less than base64. No character in it can end an attribute."""
    from markupsafe import Markup

    plain = re.sub(r"=\"([^\"']*)\"", r"='\1'", svg)
    return Markup("data:image/svg+xml;charset=utf-8," + urllib.parse.quote(plain, safe=" ,.:;+-_/()=*!'"))


def csv_link(table: Table) -> str:
    """A table as a link that saves it."""
    return "data:text/csv;charset=utf-8," + urllib.parse.quote(table.as_csv(), safe=" ,.:;+-_/()=*!'")


def describe(chart: Chart) -> str:
    """A chart in words, for readers who do not see it."""
    parts = [describe_panel(panel) for panel in chart.panels]
    return f"{chart.title}. {' '.join(parts)} The numbers are in the table below the figure."


def describe_panel(panel: Lines | Points | Grid | Plane) -> str:
    """A panel in words."""
    title = f"{panel.title}: " if panel.title else ""
    if isinstance(panel, Grid):
        rows, columns = panel.walls.shape
        parts = [f"colours show the {panel.value_label}"] if len(panel.finite()) else []
        parts += ["arrows show the policy"] * bool(panel.arrows)
        parts += [f"the {region.label} cells are hatched" for region in panel.regions]
        parts += [f"a line shows the way of {way.label}" for way in panel.trajectories]
        return f"{title}map of {rows} by {columns} cells; {', '.join(parts) or 'walls only'}."
    if isinstance(panel, Plane):
        parts = [f"a line shows the way of {way.label}" for way in panel.trajectories]
        parts += [f"the {part.label} is hatched" for part in panel.regions]
        return f"{title}the unit square; {', '.join(parts) or 'empty'}."
    kind = "curves" if isinstance(panel, Lines) else "points"
    names = ", ".join(series.label for series in panel.series)
    over = f" over {panel.x_label}" if panel.x_label else ""
    return f"{title}{kind} of {panel.y_label or 'y'}{over} for {names}."


def explorer_view(explorer: Explorer) -> dict[str, Any]:
    """The slider over prices."""
    points = [
        {"psi": p.psi, "mean": p.mean, "variance": p.variance, "std": math.sqrt(max(p.variance, 0.0)),
         "sharpe": p.sharpe if math.isfinite(p.sharpe) else None, "actions": [int(a) for a in p.actions],
         "cellVariance": numbers(p.cell_variance), "visitation": numbers(p.visitation)}
        for p in explorer.points
    ]  # fmt: skip
    table = explorer.table()
    return {
        "title": explorer.title, "about": _paragraphs(explorer.about), "table": _table(table), "csv": csv_link(table),
        "last": len(points) - 1,
        "data": {
            "rows": explorer.rows, "columns": explorer.columns, "walls": [int(w) for w in explorer.walls],
            "frozen": [int(f) for f in explorer.frozen], "goal": list(explorer.goal), "points": points,
            "moves": [list(move) for move in explorer.moves],
            "scales": {"variance": SCALES["viridis"], "visitation": SCALES["cividis"]},
        },
    }  # fmt: skip
