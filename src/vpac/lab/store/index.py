"""What a store holds: notes of studies, and a table of all runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from pydantic import BaseModel, ConfigDict, FiniteFloat, ValidationError

from vpac.errors import Newer
from vpac.lab.experiments.spec import Experiment
from vpac.lab.store.records import RUNS, Damaged, check_version, read_record, read_sealed
from vpac.lab.store.store import Store

STUDIES = "studies"
NOTE_FORMAT = 2
"""Of the notes of studies; those of the first had no checksum."""
COLUMNS = ("name", "status", "algorithm", "env", "seed", "mean", "variance", "seconds", "time", "settings", "stamp")


class Study(BaseModel):
    """The note that a store keeps of an experiment: what it is and which runs belong to it."""

    model_config = ConfigDict(frozen=True)

    experiment: Experiment
    """What it is."""
    runs: dict[str, list[str]]
    """Names of the runs of each arm."""
    scale: FiniteFloat
    """Multiplied episodes, or steps and runs of the PPO family."""
    seconds: FiniteFloat
    """Wall time, over all sessions."""
    time: str
    """When it was last carried out."""
    command: str
    """The command that carries it out."""

    @property
    def work(self) -> float:
        """Its size, to compare a quick look with a full study."""
        return self.scale * sum(len(names) for names in self.runs.values())


def note_key(name: str) -> str:
    """The key of a study's note."""
    return f"{STUDIES}/{name.replace('/', '.')}.json"


def read_study(store: Store, name: str) -> Study | None:
    """A study's note; None if it is missing or damaged, because running the experiment again rewrites it.

    Raises `Newer` for one that a later version wrote.
    """
    try:
        note = read_sealed(store.backend, note_key(name), required=False)
        check_version(f"{store.address}/{note_key(name)}", note.get("format", 1), NOTE_FORMAT)
        study = Study.model_validate(note)
    except (FileNotFoundError, Damaged, ValidationError):
        return None
    return study if all(arm.label in study.runs for arm in study.experiment.arms) else None


def studies(store: Store, names: Sequence[str] = ()) -> Iterator[Study]:
    """The studies in a store, or those of these names, in their order."""
    for name in names or _noted(store):
        with suppress(Newer):
            if (study := read_study(store, name)) is not None:
                yield study


def damaged_notes(store: Store) -> dict[str, str]:
    """Notes of studies that cannot be read: what is wrong, by path."""
    found = {}
    for name in _noted(store):
        path = f"{store.address}/{note_key(name)}"
        try:
            if read_study(store, name) is None:
                found[path] = "is damaged; carrying out its study again writes it anew"
        except Newer as newer:
            found[path] = str(newer).removeprefix(path).strip()
    return found


def _noted(store: Store) -> list[str]:
    return [file.removesuffix(".json") for file in store.backend.files(STUDIES) if file.endswith(".json")]


def index(store: Store) -> list[dict[str, Any]]:
    """One row for each run, sorted by name; failed runs at the end."""
    with ThreadPoolExecutor(store.backend.parallel_reads) as threads:
        finished = list(threads.map(lambda item: _finished(store, *item), store.backend.folders(RUNS).items()))
    return finished + [_failed(store, name) for name in store.failures()]


def _finished(store: Store, name: str, stamp: int) -> dict[str, Any]:
    try:
        record, _ = read_record(store.backend, name)
    except (Damaged, Newer) as error:
        return _row(name, f"{'newer' if isinstance(error, Newer) else 'damaged'}: {error}") | {"stamp": stamp}
    final, about = record["final"], record["about"]
    return _row(name, "finished", record) | {
        "mean": final.get("mean"), "variance": final.get("variance"), "seconds": about.get("seconds"),
        "time": about.get("time"), "stamp": stamp,
    }  # fmt: skip


def _failed(store: Store, name: str) -> dict[str, Any]:
    try:
        note = store.failure(name)
    except Damaged as damage:
        return _row(name, f"damaged: {damage}")
    if note is None:  # it has just been removed
        return _row(name, "failed")
    return _row(name, note["about"].get("status", "failed"), note)


def _row(name: str, status: str, record: dict[str, Any] | None = None) -> dict[str, Any]:
    """A row of the table, without results; of a file that cannot be read only the name is known."""
    record = record or {"task": {"kind": ""}}
    task = record["task"]
    return dict.fromkeys(COLUMNS) | {
        "name": name, "status": status, "algorithm": task.get("algorithm") or task["kind"], "env": task.get("env", ""),
        "seed": record.get("seed"), "settings": task.get("settings", {}), "stamp": -1,
    }  # fmt: skip
