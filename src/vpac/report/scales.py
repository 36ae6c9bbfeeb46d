"""Colour scales as lists of colours, evenly spaced: what matplotlib calls viridis, magma and cividis, for the page."""

from __future__ import annotations

__all__ = ["SCALES", "plotly_scale"]

SCALES: dict[str, tuple[str, ...]] = {
    "viridis": (
        "#440154",
        "#482475",
        "#414487",
        "#355f8d",
        "#2a788e",
        "#21918c",
        "#22a884",
        "#44bf70",
        "#7ad151",
        "#bddf26",
        "#fde725",
    ),
    "magma": (
        "#000004",
        "#140e36",
        "#3b0f70",
        "#641a80",
        "#8c2981",
        "#b73779",
        "#de4968",
        "#f7705c",
        "#fe9f6d",
        "#fecf92",
        "#fcfdbf",
    ),
    "cividis": (
        "#00224e",
        "#083370",
        "#35456c",
        "#4f576c",
        "#666970",
        "#7d7c78",
        "#948e77",
        "#aea371",
        "#c8b866",
        "#e5cf52",
        "#fee838",
    ),
}


def plotly_scale(name: str) -> list[list[float | str]]:
    """A colour scale as Plotly wants it."""
    colours = SCALES[name]
    return [[place / (len(colours) - 1), colour] for place, colour in enumerate(colours)]
