"""Records of finished runs (`run.json`), notes of failed ones and of studies, and the table of all runs.

These files are untrusted: a pydantic model refuses what vpac would not have written, and the error names the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from vpac.errors import Newer, UserError
from vpac.files import LARGEST_READ, RECORD, check_seal, parse, read_bytes
from vpac.lab.experiments.spec import Experiment
from vpac.lab.store.backend import Backend, Unreadable, retry
from vpac.lab.store.run import RUN_FORMAT, Run

if TYPE_CHECKING:
    from vpac.lab.store.store import Store

RUNS, FAILED, STUDIES, TRAIN = "runs", "failed", "studies", "train"
NOTE_FORMAT = 2
"""Format of the notes of studies; those of the first had no checksum."""
LARGEST_RECORD = 2**24
"""Bytes of a record or a note, which has some thousands; parsed data takes many times as much memory."""
NaturalInt = Annotated[int, Field(ge=0, lt=2**63)]
Number = bool | Annotated[int, Field(ge=-(2**1023), le=2**1023)] | FiniteFloat


class Damaged(Exception):
    """A stored file that is not what was written."""


class _Checked(BaseModel):
    model_config = ConfigDict(strict=True)


class TaskRecord(_Checked):
    """Task of a run; further keys depend on its kind."""

    kind: str
    env: str = ""
    algorithm: str = ""
    settings: dict[str, Any] = {}
    env_settings: dict[str, Any] = {}


class About(_Checked):
    """Duration of a run, with its time, machine and versions."""

    seconds: FiniteFloat = 0.0
    time: str = ""
    commit: str | None = None
    versions: dict[str, Any] = {}
    machine: dict[str, Any] = {}
    status: str = ""


class FailureNote(_Checked):
    """The note of a failed run."""

    name: str
    number: NaturalInt
    seed: NaturalInt
    task: TaskRecord
    about: About
    error: str


class RunRecord(FailureNote):
    """The record of a finished run."""

    error: None = None  # type: ignore[assignment]
    final: dict[str, Number | None]
    files: dict[str, Any]


def check_version(path: str, found: Any, newest: int) -> None:
    """Raise `Newer` if a file's format is that of a later version."""
    if isinstance(found, int) and found > newest:
        raise Newer(
            f"{path} has format {found!r:.40}, and this version of vpac reads formats up to {newest}: use a newer version, "
            "or another --store"
        )


def read_sealed(backend: Backend | RunFolder, key: str, required: bool = True) -> dict[str, Any]:
    """A JSON object with its checksum verified; `Damaged` if it is not what was written. Old notes have no checksum."""
    path = f"{backend.address}/{key}"
    try:
        content = backend.read(key, LARGEST_RECORD)
    except OSError as error:
        if isinstance(error, Unreadable) or (isinstance(error, FileNotFoundError) and not required):
            raise
        raise Damaged(f"{path} cannot be read: {error.strerror or error}") from None
    try:
        data = parse(content)
        check_seal(content, data, required=required or (isinstance(data, dict) and "format" in data))
    except ValueError as error:
        raise Damaged(f"{path} is not what was written: {error}") from None
    return dict(data)


class RunFolder:
    """The folder of one training, anywhere: what `read_record` and `Record` need of a `Backend`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.address = folder, os.fspath(folder)

    def read(self, key: str, most: int = LARGEST_READ) -> bytes:
        """A file's content, with retries."""
        return retry(lambda: read_bytes(self.folder / key, most), f"{self.address}/{key}")


def key_of(name: str, file: str) -> str:
    """The key of a file of a run: of a training its name in a store is its folder, `train/…`; none: the folder itself."""
    return f"{name}/{file}" if "/" in name else f"{RUNS}/{name}/{file}" if name else file


