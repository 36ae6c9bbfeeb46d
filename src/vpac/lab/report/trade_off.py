"""Mean against spread along the price: what `vpac frontier` shows, and which form of a study buys more.

At equal ψ two forms are optima of different objectives, so a table at equal ψ compares prices and not forms. Here every form is
swept over ψ, and judged by what a user with a price ψ_j gets who may choose the learner's own price freely:

    hypervolume   below the concave frontier of the points (variance, mean), as a share of the oracle's
    tuned loss    average over j of  U*_j − max_k (m_k − ψ_j v_k),  U*_j the oracle's best U at ψ_j
    plain loss    average over j of  U*_j − (m_j − ψ_j v_j), the learner's own price being the user's

m_k and v_k are averages over runs at the k-th price. Intervals are percentiles over resampled runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from vpac.files import jsonable
from vpac.lab.experiments.spec import Arm, Figure
from vpac.lab.frontier import Exact, FrontierResult, FrontierSpec
from vpac.lab.report.chart import Cell, Chart, Panel, Points, Spots, Table, shown
from vpac.lab.report.geometry import styles
from vpac.lab.report.results import Results, over_runs
from vpac.risk.frontier import FrontierPoint, TradeOff, aversion_of, hypervolume
from vpac.risk.intervals import Interval
from vpac.typing import FloatArray

BAR_REACH = 0.5
"""The axes make room for bars up to this share of the points' range, on each side; longer bars end in an arrow."""
FARTHEST = 3.0
"""Points whose mean is more than this many risk-neutral standard deviations lower are not drawn: the others would be hard to
tell apart beside them."""
MEAN = "mean return"
STYLES: tuple[int | str, ...] = ("VPAC", "VAAC", 3)
DOMINATED_STYLES: tuple[int | str, ...] = (6, 5, 5)
"""Styles of curves, and of their dominated points."""


@dataclass(frozen=True)
class TracedFrontier:
    """A frontier that was trained, and MVPI's beside it if it was asked for."""

    found: FrontierResult

    def tables(self) -> list[Table]:
        """A row for each price; MVPI has a table of its own."""
        found, q, steps = self.found, self.found.question, self.found.mvpi is not None
        length = f"{q.seeds} × {q.length} {'steps' if q.deep else 'episodes'}"
        title = f"{q.env}, {q.algorithm}: {length}, discounted returns, 95 % intervals; {_unit(q)}"
        tables = [_table(found.trade_off, found.scale, "ψ", title, steps)]
        if found.mvpi is not None:
            first = found.trade_off.points[0].volatility
            title = "MVPI: λ prices the variance of a step's reward, in 1/reward; R = λ · std of a step at ψ = 0"
            tables.append(_table(found.mvpi, first.estimate if first else 0.0, "λ", title, steps))
        return tables

    def as_dict(self) -> dict[str, Any]:
        """All of it; unknown numbers are None."""
        found, q = self.found, self.found.question
        data = {
            "env": q.env, "algorithm": q.algorithm, "gamma": q.gamma, "seeds": q.seeds,
            "steps" if q.deep else "episodes": q.length, "risk_neutral_std": found.std,
            "points": _plain(found.trade_off, found.scale, found.runs),
            "mvpi": None if found.mvpi is None else _plain(found.mvpi, 0.0, {}),
            "exact": None if found.exact is None else asdict(found.exact),
            "advice": found.trade_off.advice(), "notes": found.notes,
            "failed": [{"run": one.name, "status": one.status, "error": one.last_line} for one in found.failed],
        }  # fmt: skip
        return dict(jsonable(data | ({} if q.penalty is None else {"penalty": q.settings["penalty"]})))

    def charts(self) -> list[Chart]:
        """Mean against the spread; with MVPI also against the volatility of the reward."""
        found = self.found
        priced = "variance" if found.question.penalty is None else found.question.axis
        curves = {found.question.algorithm: found.trade_off} | ({"MVPI": found.mvpi} if found.mvpi else {})
        floor = _floor(found.trade_off)
        panels: list[Panel] = [frontier_panel(curves, found.exact, "Spread of the return" if found.mvpi else "")]
        caption = (
            f"Each point is the policies trained at one price ψ of the {priced}, with 95 % intervals over seeds; an arrow says "
            "that the interval goes on. Up is a higher mean, left is a more dependable return. Crosses mark dominated points: "
            "another has at least the same mean and at most the same spread."
        )
        if found.exact:
            caption += " The dotted line is the exact frontier, from the oracle."
        if found.mvpi:
            series = []
            for (name, curve), style in zip(curves.items(), STYLES, strict=False):
                points = [p for p in curve.points if p.volatility is not None and p.mean.estimate >= floor]
                series.append(spots_of(name, points, style, _price(name), steps=True))
            panels.append(framed(series, "standard deviation of a step's reward", title="Spread of single rewards"))
            caption += (
                " Right: the same policies by the spread of single steps' rewards, which is what MVPI prices; rewards may "
                "differ from step to step and still add up to the same return."
            )
        away = [
            f"{name}, {_price(name)} = {point.psi:g} (mean {point.mean.estimate:.4g})"
            for name, curve in curves.items() for point in curve.points if point.mean.estimate < floor
        ]  # fmt: skip
        notes = [*found.notes, *([f"Not drawn, because their mean is far below: {'; '.join(away)}."] if away else [])]
        title = f"{found.question.env}: mean against spread"
        return [Chart("frontier", title, caption, panels, notes, foot=_foot(found))]


