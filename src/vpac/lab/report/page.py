"""The page: a document as one HTML file that loads nothing.

The template escapes text; data is JSON in which no character can end its element. Should both fail, the page's content
security policy still runs only the scripts whose digests it lists, and loads nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import urllib.parse
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from vpac.errors import UserError
from vpac.files import write_text
from vpac.lab.report.chart import Axes, Chart, Lines, Panel, Plane, Table, shown
from vpac.lab.report.document import TAKEN, ClaimRow, Document, Section
from vpac.lab.report.draw import static_svg
from vpac.lab.report.explorer import Explorer
from vpac.lab.report.interactive import figures, legend, numbers
from vpac.lab.report.style import DARK, LIGHT, Look, colour_scale

Paint = Callable[[Chart], str]
"""Renders a chart as SVG."""
TEMPLATES = Path(__file__).parent / "templates"
SCRIPTS = ("tools.js", "figures.js", "explorer.js")
"""Scripts that run when the page has been read, after Plotly; theme.js runs before it is painted."""
MOST_BYTES = 15_000_000
MOST_ROWS = 120
"""Longer tables are thinned on the page; the CSV file has more rows."""
SAVED_ROWS, LIVE_POINTS = 1000, 300
"""Rows of a CSV file on the page, and points of an interactive curve: no screen shows more."""
SIGNS = {"holds": "✓", "does not hold": "✗", "undecided": "?"}
SHAPES = {
    "circle": "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0", "square": "M-4,-4h8v8h-8z", "triangle-up": "M0,-5l5,9h-10z",
    "diamond": "M0,-5l5,5l-5,5l-5,-5z", "triangle-down": "M0,5l5,-9h-10z",
    "star": "M0,-6l2,4h4l-3,3l1,5l-4,-3l-4,3l1,-5l-3,-3h4z",
    "cross": "M-2,-5h4v3h3v4h-3v3h-4v-3h-3v-4h3z", "x": "M-5,-3l2,-2l3,3l3,-3l2,2l-3,3l3,3l-2,2l-3,-3l-3,3l-2,-2l3,-3z",
}  # fmt: skip
"""Markers as SVG paths, for the legend."""


def write_page(document: Document, folder: Path, paint: Paint = static_svg) -> Path:
    """Write `index.html` into the folder; `paint` draws the static figures, for print and without scripts."""
    text = render(document, paint)
    size = len(text.encode("utf-8"))
    if size > MOST_BYTES:
        largest = ", ".join(f"{name} {count / 1e6:.1f} MB" for name, count in _sizes(document, paint)[:3])
        raise UserError(
            f"the page has {size / 1e6:.1f} MB, at most {MOST_BYTES / 1e6:g} are allowed; largest: {largest}"
        )
    return write_text(Path(folder) / "index.html", text)


def render(document: Document, paint: Paint = static_svg) -> str:
    """The page as text."""
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["json"] = lambda value: Markup(as_json(value))
    theme, plotly, ours = _read("theme.js"), _plotly(), "\n".join(_read(name) for name in SCRIPTS)
    scripts = {"theme": theme, "plotly": plotly, "ours": ours}
    return environment.get_template("index.html.j2").render(
        page=document_view(document, paint),
        style=Markup(_read("style.css") + _palette()),
        scripts={name: Markup(text) for name, text in scripts.items()},
        policy=_policy([theme, plotly, ours]),
    )


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


def _policy(scripts: list[str]) -> str:
    """A content security policy that loads nothing and runs only these scripts."""
    digests = [base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode() for text in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _palette() -> str:
    """The series' colours, light and dark."""
    pairs = enumerate(zip(LIGHT, DARK, strict=True))
    lines = [f"  --series-{number}: light-dark({light}, {dark});" for number, (light, dark) in pairs]
    return "\n:root {\n" + "\n".join(lines) + "\n}\n"


def _sizes(document: Document, paint: Paint) -> list[tuple[str, int]]:
    """The size of each figure in bytes, the largest first."""
    view = document_view(document, paint)
    sizes = [
        (chart["name"], len(chart["static"]) + len(chart["csv"]) + len(as_json(chart["figures"])))
        for section in view["sections"]
        for chart in section["charts"]
    ]
    return sorted(sizes, key=lambda pair: -pair[1])


def document_view(document: Document, paint: Paint) -> dict[str, Any]:
    """The variables of the page's template."""
    names = Counter(chart.name for section in document.sections for chart in section.charts)
    names.update(section.name for section in document.sections)
    names.update(TAKEN)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise ValueError(
            f"names of sections, figures and the page's own parts must differ: {', '.join(twice)} is there twice"
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
    curves = sum(len(panel.series) for panel in chart.panels if isinstance(panel, Lines))
    table, rows = chart.table(), chart.thinned(max(2, SAVED_ROWS // max(1, curves))).table()
    return {
        "name": chart.name, "number": number, "title": chart.title, "caption": chart.caption, "notes": chart.notes,
        "alternative": chart.alternative or describe(chart), "columns": chart.width,
        "panels": [{"title": panel.title, "about": describe_panel(panel)} for panel in chart.panels],
        "figures": figures(chart.thinned(LIVE_POINTS)), "legend": [_entry(*entry) for entry in legend(chart)],
        "static": svg_link(paint(chart)), "table": _table(table) | {"saved": len(rows.rows)}, "csv": csv_link(rows),
    }  # fmt: skip


def _entry(label: str, look: Look, line: bool) -> dict[str, Any]:
    dash = "" if look.dash == "solid" else look.dash.replace("px", "")
    return {"label": label, "number": look.number, "shape": SHAPES[look.symbol], "dash": dash, "line": line}


def _table(table: Table) -> dict[str, Any]:
    """Cells as text; columns of numbers are aligned right."""
    rows = table.thinned(MOST_ROWS)
    kinds = list(zip(*table.rows, strict=True)) if table.rows else []
    right = [all(isinstance(cell, int | float) or cell is None for cell in column) for column in kinds]
    return {
        "title": table.title, "columns": list(zip(table.columns, right or [False] * len(table.columns), strict=True)),
        "rows": [list(zip(map(shown, row), right, strict=True)) for row in rows.rows],
        "shown": len(rows.rows), "total": len(table.rows), "saved": len(table.rows),
    }  # fmt: skip


def svg_link(svg: str) -> str:
    """A data URL, percent-encoded: a quarter smaller than base64, and no character in it can end an attribute."""
    from markupsafe import Markup

    plain = re.sub(r"=\"([^\"']*)\"", r"='\1'", svg)
    return Markup("data:image/svg+xml;charset=utf-8," + urllib.parse.quote(plain, safe=" ,.:;+-_/()=*!'"))


def csv_link(table: Table) -> str:
    """A data URL with the table as CSV."""
    return "data:text/csv;charset=utf-8," + urllib.parse.quote(table.as_csv(), safe=" ,.:;+-_/()=*!'")


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
    if isinstance(panel, Plane):
        parts += [f"the {part.label} is hatched" for part in panel.regions]
        return f"{title}the unit square; {', '.join(parts) or 'empty'}."
    parts += [f"the {region.label} cells are hatched" for region in panel.regions]
    parts += ["arrows show the policy"] * bool(panel.arrows)
    parts += [f"colours show the {panel.value_label}"] if len(panel.finite()) else []
    rows, columns = panel.walls.shape
    return f"{title}map of {rows} by {columns} cells; {', '.join(parts) or 'walls only'}."


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
            "scales": {"variance": colour_scale("viridis"), "visitation": colour_scale("cividis")},
        },
    }  # fmt: skip