def trainings(backend: Backend) -> dict[str, int]:
    """Names of what `vpac train` wrote into a store, as `Backend.folders`."""
    found: dict[str, int] = {}
    with suppress(UserError):  # a link, which a store does not follow
        for name, stamp in backend.folders(TRAIN).items():
            runs = backend.folders(f"{TRAIN}/{name}") if stamp < 0 else {}
            found |= {f"{TRAIN}/{name}": stamp} | {f"{TRAIN}/{name}/{run}": when for run, when in runs.items()}
    return {name: stamp for name, stamp in found.items() if stamp >= 0}


def read_record(backend: Backend | RunFolder, name: str) -> tuple[dict[str, Any], Run]:
    """The record of a finished run, and the run; a name with a slash, or none, is that of a training."""
    key = key_of(name, RECORD)
    path = f"{backend.address}/{key}"
    record = read_sealed(backend, key)
    check_version(path, record.get("format"), RUN_FORMAT)
    if record.get("format") != RUN_FORMAT:
        raise Damaged(f"{path} has format {record.get('format')!r:.40}; this version of vpac reads format {RUN_FORMAT}")
    try:
        RunRecord.model_validate(record)
    except ValidationError:
        raise Damaged(f"{path} is not a record of a run that vpac wrote") from None
    run = Run.read(record)
    try:
        same = record["name"] == run.name and (record["name"] == name or "/" in name or not name)
    except (ValueError, TypeError, RecursionError):  # content that has no canonical text
        same = False
    if not same:
        raise Damaged(f"{path.removesuffix(f'/{RECORD}')}: the folder's name is not that of the run in it")
    return record, run


def read_failure(backend: Backend, name: str) -> dict[str, Any] | None:
    """The note of a failed run; None if there is none."""
    key = f"{FAILED}/{name}.json"
    try:
        note = read_sealed(backend, key, required=False)
        FailureNote.model_validate(note)
    except FileNotFoundError:
        return None
    except ValidationError:
        note = {}
    if note.get("name") != name:
        raise Damaged(f"{backend.address}/{key} is not a note of a failed run that vpac wrote")
    return note


class Study(BaseModel):
    """The note that a store keeps of an experiment: what it is and which runs belong to it."""

    model_config = ConfigDict(frozen=True)

    experiment: Experiment
    runs: dict[str, list[str]]
    """Names of the runs of each arm."""
    scale: FiniteFloat
    """Factor of the episodes, or of steps and runs of the PPO family."""
    seconds: FiniteFloat
    """Wall time, over all sessions."""
    time: str
    """Time when it was last carried out."""
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


def studies(store: Store) -> Iterator[Study]:
    """The studies in a store."""
    for name in _noted(store):
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
    """One row for each run, sorted by name, then what `vpac train` wrote; failed runs at the end."""

    def finished(name: str, stamp: int) -> dict[str, Any]:
        try:
            return _row(name, "finished", read_record(store.backend, name)[0], stamp)
        except (Damaged, Newer) as error:
            return _row(name, f"{'newer' if isinstance(error, Newer) else 'damaged'}: {error}", {}, stamp)

    def failed(name: str) -> dict[str, Any]:
        try:
            note = store.failure(name) or {}  # it may just have been removed
        except Damaged as damage:
            return _row(name, f"damaged: {damage}", {})
        return _row(name, note.get("about", {}).get("status", "failed"), note | {"about": {}})

    names = store.backend.folders(RUNS) | trainings(store.backend)
    with ThreadPoolExecutor(store.backend.parallel_reads) as threads:
        rows = list(threads.map(lambda item: finished(*item), names.items()))
    return rows + [failed(name) for name in store.failures()]


def _row(name: str, status: str, record: dict[str, Any], stamp: int = -1) -> dict[str, Any]:
    """A row of the table; of a file that cannot be read only the name is known."""
    task, final, about = (record.get(part, {}) for part in ("task", "final", "about"))
    return {
        "name": name, "status": status, "algorithm": task.get("algorithm") or task.get("kind", ""),
        "env": task.get("env", ""), "seed": record.get("seed"), "mean": final.get("mean"),
        "variance": final.get("variance"), "seconds": about.get("seconds"), "time": about.get("time"),
        "settings": task.get("settings", {}), "stamp": stamp,
    }  # fmt: skip
