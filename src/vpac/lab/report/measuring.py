"""Measured policies as tables, plain data and a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import combinations
from typing import Any

import numpy as np

from vpac.evaluation.sources import PARTS, Sources
from vpac.lab.report.chart import Chart, Line, Lines, Reference, Table, shown
from vpac.risk.compare import Comparison, compare_samples
from vpac.risk.intervals import Interval
from vpac.risk.sample import ReturnSample
from vpac.typing import FloatArray

__all__ = ["as_dict", "chart", "comparison_table", "comparisons", "measures_table", "notes", "sources_table"]

POINTS = 400
"""Points of a density."""


def comparisons(samples: Mapping[str, ReturnSample], level: float, seed: int) -> dict[tuple[str, str], Comparison]:
    """Every pair, up to four policies; of more, each with the first."""
    names = list(samples)
    pairs = combinations(names, 2) if len(names) <= 4 else ((names[0], other) for other in names[1:])
    return {(a, b): compare_samples(samples[a], samples[b], level=level, seed=seed) for a, b in pairs}


def measures_table(samples: Mapping[str, ReturnSample], level: float, alphas: Sequence[float]) -> Table:
    """Every metric, a row each; a policy takes a column, and its interval another if it is alone."""
    columns = {name: sample.rows(level, alphas) for name, sample in samples.items()}
    first, *_ = samples.values()
    title = f"{len(first)} episodes, {first.kind} returns, γ = {first.gamma:g}, {100 * level:g} % intervals"
    lines = list(zip(*columns.values(), strict=True))
    if len(columns) == 1:
        return Table.of(
            ("", "estimate", "interval"), [(r.name, _number(r.interval), _ends(r.interval)) for (r,) in lines], title
        )
    rows = [(row[0].name, *(f"{_number(r.interval)}\n{_ends(r.interval)}" for r in row)) for row in lines]
    return Table.of(("", *columns), rows, title)


def comparison_table(a: str, b: str, found: Comparison) -> Table:
    """A against B."""
    rows = [
        ("mean of A − mean of B", _text(found.difference_of_means)),
        ("variance of A / variance of B", _text(found.ratio_of_variances)),
        _varies_less(found.varies_less),
        ("an episode of A beats one of B", _text(found.better_episode)),
        ("whoever likes more prefers", _verdict(found.prefers[0], found.first_order_share)),
        ("whoever dislikes risk, too, prefers", _verdict(found.prefers[1], found.second_order_share)),
    ]
    return Table.of(("", "estimate (interval)"), rows, f"A = {a}, B = {b}")


def sources_table(found: Mapping[str, Sources]) -> Table:
    """Where the variance comes from: share, part and, where it is known, the exact part."""
    rows: list[tuple[Any, ...]] = []
    for name, sources in found.items():
        for part in PARTS:
            share = sources.shares[part]
            exact = None if sources.exact is None else f"{getattr(sources.exact, part):.5g}"
            ends = f"{_percent(share.low)} … {_percent(share.high)}"
            rows.append((name, part, _percent(share.estimate), ends, _text(sources.parts[part]), exact))
        exact = None if sources.exact is None else f"{sources.exact.total:.5g}"
        rows.append((name, "all", "100 %", "", _text(sources.total), exact))
    columns = ("policy", "source", "share", "interval", "variance", "exact")
    first = next(iter(found.values()))
    return Table.of(columns, rows, f"where the variance comes from, {first.starts} starts")


def as_dict(
    samples: Mapping[str, ReturnSample],
    level: float,
    alphas: Sequence[float],
    compared: Mapping[tuple[str, str], Comparison],
    sources: Mapping[str, Sources],
) -> dict[str, Any]:
    """All of it as plain data; what is not known is null."""

    def measures(sample: ReturnSample) -> dict[str, Any]:
        return {row.name: asdict(row.interval) for row in sample.rows(level, alphas)}

    found = {
        "level": level,
        "policies": {
            name: {
                "about": dict(s.about), "gamma": s.gamma, "episodes": len(s), "terminated": float(s.terminated.mean()),
                "unseen": s.unseen(level), "notes": s.notes(), "discounted": measures(s.discounted),
                "undiscounted": measures(s.undiscounted),
            }
            for name, s in samples.items()
        },
        "comparisons": [{"a": a, "b": b, **asdict(c), "prefers": c.prefers} for (a, b), c in compared.items()],
        "sources": {
            name: asdict(s) | {"exact": None if s.exact is None else s.exact._asdict()} for name, s in sources.items()
        },
    }  # fmt: skip
    return dict(_known(found))


def notes(samples: Mapping[str, ReturnSample], sources: Mapping[str, Sources]) -> list[str]:
    """What a reader should know before relying on the numbers."""
    found = [f"{name}: {note}" for name, sample in samples.items() for note in sample.notes()]
    return [*found, *dict.fromkeys(note for one in sources.values() for note in one.notes)]


def chart(samples: Mapping[str, ReturnSample]) -> Chart:
    """How often which return comes, and how often it gets worse than any given one."""
    low, high = _ends_of_axis(samples)
    densities, steps, means = [], [], []
    for place, (name, sample) in enumerate(samples.items()):
        grid = np.linspace(low, high, POINTS)
        places, density = _density(sample.returns, low, high)
        label = f"{name}: {_mean_and_std(sample)}"
        densities.append(Line(label, places, density, style=place))
        ordered = np.sort(sample.returns)
        share = np.searchsorted(ordered, grid, side="right") / len(ordered)
        steps.append(Line(label, grid, 100.0 * share, style=place))
        means.append(Reference(sample.mean, "" if place else "mean", "x", place))
    first = next(iter(samples.values()))
    unit = "discounted return" if first.kind == "discounted" else "return"
    top = 1.08 * max(max(line.y) for line in densities)
    return Chart(
        "returns", _title(samples),
        "Left: the higher the curve, the more often an episode ends there; a narrow hill is a dependable policy. Right: how "
        "many episodes in a hundred end with that return or less; the lower the curve, the better.",
        [
            Lines(densities, unit, "how often (density)", "How often which return", references=means, x_range=(low, high),
                  y_range=(0.0, top)),
            Lines(steps, unit, "% of episodes at or below", "How often it gets no better", x_range=(low, high),
                  y_range=(0.0, 100.0), references=[Reference(5.0, "worst 5 %")]),
        ],
        foot=_foot(samples),
    )  # fmt: skip


def _mean_and_std(sample: ReturnSample) -> str:
    return f"mean {sample.mean:.4g}, std {sample.std:.3g}".replace("-", "−")


def _title(samples: Mapping[str, ReturnSample]) -> str:
    """Whose returns, of how many episodes; of one policy also mean and standard deviation, which a legend says of several."""
    names, counts = list(samples), sorted({len(s) for s in samples.values()})
    many = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    episodes = f"{many} episode{'s' * (counts[-1] != 1)}"
    if len(names) == 1:
        return f"Returns of {names[0]}: {episodes}, {_mean_and_std(samples[names[0]])}"
    whose = f"{len(names)} policies" if len(names) > 3 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"Returns of {whose}, {episodes} each"


def _foot(samples: Mapping[str, ReturnSample]) -> str:
    """What was measured, and how to read it."""
    first, where = next(iter(samples.values())), {str(s.about.get("env", "")) for s in samples.values()}
    place = "" if where == {""} else f"In {' and '.join(sorted(where))}. "
    how = f"Discounted with γ = {first.gamma:g}" if first.kind == "discounted" else "Rewards added up without discount"
    actions = {None: "", True: ", the most preferred actions", False: ", actions drawn from the policy"}
    return (
        f"{place}{how}{actions.get(first.about.get('deterministic'), '')}. A narrow hill on the left is a dependable policy; "
        "on the right the lower curve is the better one."
    )


def _ends_of_axis(samples: Mapping[str, ReturnSample]) -> tuple[float, float]:
    """All but the most extreme 0.2 % of each policy's returns, and a little room."""
    ends = np.array([np.quantile(s.returns, [0.002, 0.998]) for s in samples.values()])
    low, high = float(ends[:, 0].min()), float(ends[:, 1].max())
    room = 0.08 * (high - low) or max(1.0, 0.1 * abs(low))
    return low - room, high + room


