"""A run: one arm of an experiment with one seed. Its name is readable and ends with the hash of its content."""

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

RUN_FORMAT = 1
"""Format of stored runs; raised when the meaning of a setting changes, so that old runs are not taken for new ones."""
LEARNER = 9
"""Version of the PPO family: since 2, the corrected form is that of finite episodes and critics see the time; since 3, Discrete
actions have an entropy bonus; since 4, sums of an update have another order; since 5, episodes go on across checkpoints; since
6, XLA computes on one thread; since 7, ψ has no warm-up unless one is asked for; since 8, learning rates fall twice with a
budget's `keep_mean`; since 9, `weighting="uniform"` corrects the mean error of V."""
HASH = 16
"""Digits of the hash at the end of a run's name."""


def is_run_name(text: str) -> bool:
    """Whether a text has the form of a run's name."""
    return re.fullmatch(rf"[A-Za-z0-9.-]{{0,80}}-[0-9a-f]{{{HASH}}}", text) is not None


def canonical(data: Any) -> str:
    """Data as JSON, the same text for the same data."""
    return json.dumps(data, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True)
class Run:
    """Description of what to run, as plain data. Experiments that ask for the same content share the run."""

    task: dict[str, Any]
    """Kind, environment, algorithm, settings: everything that decides the result, except for the seed."""
    number: int
    """Its index among the arm's runs."""
    seed: int
    """Seed of all randomness in it."""

    @property
    def content(self) -> dict[str, Any]:
        """Everything that decides the result."""
        return {"format": RUN_FORMAT, "task": self.task, "number": self.number, "seed": self.seed}

    @property
    def hash(self) -> str:
        """Hash of the content."""
        return hashlib.sha256(canonical(self.content).encode()).hexdigest()

    @cached_property
    def name(self) -> str:
        """Name that is readable, unique, and safe as a folder name."""
        psi = self.task.get("settings", {}).get("psi")
        words = [self.task.get("algorithm") or self.task["kind"], self.task.get("env", "").rpartition("/")[2]]
        words += ["" if psi is None else f"psi{psi}", f"run{self.number}"]
        text = re.sub(r"[^A-Za-z0-9.]+", "-", "-".join(word for word in words if word))
        return f"{text[:80].strip('-.')}-{self.hash[:HASH]}"

    @classmethod
    def read(cls, content: dict[str, Any]) -> Run:
        """The run with this content."""
        return cls(content["task"], content["number"], content["seed"])


@lru_cache(maxsize=4)
def seeds(seed: int, count: int) -> tuple[int, ...]:
    """Seeds of runs, spawned from an experiment's seed; the first ones do not depend on the count."""
    children = np.random.SeedSequence(seed).spawn(count)
    return tuple(int(child.generate_state(1, np.uint64)[0] >> 1) for child in children)


def runs_of(experiment: Experiment, arm: Arm, count: int, scale: float = 1.0) -> Iterator[Run]:
    """The runs of one arm.

    `scale` multiplies episodes or steps.
    """
    task = _task(experiment, arm, scale)
    for number, seed in enumerate(seeds(experiment.seed, count)):
        yield Run(task, number, seed)


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
