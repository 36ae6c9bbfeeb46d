"""What `vpac evaluate` shows: measured policies, compared with each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from vpac.evaluation.sources import PARTS, Sources
from vpac.files import jsonable
from vpac.lab.report.chart import Cell, Chart, Line, Lines, Reference, Table, shown
from vpac.risk.compare import Comparison, compare_samples
from vpac.risk.intervals import Interval
from vpac.risk.sample import ReturnSample
from vpac.typing import FloatArray

POINTS = 400
"""Points of a density."""


@dataclass(frozen=True)
class Evaluation:
    """Returns of one or several policies."""

    samples: Mapping[str, ReturnSample]
    """The returns of each policy, by its name."""
    sources: Mapping[str, Sources] = field(default_factory=dict)
    """Where the variance of each policy comes from, if it was measured."""
    environments: Mapping[str, Any] = field(default_factory=dict)
    """The environment of each policy, as plain data."""
    level: float = 0.95
    """Coverage of the intervals."""
    alphas: Sequence[float] = (0.05,)
    """Shares of worst episodes for VaR and CVaR."""
    seed: int = 0
    """Of the bootstrap."""
    comparisons: dict[tuple[str, str], Comparison] = field(init=False)
    """Every pair of up to four policies; of more, each with the first."""

    def __post_init__(self) -> None:
        names = list(self.samples)
        pairs = combinations(names, 2) if len(names) <= 4 else ((names[0], other) for other in names[1:])
        samples, how = self.samples, {"level": self.level, "seed": self.seed}
        found = {(a, b): compare_samples(samples[a], samples[b], **how) for a, b in pairs}  # type: ignore[arg-type]
        object.__setattr__(self, "comparisons", found)

    @property
    def first(self) -> ReturnSample:
        """The returns of the first policy."""
        return next(iter(self.samples.values()))

    def notes(self) -> list[str]:
        """What a reader should know before relying on the numbers."""
        found = [f"{name}: {note}" for name, sample in self.samples.items() for note in sample.notes()]
        return [*found, *dict.fromkeys(note for one in self.sources.values() for note in one.notes)]

    def tables(self) -> list[Table]:
        """Metrics, comparisons of pairs, and the sources of the variance if they were measured."""
        compared = [comparison_table(*pair, found) for pair, found in self.comparisons.items()]
        return [self._metrics(), *compared, *([self._sources()] if self.sources else [])]

    def _metrics(self) -> Table:
        """One row for each metric and one column for each policy; a single policy has a column for intervals."""
        columns = {name: sample.rows(self.level, self.alphas) for name, sample in self.samples.items()}
        first, level = self.first, 100 * self.level
        title = f"{len(first)} episodes, {first.kind} returns, γ = {first.gamma:g}, {level:g} % intervals"
        lines = list(zip(*columns.values(), strict=True))
        if len(columns) == 1:
            rows = [(row.name, _number(row.interval), interval_ends(row.interval)) for (row,) in lines]
            return Table.of(("", "estimate", "interval"), rows, title)
        cells = [(row[0].name, *(f"{_number(r.interval)}\n{interval_ends(r.interval)}" for r in row)) for row in lines]
        return Table.of(("", *columns), cells, title)

    def _sources(self) -> Table:
        """Where the variance comes from: share, part and, where it is known, the exact part."""
        rows: list[tuple[Cell, ...]] = []
        for name, found in self.sources.items():
            for part in PARTS:
                share, exact = found.shares[part], None if found.exact is None else f"{getattr(found.exact, part):.5g}"
                ends = f"{_percent(share.low)} … {_percent(share.high)}"
                rows.append((name, part, _percent(share.estimate), ends, interval_text(found.parts[part]), exact))
            exact = None if found.exact is None else f"{found.exact.total:.5g}"
            rows.append((name, "all", "100 %", "", interval_text(found.total), exact))
        columns = ("policy", "source", "share", "interval", "variance", "exact")
        starts = next(iter(self.sources.values())).starts
        return Table.of(columns, rows, f"where the variance comes from, {starts} starts")

    def as_dict(self) -> dict[str, Any]:
        """All of it; unknown numbers are None."""

        def measures(sample: ReturnSample) -> dict[str, Any]:
            return {row.name: asdict(row.interval) for row in sample.rows(self.level, self.alphas)}

        found = {
            "level": self.level,
            "policies": {
                name: {
                    "about": dict(s.about), "gamma": s.gamma, "episodes": len(s), "terminated": float(s.terminated.mean()),
                    "unseen": s.unseen(self.level), "notes": s.notes(), "discounted": measures(s.discounted),
                    "undiscounted": measures(s.undiscounted),
                }
                for name, s in self.samples.items()
            },
            "comparisons": [
                {"a": a, "b": b, **asdict(c), "prefers": c.prefers} for (a, b), c in self.comparisons.items()
            ],
            "sources": {
                name: asdict(s) | {"exact": None if s.exact is None else s.exact._asdict()}
                for name, s in self.sources.items()
            },
        }  # fmt: skip
        return dict(jsonable(found)) | {"environments": dict(self.environments)}

    def charts(self) -> list[Chart]:
        """The density of the returns, and the share of episodes that end at or below any return."""
        low, high = _ends_of_axis(self.samples)
        grid = np.linspace(low, high, POINTS)
        densities, shares, means = [], [], []
        for position, (name, sample) in enumerate(self.samples.items()):
            label = f"{name}: {_mean_and_std(sample)}"
            densities.append(Line(label, *_density(sample.returns, low, high), style=position))
            at_or_below = np.searchsorted(np.sort(sample.returns), grid, side="right") / len(sample)
            shares.append(Line(label, grid, 100.0 * at_or_below, style=position))
            means.append(Reference(sample.mean, "" if position else "mean", "x", position))
        unit = "discounted return" if self.first.kind == "discounted" else "return"
        top = 1.08 * max(max(line.y) for line in densities)
        caption = (
            "Left: the higher the curve, the more often an episode ends there; a narrow peak is a dependable policy. Right: "
            "how many episodes in a hundred end with that return or less; the lower the curve, the better."
        )
        panels = [
            Lines(densities, unit, "density", "How often which return", references=means, x_range=(low, high),
                  y_range=(0.0, top)),
            Lines(shares, unit, "% of episodes at or below", "How often it gets no better", x_range=(low, high),
                  y_range=(0.0, 100.0), references=[Reference(5.0, "worst 5 %")]),
        ]  # fmt: skip
        return [Chart("returns", _title(self.samples), caption, panels, foot=_foot(self.samples))]


def comparison_table(a: str, b: str, found: Comparison) -> Table:
    """A against B."""
    rows = [
        ("mean of A − mean of B", interval_text(found.difference_of_means)),
        ("variance of A / variance of B", interval_text(found.ratio_of_variances)),
        _varies_less(found.varies_less),
        ("an episode of A beats one of B", interval_text(found.better_episode)),
        ("preference (first-order dominance)", _verdict(found.prefers[0], found.first_order_share)),
        ("risk-averse preference (second-order dominance)", _verdict(found.prefers[1], found.second_order_share)),
    ]
    return Table.of(("", "estimate (interval)"), rows, f"A = {a}, B = {b}")


def _mean_and_std(sample: ReturnSample) -> str:
    return f"mean {sample.mean:.4g}, std {sample.std:.3g}".replace("-", "−")


def _title(samples: Mapping[str, ReturnSample]) -> str:
    """The policies and the number of episodes; of a single policy also mean and standard deviation, as there is no legend."""
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
        f"{place}{how}{actions.get(first.about.get('deterministic'), '')}. A narrow peak on the left is a dependable policy; "
        "on the right the lower curve is the better one."
    )


def _ends_of_axis(samples: Mapping[str, ReturnSample]) -> tuple[float, float]:
    """All but the most extreme 0.2 % of each policy's returns, and a little room."""
    ends = np.array([np.quantile(s.returns, [0.002, 0.998]) for s in samples.values()])
    low, high = float(ends[:, 0].min()), float(ends[:, 1].max())
    room = 0.08 * (high - low) or max(1.0, 0.1 * abs(low))
    return low - room, high + room