def _density(x: FloatArray, low: float, high: float) -> tuple[FloatArray, FloatArray]:
    """A sum of normal hills, their width Silverman's and at least a hundredth of the picture, and where it was computed.

    No episode ended beyond the smallest and the largest return: there the curve ends, and what hills have beyond is
    thrown back. Of returns that hardly differ a whole hill is left, in order to be seen.
    """
    quartiles = np.quantile(x, [0.25, 0.75])
    spread = min(float(x.std()), float(np.ptp(quartiles)) / 1.34) or float(x.std())
    width = max(0.9 * spread * len(x) ** -0.2, (high - low) / 100.0)
    room = 0.0 if np.ptp(x) > 2.0 * width else 3.0 * width
    ends = float(x.min()) - room, float(x.max()) + room
    places = np.linspace(max(low, ends[0]), min(high, ends[1]), POINTS)
    counts, edges = np.histogram(x, bins=4 * POINTS, range=(low, high))
    middles = (edges[:-1] + edges[1:]) / 2.0
    folded = (places, 2.0 * ends[0] - places, 2.0 * ends[1] - places)
    hills = sum(np.exp(-0.5 * ((some[:, None] - middles) / width) ** 2) for some in folded) / (
        width * np.sqrt(2.0 * np.pi)
    )
    return _closed(places, np.asarray(hills @ counts / len(x), np.float64))


def _closed(places: FloatArray, density: FloatArray) -> tuple[FloatArray, FloatArray]:
    """With a point at zero at either end."""
    return np.concatenate([places[:1], places, places[-1:]]), np.concatenate([[0.0], density, [0.0]])


def _number(interval: Interval) -> str:
    return shown(_short(interval.estimate, 5))


def _ends(interval: Interval) -> str:
    if np.isnan(interval.low) and np.isnan(interval.high):
        return "unknown"
    return f"{shown(_short(interval.low))} … {shown(_short(interval.high))}".replace("–", "?")


def _short(value: float, digits: int = 4) -> float:
    return float(f"{value:.{digits}g}") if np.isfinite(value) else value


def _text(interval: Interval) -> str:
    return f"{shown(_short(interval.estimate))} ({_ends(interval)})"


def _percent(share: float) -> str:
    """To a tenth of a percent: nobody is surer than that."""
    return "?" if np.isnan(share) else f"{100.0 * share:.1f} %".replace("-", "−")


def _varies_less(sure: float) -> tuple[str, str]:
    """Who varies less, by what is likelier; nobody is surer than 99.9 %."""
    who = "A varies less than B" if not sure < 0.5 else "B varies less than A"
    share = max(sure, 1.0 - sure)
    return who, f"{'> 99.9 %' if share > 0.999 else _percent(share)} sure"


def _verdict(preferred: str, share: tuple[float, float]) -> str:
    return f"{preferred} (so in resamples: A {_percent(share[0])}, B {_percent(share[1])})"


def _known(data: Any) -> Any:
    """NaN and infinite numbers become None: JSON has no word for them."""
    if isinstance(data, dict):
        return {key: _known(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_known(value) for value in data]
    return None if isinstance(data, float) and not np.isfinite(data) else data
