"""Points with intervals on paper: markers, bars, and words beside them."""

from __future__ import annotations

from typing import Any

import numpy as np

from vpac.report.chart import Points, Spots
from vpac.report.geometry import beneath
from vpac.report.labels import along, nearest, place
from vpac.report.look import Look, look
from vpac.report.style import INK, MUTED, plain

__all__ = ["draw_points", "name_points", "ring"]

SIZE = 5.0
"""Of a marker, in points."""
LEADER = 7.0
"""A word that is farther from its point than this, in points, is joined to it by a thin line."""
THIN = {"arrowstyle": "-", "color": MUTED, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3}
PAPER = {"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.2}
"""Behind words, so that a line that runs through one does not make it hard to read."""
ARROWS = {"x": ("<", ">"), "y": ("v", "^")}


def draw_points(axis: Any, panel: Points) -> None:
    """Everything but the words beside points, which need to know where all the rest is."""
    under = beneath(panel)
    for number, spots in enumerate(panel.series):
        x, y = _places(panel, number)
        _draw_spots(axis, panel, spots, look(spots.style, number), x, y, np.array(under[number]))
    if panel.x_log and not panel.sideways:
        _tick_at_values(axis, sorted({x for spots in panel.series for x in spots.x}))
    if panel.categories:
        _name_categories(axis, panel)


def _places(panel: Points, number: int) -> tuple[Any, Any]:
    """Where the points of a series are; those of several series at one category stand side by side."""
    spots, categories = panel.series[number], panel.categories
    if not categories:
        return np.array(spots.x), np.array(spots.y)
    shift = (number - (len(panel.series) - 1) / 2) * min(0.24, 0.7 / len(panel.series))
    return np.array([categories.index(name) for name in spots.x]) + shift, np.array(spots.y)


def _name_categories(axis: Any, panel: Points) -> None:
    categories = panel.categories
    ticks = (range(len(categories)), [plain(name, 32 if panel.sideways else 16) for name in categories])
    if panel.sideways:
        axis.set_yticks(*ticks)
        axis.set_ylim(len(categories) - 0.5, -0.5)
        axis.grid(visible=False, axis="y")
        return
    axis.set_xticks(*ticks)
    axis.set_xlim(-0.5, len(categories) - 0.5)
    axis.grid(visible=False, axis="x")
    if len(categories) * max(min(len(name), 16) for name in categories) > 45:
        axis.tick_params(axis="x", rotation=30)
        for label in axis.get_xticklabels():
            label.set(ha="right", rotation_mode="anchor")


def _tick_at_values(axis: Any, values: list[float]) -> None:
    """A logarithmic axis names the few values that were tried, if their names have room beside each other."""
    if 1 < len(values) <= 8 and values[0] > 0.0:
        places = np.log(values)
        if np.diff(places).min() / (places[-1] - places[0]) > 0.12:
            axis.set_xticks(values, [f"{value:g}" for value in values])
            axis.set_xticks([], minor=True)


def ring(under: int) -> dict[str, Any]:
    """How a marker looks that lies on so many others: hollow and larger, so that all are seen."""
    return {"markersize": SIZE + 4.5 * under} | ({"markerfacecolor": "none", "markeredgewidth": 1.3} if under else {})


def _draw_spots(axis: Any, panel: Points, spots: Spots, style: Look, x: Any, y: Any, under: Any) -> None:
    y_ends, x_ends = _ends(y, spots.low, spots.high), _ends(x, spots.x_low, spots.x_high)
    y_cut, x_cut = _cut(y, y_ends, panel.y_range), _cut(x, x_ends, panel.x_range)
    (a, a_ends), (b, b_ends) = ((y, y_ends), (x, x_ends)) if panel.sideways else ((x, x_ends), (y, y_ends))
    axis.errorbar(
        a, b, xerr=a_ends, yerr=b_ends, color=style.colour, marker="", linestyle=style.line if spots.joined else "",
        linewidth=1.3, elinewidth=1.1, capsize=2.5, label=plain(spots.label),
    )  # fmt: skip
    for depth in sorted(set(under.tolist())):
        here = under == depth
        axis.plot(a[here], b[here], color=style.colour, marker=style.marker, linestyle="", zorder=2.6, **ring(depth))
    for name, cut, ends in (("x", x_cut, panel.x_range), ("y", y_cut, panel.y_range)):
        along_x = (name == "x") != panel.sideways
        for side, arrow in enumerate(ARROWS["x" if along_x else "y"]):
            for k in np.flatnonzero(cut[side]):
                edge = (ends or (0.0, 0.0))[side]
                at = (edge, b[k]) if along_x else (a[k], edge)
                axis.plot(*at, marker=arrow, markersize=6, color=style.colour, linestyle="", clip_on=False)


def _ends(middle: Any, low: Any, high: Any) -> Any:
    """Distances to the interval's ends, as matplotlib wants them; an estimate outside its interval gets none there."""
    if low is None:
        return None
    return np.nan_to_num(np.maximum([middle - np.array(low), np.array(high) - middle], 0.0))


def _cut(middle: Any, ends: Any, frame: tuple[float, float] | None) -> Any:
    """Shorten bars that would leave the panel; returns which, [below or above, points]."""
    if ends is None or frame is None:
        return np.zeros((2, len(middle)), bool)
    room = np.maximum([middle - frame[0], frame[1] - middle], 0.0)
    cut = ends > room * (1.0 + 1e-9)
    np.minimum(ends, room, out=ends)
    return cut


def name_points(figure: Any, axis: Any, panel: Points) -> None:
    """The words beside points, once the figure has its layout."""
    unit = 72.0 / figure.dpi
    found = []
    points: list[Any] = []
    lines: list[Any] = [np.empty((0, 2))]
    named = sum(any(spots.names) for spots in panel.series)
    for number, spots in enumerate(panel.series):
        x, y = _places(panel, number)
        seen = _seen(axis, panel, x, y) * unit
        points.append(seen)
        lines += [along(seen)] if spots.joined else []
        for low, high, is_x in ((spots.low, spots.high, False), (spots.x_low, spots.x_high, True)):
            for k in range(len(x)) if low else ():
                ends = [(v, y[k]) if is_x else (x[k], v) for v in (low[k], high[k])]
                bar = _seen(axis, panel, *np.array(ends).T) * unit
                lines.append(along(bar) if np.isfinite(bar).all() else bar[:0])
        style = {"fontsize": 7.5, "color": look(spots.style, number).colour if named > 1 else INK}
        found += [
            (name, at, style) for name, at in zip(spots.names, seen, strict=False) if name and np.isfinite(at).all()
        ]
    box = axis.get_window_extent()
    frame = (box.x0 * unit, box.y0 * unit, box.x1 * unit, box.y1 * unit)
    sizes = [_text_size(axis, name, style) for name, _, style in found]
    everything = np.concatenate([np.empty((0, 2)), *points])
    boxes = place(
        [at for _, at, _ in found], [(w * unit, h * unit) for w, h in sizes], frame, everything, np.concatenate(lines)
    )
    for (name, at, style), word in zip(found, boxes, strict=True):
        tip = np.array(nearest(word, at)) - at
        spot = axis.transData.inverted().transform(at / unit)
        if np.hypot(*tip) > LEADER:
            axis.annotate("", spot, tip, textcoords="offset points", zorder=2.4, arrowprops=THIN).set_in_layout(False)
        where = {"textcoords": "offset points", "va": "bottom", "bbox": PAPER, "zorder": 2.5}
        axis.annotate(plain(name), spot, np.array(word[:2]) - at, **where, **style).set_in_layout(False)


def _seen(axis: Any, panel: Points, x: Any, y: Any) -> Any:
    """Where points are on the figure, in pixels."""
    return axis.transData.transform(np.stack((y, x) if panel.sideways else (x, y), axis=-1)).reshape(-1, 2)


def _text_size(axis: Any, name: str, style: dict[str, Any]) -> tuple[float, float]:
    """Width and height of a word, in pixels."""
    trial = axis.annotate(plain(name), (0.5, 0.5), xycoords="axes fraction", **style)
    box = trial.get_window_extent()
    trial.remove()
    return box.width, box.height
