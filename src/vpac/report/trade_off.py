"""A traced frontier as tables and plain data."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from vpac.execution.frontier import Found
from vpac.report.tables import Table, shown
from vpac.report.trade_off_chart import ends
from vpac.risk.frontier import TradeOff, aversion_of
from vpac.risk.intervals import Interval

__all__ = ["as_dict", "tables"]


def tables(found: Found) -> list[Table]:
    """A row for each price; MVPI has a table of its own."""
    q, steps = found.question, found.outsider is not None
    length = f"{q.seeds} × {q.length} {'steps' if q.deep else 'episodes'}"
    title = f"{q.env}, {q.algorithm}: {length}, discounted returns, 95 % intervals; ψ in 1/reward, R = ψ · std at ψ = 0"
    shown_tables = [_table(found.trade_off, found.std, "ψ", title, steps)]
    if found.outsider is not None:
        first = found.trade_off.points[0].volatility
        title = "MVPI: λ prices the variance of a step's reward, in 1/reward; R = λ · std of a step at ψ = 0"
        shown_tables.append(_table(found.outsider, first.estimate if first else 0.0, "λ", title, steps))
    return shown_tables


def _table(curve: TradeOff, std: float, price: str, title: str, steps: bool) -> Table:
    columns = (price, "mean", "std", "of a step" if steps else "Sharpe", f"against\n{price} = 0", "")
    rows = []
    for i, point in enumerate(curve.points):
        other = point.sharpe if not steps else math.nan if point.volatility is None else point.volatility.estimate
        against = f"keeps {_percent(curve.kept(i))}\n{_change(curve.removed(i))}"
        rows.append(
            (f"{point.psi:g}\nR {aversion_of(point.psi, std):.2g}", _text(point.mean), _text(point.std), _short(other),
             against, "\n".join(marks(curve, i)))
        )  # fmt: skip
    return Table.of(columns, rows, title)


def marks(curve: TradeOff, number: int) -> list[str]:
    """What a point is, in a word or two."""
    found = []
    if number == curve.knee:
        found.append("knee")
    if number == curve.best_sharpe:
        found.append("Sharpe")
    if curve.dominated[number]:
        found.append("dominated" if curve.surely_dominated[number] else "dominated?")
    return found


def _text(x: Interval) -> str:
    low, high = ends(x)
    return f"{_short(x.estimate)}\n{_short(low, 3)} … {_short(high, 3)}"


def _short(value: float, digits: int = 4) -> str:
    return shown(float(f"{value:.{digits}g}")) if math.isfinite(value) else "–"


def _percent(share: float) -> str:
    return "–" if math.isnan(share) else f"{100.0 * share:.0f}\N{NO-BREAK SPACE}%"


def _change(removed: float) -> str:
    """What happens to the standard deviation."""
    return f"adds {_percent(-removed)}" if removed < -0.005 else f"removes {_percent(abs(removed))}"


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