def _density(x: FloatArray, low: float, high: float) -> tuple[FloatArray, FloatArray]:
    """Gaussian KDE of the returns, reflected at the sample's minimum and maximum, where it ends at zero.

    The bandwidth is Silverman's robust one, but at least a hundredth of the axis. Returns that hardly differ give one peak of
    that width.
    """
    from scipy.stats import gaussian_kde, norm

    spread = min(float(x.std()), float(np.subtract(*np.quantile(x, [0.75, 0.25]))) / 1.34) or float(x.std())
    width = max(0.9 * spread * len(x) ** -0.2, (high - low) / 100.0)
    if np.ptp(x) <= 2.0 * width:
        grid = np.linspace(x.mean() - 4.0 * width, x.mean() + 4.0 * width, POINTS)
        return grid, norm.pdf(grid, x.mean(), width)
    ends = float(x.min()), float(x.max())
    grid = np.linspace(max(low, ends[0]), min(high, ends[1]), POINTS)
    kde = gaussian_kde(x, width / float(x.std(ddof=1)))
    density = sum(kde(points) for points in (grid, 2.0 * ends[0] - grid, 2.0 * ends[1] - grid))
    return np.concatenate([grid[:1], grid, grid[-1:]]), np.concatenate([[0.0], density, [0.0]])


def _number(interval: Interval) -> str:
    return shown(interval.estimate, 5)


def interval_ends(interval: Interval) -> str:
    """The ends of an interval; "?" for one that is not known."""
    if np.isnan(interval.low) and np.isnan(interval.high):
        return "unknown"
    return f"{shown(interval.low, 4)} … {shown(interval.high, 4)}".replace("–", "?")


def interval_text(interval: Interval) -> str:
    """An estimate and its interval."""
    return f"{shown(interval.estimate, 4)} ({interval_ends(interval)})"


def _percent(share: float) -> str:
    """To a tenth of a percent."""
    return "?" if np.isnan(share) else f"{100.0 * share:.1f} %".replace("-", "−")


def _varies_less(sure: float) -> tuple[str, str]:
    """Which of the two likely varies less; at most 99.9 % sure."""
    who = "A varies less than B" if not sure < 0.5 else "B varies less than A"
    share = max(sure, 1.0 - sure)
    return who, f"{'> 99.9 %' if share > 0.999 else _percent(share)} sure"


def _verdict(preferred: str, share: tuple[float, float]) -> str:
    return f"{preferred} (so in resamples: A {_percent(share[0])}, B {_percent(share[1])})"
