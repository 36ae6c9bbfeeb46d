"""Every experiment, by name, in the order in which they are run and shown."""

from __future__ import annotations

import tomllib
from math import prod
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from vpac.algorithms import DEEP
from vpac.errors import UserError, suggestion
from vpac.files import read_bytes
from vpac.lab.experiments import (
    corrected,
    critics,
    evidence,
    forms,
    four_rooms,
    grid_search,
    mujoco,
    puddle_world,
    theorems,
)  # fmt: skip
from vpac.lab.experiments.spec import Arm, Claim, Experiment, Figure, arms_of_grid

THEOREMS = Experiment(
    name="theorems", title="The theorems on trial",
    about="Every published and every corrected gradient against the exact derivative, by linear algebra.",
    kind="theorems", runs=1,
    arms=tuple(Arm(label=world.name, settings={"world": world.name}) for world in theorems.TRIAL_WORLDS),
    figures=(Figure(kind="bars", title="Relative error of each formula in each world"),),
)  # fmt: skip
FRONTIER = Experiment(
    name="four-rooms/frontier", title="Four rooms: the exact frontier",
    about="The best stationary policy that the oracle finds for each price of variance: a bound for learners.",
    kind="frontier", env="vpac/FourRooms-v0",
    settings={
        "gamma": 0.99,
        "psis": [0.0, 0.001, 0.002, 0.003, 0.005, 0.007, 0.01, 0.015, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5],
    },
    runs=1, arms=(Arm(label="oracle"),), figures=(Figure(kind="curves", title="Mean and variance along the frontier"),),
)  # fmt: skip

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        THEOREMS, *four_rooms.EXPERIMENTS, *puddle_world.EXPERIMENTS, *mujoco.EXPERIMENTS, FRONTIER, *critics.EXPERIMENTS,
        *forms.EXPERIMENTS, *corrected.EXPERIMENTS, *grid_search.EXPERIMENTS, *evidence.EXPERIMENTS,
    )
}  # fmt: skip


def chosen(names: tuple[str, ...]) -> list[Experiment]:
    """The experiments of these names, or of a group of them (`four-rooms`); none: all but those run on demand."""
    if not names:
        return [experiment for experiment in EXPERIMENTS.values() if not experiment.on_demand]
    found: dict[str, Experiment] = {}
    for name in names:
        group = {key: e for key, e in EXPERIMENTS.items() if key == name or key.startswith(f"{name}/")}
        if not group:
            near = suggestion(name, EXPERIMENTS) or "; `vpac list experiments` shows them all"
            raise UserError(f"unknown experiment {name!r}{near}")
        found |= group
    return list(found.values())


LARGEST_STUDY_BYTES = 1_000_000
"""Bytes; no study needs more."""
MOST_ARMS = 10_000


def read_toml(path: Path, hint: str = "") -> dict[str, Any]:
    """A TOML file; `hint` is added where there is none."""
    try:
        found = tomllib.loads(read_bytes(path, LARGEST_STUDY_BYTES).decode("utf-8"))
        _check_integers(found)
        return found
    except OSError as error:
        hint = hint if isinstance(error, FileNotFoundError) else ""
        raise UserError(f"cannot read {path}: {error.strerror or error}{hint}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise UserError(f"{path} is not TOML: {error}") from None


def _check_integers(value: Any) -> None:
    """Reject integers beyond 64 bits: TOML does not promise them, and Python may be unable to print them."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError("an integer has more than 64 bits")
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_integers(one)


def read_experiment(path: Path) -> Experiment:
    """Read and check; a message names the place of the first mistake."""
    given = read_toml(path, "; docs/experiments.md has a study to copy")
    grid = given.pop("grid", None)
    if grid is not None:
        given["arms"] = _arms(path, grid, given)
    words = "".join(c if c.isascii() and c.isalnum() else " " for c in path.stem.lower()).split()
    given.setdefault("name", "-".join(words) or "study")
    given.setdefault("title", given["name"])
    arms = given.get("arms")
    named = [
        one.get("algorithm") for one in (given, *(arms if isinstance(arms, list) else ())) if isinstance(one, dict)
    ]
    if {name for name in named if name} <= {algorithm.name for algorithm in DEEP} and any(named):
        given.setdefault("kind", "deep")
    if given["name"] in EXPERIMENTS:
        raise UserError(f"{path}: the name {given['name']!r} is taken by an experiment of ours; choose another")
    try:
        return Experiment.model_validate(given)
    except ValidationError as error:
        raise UserError(f"{path}: {_first(error)}") from None


def _arms(path: Path, grid: Any, given: dict[str, Any]) -> list[dict[str, Any]]:
    """One arm for each combination of the values of `[grid]`."""
    if "arms" in given:
        raise UserError(f"{path}: give either arms or a grid, not both")
    if not isinstance(grid, dict) or not all(isinstance(v, list) and v for v in grid.values()) or not grid:
        raise UserError(f"{path}: grid must hold a list of values for each setting, e.g. psi = [0.0, 0.01]")
    count = prod(len(values) for values in grid.values())
    if count > MOST_ARMS:
        raise UserError(f"{path}: the grid has {count:,} points, expected at most {MOST_ARMS:,}")
    try:
        return [arm.model_dump() for arm in arms_of_grid(grid)]
    except (ValidationError, TypeError, ValueError):
        raise UserError(f"{path}: the values of a grid must be numbers, words or true and false") from None


def _first(error: ValidationError) -> str:
    """The first mistake in words: where, what was expected, the nearest right spelling."""
    mistakes = error.errors(include_url=False)
    mistake = next((m for m in mistakes if m["type"] == "extra_forbidden"), mistakes[0])  # often why one is missing
    where = ".".join(str(part) for part in mistake["loc"])
    if mistake["type"] == "extra_forbidden":
        models: dict[str, type[BaseModel]] = {"arms": Arm, "figures": Figure, "claims": Claim}
        model = models.get(str(mistake["loc"][0]), Experiment) if len(mistake["loc"]) > 1 else Experiment
        known = list(model.model_fields) + (["grid"] if model is Experiment else [])
        word = str(mistake["loc"][-1])
        return f"unknown field {where!r}{suggestion(word, known) or ': expected one of ' + ', '.join(known)}"
    found = "" if mistake["type"] == "missing" else f", got {mistake['input']!r:.60}"
    return f"{where or 'the study'}: {mistake['msg'].removeprefix('Value error, ').lower()}{found}"
