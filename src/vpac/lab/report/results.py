"""The stored runs of a study, read once and checked, as numbers to draw and to judge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vpac.envs.make import is_named_by_user
from vpac.errors import Newer, UserError
from vpac.lab.experiments.spec import Arm
from vpac.lab.report.chart import Failure, Line, Style
from vpac.lab.store.records import Damaged, Study
from vpac.lab.store.run import Run
from vpac.lab.store.store import METRICS_FILE, Record, Store, columns_of
from vpac.risk.intervals import Interval, mean_interval, not_negative, student_quantile
from vpac.typing import FloatArray

PROGRESS_EVERY = 500
"""Runs between two updates of the progress bar."""
LISTED = 20
"""Failures of a study that are shown one by one."""
TABLES_AT_ONCE, NUMBERS_AT_ONCE = 1000, 2_000_000
"""Most tables, and numbers in them, that are in memory at a time."""
LABELS = {
    "return": "return", "mean": "mean", "variance": "variance", "sharpe": "Sharpe ratio", "risky": "share of risky steps",
    "within": "variance within starts", "length": "steps", "ratio": "error of the direct critic ÷ the indirect one's",
    "cvar": "CVaR (mean of the worst tenth)", "discounted_mean": "mean, discounted",
    "discounted_variance": "variance, discounted", "discounted_sharpe": "Sharpe ratio, discounted",
    "discounted_cvar": "CVaR, discounted", "fixed_mean": "mean, one start", "fixed_variance": "variance, one start",
    "fixed_discounted_variance": "variance, one start, discounted", "score_mean": "mean score",
    "score_variance": "variance of scores", "return_mean": "mean discounted return",
    "return_variance": "variance of discounted returns", "length_mean": "steps of an episode",
    "predicted_variance": "variance of the return, predicted", "measured_variance": "variance of the return, measured",
    "episode": "episodes", "timesteps": "steps",
}  # fmt: skip
"""Names of measured quantities on axes and in the heads of tables."""
NEVER_NEGATIVE = ("variance", "within", "risky", "length", "length_mean", "ratio", "_error", "_norm")
"""Suffixes of quantities that cannot be below 0."""


def label_of(quantity: str) -> str:
    """The name of a quantity on axes and in the heads of tables."""
    return LABELS.get(quantity, quantity)


def never_negative(quantity: str) -> bool:
    """Whether the quantity cannot be below 0; a critic may predict anything."""
    return quantity.endswith(NEVER_NEGATIVE) and quantity != "predicted_variance"


def over_runs(values: FloatArray, quantity: str) -> Interval:
    """The mean over runs with Student's 95 % interval, cut at 0 for what cannot be less."""
    found = mean_interval(values)
    return not_negative(found) if never_negative(quantity) else found


@dataclass(frozen=True)
class ArmCurve:
    """A quantity along the runs of an arm."""

    quantity: str
    x: FloatArray
    mean: FloatArray
    deviation: FloatArray
    """Mean and standard deviation over runs, at each point."""
    count: int
    x_name: str
    """The column of `x`."""

    def band(self) -> tuple[FloatArray, FloatArray] | tuple[None, None]:
        """Student's 95 % interval of the mean at each point, cut at 0 for what cannot be less; None for a single run."""
        if self.count < 2:
            return None, None
        half = student_quantile(0.95, self.count - 1) * self.deviation / np.sqrt(self.count)
        low = self.mean - half
        return np.maximum(low, 0.0) if never_negative(self.quantity) else low, self.mean + half

    def line(self, label: str, style: Style = None) -> Line:
        """The curve and its band."""
        low, high = self.band()
        return Line(label, self.x, self.mean, low, high, style)