def _unit(question: FrontierSpec) -> str:
    """Meaning of ψ and R."""
    if question.penalty is not None and question.penalty.degree == 1:
        return f"ψ, the price of the {question.axis}, has no unit"
    step = " of a step's reward" if question.penalty is not None and question.penalty.name == "volatility" else ""
    return f"ψ in 1/reward, R = ψ · std{step} at ψ = 0"


def _table(curve: TradeOff, scale: float, price: str, title: str, steps: bool) -> Table:
    other = curve.points[0].measure is not None
    spread = ("measure", "std") if other else ("std", "of a step" if steps else "Sharpe")
    columns = (price, "mean", *spread, f"against\n{price} = 0", "")
    rows = []
    for i, point in enumerate(curve.points):
        beside = point.sharpe if not steps else math.nan if point.volatility is None else point.volatility.estimate
        removed = curve.removed(i)
        change = f"adds {_percent(-removed)}" if removed < -0.005 else f"removes {_percent(abs(removed))}"
        against = f"keeps {_percent(curve.kept(i))}\n{change}"
        rows.append(
            (f"{point.psi:g}\nR {aversion_of(point.psi, scale):.2g}", _text(point.mean), _text(point.spread),
             shown(point.std.estimate if other else beside, 4), against, "\n".join(marks(curve, i)))
        )  # fmt: skip
    return Table.of(columns, rows, title)


def marks(curve: TradeOff, number: int) -> list[str]:
    """Remarks on a point: knee, best Sharpe ratio, dominated."""
    lost = "dominated" if curve.surely_dominated[number] else "dominated?"
    marked = {"knee": number == curve.knee, "Sharpe": number == curve.best_sharpe, lost: curve.dominated[number]}
    return [words for words, is_so in marked.items() if is_so]


def _text(x: Interval) -> str:
    return f"{shown(x.estimate, 4)}\n{shown(_closed(x).low, 3)} … {shown(_closed(x).high, 3)}"


def _percent(share: float) -> str:
    return "–" if math.isnan(share) else f"{100.0 * share:.0f}\N{NO-BREAK SPACE}%"


def _plain(curve: TradeOff, scale: float, runs: dict[float, list[str]]) -> list[dict[str, Any]]:
    return [
        {
            "psi": p.psi, "risk_aversion": aversion_of(p.psi, scale) if scale else None, "mean": asdict(p.mean),
            "std": asdict(p.std), "volatility": None if p.volatility is None else asdict(p.volatility), "sharpe": p.sharpe,
            "keeps": curve.kept(i), "removes": curve.removed(i), "marks": marks(curve, i),
            "runs": runs.get(p.psi, []),
        } | ({} if p.measure is None else {"measure": asdict(p.measure)})
        for i, p in enumerate(curve.points)
    ]  # fmt: skip


def _foot(found: FrontierResult) -> str:
    """Meaning of the bars."""
    seeds, what = found.question.seeds, "steps" if found.question.deep else "episodes"
    size = f"{found.question.algorithm}, {found.question.length:,} {what} a training."
    if seeds == 1:
        return f"{size} One training at each price; bars: 95 % intervals over the episodes of its evaluation."
    return f"{size} Bars: 95 % intervals over {seeds} seeds; an arrow: the bar goes on."


def _floor(curve: TradeOff) -> float:
    """The lowest mean that is drawn."""
    first = curve.points[0]
    return first.mean.estimate - FARTHEST * first.std.estimate if first.std.estimate > 0.0 else -math.inf


def _price(name: str) -> str:
    return "λ" if name == "MVPI" else "ψ"


