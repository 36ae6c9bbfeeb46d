"""Output of `vpac evaluate`, `vpac certify` and `vpac stress`: measured policies, compared, certified and under stress."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from vpac.evaluation.sources import VARIANCE_PARTS, Sources
from vpac.evaluation.stressing import arm_name
from vpac.files import jsonable, write_text
from vpac.lab.report.chart import Cell, Chart, Line, Lines, Points, Reference, Section, Spots, Table, shown
from vpac.lab.report.draw import figure_style, static_svg
from vpac.lab.report.page import VERDICT_SIGNS, content_policy, template
from vpac.risk.certificate import PolicyCertificate, sample_of
from vpac.risk.compare import Comparison, compare_samples, difference_of_means
from vpac.risk.intervals import Interval, mean_interval, uniform_probability_below
from vpac.risk.sample import ReturnSample, Row
from vpac.typing import FloatArray

CURVE_POINTS = 400
"""Points of a curve."""


@dataclass(frozen=True)
class Evaluation:
    """Returns of one or several policies."""

    samples: Mapping[str, ReturnSample]
    """The returns of each policy, by its name."""
    sources: Mapping[str, Sources] = field(default_factory=dict)
    """Sources of the variance of each policy, if they were measured."""
    environments: Mapping[str, Any] = field(default_factory=dict)
    """The environment of each policy, as plain data."""
    level: float = 0.95
    """Coverage of the intervals."""
    alphas: Sequence[float] = (0.05,)
    """Shares of worst episodes for VaR and CVaR."""
    seed: int = 0
    """Seed of the bootstrap."""
    psi: float | None = None
    """Price at which U = mean − ψ · variance is shown, too."""
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
        """Remarks to read before relying on the numbers."""
        found = [f"{name}: {note}" for name, sample in self.samples.items() for note in sample.notes()]
        return [*found, *dict.fromkeys(note for one in self.sources.values() for note in one.notes)]

    def tables(self) -> list[Table]:
        """Metrics, comparisons of pairs, and the sources of the variance if they were measured."""
        compared = [
            comparison_table(*pair, found, self._u_difference(*pair)) for pair, found in self.comparisons.items()
        ]
        return [self._metrics(), *compared, *([self._sources()] if self.sources else [])]

    def _metrics(self) -> Table:
        """One row for each metric and one column for each policy; a single policy has a column for intervals."""
        columns = {name: sample.rows(self.level, self.alphas) for name, sample in self.samples.items()}
        first, level = self.first, 100 * self.level
        discount = f", γ = {first.gamma:g}" if first.kind == "discounted" else ""
        title = f"{len(first)} episodes, {first.kind} returns{discount}, {level:g} % intervals"
        if self.psi is not None:
            for name, sample in self.samples.items():
                row = Row(f"U = mean − {self.psi:g} · variance", self._u(sample))
                columns[name] = [*columns[name][:3], row, *columns[name][3:]]
        lines = list(zip(*columns.values(), strict=True))
        if len(columns) == 1:
            rows = [(r.name, shown(r.interval.estimate, 5), interval_ends(r.interval)) for (r,) in lines]
            return Table.of(("", "estimate", "interval"), rows, title)
        cells = [[f"{shown(r.interval.estimate, 5)}\n{interval_ends(r.interval)}" for r in row] for row in lines]
        return Table.of(("", *columns), [(row[0].name, *words) for row, words in zip(lines, cells, strict=True)], title)

    def _u(self, sample: ReturnSample) -> Interval:
        """U of a sample at the price."""
        return mean_interval(_u_values(sample, self.psi or 0.0), level=self.level)

    def _u_difference(self, *names: str) -> Interval | None:
        """The difference of U of two policies, if there is a price."""
        if self.psi is None:
            return None
        a, b = (_u_values(self.samples[name], self.psi) for name in names)
        return difference_of_means(a, b, level=self.level)

    def _sources(self) -> Table:
        """Sources of the variance: share, part and, where it is known, the exact part."""
        rows: list[tuple[Cell, ...]] = []
        for name, found in self.sources.items():
            for part in VARIANCE_PARTS:
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
            found = {row.name: asdict(row.interval) for row in sample.rows(self.level, self.alphas)}
            return found if self.psi is None else found | {"U": asdict(self._u(sample))}

        found = {
            "level": self.level, "psi": self.psi,
            "policies": {
                name: {
                    "about": dict(s.about), "gamma": s.gamma, "episodes": len(s), "terminated": float(s.terminated.mean()),
                    "unseen": s.unseen(self.level), "notes": s.notes(), "discounted": measures(s.discounted),
                    "undiscounted": measures(s.undiscounted),
                }
                for name, s in self.samples.items()
            },
            "comparisons": [
                {"a": a, "b": b, **asdict(c), "prefers": c.prefers, "difference_of_U": u and asdict(u)}
                for (a, b), c in self.comparisons.items() for u in [self._u_difference(a, b)]
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
        grid = np.linspace(low, high, CURVE_POINTS)
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


def _u_values(sample: ReturnSample, psi: float) -> FloatArray:
    """For each episode a number whose mean is U = mean − ψ · variance, and whose spread gives the interval of U."""
    x, n = sample.returns, len(sample)
    return np.asarray(x - psi * (x - x.mean()) ** 2 * (n / max(n - 1, 1)))


def comparison_table(a: str, b: str, found: Comparison, u: Interval | None = None) -> Table:
    """A against B; `u` is the difference of U."""
    rows = [
        ("mean of A − mean of B", interval_text(found.difference_of_means)),
        *([] if u is None else [("U of A − U of B", interval_text(u))]),
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
    """Text on what was measured, and how to read it."""
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
        grid = np.linspace(x.mean() - 4.0 * width, x.mean() + 4.0 * width, CURVE_POINTS)
        return grid, norm.pdf(grid, x.mean(), width)
    ends = float(x.min()), float(x.max())
    grid = np.linspace(max(low, ends[0]), min(high, ends[1]), CURVE_POINTS)
    kde = gaussian_kde(x, width / float(x.std(ddof=1)))
    density = sum(kde(points) for points in (grid, 2.0 * ends[0] - grid, 2.0 * ends[1] - grid))
    return np.concatenate([grid[:1], grid, grid[-1:]]), np.concatenate([[0.0], density, [0.0]])


def interval_ends(interval: Interval) -> str:
    """The ends of an interval; "?" for one that is not known."""
    if np.isnan(interval.low) and np.isnan(interval.high):
        return "unknown"
    return f"{shown(interval.low, 4)} … {shown(interval.high, 4)}".replace("–", "?")


def interval_text(interval: Interval) -> str:
    """An estimate and its interval."""
    return f"{shown(interval.estimate, 4)} ({interval_ends(interval)})"


def _percent(share: float) -> str:
    """Percentage to a tenth of a percent."""
    return "?" if np.isnan(share) else f"{100.0 * share:.1f} %".replace("-", "−")


def _varies_less(sure: float) -> tuple[str, str]:
    """The one of the two that likely varies less, and how sure that is, at most 99.9 %."""
    who = "A varies less than B" if not sure < 0.5 else "B varies less than A"
    share = max(sure, 1.0 - sure)
    return who, f"{'> 99.9 %' if share > 0.999 else _percent(share)} sure"


def _verdict(preferred: str, share: tuple[float, float]) -> str:
    return f"{preferred} (so in resamples: A {_percent(share[0])}, B {_percent(share[1])})"


STRESS_FORMAT = 1
STRESS_PARTS: dict[str, Any] = {
    "format": int, "axes": list, "arms": list, "episodes": int, "level": float, "policy": dict, "environment": dict,
    "measurement": dict,
}  # fmt: skip
"""Parts of the file of a stress test, and their kinds."""
WATCH = """import vpac