@dataclass(frozen=True)
class Results:
    """A study and its runs."""

    study: Study
    records: dict[str, list[Record]]
    """The finished runs of each arm, by its label."""
    failures: list[Failure] = field(default_factory=list)
    """Runs that failed, are damaged or are missing."""
    _first: dict[str, Any] = field(default_factory=dict, repr=False)
    _moments: dict[str, dict[str, MeanAndVariance]] = field(default_factory=dict, repr=False)

    @property
    def arms(self) -> list[Arm]:
        """The arms that have a finished run."""
        return [arm for arm in self.study.experiment.arms if self.records[arm.label]]

    def some(self, labels: Iterable[str]) -> list[Arm]:
        """The arms with these labels, or all."""
        wanted = set(labels)
        return [arm for arm in self.arms if not wanted or arm.label in wanted]

    def final(self, label: str, quantity: str) -> FloatArray:
        """The final number of each run; empty if it was not measured."""
        found = [record.final.get(quantity) for record in self.records[label]]
        return np.array([value for value in found if value is not None], np.float64)

    def finals(self, arms: Iterable[Arm], quantity: str) -> list[tuple[Arm, Interval]]:
        """The mean over runs of those arms where it was measured."""
        return [(arm, over_runs(v, quantity)) for arm in arms if len(v := self.final(arm.label, quantity))]

    def columns(self, label: str) -> list[str]:
        """Quantities that were measured along the runs of an arm."""
        return list(self.first(label).columns[1:])

    def curve(self, label: str, column: str) -> ArmCurve:
        """A column of the metrics along the runs of an arm."""
        first = self.first(label)
        if label not in self._moments:
            self._moments[label] = moments_over_runs(self.records[label], first.width * len(first))
        mean, squares = self._moments[label][column]
        x, count = first.columns[0], len(self.records[label])
        deviation = np.sqrt(squares / (count - 1 if count > 1 else np.nan))
        return ArmCurve(column, first[x].to_numpy(), mean, deviation, count, x)

    def first(self, label: str) -> Any:
        """The metrics of an arm's first run; the first column says where they were measured."""
        if label not in self._first:
            self._first[label] = self.records[label][0].metrics()
        return self._first[label]

    def size_note(self) -> str:
        """Note on how much smaller than the full experiment this is; empty if it is the full one."""
        study, experiment = self.study, self.study.experiment
        if experiment.kind != "deep":
            words = [f"{study.scale:g} times the episodes"] if study.scale != 1.0 else []
        else:
            seeds = max((len(names) for names in study.runs.values()), default=0)
            steps = max(1, round(experiment.steps * study.scale))
            words = [f"{steps:,} of {experiment.steps:,} steps a run"] if study.scale != 1.0 else []
            words += [f"{seeds} of {experiment.runs} seeds"] if seeds < experiment.runs else []
        return f"Scaled down: {' and '.join(words)} of the full experiment." if words else ""


def read_results(
    store: Store, study: Study, known: dict[str, Record | Failure], step: Callable[[], None] = lambda: None
) -> Results:
    """Read a study's runs; `known` holds those that other studies have read. `step` updates the progress bar."""
    records: dict[str, list[Record]] = {}
    failures: dict[str, Failure] = {}
    missing, count = 0, 0
    store.prefetch(dict.fromkeys(name for names in study.runs.values() for name in names if name not in known))
    for label, names in study.runs.items():
        found = records[label] = []
        for name in names:
            count += 1
            if count % PROGRESS_EVERY == 0:
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
    listed, more = list(failures.values())[:LISTED], len(failures) - LISTED
    for number, words in ((more, "more runs failed or diverged"), (missing, "runs are still to be carried out")):
        if number > 0:
            listed.append(Failure(study.experiment.name, f"{number} {words}", command=study.command))
    return Results(study, records, listed)


def _read(store: Store, name: str, command: str) -> Record | Failure | None:
    """A run, its failure, or None if it has not been carried out."""
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


def check_named(run: Run) -> None:
    """Refuse environments that would be imported: files in a store do not decide what runs here."""
    name = run.task.get("env", "")
    if not is_named_by_user(name):
        raise UserError(f"{name!r:.80} is an import path, and stored files do not decide what is imported")


MeanAndVariance = tuple[FloatArray, FloatArray]
"""Mean over runs of a column at each point, and the sum of squared distances from it."""


def moments_over_runs(records: Sequence[Record], numbers: int) -> dict[str, MeanAndVariance]:
    """Moments of the runs' metrics, of which one table has so many numbers; columns that not all runs have are left out.

    Tables are read in pieces, whose moments are merged (Chan, Golub and LeVeque 1983).
    """
    found: dict[str, MeanAndVariance] = {}
    step = max(1, min(TABLES_AT_ONCE, NUMBERS_AT_ONCE // max(numbers, 1)))
    for before in range(0, len(records), step):
        contents = [record.file(METRICS_FILE) for record in records[before : before + step]]
        count, merged = len(contents), {}
        for name, values in columns_of(contents).items():
            mean = values.mean(axis=0)
            squares = ((values - mean) ** 2).sum(axis=0)
            if before and name in found:
                earlier, apart = found[name], mean - found[name][0]
                squares = squares + earlier[1] + apart**2 * (before * count / (before + count))
                mean = earlier[0] + apart * (count / (before + count))
            if not before or name in found:
                merged[name] = mean, squares
        found = merged
    return found
