"""What a store says of its runs, `run.json` of finished ones and notes of failed ones, read from files that anybody may have
written: everything is of its kind and within bounds, or it is refused with the file named."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from vpac.errors import Newer
from vpac.lab.store.place import RECORD, Place, Unreadable
from vpac.lab.store.run import FORMAT, Run
from vpac.sealing import check_seal, parse

__all__ = ["FAILED", "RUNS", "Damaged", "Newer", "check_version", "read_failure", "read_record", "where"]

RUNS, FAILED = "runs", "failed"
LARGEST = 2**24
"""Bytes of a record or a note: they have some thousands, and parsed data takes many times as much memory."""
MOST = 2**63
"""Seeds, and how often an arm is run, are below this."""


class Damaged(Exception):
    """A stored run that is not what was written."""


def check_version(path: str, found: Any, newest: int) -> None:
    """Raise `Newer` if a file's format is one of the future."""
    if isinstance(found, int) and found > newest:
        raise Newer(
            f"{path} has format {found!r:.40}, and this version of vpac reads formats up to {newest}: use a newer version, "
            "or another --store"
        )


def read_record(place: Place, name: str, read: Callable[[dict[str, Any]], Run] = Run.read) -> dict[str, Any]:
    """`run.json` of a run, checked; `read` makes the run, which stands there as `run`."""
    key = f"{RUNS}/{name}/{RECORD}"
    path = where(place, key)
    try:
        text = place.read(key, LARGEST)
        record = parse(text)
        format_ = record["format"]
    except Unreadable:  # it may be as good as ever
        raise
    except OSError as error:
        raise Damaged(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, TypeError, KeyError):
        raise Damaged(f"{path} is not what was written: it is not a record of a run") from None
    try:
        check_seal(text, record)
    except ValueError as error:
        raise Damaged(f"{path} is not what was written: {error}") from None
    check_version(path, format_, FORMAT)
    if format_ != FORMAT:
        raise Damaged(f"{path} has format {format_!r:.40}; this version of vpac reads format {FORMAT}")
    if not (_is_run(record) and _is_result(record)):
        raise Damaged(f"{path} is not a record of a run that vpac wrote")
    run = _run(record, read)
    if run is None or record["name"] != name or run.name != name:
        raise Damaged(f"{where(place, f'{RUNS}/{name}')}: the folder's name is not that of the run in it")
    return {**record, "run": run}


def read_failure(place: Place, name: str) -> dict[str, Any] | None:
    """The note of a run that failed; None if there is none, `Damaged` if it is not what vpac wrote."""
    key = f"{FAILED}/{name}.json"
    path = where(place, key)
    try:
        content = place.read(key, LARGEST)
    except FileNotFoundError:
        return None
    except Unreadable:
        raise
    except OSError as error:
        raise Damaged(f"{path} cannot be read: {error.strerror or error}") from None
    try:
        note = parse(content)
        check_seal(content, note, required=isinstance(note, dict) and "format" in note)
    except ValueError as error:
        raise Damaged(f"{path} is not what was written: {error}") from None
    about = note.get("about")
    if (
        not _is_run(note)
        or note["name"] != name
        or not isinstance(note.get("error"), str)
        or not isinstance(about, dict)
        or not isinstance(about.get("status", ""), str)
    ):
        raise Damaged(f"{path} is not a note of a failed run that vpac wrote")
    return dict(note)


def _is_run(record: dict[str, Any]) -> bool:
    """Whether what was to be run is of its kind. Somebody else's record may have a good checksum, too."""
    task = record.get("task")
    return (
        isinstance(record.get("name"), str)
        and all(type(record.get(key)) is int and 0 <= record[key] < MOST for key in ("number", "seed"))
        and isinstance(task, dict)
        and isinstance(task.get("kind"), str)
        and all(isinstance(task.get(key, ""), str) for key in ("env", "algorithm"))
        and all(isinstance(task.get(key, {}), dict) for key in ("settings", "env_settings"))
    )


def _is_result(record: dict[str, Any]) -> bool:
    """Whether numbers, provenance and checksums are of their kinds."""
    final, about, files = record.get("final"), record.get("about"), record.get("files")
    return (
        isinstance(final, dict)
        and isinstance(about, dict)
        and isinstance(files, dict)
        and all(value is None or _is_number(value) for value in final.values())
        and _is_number(about.get("seconds", 0.0))
        and isinstance(about.get("time", ""), str)
        and isinstance(about.get("commit") or "", str)
        and all(isinstance(about.get(key, {}), dict) for key in ("versions", "machine"))
    )


def _is_number(value: Any) -> bool:
    """One that a double holds."""
    try:
        return isinstance(value, int | float) and math.isfinite(float(value))
    except OverflowError:
        return False


def _run(record: dict[str, Any], read: Callable[[dict[str, Any]], Run]) -> Run | None:
    """The run, with the name that its content gives it; none if the content is nothing that can be run."""
    try:
        run = read(record)
        _ = run.name
        return run
    except (ValueError, TypeError, RecursionError):
        return None


def where(place: Place, key: str) -> str:
    """For people: where something is kept."""
    return f"{place.address}/{key}"
