"""What every interactive figure is made of."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from vpac.report.geometry import Stroke, broken
from vpac.report.look import Look

__all__ = ["Figure", "base_layout", "colour", "numbers", "safe", "strokes_trace"]

Figure = dict[str, Any]
"""Plotly's data and layout, and the figure's height over its width."""


def safe(text: str) -> str:
    """Text that Plotly shows as it is: it would read tags, entities and templates."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace("%{", "%\N{ZERO WIDTH SPACE}{").replace("$", "\N{FULLWIDTH DOLLAR SIGN}")


def numbers(values: Iterable[float]) -> list[float | None]:
    """Seven digits, which no screen can show, and null for what JSON has no word for."""
    return [float(f"{value:.7g}") if math.isfinite(value) else None for value in values]


def colour(style: Look, opacity: float | None = None) -> str:
    """The name of a series' colour on the page."""
    name = f"var(--series-{style.number})"
    return name if opacity is None else f"{name} {opacity:g}"


def base_layout() -> Figure:
    """Quiet axes on the page's own ground."""
    return {
        "autosize": True, "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)", "showlegend": False,
        "font": {"color": "var(--ink)", "family": "system-ui, sans-serif", "size": 13}, "hovermode": "closest",
        "hoverlabel": {"bgcolor": "var(--raised)", "bordercolor": "var(--rule)", "font": {"color": "var(--ink)"}},
        "margin": {"l": 56, "r": 12, "t": 10, "b": 48}, "shapes": [], "annotations": [],
    }  # fmt: skip


def strokes_trace(strokes: Iterable[Stroke], ink: str, width: float, dash: str = "solid") -> Figure:
    """Lines that are part of the drawing, not data."""
    x, y = broken(strokes)
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "hoverinfo": "skip", "showlegend": False,
            "line": {"color": ink, "width": width, "dash": dash}}  # fmt: skip
