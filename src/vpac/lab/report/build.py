"""The page and the figures from a store."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from vpac._version import __version__
from vpac.errors import UserError
from vpac.files import Unwritable, make_folder, write_text
from vpac.lab.experiments.catalogue import EXPERIMENTS
from vpac.lab.report.chart import Cell, Chart, ClaimRow, Document, Failure, Section, Shown, Table, why
from vpac.lab.report.draw import Drawings
from vpac.lab.report.explorer import ExactFrontier, Explorer
from vpac.lab.report.figures import StudySummary, attempt
from vpac.lab.report.judge import GROUPS, anchor, claims_as_markdown, judge
from vpac.lab.report.page import as_json, live, write_page
from vpac.lab.report.results import PROGRESS_EVERY, Results, read_results
from vpac.lab.report.theorems import Theorems
from vpac.lab.store.backend import Unreadable
from vpac.lab.store.records import Study, damaged_notes, studies
from vpac.lab.store.store import Record, Store
from vpac.lab.workers.worker import provenance

REPRODUCTION = (
    "Variance-penalized actor-critic: the paper's numbers and ours",
    "The experiments of “Variance Penalized On-Policy and Off-Policy Actor-Critic” (AAAI 2021), rerun; as "
    "published and corrected.",
)
SUMMARIES: dict[str, Callable[[Results], Shown]] = {"theorems": Theorems.of, "frontier": ExactFrontier}
"""Summaries of special kinds of studies; the others are a `StudySummary`."""
STUDIES_SECTION = ("Studies", "Mean and variance of the return of what was learned.")


@np.errstate(over="ignore", invalid="ignore")
def build(store: Store, quiet: bool = False, out: Path | None = None) -> tuple[Path, Document]:
    """Write `report/index.html`, `report/claims.md` and `figures/*`; returns the page and its content.

    `out` is the folder to write into, by default the store's own, which a bucket does not have.
    """
    from vpac.progress import steps

    folder = store.root if out is None else out
    make_folder(folder / "figures")
    found = list(_ordered(store))
    total = sum(1 + sum(map(len, study.runs.values())) // PROGRESS_EVERY for study in found) + 1
    drawings = Drawings(folder / "figures", os.cpu_count() or 1)
    with steps("building the page", total, quiet) as step, closing(drawings):
        document = document_of(store, found, step, drawings)
        step("the page")
        page = write_page(document, folder / "report", drawings.svg)
        write_text(folder / "report" / "claims.md", claims_as_markdown(document))
        return page, document


def document_of(
    store: Store, found: list[Study], step: Callable[..., None] = lambda what="": None, drawings: Drawings | None = None
) -> Document:
    """The content of the page; the figures are drawn if there are `drawings`."""
    known: dict[str, Record | Failure] = {}
    claims: list[ClaimRow] = []
    sections: list[Section] = []
    failures: dict[str, Failure] = {}
    explorer: Explorer | None = None
    for study in found:
        step(study.experiment.name)
        try:
            results = read_results(store, study, known, step)
            judged, section = judge(results), section_of(results)
            if any(section.name == other.name for other in sections):
                raise UserError("another study has the same name but for its slashes")
            failures |= {f"{failure.run}: {failure.message}": failure for failure in results.failures}
            if drawings is not None:
                drawings.update(section.charts)
                as_json([live(chart) for chart in section.charts])
            claims += judged
            sections.append(section)
            if study.experiment.name == "four-rooms/frontier" and results.arms:
                policies = ExactFrontier(results).explorer()
                as_json(policies.data)
                explorer = policies
        except (Unreadable, Unwritable):
            raise
        except Exception as error:  # the other studies are still shown
            failures[study.experiment.name] = Failure(
                study.experiment.name, f"cannot be shown: {why(error)}", command=study.command
            )
    failures |= {note: Failure(note, words) for note, words in damaged_notes(store).items()}
    claims.sort(key=lambda claim: list(GROUPS.values()).index(claim.group))
    title, subtitle = REPRODUCTION if any(study.experiment.name in EXPERIMENTS for study in found) else STUDIES_SECTION
    return Document(
        title=title,
        subtitle=subtitle,
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        claims=claims, sections=sections, failures=list(failures.values()), explorer=explorer,
        versions={"vpac": __version__, **provenance()["versions"]},
    )  # fmt: skip


def _ordered(store: Store) -> Iterator[Study]:
    """The studies of a store: ours in the catalogue's order, then others by name."""
    found = {study.experiment.name: study for study in studies(store)}
    for name in EXPERIMENTS:
        if name in found:
            yield found.pop(name)
    yield from found.values()


def section_of(results: Results) -> Section:
    """A study as a section: charts, tables, settings and provenance."""
    experiment, study = results.study.experiment, results.study
    about = experiment.about + (f"\n\nThe paper: {experiment.paper}." if experiment.paper else "")
    if study.seconds == 0.0:
        about += "\n\nNo run was made for it alone: its runs belong to other experiments, too, or were there before."

    def show() -> tuple[list[Chart], list[Table]]:
        summary = SUMMARIES.get(experiment.kind, StudySummary)(results)
        return summary.charts(), summary.tables()

    charts, tables = (attempt(results, experiment.kind, show) if results.arms else None) or ([], [])
    return Section(
        name=anchor(experiment.name), title=experiment.title, about=about, charts=charts, tables=tables,
        settings=_settings(results), provenance=_provenance(results), wall_seconds=study.seconds, command=study.command,
    )  # fmt: skip


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
                "steps": steps, "episodes measured": experiment.episodes,
                "one start by": ", ".join(f"{key} = {value}" for key, value in experiment.fixed_start.items()),
            }  # fmt: skip
        rows.append(row | {key: str(v) if isinstance(v, list) else v for key, v in settings.items()})
    return Table.from_records(rows, "Settings")


def _provenance(results: Results) -> dict[str, Cell]:
    records = [record for arm in results.arms for record in results.records[arm.label]]
    if not records:
        return {"runs": 0}
    study, machines = results.study, [record.about.get("machine", {}) for record in records]

    def all_of(values: Iterator[str]) -> str:
        return ", ".join(sorted(set(values)))

    return {
        "runs": len({record.run.name for record in records}),
        "seeds": f"spawned from {study.experiment.seed}",
        "scale": study.scale,
        "processor seconds": float(sum({r.run.name: float(r.about.get("seconds", 0.0)) for r in records}.values())),
        "versions": all_of(" ".join(f"{name} {v}" for name, v in r.about.get("versions", {}).items()) for r in records),
        "machine": all_of(f"{m.get('processor')}, {m.get('cores')} cores, {m.get('system')}" for m in machines),
        "commit": all_of(str(record.about.get("commit") or "installed package") for record in records),
        "carried out": study.time,
    }
