"""The notes that a store keeps of studies, read from files that anybody may have written."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from vpac.lab.experiments.spec import Experiment
from vpac.lab.store.place import Unreadable
from vpac.lab.store.records import Newer, check_version, where
from vpac.lab.store.store import Store
from vpac.sealing import LARGEST, check_seal, parse

__all__ = ["FORMAT", "Study", "damaged_notes", "key_of", "read_study", "studies"]

STUDIES = "studies"
FORMAT = 2
"""Of the notes; those of the first had no checksum."""


@dataclass(frozen=True)
class Study:
    """The note that a store keeps of an experiment: what it is and which runs belong to it."""

    experiment: Experiment
    """What it is."""
    runs: dict[str, list[str]]
    """Names of the runs of each arm."""
    scale: float
    """Episodes, or steps and runs of the PPO family, were multiplied by it."""
    seconds: float
    """Wall time, over all sessions that it took."""
    time: str
    """When it was last carried out."""
    command: str
    """What to type to carry it out."""

    @property
    def work(self) -> float:
        """How much was run, to compare a quick look with the real thing."""
        return self.scale * sum(len(names) for names in self.runs.values())


def read_study(store: Store, name: str) -> Study | None:
    """A study's note; None if there is none or it cannot be read, for running the experiment again writes it anew.

    One that a later version wrote is a `Newer`.
    """
    try:
        content = store.place.read(key_of(name), LARGEST)
        note: dict[str, Any] = parse(content)
        check_seal(content, note, required="format" in note)
        check_version(where(store.place, key_of(name)), note.get("format", 1), FORMAT)
        experiment = Experiment.model_validate(note["experiment"])
        runs = {str(label): [str(name) for name in names] for label, names in note["runs"].items()}
        if not all(arm.label in runs for arm in experiment.arms):
            return None
        scale, seconds = float(note["scale"]), float(note["seconds"])
        if not (math.isfinite(scale) and math.isfinite(seconds)):
            return None
        return Study(experiment, runs, scale, seconds, str(note["time"]), str(note["command"]))
    except (Newer, Unreadable):
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None


def studies(store: Store, names: Sequence[str] = ()) -> Iterator[Study]:
    """The studies in a store, or those of these names, in their order."""
    for name in names or _noted(store):
        with suppress(Newer):
            if (study := read_study(store, name)) is not None:
                yield study


def damaged_notes(store: Store) -> dict[str, str]:
    """Notes of studies that cannot be read, by name, and what to do about it."""
    found = {}
    for name in _noted(store):
        path = where(store.place, key_of(name))
        try:
            if read_study(store, name) is None:
                found[path] = "is damaged; carrying out its study again writes it anew"
        except Newer as newer:
            found[path] = str(newer).removeprefix(path).strip()
    return found


def _noted(store: Store) -> list[str]:
    return [file.removesuffix(".json") for file in store.place.files(STUDIES) if file.endswith(".json")]


def key_of(name: str) -> str:
    """Where the note of a study is kept."""
    return f"{STUDIES}/{name.replace('/', '.')}.json"
