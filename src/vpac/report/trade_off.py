"""A traced frontier as a chart, a table and plain data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from vpac.execution.frontier import Exact, Found
from vpac.report.chart import Chart, Panel, Points, Spots
from vpac.report.tables import Table, shown
from vpac.risk.frontier import FrontierPoint, TradeOff, aversion_of
from vpac.risk.intervals import Interval

__all__ = ["as_dict", "chart", "frontier_panel", "table"]

APART = 0.12
"""Share of the axes that prices written beside points keep clear of one another."""
STD = "standard deviation of the return"
MEAN = "mean return"


def chart(found: Found) -> Chart:
    """Mean against standard deviation; with MVPI also against the volatility of the reward."""
    both = {"MVPI": found.outsider} if found.outsider else {}
    panels: list[Panel] = [frontier_panel({_name(found): found.trade_off, **both}, found.exact)]
    caption = (
        "Each point is the policies that were trained at one price of variance ψ, with 95 % intervals over seeds. Further up "
        "is more on average, further left is more dependable. Crosses mark points that are not worth choosing: another has no "
        "less mean and no more spread."
    )
    if found.exact:
        caption += " The line beneath is the best there is, from the oracle."
    if found.outsider:
        panels[0] = _titled(panels[0], "Return: what an episode brings")
        panels.append(_volatility_panel({_name(found): found.trade_off, **both}))
        caption += (
            " Right: the same policies by the spread of single steps' rewards, which is what MVPI prices; rewards may differ "
            "from step to step and still add up to the same return every time."
        )
    return Chart("frontier", f"{found.question.env}: mean against spread", caption, panels, found.notes)


def _name(found: Found) -> str:
    return found.question.algorithm


def _titled(panel: Any, title: str) -> Panel:
    return Points(panel.series, panel.x_label, panel.y_label, title)


def frontier_panel(curves: dict[str, TradeOff], exact: Exact | None = None) -> Points:
    """Named trade-offs in one plane; knee, best Sharpe ratio and dominated points are marked in the first of them."""
    series = []
    if exact:
        series.append(Spots("exact (oracle)", exact.stds, exact.means, joined=True, style="oracle"))
    styles = ("VPAC", "VAAC", 3, 4)
    for number, (name, curve) in enumerate(curves.items()):
        lost = curve.dominated
        kept = [p for p, gone in zip(curve.points, lost, strict=True) if not gone]
        kept.sort(key=lambda point: point.std.estimate)
        series.append(_spots(name, kept, styles[number], joined=True))
        if lost.any():
            gone = [p for p, away in zip(curve.points, lost, strict=True) if away]
            words = "dominated" if number == 0 else f"{name}, dominated"
            series.append(_spots(words, gone, 6 if number == 0 else 5))
    first = next(iter(curves.values()))
    for words, at, style in (("knee", first.knee, 4), ("best Sharpe ratio", first.best_sharpe, 7)):
        if at is not None:
            point = first.points[at]
            series.append(Spots(words, [point.std.estimate], [point.mean.estimate], style=style))
    return Points(series, STD, MEAN)


def _spots(
    name: str, points: Sequence[FrontierPoint], style: int | str, joined: bool = False, volatility: bool = False
) -> Spots:
    """Points over the spread of the return or of a step's reward."""
    across = [(p.volatility if volatility else None) or p.std for p in points]
    mean, wide = [_ends(p.mean) for p in points], [_ends(x) for x in across]
    return Spots(
        name, [x.estimate for x in across], [p.mean.estimate for p in points],
        [low for low, _ in mean], [high for _, high in mean], [low for low, _ in wide], [high for _, high in wide],
        names=_prices(points), joined=joined, style=style,
    )  # fmt: skip


def _ends(x: Interval) -> tuple[float, float]:
    known = math.isfinite(x.low) and math.isfinite(x.high)
    return (x.low, x.high) if known else (x.estimate, x.estimate)


def _prices(points: Sequence[FrontierPoint]) -> list[str]:
    """Prices beside points that are far enough from all that have theirs already."""
    places = np.array([[p.std.estimate, p.mean.estimate] for p in points]).reshape(-1, 2)
    places = places / np.where(np.ptp(places, axis=0) > 0.0, np.ptp(places, axis=0), 1.0) if len(points) else places
    named: list[int] = []
    for i in range(len(points)):
        if all(np.abs(places[i] - places[j]).max() > APART for j in named):
            named.append(i)
    return [f"ψ = {point.psi:g}" if i in named else "" for i, point in enumerate(points)]


