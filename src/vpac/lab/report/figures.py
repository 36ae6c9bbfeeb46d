"""A study as tables and charts: one function for each kind of figure."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import numpy as np

from vpac.lab.experiments.spec import Arm, Figure
from vpac.lab.report.chart import Cell, Chart, Failure, Line, Lines, Panel, Points, Reference, Spots, Table, spaced, why
from vpac.lab.report.explorer import map_panels, plane_panels
from vpac.lab.report.geometry import styles
from vpac.lab.report.judge import winner
from vpac.lab.report.results import Results, label_of, over_runs
from vpac.lab.report.trade_off import compared, frontier_panels
from vpac.lab.store.backend import Unreadable
from vpac.risk.compare import share_of_wins
from vpac.risk.metrics import interquartile_mean

T = TypeVar("T")
FEW_ARMS = 5
"""Most arms that are named in a note."""
DEEP_POINTS = 60
"""Points of a curve of the PPO family, each an average over a hundred episodes; more would make the page large."""
DOTS = 200
"""Runs of an arm that are drawn one by one."""
TABLES: dict[str, tuple[str, ...]] = {"Final policies, average over runs": ("mean", "variance", "sharpe", "risky")}
DEEP_TABLES: dict[str, tuple[str, ...]] = {
    "Final policies as the paper measures them: one fixed start state, 100 episodes, undiscounted; average over runs": (
        "fixed_mean", "fixed_variance",
    ),
    "Final policies, random start states, undiscounted scores; average over runs": (
        "mean", "variance", "sharpe", "cvar",
    ),
    "The same episodes, discounted returns, which the objective uses; average over runs": (
        "discounted_mean", "discounted_variance", "discounted_sharpe", "discounted_cvar",
    ),
}  # fmt: skip
"""The tables of final numbers: titles and quantities."""


class StudySummary:
    """The final numbers and the figures of a study."""

    def __init__(self, results: Results) -> None:
        self.results = results

    def charts(self) -> list[Chart]:
        """The figures of arms that have a finished run."""
        figures = enumerate(self.results.study.experiment.figures)
        found = [attempt(self.results, f.title, partial(chart_of, self.results, number)) for number, f in figures]
        return [chart for chart in found if chart is not None]

    def tables(self) -> list[Table]:
        """Final numbers of each arm beside the paper's."""
        results, tables = self.results, []
        for title, quantities in (DEEP_TABLES if results.study.experiment.kind == "deep" else TABLES).items():
            shown = [q for q in quantities if any(len(results.final(arm.label, q)) for arm in results.arms)]
            if shown:
                tables.append(_final_table(results, title, shown))
        figures = [f for f in results.study.experiment.figures if f.kind == "frontiers"]
        return tables + [table for figure in figures if (table := compared(results, figure)) is not None]


def attempt(results: Results, title: str, make: Callable[[], T]) -> T | None:
    """The result of `make`, or None and a failure: one figure that cannot be drawn does not hide the others."""
    try:
        return make()
    except Unreadable:
        raise
    except Exception as error:
        study = results.study
        words = f"the figure {title!r} cannot be drawn: {why(error)}"
        results.failures.append(Failure(study.experiment.name, words, command=study.command))
        return None


def _final_table(results: Results, title: str, shown: list[str]) -> Table:
    first, records = results.arms[0].label, []
    spread = next((q for q in shown if q.endswith("variance")), None)
    for arm in results.arms:
        row: dict[str, Cell] = {"arm": arm.label, "runs": len(results.records[arm.label])}
        for quantity in shown:
            values, name = results.final(arm.label, quantity), label_of(quantity)
            found = over_runs(values, quantity) if len(values) else None
            row[name] = None if found is None else found.estimate
            known = found is not None and not np.isnan(found.low)
            ends = f"{found.low:.4g} … {found.high:.4g}".replace("-", "−") if found and known else ""
            row[f"{name}, 95 % interval"] = None if found is None else ends
            if quantity.endswith(("mean", "variance")):
                row[f"{name}, interquartile mean"] = float(interquartile_mean(values)) if len(values) else None
                row[f"paper's {name}"] = arm.paper.get(quantity)
        if spread is not None:
            ours, theirs = results.final(arm.label, spread), results.final(first, spread)
            wins = share_of_wins(-ours, -theirs) if arm.label != first and len(ours) and len(theirs) else None
            row[f"P(lower variance than {first})"] = wins
        records.append(row)
    return Table.from_records(records, title)


