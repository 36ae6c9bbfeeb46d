"""Records of finished runs (`run.json`) and notes of failed ones, read from files that anybody may have written.

A pydantic model refuses what vpac would not have written; the error names the file.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from vpac.errors import Newer
from vpac.lab.store.backend import RECORD, Backend, Unreadable
from vpac.lab.store.run import FORMAT, Run
from vpac.sealing import check_seal, parse

RUNS, FAILED = "runs", "failed"
LARGEST_RECORD = 2**24
"""Bytes of a record or a note, which has some thousands; parsed data takes many times as much memory."""
Count = Annotated[int, Field(ge=0, lt=2**63)]
Number = bool | Annotated[int, Field(ge=-(2**1023), le=2**1023)] | FiniteFloat


class Damaged(Exception):
    """A stored file that is not what was written."""


class _Checked(BaseModel):
    model_config = ConfigDict(strict=True)


class TaskRecord(_Checked):
    """What a run did; further keys depend on its kind."""

    kind: str
    env: str = ""
    algorithm: str = ""
    settings: dict[str, Any] = {}
    env_settings: dict[str, Any] = {}


class About(_Checked):
    """How long a run took, when, where, and with which versions."""

    seconds: FiniteFloat = 0.0
    time: str = ""
    commit: str | None = None
    versions: dict[str, Any] = {}
    machine: dict[str, Any] = {}
    status: str = ""


class FailureNote(_Checked):
    """The note of a failed run."""

    name: str
    number: Count
    seed: Count
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


def read_sealed(backend: Backend, key: str, required: bool = True) -> dict[str, Any]:
    """A JSON object with its checksum verified; `Damaged` if it is not what was written. Old notes have no checksum."""
    path = f"{backend.address}/{key}"
    try:
        content = backend.read(key, LARGEST_RECORD)
    except (FileNotFoundError, Unreadable) as error:
        if isinstance(error, Unreadable) or not required:
            raise
        raise Damaged(f"{path} cannot be read: {error.strerror or error}") from None
    except OSError as error:
        raise Damaged(f"{path} cannot be read: {error.strerror or error}") from None
    try:
        data = parse(content)
        check_seal(content, data, required=required or (isinstance(data, dict) and "format" in data))
    except ValueError as error:
        raise Damaged(f"{path} is not what was written: {error}") from None
    return dict(data)


def read_record(backend: Backend, name: str) -> tuple[dict[str, Any], Run]:
    """The record of a finished run, and the run."""
    key = f"{RUNS}/{name}/{RECORD}"
    path = f"{backend.address}/{key}"
    record = read_sealed(backend, key)
    check_version(path, record.get("format"), FORMAT)
    if record.get("format") != FORMAT:
        raise Damaged(f"{path} has format {record.get('format')!r:.40}; this version of vpac reads format {FORMAT}")
    try:
        RunRecord.model_validate(record)
    except ValidationError:
        raise Damaged(f"{path} is not a record of a run that vpac wrote") from None
    run = Run.read(record)
    try:
        same = record["name"] == name == run.name
    except (ValueError, TypeError, RecursionError):  # content that has no canonical text
        same = False
    if not same:
        raise Damaged(f"{backend.address}/{RUNS}/{name}: the folder's name is not that of the run in it")
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