def frontier_panel(curves: dict[str, TradeOff], exact: Exact | None = None, title: str = "") -> Points:
    """Trade-offs in one plane; the first one's knee and best Sharpe ratio are marked."""
    series = []
    first = next(iter(curves.values()))
    floor = _floor(first)
    if exact:
        near = [(s, m) for s, m in zip(exact.stds, exact.means, strict=True) if m >= floor]
        x, y = ([pair[k] for pair in near] for k in (0, 1))
        series.append(Spots("exact (oracle)", x, y, joined=True, style="oracle"))
    for number, (name, curve) in enumerate(curves.items()):
        lost = curve.dominated
        points = sorted(zip(curve.points, lost, strict=True), key=lambda pair: pair[0].spread.estimate)
        for gone in (False, True):
            chosen = [p for p, away in points if bool(away) == gone and p.mean.estimate >= floor]
            words = name if not gone else "dominated" if number == 0 else f"{name}, dominated"
            if chosen:
                style = DOMINATED_STYLES[number] if gone else STYLES[number]
                series.append(spots_of(words, chosen, style, _price(name), joined=not gone))
    for words, at, style in (("knee", first.knee, 4), ("best Sharpe ratio", first.best_sharpe, 7)):
        if at is not None and first.points[at].mean.estimate >= floor:
            point = first.points[at]
            series.append(Spots(words, [point.spread.estimate], [point.mean.estimate], style=style))
    return framed(series, first.axis if "step" in first.axis else f"{first.axis} of the return", title=title)


def framed(series: Sequence[Spots], x_label: str, y_label: str = MEAN, title: str = "") -> Points:
    """A panel that fits every point and cuts long bars: with two or three seeds some are very wide."""
    ranges = []
    for axis, low, high in (("x", "x_low", "x_high"), ("y", "low", "high")):
        values = np.array([value for spots in series for value in getattr(spots, axis)])
        below, above = ([value for spots in series for value in getattr(spots, end) or ()] for end in (low, high))
        first, last = float(values.min()), float(values.max())
        spread = last - first or max(0.1 * abs(first), 1e-9)
        left = max(min(first, *below), first - BAR_REACH * spread) - 0.1 * spread
        right = min(max(last, *above), last + BAR_REACH * spread) + 0.1 * spread
        ranges.append((left, right))
    return Points(series, x_label, y_label, title, x_range=ranges[0], y_range=ranges[1])


def spots_of(
    name: str, points: Sequence[FrontierPoint], style: int | str, price: str = "", joined: bool = False,
    steps: bool = False,
) -> Spots:  # fmt: skip
    """Points over the spread of the return, or of a step's reward; labels are prices, if they have a name."""
    across = [_closed(p.volatility if steps and p.volatility is not None else p.spread) for p in points]
    names = [f"{price} = {p.psi:g}" if price else "" for p in points]
    return Spots.of(name, across, [_closed(p.mean) for p in points], names=names, joined=joined, style=style)


def _closed(x: Interval) -> Interval:
    """An interval whose ends are the estimate itself where they are not known."""
    known = math.isfinite(x.low) and math.isfinite(x.high)
    return x if known else Interval(x.estimate, x.estimate, x.estimate)


SCORE_RESAMPLES = 2000
LEAST_RUNS = 5


