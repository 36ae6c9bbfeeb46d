"""Charts as files, drawn again only when they, or the way they are drawn, have changed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from vpac.files import write_text
from vpac.report.chart import Chart
from vpac.report.draw import static_svg, write

__all__ = ["Drawings"]

NOTE = ".drawn.json"
KINDS = ("pdf", "png", "csv")


class Drawings:
    """A folder of figures: PDF and PNG for papers, CSV for those who want to draw them anew, SVG for the page."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._drawn: dict[str, Any] = _read(folder / NOTE)

    def svg(self, chart: Chart) -> str:
        """The chart as SVG; sees to it that its files are up to date."""
        digest = _digest(chart)
        path = self.folder / f"{chart.name}.svg"
        if self._drawn.get(chart.name) == digest and all(path.with_suffix(f".{kind}").is_file() for kind in KINDS):
            try:
                return path.read_text(encoding="utf-8")
            except OSError:
                pass
        text = static_svg(chart)
        write_text(path, text)
        write(chart, self.folder, KINDS)
        self._drawn[chart.name] = digest
        write_text(self.folder / NOTE, json.dumps(self._drawn, indent=1))
        return text


def _digest(chart: Chart) -> str:
    """Of everything that is drawn, and of the code that draws it."""
    parts = [
        chart.table().as_csv(),
        repr([_bare(panel) for panel in chart.panels]),
        chart.title,
        str(chart.columns),
        _code(),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _bare(panel: Any) -> Any:
    """A panel without its numbers, which are in the table."""
    empty = {name: () for name in ("series", "trajectories", "arrows", "regions") if hasattr(panel, name)}
    if not hasattr(panel, "walls"):
        return replace(panel, **empty)
    return (
        panel.title,
        panel.value_label,
        panel.goal,
        panel.start,
        panel.low,
        panel.high,
        panel.colours,
        panel.walls.tolist(),
    )


@cache
def _code() -> str:
    here = Path(__file__).parent
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in sorted(here.glob("*.py")))).hexdigest()


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
