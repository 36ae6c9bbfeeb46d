"""The stored runs of a study, read once and checked, as numbers to draw and to judge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import numpy as np

from vpac.envs.make import is_named_by_user
from vpac.errors import UserError
from vpac.lab.experiments.spec import Arm
from vpac.lab.report.document import Failure
from vpac.lab.store.place import place_at
from vpac.lab.store.readers import MANY, crew
from vpac.lab.store.run import Run
from vpac.lab.store.store import METRICS, Damaged, Newer, Record, Store, checked, columns_of, many
from vpac.lab.workers.study import Study
from vpac.typing import FloatArray

__all__ = ["Curve", "Results", "Spread", "check_named", "parts_of", "read_results", "spread_of"]

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


TABLES, NUMBERS = 1000, 2_000_000
"""How many tables, and numbers in them, are read at a time."""


@dataclass
class Spread:
    """Moments of columns over runs, point by point."""

    count: int = 0
    """Runs so far."""
    mean: dict[str, FloatArray] = field(default_factory=dict)
    """Of each column."""
    squares: dict[str, FloatArray] = field(default_factory=dict)
    """Sums of squared distances from the mean."""

    @classmethod
    def of(cls, columns: dict[str, FloatArray]) -> Spread:
        """Of columns [runs, points]."""
        mean = {name: values.mean(axis=0) for name, values in columns.items()}
        squares = {name: ((values - mean[name]) ** 2).sum(axis=0) for name, values in columns.items()}
        return cls(len(next(iter(columns.values()))), mean, squares)

    def add(self, more: Spread) -> None:
        """Of other runs, too (Chan, Golub and LeVeque 1983); columns that not all runs have are left out."""
        total = self.count + more.count
        if not self.count:
            self.mean, self.squares = more.mean, more.squares
        for name in [name for name in self.mean if name not in more.mean]:
            del self.mean[name], self.squares[name]
        if self.count:
            for name in self.mean:
                gap = more.mean[name] - self.mean[name]
                self.squares[name] = (
                    more.squares[name] + self.squares[name] + gap**2 * (self.count * more.count / total)
                )
                self.mean[name] = self.mean[name] + gap * (more.count / total)
        self.count = total

    def deviation(self, name: str) -> FloatArray:
        """Standard deviation over runs; of a single run NaN."""
        return np.sqrt(self.squares[name] / (self.count - 1 if self.count > 1 else np.nan))


def spread_of(records: Sequence[Record], numbers: int, count: int = 0) -> Spread:
    """Of the metrics of runs.

    Args:
        records: of the runs.
        numbers: how many there are in the table of one.
        count: runs in all, if those of others will be asked for, too.
    """
    found, step = Spread(), max(1, min(TABLES, NUMBERS // max(numbers, 1)))
    parts = [records[begin : begin + step] for begin in range(0, len(records), step)]
    for part, moments in zip(parts, _moments(parts, max(count, len(records))), strict=True):
        found.add(moments or _moments_of(part))
    return found


def _moments(parts: Sequence[Sequence[Record]], count: int) -> Iterator[Spread | None]:
    """Of the runs of each part; by other processes, if there are very many. None: it is still to be done here."""
    if count < MANY or parts[0][0].place.readers > 1:
        return repeat(None, len(parts))
    given = [(part[0].place.address, [(record.run.name, record.files) for record in part]) for part in parts]
    return crew().map(_there, given)


def _moments_of(records: Sequence[Record]) -> Spread:
    return Spread.of(columns_of([record.file(METRICS) for record in records]))


def _there(part: tuple[str, Sequence[tuple[str, dict[str, Any]]]]) -> Spread | None:
    """In another process; what is wrong is found out again by whoever asked."""
    address, runs = part
    try:
        place = place_at(address)
        return Spread.of(columns_of([checked(place, name, METRICS, files) for name, files in runs]))
    except (Damaged, UserError, OSError):
        return None