@dataclass(frozen=True)
class Swept:
    """The runs of one form along the price."""

    psis: FloatArray
    """The prices, ascending, [K]."""
    means: list[FloatArray]
    """Mean return of each run, for each price."""
    variances: list[FloatArray]
    """Variance of the return of each run."""

    def resampled(self, count: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Averages over the runs (first row) and over resamples of them, [1 + count, K] each."""
        m, v = np.empty((2, 1 + count, len(self.psis)))
        for k, (mean, variance) in enumerate(zip(self.means, self.variances, strict=True)):
            rows = np.vstack([np.arange(len(mean)), rng.integers(0, len(mean), (count, len(mean)))])
            m[:, k], v[:, k] = mean[rows].mean(axis=1), variance[rows].mean(axis=1)
        return m, v


def swept(results: Results, figure: Figure, arms: list[Arm]) -> dict[str, Swept]:
    """The runs of each value of `lines`."""
    found: dict[str, Swept] = {}
    for name in dict.fromkeys(str(arm.at[figure.lines or ""]) for arm in arms):
        those = [arm for arm in arms if str(arm.at[figure.lines or ""]) == name]
        those.sort(key=lambda arm: float(arm.at[figure.x or ""]))
        means, variances = ([results.final(arm.label, q) for arm in those] for q in ("mean", "variance"))
        found[name] = Swept(np.array([float(arm.at[figure.x or ""]) for arm in those]), means, variances)
    return found


def frontier_panels(results: Results, figure: Figure, arms: list[Arm]) -> tuple[list[Panel], list[str]]:
    """Mean against variance, a point for each price, with 95 % intervals over runs; the oracle's as another line.

    Points more than two standard deviations below the best mean are named in a note: the others would be hard to tell apart.
    """
    series, left_out = [], []
    forms = swept(results, figure, arms)
    looks = styles([*forms, "oracle"])
    best = max((float(form.means[0].mean()), float(form.variances[0].mean())) for form in forms.values())
    for name, form in forms.items():
        shown = [k for k, mean in enumerate(form.means) if mean.mean() >= best[0] - 2.0 * best[1] ** 0.5]
        gone = [f"{psi:g}" for k, psi in enumerate(form.psis) if k not in shown]
        left_out += [f"{name}: ψ = {', '.join(gone)}"] if gone else []
        pairs = ("variance", form.variances), ("mean", form.means)
        x, y = ([over_runs(those[k], q) for k in shown] for q, those in pairs)
        names = [f"{form.psis[k]:g}" for k in shown]
        series.append(Spots.of(name, x, y, names=names, joined=True, style=looks[name]))
    if figure.oracle:
        _, means, variances = np.array(figure.oracle).T
        series.append(Spots("oracle", variances, means, joined=True, style="oracle"))
    notes = [f"Not drawn, because the mean collapses: {'; '.join(left_out)}."] if left_out else []
    return [Points(series, "variance of the return", "mean return", "")], notes


@dataclass(frozen=True)
class Score:
    """Score of one form: the estimate in the first row, resamples below it, [1 + count]."""

    volume: FloatArray
    """Hypervolume, as a share of the reference's."""
    tuned: FloatArray
    """Loss in U with a price of the learner's own choice …"""
    plain: FloatArray
    """… and with the user's."""


def scores(
    forms: Mapping[str, Swept], oracle: FloatArray, seed: int = 0, resamples: int = SCORE_RESAMPLES
) -> dict[str, Score]:
    """Judge forms against the oracle's points [J, (ψ, mean, variance)]; without any, against all points of all forms.

    The box of the hypervolume ends at the largest variance without a price and one standard deviation below the best mean.
    """
    rng = np.random.default_rng(seed)
    drawn = {name: form.resampled(resamples, rng) for name, form in forms.items()}
    if not len(oracle):
        psis = next(iter(forms.values())).psis
        points = np.concatenate([np.stack([m[0], v[0]]) for m, v in drawn.values()], axis=1)
        best = (points[0] - psis[:, None] * points[1]).argmax(axis=1)
        oracle = np.stack([psis, *points[:, best]], axis=1)
    psis, means, variances = oracle.T
    ceiling = max(float(variances[0]), *(float(v[0, 0]) for _, v in drawn.values()))
    floor = float(means[0] - variances[0] ** 0.5)
    most, ideal = hypervolume(means, variances, floor, ceiling), means - psis * variances
    found = {}
    for name, (m, v) in drawn.items():
        worth = m[:, None, :] - psis[:, None] * v[:, None, :]
        here = np.searchsorted(forms[name].psis, psis)
        own = worth[:, np.arange(len(psis)), np.minimum(here, m.shape[1] - 1)]
        tuned, plain = (ideal - worth.max(axis=2)).mean(axis=1), (ideal - own).mean(axis=1)
        found[name] = Score(hypervolume(m, v, floor, ceiling) / most, tuned, plain)
    return found


def compared(results: Results, figure: Figure) -> Table | None:
    """A row for each form: its scores and those less the first form's; None while a form has too few runs."""
    forms = swept(results, figure, results.some(figure.arms))
    if any(min(map(len, form.means)) < LEAST_RUNS for form in forms.values()):
        return None
    found = scores(forms, np.array(figure.oracle).reshape(-1, 3))
    first = next(iter(found))
    rows: list[dict[str, Cell]] = []
    for name, score in found.items():
        row: dict[str, Cell] = {"form": name}
        titles = {"hypervolume": "volume", "loss in U, tuned ψ": "tuned", "loss in U, equal ψ": "plain"}
        for title, field in titles.items():
            values, reference = getattr(score, field), getattr(found[first], field)
            row[title], row[f"{title}, 95 % interval"] = float(values[0]), _ends(values)
            row[f"{title}, less that of {first}"] = None if name == first else _ends(values - reference)
        rows.append(row)
    best = "the oracle's" if figure.oracle else "the best point of all"
    title = f"Forms by their frontiers: hypervolume as a share of {best}, losses against {best}"
    return Table.from_records(rows, title)


def _ends(values: FloatArray) -> str:
    low, high = np.quantile(values[1:], [0.025, 0.975])
    return f"{low:.3g} … {high:.3g}".replace("-", "−")
