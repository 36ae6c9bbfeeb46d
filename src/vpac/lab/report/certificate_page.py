"""What `vpac certify` and `vpac stress` show: tables, charts, and the certificate as one page without any script."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from vpac.errors import UserError
from vpac.evaluation.sources import PARTS
from vpac.evaluation.stressing import arm_name
from vpac.files import write_bytes, write_text
from vpac.lab.report.chart import Chart, Line, Lines, Points, Reference, Spots, Table, shown
from vpac.lab.report.document import Section
from vpac.lab.report.draw import figure_style, static_svg
from vpac.lab.report.evaluation import Evaluation
from vpac.lab.report.page import SIGNS, template
from vpac.risk.bounds import uniform_probability_below
from vpac.risk.certificate import PolicyCertificate, sample_of

STRESS_FORMAT = 1
STRESS_PARTS: dict[str, Any] = {
    "format": int, "axes": list, "arms": list, "episodes": int, "level": float, "policy": dict, "environment": dict,
    "measurement": dict,
}  # fmt: skip
"""Of the file of a stress test, and their kinds."""
POINTS = 200
"""Of the curve of P(G < c)."""
WATCH = """import vpac

watch = vpac.monitor("certificate.json")
for total in returns_of_your_episodes:
    if alarm := watch.update(total):
        print(alarm)"""
WIDEST = 40
"""Arms in a chart; the rest is in the table."""


@dataclass(frozen=True)
class CertificateSummary:
    """A certificate for readers."""

    certificate: PolicyCertificate

    @property
    def data(self) -> Mapping[str, Any]:
        """What it says."""
        return self.certificate.data

    def as_dict(self) -> dict[str, Any]:
        """What it says, without the episodes."""
        found = {key: value for key, value in self.data.items() if key != "episodes"}
        if found["baseline"]:
            found["baseline"] = {key: value for key, value in found["baseline"].items() if key != "episodes"}
        return found | {"holds": self.certificate.holds}

    def tables(self) -> list[Table]:
        """For the terminal: limits, metrics, bounds, the baseline, the worst episodes."""
        found = [self.limits_table()] if self.data["limits"] else []
        found += [self.metrics_table(), self.below_table(), self.worst_table()]
        return found + ([self.baseline_table()] if self.data["baseline"] else [])

    def charts(self) -> list[Chart]:
        """The distribution of the returns."""
        return [self._evaluation(False).charts()[0], self.below_chart()]

    def limits_table(self) -> Table:
        """Each limit, what was measured, and whether it holds."""
        rows = [
            (one["words"], _estimate(one["measured"]), one["verdict"], one["episodes"], one["method"])
            for one in self.data["limits"]
        ]
        return Table.of(("limit", "measured (interval)", "verdict", "episodes", "method"), rows, "limits")

    def metrics_table(self) -> Table:
        """Each metric with its interval and the episodes that it rests on."""
        how = self.data["measurement"]
        rows = [
            (name, shown(one["estimate"], 5), _ends(one), how["episodes"])
            for name, one in self.data["metrics"][how["kind"]].items()
        ]
        title = f"{how['kind']} returns, γ = {how['gamma']:g}, {100 * how['level']:g} % intervals"
        return Table.of(("metric", "estimate", "interval", "episodes"), rows, title)

    def below_table(self) -> Table:
        """Bounds of P(G < c)."""
        rows = [
            (
                _minus(f"P(G < {one['threshold']:.5g})"), f"{one['count']} of {one['episodes']}",
                "" if one["clopper_pearson"] is None else _percents(one["clopper_pearson"]), _percents(one["uniform"]),
            )
            for one in self.data["below"]
        ]  # fmt: skip
        level = f"{100 * self.data['measurement']['level']:g} %"
        columns = ("event", "episodes below", f"Clopper–Pearson, {level}", f"all c at once (DKW), {level}")
        return Table.of(columns, rows, "how often it ends below, for every distribution of returns")

    def worst_table(self) -> Table:
        """The worst episodes."""
        rows = [
            (
                one["seed"],
                shown(one["return"], 5),
                shown(one["undiscounted"], 5),
                one["length"],
                one["ended"],
                one["repeats"],
            )
            for one in self.data["worst"]
        ]
        return Table.of(("seed", "return", "sum of rewards", "steps", "ended", "repeats"), rows, "worst episodes")

    def baseline_table(self) -> Table:
        """The policy against the baseline, on common random numbers."""
        other = self.data["baseline"]
        one = other["comparison"]
        rows = [
            ("difference of means", _estimate(one["difference_of_means"])),
            ("ratio of variances", _estimate(one["ratio_of_variances"])),
            ("difference of CVaR 0.05", _estimate(one["difference_of_cvars"])),
            ("better with the same seed", _percents(one["better"])),
            ("worse with the same seed", _percents(one["worse"])),
            ("correlation of the returns", shown(one["correlation"], 3)),
        ]
        return Table.of(
            ("what", "estimate (interval)"), rows, f"against {other['name']}, {one['episodes']} pairs of episodes"
        )

    def sources_table(self) -> Table:
        """Where the variance comes from."""
        found = self.data["sources"]
        rows = [
            (part, _percents(found["shares"][part]), _estimate(found["parts"][part]),
             None if found["exact"] is None else shown(found["exact"][part], 5))
            for part in PARTS
        ]  # fmt: skip
        return Table.of(("source", "share", "variance", "exact"), rows, f"measured from {found['starts']} starts")

    def delay_table(self) -> Table:
        """How soon the monitor sees what."""
        rows = [
            (one["shift"], one["after"], _episodes(one["median"]), _episodes(one["most"]))
            for one in self.data["monitor"]
        ]
        columns = ("shift", "after so many good episodes", "median delay, episodes", "9 of 10 within")
        return Table.of(columns, rows, "how soon the monitor raises an alarm")

    def below_chart(self) -> Chart:
        """P(G < c) with the band that holds for all c."""
        sample, how = self.certificate.sample, self.data["measurement"]
        room = 0.05 * float(np.ptp(sample.returns)) or 1.0
        grid = np.linspace(sample.minimum - room, sample.maximum + room, POINTS)
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

    def compared_chart(self) -> Chart:
        """The distributions of the policy's returns and the baseline's."""
        return replace(self._evaluation(True).charts()[0], name="against")

    def _evaluation(self, compared: bool) -> Evaluation:
        samples = {self.certificate.name: self.certificate.sample}
        if compared:
            other = self.data["baseline"]
            samples[other["name"]] = sample_of(other["episodes"], self.data["measurement"])
        return Evaluation(samples)

    def sections(self) -> list[tuple[Section, list[tuple[str, str]], str]]:
        """The parts of the page; each with commands by what they do, and a drawing of its own as SVG, or an empty text."""
        data = self.data
        returns = Section(
            "returns", "What it earns",
            f"Every number rests on {data['measurement']['episodes']:,} independent episodes. {_beyond(data)}",
            self.charts()[:1], [self.metrics_table()],
        )  # fmt: skip
        below = Section(
            "bounds", "How often it ends badly",
            "These bounds assume nothing but independent episodes. Clopper and Pearson's holds for a threshold that was named "
            "before the episodes were played; the uniform one for every threshold at once, also those chosen afterwards.",
            [self.below_chart()], [self.below_table()],
        )  # fmt: skip
        worst = Section(
            "worst", "Its worst episodes",
            "Each was played twice; “repeats” says whether the second time gave the same. The commands replay and film them.",
            tables=[self.worst_table()],
        )  # fmt: skip
        commands = [
            (f"{what} seed {one['seed']}", text) for one in data["worst"] for what, text in one["commands"].items()
        ]
        found: list[tuple[Section, list[tuple[str, str]], str]] = [
            (returns, [], ""),
            (below, [], ""),
            (worst, commands, ""),
        ]
        if data["sources"]:
            about = "\n\n".join(
                ["What the start, the policy's own draws and the environment add.", *data["sources"]["notes"]]
            )
            found.append(
                (Section("sources", "Where the variance comes from", about, tables=[self.sources_table()]), [], "")
            )
        if data["baseline"]:
            about = "Both policies met the same random numbers, episode by episode."
            chart = [self.compared_chart()]
            found.append((Section("baseline", "Against a baseline", about, chart, [self.baseline_table()]), [], ""))
        if data["stress"]:
            found.append((stress_section(data["stress"]), [], heat_map(data["stress"])))
        found.append((self._watching(), [], ""))
        found.append((self._identity(), [], ""))
        return found

    def _watching(self) -> Section:
        about = (
            "vpac.monitor takes the returns of the policy at work one at a time and says when they have left what is certified "
            "here. False alarms are less likely than 5 % over any number of episodes. Delays are those of returns drawn from "
            "this sample and shifted."
        )
        return Section("watching", "At work", about, tables=[self.delay_table()], command=WATCH)

    def _identity(self) -> Section:
        data = self.data
        rows = [
            (part, key, text)
            for part in ("policy", "environment", "measurement", "about")
            for key, text in _leaves(data[part])
        ]
        about = "The JSON file beside this page has all numbers, every episode and a checksum of itself."
        return Section(
            "identity",
            "What was certified",
            about,
            tables=[Table.of(("part", "what", "value"), rows, "policy, environment, versions")],
        )


def write_certificate(certificate: PolicyCertificate, folder: Path) -> list[Path]:
    """Write `certificate.json` and `certificate.html`."""
    summary, data = CertificateSummary(certificate), certificate.data
    path = certificate.save(folder / "certificate.json")
    how, metrics = data["measurement"], data["metrics"][data["measurement"]["kind"]]
    mean, std = (_estimate(metrics[name]) for name in ("mean", "standard deviation"))
    where = data["environment"]["env"]
    lead = f"{how['episodes']:,} episodes in {where}: mean {mean}, standard deviation {std}"
    text = template("certificate.html.j2", static_svg).render(
        name=certificate.name, lead=lead, limits=data["limits"], notes=data["notes"], signs=SIGNS, estimate=_estimate,
        made=str(data["about"].get("time", "")), checksum=certificate.checksum, level=f"{100 * how['level']:g} %",
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
        """What hurts most."""
        return [stress_table(self.data)]

    def charts(self) -> list[Chart]:
        """The same as a picture."""
        return [stress_chart(self.data)]


def stress_table(data: Mapping[str, Any]) -> Table:
    """What hurts most first."""
    rows = []
    for arm in data["arms"]:
        against = arm["against_control"]
        difference, ratio = ("", "") if against is None else (
            _estimate(against["difference_of_means"]), _estimate(against["ratio_of_variances"])
        )  # fmt: skip
        rows.append((arm_name(arm["change"]), _estimate(arm["mean"]), difference, ratio, _estimate(arm["cvar"])))
    columns = ("what was changed", "mean", "change of the mean", "variance, times", "CVaR 0.05")
    return Table.of(columns, rows, f"what hurts most, {data['episodes']} episodes each with the same seeds")


def stress_chart(data: Mapping[str, Any]) -> Chart:
    """The change of the mean in every arm, the worst first."""
    arms = [arm for arm in data["arms"] if arm["against_control"]][:WIDEST]
    found = [arm["against_control"]["difference_of_means"] for arm in arms]
    y, low, high = ([np.nan if one[end] is None else one[end] for one in found] for end in ("estimate", "low", "high"))
    spots = Spots("change of the mean", [arm_name(arm["change"]) for arm in arms], y, low, high)
    panel = Points([spots], "", "mean − mean of the control arm", sideways=True, references=[Reference(0.0, "control")])
    caption = f"Paired differences from the control arm, with {100 * data['level']:g} % intervals; the worst first."
    return Chart("stress", "What a change of the world does to the mean", caption, [panel])


def stress_section(data: Mapping[str, Any]) -> Section:
    """A stress test on the page."""
    about = (
        "The same episodes, seed by seed, in a world that was changed: the control arm changes nothing. Units of observation "
        "noise are standard deviations of what the policy sees; of action noise, half the range of an action; of discrete "
        "ones, probabilities."
    )
    return Section("under-stress", "Under stress", about, [stress_chart(data)], [stress_table(data)])


def heat_map(data: Mapping[str, Any]) -> str:
    """The mean over two axes as SVG; empty unless there are two."""
    if len(data["axes"]) != 2:
        return ""
    with figure_style() as plt:
        text = io.StringIO()
        _draw_heat_map(plt, data).savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return re.sub(r"<metadata>.*?</metadata>", "", text.getvalue(), flags=re.DOTALL)


def write_heat_map(data: Mapping[str, Any], path: Path) -> Path:
    """The heat map as PNG."""
    if len(data["axes"]) != 2:
        raise UserError("a heat map needs two axes")
    with figure_style() as plt:
        content = io.BytesIO()
        _draw_heat_map(plt, data).savefig(content, format="png", metadata={"Software": None})
    return write_bytes(path, content.getvalue())


def _draw_heat_map(plt: Any, data: Mapping[str, Any]) -> Any:
    (first, second), means = data["axes"], {_key(arm["change"]): arm["mean"]["estimate"] for arm in data["arms"]}
    columns, rows = ([None, *axis["values"]] for axis in (first, second))
    grid = np.array([
        [means[_key({a["name"]: v for a, v in ((first, x), (second, y)) if v is not None})] for x in columns] for y in rows
    ])  # fmt: skip
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


def _key(change: Mapping[str, Any]) -> str:
    return repr(sorted((name, repr(value)) for name, value in change.items()))


def _beyond(data: Mapping[str, Any]) -> str:
    share, level = f"{100 * data['metrics']['unseen']:.2g} %", f"{100 * data['measurement']['level']:g} %"
    return f"Below the minimum and above the maximum lie at most {share} of episodes each ({level} sure)."


def _leaves(data: Any, path: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Plain data as pairs of a dotted name and text."""
    if isinstance(data, Mapping) and data:
        return [leaf for key, value in data.items() for leaf in _leaves(value, (*path, str(key)))]
    return [(".".join(path), shown(data) if isinstance(data, str | int | float | None) else str(data))]


def _minus(text: str) -> str:
    return text.replace("-", "−")


def _ends(one: Mapping[str, Any]) -> str:
    low, high = one["low"], one["high"]
    return "unknown" if low is None and high is None else f"{_end(low)} … {_end(high)}"


def _end(value: float | None) -> str:
    return "?" if value is None else shown(float(value), 4)


def _estimate(one: Mapping[str, Any]) -> str:
    return f"{_end(one['estimate'])} ({_ends(one)})"


def _percents(one: Mapping[str, Any]) -> str:
    found = ["?" if one[end] is None else f"{100 * one[end]:.2f}" for end in ("estimate", "low", "high")]
    return f"{found[0]} % ({found[1]} … {found[2]} %)"


def _episodes(count: float | None) -> str:
    return "more than 300" if count is None else f"{count:g}"
