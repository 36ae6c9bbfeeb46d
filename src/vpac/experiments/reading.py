"""A study of one's own, from a TOML file."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from vpac.errors import UserError, suggestion
from vpac.experiments.catalogue import EXPERIMENTS
from vpac.experiments.spec import Arm, Claim, Experiment, Figure, arms_of_grid
from vpac.files import read_bytes

__all__ = ["read_experiment"]

LARGEST = 1_000_000
"""Bytes; no study needs more."""
MOST_ARMS = 10_000


def read_experiment(path: Path) -> Experiment:
    """Read and check; a message names the place of the first mistake."""
    try:
        given = tomllib.loads(read_bytes(path, LARGEST).decode("utf-8"))
    except OSError as error:
        hint = "; docs/experiments.md has a study to copy" if isinstance(error, FileNotFoundError) else ""
        raise UserError(f"cannot read {path}: {error.strerror or error}{hint}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{path} is not TOML: {error}") from None
    grid = given.pop("grid", None)
    if grid is not None:
        given["arms"] = _arms(path, grid, given)
    given.setdefault("name", _name(path))
    given.setdefault("title", given["name"])
    if given["name"] in EXPERIMENTS:
        raise UserError(f"{path}: the name {given['name']!r} is taken by an experiment of ours; choose another")
    try:
        return Experiment.model_validate(given)
    except ValidationError as error:
        raise UserError(f"{path}: {_first(error)}") from None


def _arms(path: Path, grid: Any, given: dict[str, Any]) -> list[dict[str, Any]]:
    """`[grid]` stands for one arm for each combination of its values."""
    if "arms" in given:
        raise UserError(f"{path}: give either arms or a grid, not both")
    if not isinstance(grid, dict) or not all(isinstance(v, list) and v for v in grid.values()) or not grid:
        raise UserError(f"{path}: grid must hold a list of values for each setting, e.g. psi = [0.0, 0.01]")
    count = 1
    for values in grid.values():
        count *= len(values)
    if count > MOST_ARMS:
        raise UserError(f"{path}: the grid has {count:,} points, expected at most {MOST_ARMS:,}")
    try:
        return [arm.model_dump() for arm in arms_of_grid(grid)]
    except (ValidationError, TypeError, ValueError):
        raise UserError(f"{path}: the values of a grid must be numbers, words or true and false") from None


def _name(path: Path) -> str:
    return "-".join("".join(c if c.isascii() and c.isalnum() else " " for c in path.stem.lower()).split()) or "study"


def _first(error: ValidationError) -> str:
    """The first mistake in words: where, what was expected, the nearest right spelling."""
    mistakes = error.errors(include_url=False)
    mistake = next(
        (m for m in mistakes if m["type"] == "extra_forbidden"), mistakes[0]
    )  # a slip explains what is missing
    where = ".".join(str(part) for part in mistake["loc"])
    if mistake["type"] == "extra_forbidden":
        models: dict[str, type[BaseModel]] = {"arms": Arm, "figures": Figure, "claims": Claim}
        model: type[BaseModel] = (
            models.get(str(mistake["loc"][0]), Experiment) if len(mistake["loc"]) > 1 else Experiment
        )
        known = list(model.model_fields) + (["grid"] if model is Experiment else [])
        word = str(mistake["loc"][-1])
        return f"unknown field {where!r}{suggestion(word, known) or ': expected one of ' + ', '.join(known)}"
    found = "" if mistake["type"] == "missing" else f", got {mistake['input']!r:.60}"
    return f"{where or 'the study'}: {mistake['msg'].removeprefix('Value error, ').lower()}{found}"
