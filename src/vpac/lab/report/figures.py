"""From a study's numbers to charts: one function for each kind of figure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from vpac.lab.experiments.spec import Arm, Figure
from vpac.lab.report.chart import Chart, Line, Lines, Panel, Points, Reference, Spots
from vpac.lab.report.results import Results
from vpac.lab.report.style import LIGHT, NAMES
from vpac.lab.report.words import LABELS, X_LABELS, band_of, over_runs, size_notes, some_of, thinned

__all__ = ["chart_of", "file_name"]

FEW = 5
"""Arms that a note names one by one."""
DEEP_POINTS = 60
"""Points of a curve of the PPO family: each is an average of a hundred episodes already, and the page has to stay small."""
DOTS = 200
"""Runs of an arm that are drawn one by one."""


def chart_of(results: Results, number: int) -> Chart | None:
    """The figure of that number as a chart; None without any finished run to show."""
    figure = results.study.experiment.figures[number]
    arms = results.some(figure.arms)
    if not arms:
        return None
    panels, notes = KINDS[figure.kind](results, figure, arms)
    missing = [arm.label for arm in results.study.experiment.arms if not results.records[arm.label]]
    if missing:
        named = ", ".join(missing) if len(missing) <= FEW else f"{len(missing)} arms"
        notes = [*notes, f"Without a finished run, and so not shown: {named}."]
    notes = [*notes, *size_notes(results)]
    columns = len(figure.shows) if figure.shows and len(panels) > len(figure.shows) else None
    if figure.kind == "bars" and len(panels) > 4:
        columns = 2  # a mean and its variance side by side
    chart = Chart(
        file_name(results, number),
        figure.title,
        figure.caption,
        panels,
        notes,
        columns,
        shared_scale=figure.kind == "maps",
        foot=" ".join(size_notes(results)),
    )
    return thinned(chart, DEEP_POINTS) if results.study.experiment.kind == "deep" else chart


def file_name(results: Results, number: int) -> str:
    """Of the figure's files."""
    experiment = results.study.experiment
    stem = experiment.name.replace("/", "-")
    return stem if len(experiment.figures) == 1 else f"{stem}-{number + 1}"


def styles(labels: Iterable[str]) -> dict[str, int | str]:
    """A look for each label: algorithms look the same in every figure, the others take what is free, in order."""
    names = list(dict.fromkeys(labels))
    taken = {NAMES[name] for name in names if name in NAMES}
    free = iter([place for place in range(len(LIGHT)) if place not in taken] + list(range(len(LIGHT), 99)))
    return {name: name if name in NAMES else next(free) for name in names}


def curves(results: Results, figure: Figure, arms: list[Arm]) -> tuple[list[Panel], list[str]]:
    """Mean over runs with its 95 % interval; the paper's final numbers as dashed lines."""
    experiment = results.study.experiment
    recent = experiment.kind == "deep" or experiment.evaluate == "returns"
    whose = "training episodes" if recent else f"{experiment.policy} policy"
    panels: list[Panel] = []
    looks = styles(arm.label for arm in arms)
    for shown in figure.shows or ("mean", "variance"):
        lines, references, x_label = [], [], "episodes"
        for arm in arms:
            if shown not in results.columns(arm.label):
                continue
            curve, style = results.curve(arm.label, shown), looks[arm.label]
            x_label = X_LABELS.get(curve.name, curve.name)
            low, high = band_of(curve, shown)
            lines.append(Line(arm.label, curve.x, curve.mean, low, high, style=style))
            if shown in arm.paper:
                references.append(Reference(arm.paper[shown], arm.label, style=style))
        title = "return of episodes" if shown == "return" else f"{LABELS.get(shown, shown)}, {whose}"
        log_y, label = figure.log_y and "variance" in shown, LABELS.get(shown, shown)
        panels.append(Lines(lines, x_label, label, title, figure.log_x, log_y, _merged(references)))
    return panels, []


def _merged(references: list[Reference]) -> list[Reference]:
    """References that would lie on one another as one: the paper's numbers are read off plots anyway."""
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


def errors(results: Results, figure: Figure, arms: list[Arm]) -> tuple[list[Panel], list[str]]:
    """Columns of the metrics against steps or episodes: a panel an arm, a line a column."""
    panels: list[Panel] = []
    for arm in arms:
        lines = []
        for place, column in enumerate(figure.shows):
            curve = results.curve(arm.label, column)
            low, high = band_of(curve, column)
            if figure.log_y and low is not None:
                low = np.maximum(low, np.where(curve.mean > 0.0, curve.mean / 10.0, np.nan))
            lines.append(Line(column.replace("_", " "), curve.x, curve.mean, low, high, style=place))
        x_label = results.first(arm.label).columns[0]
        panels.append(Lines(lines, x_label, figure.x or "error", arm.label, figure.log_x, figure.log_y))
    return panels, []


