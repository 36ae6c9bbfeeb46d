"""Charts as files, drawn again only when they, or the way they are drawn, have changed."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from vpac.files import read_bytes, write_text
from vpac.lab.report.chart import Chart
from vpac.lab.report.draw import static_svg, write
from vpac.lab.store.readers import crew
from vpac.sealing import LARGEST, parse

__all__ = ["Drawings"]

NOTE = ".drawn.json"
KINDS = ("pdf", "png", "csv")
FEW = 4
"""Charts that are drawn sooner than processes start."""


class Drawings:
    """A folder of figures: PDF and PNG for papers, CSV for those who want to draw them anew, SVG for the page."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._drawn: dict[str, Any] = _read(folder / NOTE)

    def update(self, charts: Iterable[Chart]) -> None:
        """Draw those that are not up to date; many of them on all cores."""
        stale = [chart for chart in charts if not self._fresh(chart)]
        if len(stale) > FEW:
            deque(crew().map(_paint, [(self.folder, chart) for chart in stale]), maxlen=0)
        else:
            for chart in stale:
                paint(self.folder, chart)
        self._drawn |= {chart.name: self._state(chart) for chart in stale}
        write_text(self.folder / NOTE, json.dumps(self._drawn, indent=1))

    def svg(self, chart: Chart) -> str:
        """The chart as SVG, drawn if need be."""
        if not self._fresh(chart):
            self.update([chart])
        return read_bytes(self.folder / f"{chart.name}.svg").decode("utf-8")

    def _fresh(self, chart: Chart) -> bool:
        return self._drawn.get(chart.name) == self._state(chart)

    def _state(self, chart: Chart) -> list[str]:
        """The digest of what is to be drawn, and those of the files that were."""
        paths = [self.folder / f"{chart.name}.{kind}" for kind in (*KINDS, "svg")]
        return [_digest(chart), *map(_fingerprint, paths)]


def _fingerprint(path: Path) -> str:
    """Of a file's content; empty if there is none that can be read."""
    try:
        return hashlib.sha256(read_bytes(path)).hexdigest()
    except OSError:
        return ""


def paint(folder: Path, chart: Chart) -> None:
    """Write the files of one chart."""
    write_text(folder / f"{chart.name}.svg", static_svg(chart))
    write(chart, folder, KINDS)


def _paint(given: tuple[Path, Chart]) -> None:
    paint(*given)


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
    looks: list[Any] = [(one.label, one.style, getattr(one, "joined", None)) for one in getattr(panel, "series", ())]
    looks += [(one.label, one.style) for one in getattr(panel, "trajectories", ())]
    empty = {name: () for name in ("series", "trajectories", "arrows", "regions") if hasattr(panel, name)}
    if not hasattr(panel, "walls"):
        return replace(panel, **empty), looks
    return (
        panel.title,
        panel.value_label,
        panel.goal,
        panel.start,
        panel.low,
        panel.high,
        panel.colours,
        panel.walls.tolist(),
        looks,
    )


@cache
def _code() -> str:
    here = Path(__file__).parent
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in sorted(here.glob("*.py")))).hexdigest()


def _read(path: Path) -> dict[str, Any]:
    try:
        found = parse(read_bytes(path, LARGEST))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