def _volatility_panel(curves: dict[str, TradeOff]) -> Points:
    series = [
        _spots(name, [p for p in curve.points if p.volatility is not None], style, volatility=True)
        for (name, curve), style in zip(curves.items(), ("VPAC", "VAAC"), strict=False)
    ]
    return Points(
        series, "standard deviation of a step's reward", MEAN, "Steps: how rewards differ from one to the next"
    )


def table(found: Found) -> Table:
    """A row for each price."""
    columns = ("ψ (1/reward)", "risk aversion", "mean", "std", "Sharpe", "keeps", "removes", "step std", "")
    rows = _rows(found.trade_off, found.std)
    if found.outsider is not None:
        first = found.trade_off.points[0].volatility
        rows += [(f"MVPI λ = {row[0]}", *row[1:]) for row in _rows(found.outsider, first.estimate if first else 0.0)]
    q = found.question
    length = f"{q.seeds} × {q.length} {'steps' if q.deep else 'episodes'}"
    return Table.of(columns, rows, f"{q.env}, {q.algorithm}: {length}, discounted returns, 95 % intervals")


def _rows(curve: TradeOff, std: float) -> list[tuple[str, ...]]:
    found = []
    for i, point in enumerate(curve.points):
        found.append((
            f"{point.psi:g}", f"{aversion_of(point.psi, std):.3g}", _text(point.mean), _text(point.std), _short(point.sharpe),
            _percent(curve.kept(i)), _percent(curve.removed(i)),
            "–" if point.volatility is None else _short(point.volatility.estimate), ", ".join(marks(curve, i)),
        ))  # fmt: skip
    return found


def marks(curve: TradeOff, number: int) -> list[str]:
    """What a point is."""
    found = []
    if number == curve.knee:
        found.append("knee")
    if number == curve.best_sharpe:
        found.append("best Sharpe")
    if curve.dominated[number]:
        found.append("dominated" if curve.surely_dominated[number] else "dominated?")
    return found


def _text(x: Interval) -> str:
    low, high = _ends(x)
    return f"{_short(x.estimate)} ({_short(low)} … {_short(high)})"


def _short(value: float) -> str:
    return shown(float(f"{value:.4g}")) if math.isfinite(value) else "–"


def _percent(share: float) -> str:
    return "–" if math.isnan(share) else f"{100.0 * share:.0f} %".replace("-", "−")


def as_dict(found: Found) -> dict[str, Any]:
    """All of it as plain data; what is not known is null."""
    q = found.question
    return {
        "env": q.env, "algorithm": q.algorithm, "gamma": q.gamma, "seeds": q.seeds,
        "steps" if q.deep else "episodes": q.length, "risk_neutral_std": found.std,
        "points": _plain(found.trade_off, found.std, found.runs),
        "mvpi": None if found.outsider is None else _plain(found.outsider, 0.0, {}),
        "exact": None if found.exact is None else asdict(found.exact),
        "advice": found.trade_off.advice(), "notes": found.notes,
        "failed": [{"run": one.name, "status": one.status, "error": one.last_line} for one in found.failed],
    }  # fmt: skip


def _plain(curve: TradeOff, std: float, runs: dict[float, list[str]]) -> list[dict[str, Any]]:
    def known(x: Interval | None) -> dict[str, float | None] | None:
        return None if x is None else {k: v if math.isfinite(v) else None for k, v in asdict(x).items()}

    def finite(x: float) -> float | None:
        return x if math.isfinite(x) else None

    return [
        {
            "psi": p.psi, "risk_aversion": aversion_of(p.psi, std) if std else None, "mean": known(p.mean),
            "std": known(p.std), "volatility": known(p.volatility), "sharpe": finite(p.sharpe),
            "keeps": finite(curve.kept(i)), "removes": finite(curve.removed(i)), "marks": marks(curve, i),
            "runs": runs.get(p.psi, []),
        }
        for i, p in enumerate(curve.points)
    ]  # fmt: skip
