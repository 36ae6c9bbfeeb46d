"""A run: one arm of an experiment with one seed. Its name is readable, its hash is its content."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from vpac.lab.experiments.spec import Arm, Experiment

__all__ = ["FORMAT", "HASH", "Run", "Runs", "canonical", "is_name", "runs_of", "seeds"]

FORMAT = 1
"""Of stored runs; it grows when the meaning of a setting changes, so that old runs are not taken for new ones."""
LEARNER = 2
"""Of the PPO family: since the second, the corrected form is that of finite episodes and critics see the time."""
HASH = 16
"""Digits of the hash at the end of a run's name."""


def is_name(text: str) -> bool:
    """Whether a run could be called so."""
    return re.fullmatch(rf"[A-Za-z0-9.-]{{0,80}}-[0-9a-f]{{{HASH}}}", text) is not None


def canonical(data: Any) -> str:
    """Data as JSON, the same text for the same data."""
    return json.dumps(data, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True)
class Run:
    """What is to be done, as plain data. Experiments that ask for the same thing share the run."""

    task: dict[str, Any]
    """Kind, environment, algorithm, settings: everything that decides the result, but for the seed."""
    number: int
    """Which of the arm's runs it is."""
    seed: int
    """Of everything random in it."""

    @property
    def content(self) -> dict[str, Any]:
        """Everything that decides the result."""
        return {"format": FORMAT, "task": self.task, "number": self.number, "seed": self.seed}

    @property
    def hash(self) -> str:
        """Of the content."""
        return _hash(canonical(self.task), self.number, self.seed)

    @cached_property
    def name(self) -> str:
        """Readable, unique, and safe as the name of a folder."""
        return _name(_words(self.task), self.number, self.hash)

    @classmethod
    def read(cls, content: dict[str, Any]) -> Run:
        """The run with this content."""
        return cls(content["task"], content["number"], content["seed"])


class Runs:
    """Makes runs that have few tasks in common: each task is one object, and is spelt out for its runs' names only once."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[dict[str, Any], str, str]] = {}

    def read(self, content: dict[str, Any]) -> Run:
        """The run with this content, parsed from JSON."""
        task, number, seed = content["task"], content["number"], content["seed"]
        key = repr(task)
        if key not in self._known:
            self._known[key] = task, canonical(task), _words(task)
        return _named(*self._known[key], number, seed)


def _named(task: dict[str, Any], text: str, words: str, number: int, seed: int) -> Run:
    """A run of a task that was spelt out before."""
    run = Run(task, number, seed)
    run.__dict__["name"] = _name(words, number, _hash(text, number, seed))
    return run


def _hash(task: str, number: int, seed: int) -> str:
    """Of the content: `canonical` of it, with the task as text."""
    a, b = (str(value) if type(value) is int else canonical(value) for value in (number, seed))  # quicker by far
    text = f'{{"format":{FORMAT},"number":{a},"seed":{b},"task":{task}}}'
    return hashlib.sha256(text.encode()).hexdigest()


def _words(task: dict[str, Any]) -> str:
    """What a run's name says of its task."""
    words = [task.get("algorithm") or task["kind"], task.get("env", "").rpartition("/")[2]]
    psi = task.get("settings", {}).get("psi")
    return "-".join(word for word in [*words, "" if psi is None else f"psi{psi}"] if word)


def _name(words: str, number: int, digest: str) -> str:
    text = f"{words}-run{number}" if words else f"run{number}"
    return f"{re.sub(r'[^A-Za-z0-9.]+', '-', text)[:80].strip('-.')}-{digest[:HASH]}"


@lru_cache(maxsize=4)
def seeds(seed: int, count: int) -> tuple[int, ...]:
    """Seeds of runs, spawned from an experiment's; the first ones do not depend on how many there are."""
    children = np.random.SeedSequence(seed).spawn(count)
    return tuple(int(child.generate_state(1, np.uint64)[0] >> 1) for child in children)


def runs_of(experiment: Experiment, arm: Arm, count: int, scale: float = 1.0) -> Iterator[Run]:
    """The runs of one arm.

    Args:
        experiment: that the arm belongs to.
        arm: one of its arms.
        count: how many runs.
        scale: episodes (or steps) are multiplied by it.
    """
    task = _task(experiment, arm, scale)
    text, words = canonical(task), _words(task)
    for number, seed in enumerate(seeds(experiment.seed, count)):
        yield _named(task, text, words, number, seed)


def _task(experiment: Experiment, arm: Arm, scale: float) -> dict[str, Any]:
    task: dict[str, Any] = {"kind": experiment.kind}
    if env := arm.env or experiment.env:
        task |= {"env": env, "env_settings": {**experiment.env_settings, **arm.env_settings}}
    if experiment.wrappers:
        task["wrappers"] = [[path, given] for path, given in experiment.wrappers]
    task["settings"] = experiment.settings_of(arm)
    if experiment.kind in ("training", "convergence"):
        episodes = max(1, round((arm.episodes or experiment.episodes) * scale))
        task |= {"algorithm": arm.algorithm or experiment.algorithm, "episodes": episodes}
    if experiment.kind == "training":
        task |= {
            "every": min(episodes, max(1, round(experiment.every * scale))), "policy": experiment.policy,
            "horizon": experiment.horizon, "evaluate": experiment.evaluate,
        }  # fmt: skip
        if experiment.evaluate == "episodes":
            task["measure"] = experiment.measure
    if experiment.kind == "deep":
        task |= {
            "learner": LEARNER, "algorithm": arm.algorithm or experiment.algorithm,
            "steps": max(1, round(experiment.steps * scale)), "episodes": experiment.episodes,
            "fixed_start": experiment.fixed_start,
        }  # fmt: skip
    if experiment.kind == "prediction" and scale != 1.0:
        task["scale"] = scale
    return task
