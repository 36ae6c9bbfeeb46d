"""The style of series: colours that colour-blind readers can tell apart, and never colour alone."""

from __future__ import annotations

from dataclasses import dataclass

from vpac.errors import one_of

INK, MUTED = "#1c2230", "#7a8290"
LIGHT = ("#1f5f99", "#c1440e", "#1b7f5c", "#7b4fa3", "#8f6a00", "#b03a7a", "#4a5160", "#117a9a")
"""Colours of series on white."""
DARK = ("#6fb1f0", "#ff9466", "#4fc79a", "#c09bea", "#e3bd4b", "#f08cc0", "#b9c0cc", "#63cbe8")
"""The same series on a dark background."""
NAMES = {
    "AC": 6, "VPAC": 0, "VAAC": 1, "VAAC_TD": 3, "corrected": 0, "published": 1, "oracle": 2, "exact": 2, "paper": 4,
}  # fmt: skip
"""Series that have the same style in every figure."""
MARKERS = (("o", "circle"), ("s", "square"), ("^", "triangle-up"), ("D", "diamond"),
           ("v", "triangle-down"), ("P", "cross"), ("X", "x"), ("*", "star"))  # fmt: skip
DASHES = (
    ("-", "solid"), ((0, (5, 2)), "10px,4px"), ((0, (1, 1.5)), "2px,3px"), ((0, (6, 2, 1, 2)), "12px,4px,2px,4px"),
    ((0, (9, 3)), "18px,6px"), ((0, (3, 1.5)), "6px,3px"), ((0, (4, 2, 1, 2, 1, 2)), "8px,4px,2px,4px,2px,4px"),
    ((0, (2, 1)), "4px,2px"),
)  # fmt: skip


@dataclass(frozen=True)
class Look:
    """A series' index in the palettes, its `marker` and `line` for matplotlib, its `symbol` and `dash` for Plotly."""

    number: int
    marker: str
    symbol: str
    line: str | tuple[float, tuple[float, ...]]
    dash: str

    @property
    def colour(self) -> str:
        """Its colour on white."""
        return LIGHT[self.number]


def look(style: int | str | None, position: int = 0) -> Look:
    """The style with a number or a name; without either, that of the series' position in its panel."""
    if isinstance(style, str):
        style = NAMES[one_of(style, NAMES, "style of a series")]
    number = (position if style is None else style) % len(LIGHT)
    (marker, symbol), (line, dash) = MARKERS[number], DASHES[number]
    return Look(number, marker, symbol, line, dash)


def colour_scale(name: str) -> list[str]:
    """Eleven evenly spaced colours of one of matplotlib's colour maps."""
    import matplotlib as mpl
    from matplotlib.colors import to_hex

    return [to_hex(mpl.colormaps[name](k / 10)) for k in range(11)]
