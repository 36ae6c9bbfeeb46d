"""The stored runs of a study, read once and checked, as numbers to draw and to judge."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vpac.envs.naming import is_named_by_user
from vpac.errors import UserError
from vpac.execution.run import Run
from vpac.execution.store import Damaged, Newer, Record, Store, many
from vpac.execution.study import Study
from vpac.experiments.spec import Arm
from vpac.report.document import Failure
from vpac.report.spread import Spread, spread_of
from vpac.typing import FloatArray

__all__ = ["Curve", "Results", "check_named", "parts_of", "read_results"]


PART = 500
"""Runs of a part of a study: so often one sees how far it is."""
LISTED = 20
"""Failures of a study that are shown one by one."""


@dataclass(frozen=True)
class Curve:
    """A quantity along the runs of an arm."""

    x: FloatArray
    """Where it was measured."""
    mean: FloatArray
    """Over runs, at each point."""
    deviation: FloatArray
    """Standard deviation over runs, at each point."""
    count: int
    """How many runs."""
    name: str
    """What `x` counts: the name of its column."""

    def band(self) -> tuple[FloatArray, FloatArray] | tuple[None, None]:
        """The 95 % interval of the mean at each point (Student's t); none of a single run."""
        from vpac.risk.intervals import student_quantile

        if self.count < 2:
            return None, None
        half = student_quantile(0.95, self.count - 1) * self.deviation / np.sqrt(self.count)
        return self.mean - half, self.mean + half


@dataclass(frozen=True)
class Results:
    """A study and its runs."""

    study: Study
    """What was run."""
    records: dict[str, list[Record]]
    """The finished runs of each arm, by its label."""
    failures: list[Failure] = field(default_factory=list)
    """Runs that failed, are damaged or are missing."""
    _first: dict[str, Any] = field(default_factory=dict, repr=False)
    _spread: dict[str, Spread] = field(default_factory=dict, repr=False)

    @property
    def arms(self) -> list[Arm]:
        """The arms that have a finished run."""
        return [arm for arm in self.study.experiment.arms if self.records[arm.label]]

    def some(self, labels: Iterable[str]) -> list[Arm]:
        """The arms with these labels, or all."""
        wanted = set(labels)
        return [arm for arm in self.arms if not wanted or arm.label in wanted]

    def final(self, label: str, quantity: str) -> FloatArray:
        """A final number of each run; empty if it was not measured."""
        found = [record.final.get(quantity) for record in self.records[label]]
        return np.array([value for value in found if value is not None], np.float64)

    def columns(self, label: str) -> list[str]:
        """What was measured along the runs of an arm."""
        return list(self.first(label).columns[1:])

    def curve(self, label: str, column: str) -> Curve:
        """A column of the metrics along the runs of an arm."""
        first = self.first(label)
        if label not in self._spread:
            count = sum(map(len, self.records.values()))
            self._spread[label] = spread_of(self.records[label], first.width * len(first), count)
        found, x = self._spread[label], first.columns[0]
        return Curve(first[x].to_numpy(), found.mean[column], found.deviation(column), found.count, x)

    def rows(self, label: str) -> list[dict[str, Any]]:
        """The metrics of an arm's first run, row by row."""
        return list(self.first(label).iter_rows(named=True))

    def first(self, label: str) -> Any:
        """The metrics of an arm's first run; the first column is where they were measured."""
        if label not in self._first:
            self._first[label] = self.records[label][0].metrics()
        return self._first[label]


def parts_of(study: Study) -> int:
    """In how many parts its runs are read."""
    return sum(map(len, study.runs.values())) // PART


def read_results(
    store: Store, study: Study, known: dict[str, Record | Failure], step: Callable[[], None] = lambda: None
) -> Results:
    """Read a study's runs; `known` remembers those that other studies have read. `step` is called after each part."""
    records: dict[str, list[Record]] = {}
    failures: dict[str, Failure] = {}
    missing, left = 0, PART
    store.read_ahead(dict.fromkeys(name for names in study.runs.values() for name in names if name not in known))
    with many():
        for label, names in study.runs.items():
            found = records[label] = []
            for name in names:
                left -= 1
                if not left:
                    left = PART
                    step()
                if name not in known and (record := _read(store, name, study.command)) is not None:
                    known[name] = record
                match known.get(name):
                    case Record() as record:
                        found.append(record)
                    case Failure() as failure:
                        failures[name] = failure
                    case None:
                        missing += 1
    listed = dict(list(failures.items())[:LISTED])
    if len(failures) > LISTED:
        words = f"{len(failures) - LISTED} more runs failed or diverged"
        listed["more"] = Failure(study.experiment.name, words, command=study.command)
    failures = listed
    if missing:
        words = f"{missing} runs are still to be carried out"
        failures[""] = Failure(study.experiment.name, words, command=study.command)
    return Results(study, records, list(failures.values()))


def _read(store: Store, name: str, command: str) -> Record | Failure | None:
    """A run, how it failed, or None if it has not been carried out."""
    try:
        if store.has(name):
            return store.read(name)
        note = store.failure(name)
        if note is None:
            return None
        return Failure(name, (note["error"].strip().splitlines() or ["failed"])[-1], note["error"], command)
    except Newer as newer:
        return Failure(name, str(newer), command=command)
    except Damaged as damage:
        return Failure(name, f"is damaged: {damage}", command=command)


def table_of(record: Record, policy: str) -> FloatArray:
    """The greedy or softmax policy table of a tabular run."""
    from vpac.oracle.policies import greedy, softmax

    theta = record.policy()["theta"]
    return greedy(theta) if policy == "greedy" else softmax(theta, temperature(record.run))


def check_named(run: Run) -> None:
    """A report imports nothing that a store names: figures that would need it are left out."""
    name = run.task.get("env", "")
    if not is_named_by_user(name):
        raise UserError(f"{name!r:.80} is an import path, and stored files do not decide what is imported")


def temperature(run: Run) -> float:
    """Of a run's softmax policy."""
    return float(run.task["settings"].get("temperature", 1.0))
