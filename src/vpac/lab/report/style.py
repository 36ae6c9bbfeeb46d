"""One look for every figure: quiet axes, colours that colour-blind readers can tell apart, and never colour alone."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vpac.errors import one_of
from vpac.files import write_bytes

__all__ = [
    "CORRECTED",
    "DARK",
    "INK",
    "LIGHT",
    "MUTED",
    "NAMES",
    "PUBLISHED",
    "SCALES",
    "Look",
    "figure_kind",
    "figure_style",
    "look",
    "plain",
    "plotly_scale",
    "save_figure",
]

INK, MUTED, PUBLISHED, CORRECTED = "#1c2230", "#7a8290", "#c1440e", "#1f5f99"
FORMATS = ("png", "svg", "pdf")


@contextmanager
def figure_style() -> Iterator[Any]:
    """matplotlib.pyplot, without a screen, in our style."""
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    look: Any = {
        "axes.edgecolor": MUTED, "axes.labelcolor": INK, "axes.spines.right": False, "axes.spines.top": False,
        "axes.titlelocation": "left", "axes.titlesize": 11, "axes.titleweight": "bold", "figure.dpi": 120,
        "font.family": "DejaVu Sans", "font.size": 9, "legend.frameon": False, "pdf.fonttype": 42, "savefig.bbox": "tight",
        "savefig.dpi": 160, "svg.fonttype": "none", "svg.hashsalt": "vpac", "text.color": INK, "xtick.color": INK,
        "ytick.color": INK,
    }  # fmt: skip
    with plt.rc_context(look):
        try:
            yield plt
        finally:
            plt.close("all")


def figure_kind(path: Path) -> str:
    """png, svg or pdf, by the file's ending."""
    return one_of(Path(path).suffix.lstrip("."), FORMATS, "kind of figure")


def save_figure(figure: Any, path: Path) -> Path:
    """Write a figure whole or not at all; the file's ending says the format."""
    kind = figure_kind(path)
    dated = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
    drawn = io.BytesIO()
    figure.savefig(drawn, format=kind, metadata=dated)
    return write_bytes(path, drawn.getvalue())


def plain(text: str, width: int = 48) -> str:
    """Text as it is, in at most three lines: matplotlib reads dollars as mathematics and hides what begins with _."""
    text = "\n".join(textwrap.wrap(text, width, max_lines=3, placeholder=" …")).replace("$", r"\$")
    return f"\N{ZERO WIDTH SPACE}{text}" if text.startswith("_") else text


LIGHT = ("#1f5f99", "#c1440e", "#1b7f5c", "#7b4fa3", "#8f6a00", "#b03a7a", "#4a5160", "#117a9a")
"""Colours of series on white."""
DARK = ("#6fb1f0", "#ff9466", "#4fc79a", "#c09bea", "#e3bd4b", "#f08cc0", "#b9c0cc", "#63cbe8")
"""The same series on a dark ground."""
NAMES = {
    "AC": 6, "VPAC": 0, "VAAC": 1, "VAAC_TD": 3, "corrected": 0, "published": 1, "oracle": 2, "exact": 2, "paper": 4,
}  # fmt: skip
"""Series that look the same in every figure."""
MARKERS = (("o", "circle"), ("s", "square"), ("^", "triangle-up"), ("D", "diamond"),
           ("v", "triangle-down"), ("P", "cross"), ("X", "x"), ("*", "star"))  # fmt: skip
DASHES = (
    ("-", "solid"), ((0, (5, 2)), "10px,4px"), ((0, (1, 1.5)), "2px,3px"), ((0, (6, 2, 1, 2)), "12px,4px,2px,4px"),
    ((0, (9, 3)), "18px,6px"), ((0, (3, 1.5)), "6px,3px"), ((0, (4, 2, 1, 2, 1, 2)), "8px,4px,2px,4px,2px,4px"),
    ((0, (2, 1)), "4px,2px"),
)  # fmt: skip


@dataclass(frozen=True)
class Look:
    """The look of one series."""

    number: int
    """Its place in the palettes."""
    marker: str
    """Its marker, as matplotlib names it."""
    symbol: str
    """Its marker, as Plotly names it."""
    line: str | tuple[float, tuple[float, ...]]
    """Its dash, as matplotlib describes it."""
    dash: str
    """Its dash, as Plotly describes it."""

    @property
    def colour(self) -> str:
        """Its colour on white."""
        return LIGHT[self.number]


def look(style: int | str | None, place: int = 0) -> Look:
    """The look of a number or a name; without either, of the series' place among its neighbours."""
    if isinstance(style, str):
        style = NAMES[one_of(style, NAMES, "style of a series")]
    number = (place if style is None else style) % len(LIGHT)
    (marker, symbol), (line, dash) = MARKERS[number], DASHES[number]
    return Look(number, marker, symbol, line, dash)


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
