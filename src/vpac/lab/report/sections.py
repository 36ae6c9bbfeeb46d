"""A study as a section of the page: charts, final numbers, settings, provenance."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np

from vpac.lab.report.chart import Cell, Chart, Table
from vpac.lab.report.document import Failure, Section, why
from vpac.lab.report.figures import chart_of
from vpac.lab.report.judge import anchor
from vpac.lab.report.results import Results
from vpac.lab.report.words import LABELS, over_runs
from vpac.lab.store.place import Unreadable
from vpac.lab.store.store import Record
from vpac.risk.compare import share_of_wins
from vpac.risk.metrics import interquartile_mean

__all__ = ["section_of"]

TABLES: dict[str, tuple[str, ...]] = {"Final policies, average over runs": ("mean", "variance", "sharpe", "risky")}
DEEP_TABLES: dict[str, tuple[str, ...]] = {
    "Final policies as the paper measures them: one fixed start state, 100 episodes, undiscounted; average over runs": (
        "fixed_mean", "fixed_variance",
    ),
    "Final policies, start states drawn anew, undiscounted scores; average over runs": (
        "mean", "variance", "sharpe", "cvar",
    ),
    "The same episodes, discounted returns, of which the objective speaks; average over runs": (
        "discounted_mean", "discounted_variance", "discounted_sharpe", "discounted_cvar",
    ),
}  # fmt: skip
"""Quantities that stand in a table together."""


def section_of(results: Results) -> Section:
    """The whole section."""
    experiment, study = results.study.experiment, results.study
    about = experiment.about + (f"\n\nThe paper: {experiment.paper}." if experiment.paper else "")
    if study.seconds == 0.0:
        about += "\n\nNo run was made for it alone: its runs belong to other experiments, too, or were there before."
    return Section(
        name=anchor(experiment.name), title=experiment.title, about=about, charts=list(_charts(results)),
        tables=list(_tables(results)), settings=_settings(results), provenance=_provenance(results),
        wall_seconds=study.seconds, command=study.command,
    )  # fmt: skip


def _chart_makers(results: Results) -> Iterator[tuple[str, Callable[[], Chart | None]]]:
    """What each figure is called, and what draws it."""
    experiment = results.study.experiment
    if experiment.kind == "theorems":
        from vpac.lab.report.theorems import trial_chart

        yield "theorems", lambda: trial_chart(results)
    elif experiment.kind == "frontier":
        from vpac.lab.report.frontier import frontier_chart

        yield "frontier", lambda: frontier_chart(results)
    else:
        for number, figure in enumerate(experiment.figures):
            yield figure.title, partial(chart_of, results, number)


def _charts(results: Results) -> Iterator[Chart]:
    experiment = results.study.experiment
    for title, make in _chart_makers(results) if results.arms else ():
        try:
            chart = make()
        except Unreadable:
            raise
        except Exception as error:
            # the studies beside it shall still be seen
            words = f"the figure {title!r} cannot be drawn: {why(error)}"
            results.failures.append(Failure(experiment.name, words, command=results.study.command))
            continue
        if chart is not None:
            yield chart


def _tables(results: Results) -> Iterator[Table]:
    """Final numbers of each arm beside the paper's."""
    for title, quantities in (DEEP_TABLES if results.study.experiment.kind == "deep" else TABLES).items():
        shown = [q for q in quantities if any(len(results.final(arm.label, q)) for arm in results.arms)]
        if shown:
            yield _final_table(results, title, shown)


def _final_table(results: Results, title: str, shown: list[str]) -> Table:
    first, records = results.arms[0].label, []
    spread = next((q for q in shown if q.endswith("variance")), None)
    for arm in results.arms:
        row: dict[str, Cell] = {"arm": arm.label, "runs": len(results.records[arm.label])}
        for quantity in shown:
            values, name = results.final(arm.label, quantity), LABELS[quantity]
            found = over_runs(values, quantity) if len(values) else None
            row[name] = None if found is None else found.estimate
            row[f"{name}, 95 % interval"] = None if found is None else _ends(found.low, found.high)
            if quantity.endswith(("mean", "variance")):
                row[f"{name}, interquartile mean"] = float(interquartile_mean(values)) if len(values) else None
                row[f"paper's {name}"] = arm.paper.get(quantity)
        if spread is not None:
            row[f"P(lower variance than {first})"] = _improvement(results, arm.label, first, spread)
        records.append(row)
    return Table.from_records(records, title)


def _ends(low: float, high: float) -> str:
    return "" if np.isnan(low) else f"{low:.4g} … {high:.4g}".replace("-", "−")


def _improvement(results: Results, label: str, first: str, spread: str) -> float | None:
    """P(a run of this arm varies less than one of the first arm)."""
    ours, theirs = results.final(label, spread), results.final(first, spread)
    if label == first or not len(ours) or not len(theirs):
        return None
    return share_of_wins(-ours, -theirs)


def _settings(results: Results) -> Table:
    experiment = results.study.experiment
    rows: list[dict[str, Cell]] = []
    for arm in experiment.arms:
        settings = experiment.settings_of(arm)
        row: dict[str, Cell] = {"arm": arm.label, "algorithm": arm.algorithm or experiment.algorithm}
        row |= {"environment": arm.env or experiment.env}
        if experiment.kind == "training":
            row |= {"episodes": arm.episodes or experiment.episodes, "policy": experiment.policy}
            row |= {"horizon": experiment.horizon, "measured": experiment.evaluate}
        if experiment.kind == "deep":
            steps = max(1, round(experiment.steps * results.study.scale))
            row |= {
                "steps": steps,
                "episodes measured": experiment.episodes,
                "one start by": _words(experiment.fixed_start),
            }
        rows.append(row | {key: str(v) if isinstance(v, list) else v for key, v in settings.items()})
    return Table.from_records(rows, "Settings")


def _words(settings: Mapping[str, object]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in settings.items())


def _provenance(results: Results) -> dict[str, Cell]:
    records = [record for arm in results.arms for record in results.records[arm.label]]
    if not records:
        return {"runs": 0}
    study = results.study

    def all_of(values: Iterator[str]) -> str:
        return ", ".join(sorted(set(values)))

    return {
        "runs": len({record.run.name for record in records}),
        "seeds": f"spawned from {study.experiment.seed}",
        "scale": study.scale,
        "processor seconds": float(sum({r.run.name: float(r.about.get("seconds", 0.0)) for r in records}.values())),
        "versions": all_of(_versions(record) for record in records),
        "machine": all_of(_machine(record) for record in records),
        "commit": all_of(str(record.about.get("commit") or "installed package") for record in records),
        "carried out": study.time,
    }


def _versions(record: Record) -> str:
    return " ".join(f"{name} {version}" for name, version in record.about.get("versions", {}).items())


def _machine(record: Record) -> str:
    machine = record.about.get("machine", {})
    return f"{machine.get('processor')}, {machine.get('cores')} cores, {machine.get('system')}"
