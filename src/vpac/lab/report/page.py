"""The page: a document as one HTML file that loads nothing.

The template escapes text; data is JSON in which no character can end its element. Should both fail, the page's content
security policy still runs only the scripts whose digests it lists, and loads nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import urllib.parse
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from vpac.errors import UserError
from vpac.files import write_text
from vpac.lab.report.chart import TAKEN, Axes, Chart, ClaimRow, Document, Lines, Panel, Table, shown
from vpac.lab.report.draw import static_svg
from vpac.lab.report.geometry import DARK, LIGHT, legend
from vpac.lab.report.interactive import figures

Paint = Callable[[Chart], str]
"""Renders a chart as SVG."""
TEMPLATES = Path(__file__).parent / "templates"
SCRIPTS = ("tools.js", "figures.js", "explorer.js")
"""Scripts that run when the page has been read, after Plotly; theme.js runs before it is painted."""
MOST_PAGE_BYTES = 15_000_000
MOST_TABLE_ROWS = 120
"""Longer tables are thinned on the page; the CSV file has more rows."""
SAVED_ROWS, LIVE_POINTS = 1000, 300
"""Rows of a CSV file on the page, and points of an interactive curve: no screen shows more."""
UNQUOTED = " ,.:;+-_/()=*!'"
"""Characters that data URLs keep as they are."""
VERDICT_SIGNS = {"holds": "✓", "does not hold": "✗", "undecided": "?"}


def write_page(document: Document, folder: Path, paint: Paint = static_svg) -> Path:
    """Write `index.html` into the folder; `paint` draws the static figures, for print and without scripts."""
    text = render(document, paint)
    size = len(text.encode("utf-8", "replace"))
    if size > MOST_PAGE_BYTES:
        sizes = {c.name: len(_picture(paint(c)) + _csv(_saved(c)) + as_json(live(c))) for c in _charts(document)}
        largest = ", ".join(f"{name} {sizes[name] / 1e6:.1f} MB" for name in sorted(sizes, key=lambda n: -sizes[n])[:3])
        allowed = f"at most {MOST_PAGE_BYTES / 1e6:g} are allowed"
        raise UserError(f"the page has {size / 1e6:.1f} MB, {allowed}; largest: {largest}")
    return write_text(Path(folder) / "index.html", text)


def render(document: Document, paint: Paint = static_svg) -> str:
    """The page as text: the template `index.html.j2` reads the document itself."""
    from markupsafe import Markup

    names = Counter([*(c.name for c in _charts(document)), *(section.name for section in document.sections), *TAKEN])
    if twice := ", ".join(name for name, count in names.items() if count > 1):
        raise ValueError(f"names of sections, figures and the page's own parts must differ: {twice} is there twice")
    theme, plotly, ours = _read("theme.js"), _plotly(), "\n".join(_read(name) for name in SCRIPTS)
    groups: dict[str, list[ClaimRow]] = {}
    for claim in document.claims:
        groups.setdefault(claim.group, []).append(claim)
    text: str = template("index.html.j2", paint).render(
        page=document, title=document.title, groups=groups, signs=VERDICT_SIGNS, policy=content_policy([theme, plotly, ours]),
        anchors={section.name for section in document.sections},
        scripts={name: Markup(text) for name, text in (("theme", theme), ("plotly", plotly), ("ours", ours))},
    )  # fmt: skip
    return text


def template(name: str, paint: Paint) -> Any:
    """A template, which escapes all text that it is given; `style` is the style sheet. `paint` draws its charts."""
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    colours = [
        f"  --series-{k}: light-dark({one}, {other});\n" for k, (one, other) in enumerate(zip(LIGHT, DARK, strict=True))
    ]
    environment.globals["style"] = Markup(_read("style.css") + "\n:root {\n" + "".join(colours) + "}\n")
    environment.filters |= {
        "json": lambda value: Markup(as_json(value)), "duration": duration, "shown": shown, "cells": _cells, "csv": _csv,
        "paragraphs": lambda text: [part.strip() for part in text.split("\n\n") if part.strip()], "saved": _saved,
        "picture": lambda chart: _picture(paint(chart)), "svg": _picture, "live": live, "legend": legend,
        "words": describe, "panel_words": describe_panel,
    }  # fmt: skip
    return environment.get_template(name)


def _charts(document: Document) -> list[Chart]:
    return [chart for section in document.sections for chart in section.charts]


def as_json(value: Any) -> str:
    """JSON for a script element: no character in it can end the element."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _read(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