def chart_of(results: Results, number: int) -> Chart | None:
    """The figure of that number as a chart; None without any finished run to show."""
    figure = results.study.experiment.figures[number]
    arms = results.some(figure.arms)
    if not arms:
        return None
    panels, notes = FIGURE_KINDS[figure.kind](results, figure, arms)
    missing = [arm.label for arm in results.study.experiment.arms if not results.records[arm.label]]
    if missing:
        named = ", ".join(missing) if len(missing) <= FEW_ARMS else f"{len(missing)} arms"
        notes = [*notes, f"Not shown, because they have no finished run: {named}."]
    size = results.size_note()
    columns = len(figure.shows) if figure.shows and len(panels) > len(figure.shows) else None
    if figure.kind == "bars" and len(panels) > 4:
        columns = 2  # a mean and its variance side by side
    chart = Chart(
        file_name(results, number), figure.title, figure.caption, panels, [*notes, size] if size else notes, columns,
        shared_scale=figure.kind == "maps", foot=size,
    )  # fmt: skip
    return chart.thinned(DEEP_POINTS) if results.study.experiment.kind == "deep" else chart


def file_name(results: Results, number: int) -> str:
    """The name of the figure's files, without suffix."""
    experiment = results.study.experiment
    stem = experiment.name.replace("/", "-")
    return stem if len(experiment.figures) == 1 else f"{stem}-{number + 1}"


Panels = tuple[list[Panel], list[str]]
"""Panels of a figure, and notes."""


def curves(results: Results, figure: Figure, arms: list[Arm]) -> Panels:
    """Mean over runs with its 95 % interval; the paper's final numbers as dashed lines."""
    experiment = results.study.experiment
    recent = experiment.kind == "deep" or experiment.evaluate == "returns"
    whose = "training episodes" if recent else f"{experiment.policy} policy"
    panels: list[Panel] = []
    looks = styles(arm.label for arm in arms)
    for shown in figure.shows or ("mean", "variance"):
        measured = [arm for arm in arms if shown in results.columns(arm.label)]
        found = [(arm, results.curve(arm.label, shown)) for arm in measured]
        lines = [curve.line(arm.label, looks[arm.label]) for arm, curve in found]
        x_label = label_of(found[-1][1].x_name) if found else "episodes"
        paper = _paper(measured, shown, looks)
        title = "return of episodes" if shown == "return" else f"{label_of(shown)}, {whose}"
        log_y = figure.log_y and "variance" in shown
        panels.append(Lines(lines, x_label, label_of(shown), title, figure.log_x, log_y, paper))
    return panels, []


def _paper(arms: list[Arm], shown: str, looks: dict[str, int | str]) -> list[Reference]:
    """The paper's final numbers."""
    return _merged([Reference(a.paper[shown], a.label, style=looks[a.label]) for a in arms if shown in a.paper])


def _merged(references: list[Reference]) -> list[Reference]:
    """Join references that would overlap: the paper's numbers are read off plots anyway."""
    values = [mark.value for mark in references]
    near = 0.04 * (max(values, default=0.0) - min(values, default=0.0))
    groups: list[list[Reference]] = []
    for mark in sorted(references, key=lambda mark: mark.value):
        if groups and mark.value - groups[-1][0].value <= near:
            groups[-1].append(mark)
        else:
            groups.append([mark])
    return [
        Reference(
            float(np.mean([mark.value for mark in group])), f"paper, {', '.join(mark.label for mark in group)}",
            style=group[0].style if len(group) == 1 else None,
        )
        for group in groups
    ]  # fmt: skip


def errors(results: Results, figure: Figure, arms: list[Arm]) -> Panels:
    """Columns of the metrics against steps or episodes: a panel for each arm, a line for each column."""
    panels: list[Panel] = []
    for arm in arms:
        lines = []
        for position, column in enumerate(figure.shows):
            curve = results.curve(arm.label, column)
            low, high = curve.band()
            if figure.log_y and low is not None:
                low = np.maximum(low, np.where(curve.mean > 0.0, curve.mean / 10.0, np.nan))
            lines.append(Line(column.replace("_", " "), curve.x, curve.mean, low, high, style=position))
        x_label = results.first(arm.label).columns[0]
        panels.append(Lines(lines, x_label, figure.x or "error", arm.label, figure.log_x, figure.log_y))
    return panels, []