watch = vpac.monitor("certificate.json")
for total in returns_of_your_episodes:
    if alarm := watch.update(total):
        print(alarm)"""
MOST_CHART_ARMS = 40
"""Arms in a chart; the rest is in the table."""


@dataclass(frozen=True)
class CertificateSummary:
    """A certificate for readers."""

    certificate: PolicyCertificate

    @property
    def data(self) -> Mapping[str, Any]:
        """The content of the certificate."""
        return self.certificate.data

    def as_dict(self) -> dict[str, Any]:
        """The content of the certificate, without the episodes."""
        found = {key: value for key, value in self.data.items() if key != "episodes"}
        if found["baseline"]:
            found["baseline"] = {key: value for key, value in found["baseline"].items() if key != "episodes"}
        return found | {"holds": self.certificate.holds}

    def tables(self) -> list[Table]:
        """Tables for the terminal: limits, metrics, bounds, the worst episodes, the baseline."""
        chosen = ("limits", "metrics", "below", "worst", "baseline")
        return [self.table(name) for name in chosen if self.data[name] or name in ("metrics", "below", "worst")]

    def charts(self) -> list[Chart]:
        """The distribution of the returns."""
        return [self._evaluation(False).charts()[0], self._below_chart()]

    def table(self, part: str) -> Table:
        """A part of the certificate, one of `CERTIFICATE_TABLES`."""
        return CERTIFICATE_TABLES[part](self.data)

    def _below_chart(self) -> Chart:
        """P(G < c) with the band that holds for all c."""
        sample, how = self.certificate.sample, self.data["measurement"]
        room = 0.05 * float(np.ptp(sample.returns)) or 1.0
        grid = np.linspace(sample.minimum - room, sample.maximum + room, CURVE_POINTS)
        share, low, high = 100.0 * uniform_probability_below(sample.returns, grid, level=how["level"])
        named = [one["threshold"] for one in self.data["below"] if one["named"]]
        marks = [Reference(threshold, _minus(f"c = {threshold:g}"), "x") for threshold in named]
        line = Line("share of episodes below", grid, share, low, high)
        panel = Lines([line], "return c", "P(G < c), %", references=marks)
        caption = (
            f"The line is the share of {len(sample):,} episodes below c. With {100 * how['level']:g} % confidence the true "
            "probabilities of all c lie in the band, whatever the distribution of the returns is."
        )
        return Chart("below", "How often it ends below c", caption, [panel])

    def _evaluation(self, compared: bool) -> Evaluation:
        """The policy's returns, alone or beside the baseline's."""
        samples = {self.certificate.name: self.certificate.sample}
        if compared:
            other = self.data["baseline"]
            samples[other["name"]] = sample_of(other["episodes"], self.data["measurement"])
        return Evaluation(samples)

    def sections(self) -> list[Section]:
        """The parts of the page."""
        data, table = self.data, self.table
        unseen = f"{100 * data['metrics']['unseen']:.2g} % of episodes each ({_level(data)} sure)"
        found = [
            Section(
                "returns", "What it earns",
                f"Every number rests on {data['measurement']['episodes']:,} independent episodes. Below the minimum and above "
                f"the maximum lie at most {unseen}.",
                self.charts()[:1], [table("metrics")],
            ),
            Section(
                "bounds", "How often it ends badly",
                "These bounds assume nothing but independent episodes. Clopper and Pearson's holds for a threshold that was "
                "named before the episodes were played; the uniform one for every threshold at once, also those chosen "
                "afterwards.",
                [self._below_chart()], [table("below")],
            ),
            Section(
                "worst", "Its worst episodes",
                "Each was played twice; “repeats” says whether the second time gave the same. Commands replay and film them.",
                tables=[table("worst")],
                commands=[
                    (f"{what} seed {one['seed']}", text) for one in data["worst"] for what, text in one["commands"].items()
                ],
            ),
        ]  # fmt: skip
        if data["sources"]:
            add = "\n\n".join(
                ["What the start, the policy's own draws and the environment add.", *data["sources"]["notes"]]
            )
            found.append(Section("sources", "Where the variance comes from", add, tables=[table("sources")]))
        if data["baseline"]:
            chart = replace(self._evaluation(True).charts()[0], name="against")
            about_both = "Both policies met the same random numbers, episode by episode."
            found.append(Section("baseline", "Against a baseline", about_both, [chart], [table("baseline")]))
        if data["stress"]:
            found.append(StressSummary(data["stress"]).section())
        watching = (
            "vpac.monitor takes the returns of the policy at work one at a time and says when they have left what is certified "
            "here. False alarms are less likely than 5 % over any number of episodes. Delays are those of returns drawn from "
            "this sample and shifted."
        )
        file = "The JSON file beside this page has all numbers, every episode and a checksum of itself."
        return [
            *found,
            Section("watching", "At work", watching, tables=[table("monitor")], command=WATCH),
            Section("identity", "What was certified", file, tables=[table("identity")]),
        ]


def _limits(data: Mapping[str, Any]) -> Table:
    columns = ("limit", "measured (interval)", "verdict", "episodes", "method")
    keys = ("verdict", "episodes", "method")
    rows = [(one["words"], _of_limit(one), *(one[key] for key in keys)) for one in data["limits"]]
    return Table.of(columns, rows, "limits")


def _metrics(data: Mapping[str, Any]) -> Table:
    how = data["measurement"]
    rows = [
        (name, shown(one["estimate"], 5), interval_ends(_known(one)), how["episodes"])
        for name, one in data["metrics"][how["kind"]].items()
    ]
    title = f"{how['kind']} returns, γ = {how['gamma']:g}, {_level(data)} intervals"
    return Table.of(("metric", "estimate", "interval", "episodes"), rows, title)


def _below(data: Mapping[str, Any]) -> Table:
    rows = [
        (
            _minus(f"P(G < {one['threshold']:.5g})"), f"{one['count']} of {one['episodes']}",
            "" if one["clopper_pearson"] is None else _percents(one["clopper_pearson"]), _percents(one["uniform"]),
        )
        for one in data["below"]
    ]  # fmt: skip
    columns = ("event", "episodes below", f"Clopper–Pearson, {_level(data)}", f"all c at once (DKW), {_level(data)}")
    return Table.of(columns, rows, "how often it ends below, for every distribution of returns")


def _worst(data: Mapping[str, Any]) -> Table:
    keys = ("seed", "return", "undiscounted", "length", "ended", "repeats")
    rows = [[shown(one[key], 5) if isinstance(one[key], float) else one[key] for key in keys] for one in data["worst"]]
    return Table.of(("seed", "return", "sum of rewards", "steps", "ended", "repeats"), rows, "worst episodes")


def _baseline(data: Mapping[str, Any]) -> Table:
    one = data["baseline"]["comparison"]
    rows = [
        ("difference of means", _estimate(one["difference_of_means"])),
        ("ratio of variances", _estimate(one["ratio_of_variances"])),
        ("difference of CVaR 0.05", _estimate(one["difference_of_cvars"])),
        ("better with the same seed", _percents(one["better"])),
        ("worse with the same seed", _percents(one["worse"])),
        ("correlation of the returns", shown(one["correlation"], 3)),
    ]
    title = f"against {data['baseline']['name']}, {one['episodes']} pairs of episodes"
    return Table.of(("what", "estimate (interval)"), rows, title)


def _sources(data: Mapping[str, Any]) -> Table:
    found = data["sources"]
    rows = [
        (part, _percents(found["shares"][part]), _estimate(found["parts"][part]),
         None if found["exact"] is None else shown(found["exact"][part], 5))
        for part in VARIANCE_PARTS
    ]  # fmt: skip
    return Table.of(("source", "share", "variance", "exact"), rows, f"measured from {found['starts']} starts")


def _delays(data: Mapping[str, Any]) -> Table:
    def episodes(count: float | None) -> str:
        return "more than 300" if count is None else f"{count:g}"

    rows = [(one["shift"], one["after"], episodes(one["median"]), episodes(one["most"])) for one in data["monitor"]]
    columns = ("shift", "after so many good episodes", "median delay, episodes", "9 of 10 within")
    return Table.of(columns, rows, "how soon the monitor raises an alarm")


def _identity(data: Mapping[str, Any]) -> Table:
    parts = ("policy", "environment", "measurement", "about")
    rows = [(part, key, text) for part in parts for key, text in _leaves(data[part])]
    return Table.of(("part", "what", "value"), rows, "policy, environment, versions")


CERTIFICATE_TABLES: dict[str, Callable[[Mapping[str, Any]], Table]] = {
    "limits": _limits, "metrics": _metrics, "below": _below, "worst": _worst, "baseline": _baseline, "sources": _sources,
    "monitor": _delays, "identity": _identity,
}  # fmt: skip
"""Parts of a certificate, each as a table of its data."""


def write_certificate(certificate: PolicyCertificate, folder: Path) -> list[Path]:
    """Write `certificate.json` and `certificate.html`."""
    summary, data = CertificateSummary(certificate), certificate.data
    path = certificate.save(folder / "certificate.json")
    how, metrics = data["measurement"], data["metrics"][data["measurement"]["kind"]]
    mean, std = (_estimate(metrics[name]) for name in ("mean", "standard deviation"))
    where, given = data["environment"]["env"], data["environment"].get("arguments")
    where += f" ({', '.join(f'{name} = {value}' for name, value in given.items())})" if given else ""
    lead = f"{how['episodes']:,} episodes in {where}: mean {mean}, standard deviation {std}"
    text = template("certificate.html.j2", static_svg).render(
        title=f"Certificate of {certificate.name}", policy=content_policy(), lead=lead, limits=data["limits"],
        notes=data["notes"], signs=VERDICT_SIGNS, measured=_of_limit,
        made=str(data["about"].get("time", "")), checksum=certificate.checksum, level=_level(data),
        sections=summary.sections(),
    )  # fmt: skip
    return [path, write_text(folder / "certificate.html", text)]


@dataclass(frozen=True)
class StressSummary:
    """A stress test for readers."""

    data: Mapping[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """All of it."""
        return dict(self.data)

    def tables(self) -> list[Table]:
        """Table of the arms, the most harmful first."""
        rows = []
        for arm in self.data["arms"]:
            against = arm["against_control"]
            found = [
                _estimate(against[key]) if against else "" for key in ("difference_of_means", "ratio_of_variances")
            ]
            rows.append((arm_name(arm["change"]), _estimate(arm["mean"]), *found, _estimate(arm["cvar"])))
        columns = ("what was changed", "mean", "change of the mean", "variance, times", "CVaR 0.05")
        title = f"what hurts most, {self.data['episodes']} episodes each with the same seeds"
        return [Table.of(columns, rows, title)]

    def charts(self) -> list[Chart]:
        """The change of the mean in every arm, the worst first."""
        arms = [arm for arm in self.data["arms"] if arm["against_control"]][:MOST_CHART_ARMS]
        found = [_known(arm["against_control"]["difference_of_means"]) for arm in arms]
        spots = Spots.of("change of the mean", [arm_name(arm["change"]) for arm in arms], found)
        control = [Reference(0.0, "control")]
        panel = Points([spots], "", "mean − mean of the control arm", sideways=True, references=control)
        level = f"{100 * self.data['level']:g} %"
        caption = f"Paired differences from the control arm, with {level} intervals; the worst first."
        return [Chart("stress", "What a change of the world does to the mean", caption, [panel])]

    def section(self) -> Section:
        """Section on the page of a certificate."""
        about = (
            "The same episodes, seed by seed, in a world that was changed: the control arm changes nothing. Units of "
            "observation noise are standard deviations of what the policy sees; of action noise, half the range of an action; "
            "of discrete ones, probabilities."
        )
        drawing = heat_map(self.data).decode()
        return Section("under-stress", "Under stress", about, self.charts(), self.tables(), drawing=drawing)


def heat_map(data: Mapping[str, Any], kind: str = "svg") -> bytes:
    """The mean over two axes as SVG or PNG; empty unless there are two."""
    if len(data["axes"]) != 2:
        return b""
    with figure_style() as plt:
        content = io.BytesIO()
        undated: dict[str, None] = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
        _draw_heat_map(plt, data).savefig(content, format=kind, metadata=undated)
    return re.sub(rb"<metadata>.*?</metadata>", b"", content.getvalue(), flags=re.DOTALL)


def _draw_heat_map(plt: Any, data: Mapping[str, Any]) -> Any:
    (first, second), absent = data["axes"], object()
    means = {tuple(repr(arm["change"].get(a["name"], absent)) for a in (first, second)): arm["mean"]["estimate"]
             for arm in data["arms"]}  # fmt: skip
    columns, rows = ([repr(absent), *map(repr, axis["values"])] for axis in (first, second))
    grid = np.array([[means[x, y] for x in columns] for y in rows])
    figure, axes = plt.subplots(figsize=(1.6 + 0.75 * len(columns), 1.2 + 0.5 * len(rows)))
    image = axes.imshow(grid, cmap="viridis", aspect="auto")
    half = 0.5 * (grid.min() + grid.max())
    for (row, column), value in np.ndenumerate(grid):
        colour = "black" if value > half else "white"
        axes.text(column, row, _minus(f"{value:.3g}"), ha="center", va="center", color=colour)
    axes.set_xticks(range(len(columns)), ["control", *map(str, first["values"])])
    axes.set_yticks(range(len(rows)), ["control", *map(str, second["values"])])
    axes.set_xlabel(first["label"])
    axes.set_ylabel(second["label"])
    axes.set_title("mean return")
    figure.colorbar(image, ax=axes)
    return figure


def _leaves(data: Any, path: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Plain data as pairs of a dotted name and text."""
    if isinstance(data, Mapping) and data:
        return [leaf for key, value in data.items() for leaf in _leaves(value, (*path, str(key)))]
    return [(".".join(path), shown(data) if isinstance(data, str | int | float | None) else str(data))]


def _minus(text: str) -> str:
    return text.replace("-", "−")


def _level(data: Mapping[str, Any]) -> str:
    return f"{100 * data['measurement']['level']:g} %"


def _known(one: Mapping[str, Any]) -> Interval:
    """An interval of a file, in which unknown numbers are null."""
    return Interval(*(math.nan if one[end] is None else float(one[end]) for end in ("estimate", "low", "high")))


def _estimate(one: Mapping[str, Any]) -> str:
    return interval_text(_known(one))


def _of_limit(one: Mapping[str, Any]) -> str:
    """The measured value; a probability in percent, a mean to keep by how much it is above the share."""
    kind, found = one["limit"]["kind"], one["measured"]
    return _percents(found) if kind == "max-ruin" else _estimate(found) + (" above it" if kind == "keep-mean" else "")


def _percents(one: Mapping[str, Any]) -> str:
    found = ["?" if one[end] is None else f"{100 * one[end]:.2f}" for end in ("estimate", "low", "high")]
    return f"{found[0]} % ({found[1]} … {found[2]} %)"