def effect(results: Results, figure: Figure, arms: list[Arm]) -> tuple[list[Panel], list[str]]:
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
                label = f"{figure.lines} = {name}" if figure.lines and name[:1].isdigit() else name
                series.append(_spots(results, label, figure, those, shown, looks[name]))
            title = LABELS.get(shown, shown) + (
                "" if row is None else f", {figure.panels} = {row:g}" if isinstance(row, float) else f", {row}"
            )
            even = [Reference(1.0, "even")] if shown == "ratio" else []
            label = LABELS.get(shown, shown)
            panels.append(
                Points(series, figure.x or "", label, title, figure.log_x, figure.log_y, even, figure.sideways)
            )
    return panels, []


def _spots(results: Results, label: str, figure: Figure, arms: list[Arm], shown: str, style: int | str) -> Spots:
    found = [
        (arm.at[figure.x or ""], over_runs(values, shown))
        for arm in arms
        if len(values := results.final(arm.label, shown))
    ]
    ends = [] if any(np.isnan(i.low) for _, i in found) else found
    return Spots(
        label or LABELS.get(shown, shown), [at for at, _ in found], [i.estimate for _, i in found],
        [i.low for _, i in ends] or None, [i.high for _, i in ends] or None, joined=figure.joined, style=style,
    )  # fmt: skip


def bars(results: Results, figure: Figure, arms: list[Arm]) -> tuple[list[Panel], list[str]]:
    """Final numbers of each arm, with 95 % intervals over runs."""
    panels: list[Panel] = []
    for shown in figure.shows or ("mean", "variance"):
        found = [(arm, over_runs(values, shown)) for arm in arms if len(values := results.final(arm.label, shown))]
        if not found:
            continue
        known = not any(np.isnan(i.low) for _, i in found)
        spots = Spots(
            "", [arm.label for arm, _ in found], [i.estimate for _, i in found],
            [i.low for _, i in found] if known else None, [i.high for _, i in found] if known else None,
        )  # fmt: skip
        panels.append(Points([spots], "", LABELS.get(shown, shown), LABELS.get(shown, shown), sideways=True))
    return panels, []


def boxes(results: Results, figure: Figure, arms: list[Arm]) -> tuple[list[Panel], list[str]]:
    """Final numbers of each arm, run by run, beside their median and quartiles; the paper's as dotted lines."""
    panels: list[Panel] = []
    notes: list[str] = []
    looks = styles(arm.label for arm in arms)
    for shown in figure.shows or ("variance",):
        found = [(arm.label, values) for arm in arms if len(values := results.final(arm.label, shown))]
        if not found:
            continue
        every = np.concatenate([values for _, values in found])
        low, middle, high = np.array([np.quantile(values, (0.25, 0.5, 0.75)) for _, values in found]).T
        drawn = [(label, some_of(values, DOTS)) for label, values in found]
        if any(len(few) < len(values) for (_, few), (_, values) in zip(drawn, found, strict=True)):
            notes = [f"Of more than {DOTS} runs of an arm {DOTS} are drawn; medians and quartiles are those of all."]
        series = [
            Spots("median and quartiles", [label for label, _ in found], middle, low, high, style=0),
            Spots(
                "a run each",
                [label for label, few in drawn for _ in few],
                np.concatenate([few for _, few in drawn]),
                style=6,
            ),
        ]
        paper = [Reference(arm.paper[shown], arm.label, style=looks[arm.label]) for arm in arms if shown in arm.paper]
        log_y, label = figure.log_y and bool((every > 0.0).all()), LABELS.get(shown, shown)
        panels.append(Points(series, "", label, label, False, log_y, _merged(paper), sideways=True))
    return panels, notes


def best(results: Results, figure: Figure, arms: list[Arm]) -> tuple[list[Panel], list[str]]:
    """Every setting of a search in the mean–variance plane; the winner of each algorithm is named."""
    from vpac.lab.report.judge import winner

    series, notes = [], []
    looks = styles(str(arm.at.get("algorithm", "")) for arm in arms)
    for name in looks:
        those = [arm for arm in arms if str(arm.at.get("algorithm", "")) == name]
        chosen = winner(results, those)
        x = [float(results.final(arm.label, "variance").mean()) for arm in those]
        y = [float(results.final(arm.label, "mean").mean()) for arm in those]
        named = [f"{name} chosen" if arm is chosen else "" for arm in those]
        series.append(Spots(name or "settings", x, y, names=named, style=looks[name]))
        notes.append(f"Chosen: {chosen.label}.")
    return [Points(series, "variance", "mean", "")], notes


def _maps(results: Results, figure: Figure, arms: list[Arm]) -> tuple[list[Panel], list[str]]:
    from vpac.lab.report.places import maps

    return maps(results, figure, arms)


def _paths(results: Results, figure: Figure, arms: list[Arm]) -> tuple[list[Panel], list[str]]:
    from vpac.lab.report.places import planes

    return planes(results, figure, arms)


KINDS: dict[str, Callable[[Results, Figure, list[Arm]], tuple[list[Panel], list[str]]]] = {
    "curves": curves, "effect": effect, "maps": _maps, "paths": _paths, "bars": bars, "boxes": boxes, "errors": errors,
    "best": best,
}  # fmt: skip