def effect(results: Results, figure: Figure, arms: list[Arm]) -> Panels:
    """Final numbers against a setting, with 95 % intervals over runs."""
    rows = list(dict.fromkeys(arm.at[figure.panels] for arm in arms)) if figure.panels else [None]
    panels: list[Panel] = []
    for row in rows:
        here = [arm for arm in arms if figure.panels is None or arm.at[figure.panels] == row]
        for shown in figure.shows:
            series = []
            looks = styles(str(arm.at[figure.lines]) if figure.lines else "" for arm in here)
            for name in looks:
                those = [arm for arm in here if not figure.lines or str(arm.at[figure.lines]) == name]
                found = results.finals(those, shown)
                label = f"{figure.lines} = {name}" if figure.lines and name[:1].isdigit() else name
                x, y = [arm.at[figure.x or ""] for arm, _ in found], [interval for _, interval in found]
                series.append(Spots.of(label or label_of(shown), x, y, style=looks[name], joined=figure.joined))
            which = f", {figure.panels} = {row:g}" if isinstance(row, float) else f", {row}"
            title = label_of(shown) + ("" if row is None else which)
            even = [Reference(1.0, "even")] if shown == "ratio" else []
            panels.append(Points(series, figure.x or "", label_of(shown), title, figure.log_x, figure.log_y, even,
                                 sideways=figure.sideways))  # fmt: skip
    return panels, []


def bars(results: Results, figure: Figure, arms: list[Arm]) -> Panels:
    """Final numbers of each arm, with 95 % intervals over runs."""
    panels: list[Panel] = []
    for shown in figure.shows or ("mean", "variance"):
        found = results.finals(arms, shown)
        if found:
            spots = Spots.of("", [arm.label for arm, _ in found], [interval for _, interval in found])
            panels.append(Points([spots], "", label_of(shown), label_of(shown), sideways=True))
    return panels, []


def boxes(results: Results, figure: Figure, arms: list[Arm]) -> Panels:
    """Final numbers of each arm, run by run, beside their median and quartiles; the paper's as dotted lines."""
    panels: list[Panel] = []
    notes: list[str] = []
    for shown in figure.shows or ("variance",):
        found = {arm.label: values for arm in arms if len(values := results.final(arm.label, shown))}
        if not found:
            continue
        low, middle, high = np.array([np.quantile(values, (0.25, 0.5, 0.75)) for values in found.values()]).T
        many = {label: len(values) > DOTS for label, values in found.items()}
        drawn = {k: np.sort(v)[spaced(len(v), DOTS)] if many[k] else v for k, v in found.items()}
        if any(many.values()):
            notes = [f"Of more than {DOTS} runs of an arm {DOTS} are drawn; medians and quartiles are those of all."]
        labels, dots = [label for label, few in drawn.items() for _ in few], np.concatenate(list(drawn.values()))
        series = [
            Spots("median and quartiles", list(found), middle, low, high, style=0),
            Spots("one run", labels, dots, style=6),
        ]
        log_y = figure.log_y and all((values > 0.0).all() for values in found.values())
        paper = _paper(arms, shown, styles(arm.label for arm in arms))
        panels.append(Points(series, "", label_of(shown), label_of(shown), False, log_y, paper, sideways=True))
    return panels, notes


def best(results: Results, figure: Figure, arms: list[Arm]) -> Panels:
    """Every setting of a search in the mean–variance plane; the best one of each algorithm has a label."""
    series, notes = [], []
    looks = styles(str(arm.at.get("algorithm", "")) for arm in arms)
    for name in looks:
        those = [arm for arm in arms if str(arm.at.get("algorithm", "")) == name]
        chosen = winner(results, those)
        x, y = ([float(results.final(arm.label, q).mean()) for arm in those] for q in ("variance", "mean"))
        labels = [f"{name} chosen" if arm is chosen else "" for arm in those]
        series.append(Spots(name or "settings", x, y, names=labels, style=looks[name]))
        notes.append(f"Chosen: {chosen.label}.")
    return [Points(series, "variance", "mean", "")], notes


FIGURE_KINDS: dict[str, Callable[[Results, Figure, list[Arm]], Panels]] = {
    "curves": curves, "effect": effect, "maps": map_panels, "paths": plane_panels, "bars": bars, "boxes": boxes,
    "errors": errors, "best": best, "frontiers": frontier_panels,
}  # fmt: skip