@cache
def _plotly() -> str:
    """The source of plotly.js, from the installed package, which is not imported."""
    import importlib.util

    found = importlib.util.find_spec("plotly")
    if found is None or found.origin is None:
        raise UserError("the page needs the package plotly: pip install plotly")
    text = (Path(found.origin).parent / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    text = text.replace("\r\n", "\n")
    if "</script" in text.lower() or "<!--" in text:
        raise RuntimeError("plotly.min.js cannot stand inside an HTML element")
    return text


def content_policy(scripts: Sequence[str] = ()) -> str:
    """A content security policy that loads nothing and runs only these scripts."""
    digests = [base64.b64encode(hashlib.sha256(text.encode("utf-8", "replace")).digest()).decode() for text in scripts]
    allowed = "script-src " + " ".join(f"'sha256-{digest}'" for digest in digests) + "; " if digests else ""
    return f"default-src 'none'; {allowed}style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"


def duration(seconds: float) -> str:
    """A length of time for readers."""
    if seconds < 60.0:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def live(chart: Chart) -> list[dict[str, Any]]:
    """The chart's interactive figures."""
    return figures(chart.thinned(LIVE_POINTS))


def _saved(chart: Chart) -> Table:
    """The numbers of a chart that the page lets save."""
    curves = sum(len(panel.series) for panel in chart.panels if isinstance(panel, Lines))
    return chart.thinned(max(2, SAVED_ROWS // max(1, curves))).table()


def _cells(table: Table) -> dict[str, Any]:
    """Columns and cells as text, each with whether it is aligned right: columns of numbers are."""
    rows = table.thinned(MOST_TABLE_ROWS).rows
    kinds = list(zip(*table.rows, strict=True)) if table.rows else [("",)] * len(table.columns)
    right = [all(isinstance(cell, int | float) or cell is None for cell in column) for column in kinds]
    shown_rows = [list(zip(map(shown, row), right, strict=True)) for row in rows]
    return {"columns": list(zip(table.columns, right, strict=True)), "rows": shown_rows}


def _picture(svg: str) -> str:
    """A data URL, percent-encoded: a quarter smaller than base64, and no character in it can end an attribute."""
    from markupsafe import Markup

    plain = re.sub(r"=\"([^\"']*)\"", r"='\1'", svg)
    return Markup("data:image/svg+xml;charset=utf-8," + urllib.parse.quote(plain, safe=UNQUOTED))


def _csv(table: Table) -> str:
    return "data:text/csv;charset=utf-8," + urllib.parse.quote(table.as_csv(), safe=UNQUOTED)


def describe(chart: Chart) -> str:
    """A chart in words, for screen readers."""
    parts = [describe_panel(panel) for panel in chart.panels]
    return f"{chart.title}. {' '.join(parts)} The numbers are in the table below the figure."


def describe_panel(panel: Panel) -> str:
    """A panel in words."""
    title = f"{panel.title}: " if panel.title else ""
    if isinstance(panel, Axes):
        kind = "curves" if isinstance(panel, Lines) else "points"
        names = ", ".join(series.label for series in panel.series)
        over = f" over {panel.x_label}" if panel.x_label else ""
        return f"{title}{kind} of {panel.y_label or 'y'}{over} for {names}."
    parts = [f"a line shows the trajectory of {path.label}" for path in panel.trajectories]
    parts += [f"the {region.label} cells are hatched" for region in panel.regions]
    parts += ["arrows show the policy"] * bool(panel.arrows)
    parts += [f"colours show the {panel.value_label}"] if len(panel.finite()) else []
    rows, columns = panel.walls.shape
    return f"{title}map of {rows} by {columns} cells; {', '.join(parts) or 'walls only'}."
