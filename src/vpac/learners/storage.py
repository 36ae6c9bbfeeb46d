"""Learners on disk: settings as JSON, numbers as safetensors. Neither can hold code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from vpac.errors import UserError

if TYPE_CHECKING:
    from vpac.learners.learner import Learner

__all__ = ["load", "save"]

FORMAT = 1
L = TypeVar("L", bound="Learner")


def save(learner: Learner, folder: Path) -> Path:
    """Write a learner; each file is whole or not there."""
    from safetensors.numpy import save_file

    from vpac.files import write_atomically, write_text

    arrays = dict(zip(("theta", "w", "z", "mean"), learner.weights, strict=True))
    words = {"words": learner._words.view(np.int64), "eyes": learner._eyes.view(np.int64)}
    history = {f"history.{name}": column for name, column in learner.history._asdict().items()}
    numbers = {**arrays, **words, **history, "returns": learner.returns}
    data = {
        "format": FORMAT, "algorithm": type(learner).__name__, "env": learner.sight.name, "seed": learner.seed,
        "options": learner.options.as_dict(), "resets": learner._resets.bit_generator.state,
    }  # fmt: skip
    plain = {name: np.ascontiguousarray(x) for name, x in numbers.items()}
    write_atomically(folder / "weights.safetensors", lambda path: save_file(plain, path))
    write_text(folder / "agent.json", json.dumps(data, indent=1, default=int) + "\n")
    return folder


def load(kind: type[L], folder: Path, env: Any) -> L:
    """Read a learner back into the state it was saved in."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        data = json.loads((folder / "agent.json").read_text(encoding="utf-8"))
        numbers = load_file(folder / "weights.safetensors")
    except OSError as error:
        raise UserError(f"cannot read a learner from {folder}: {error.strerror or error}") from None
    except (ValueError, SafetensorError) as error:
        raise UserError(f"{folder} does not hold a learner: {error}") from None
    if data.get("format") != FORMAT:
        raise UserError(f"{folder} is in format {data.get('format')!r}: this version reads format {FORMAT}")
    if data["algorithm"] != kind.__name__:
        raise UserError(f"{folder} holds a {data['algorithm']}, not a {kind.__name__}: use {data['algorithm']}.load")
    learner = kind(data["env"] if env is None else env, seed=data["seed"], **data["options"])
    _restore(learner, data, numbers, folder)
    return learner


def _restore(learner: Learner, data: dict[str, Any], numbers: dict[str, Any], folder: Path) -> None:
    from vpac.learners.state import History

    for name, mine in zip(("theta", "w", "z", "mean"), learner.weights, strict=True):
        if numbers[name].shape != mine.shape:
            raise UserError(
                f"{folder}: {name} has shape {list(numbers[name].shape)}, the environment needs {list(mine.shape)}"
            )
        mine[...] = numbers[name]
    learner._words[...] = numbers["words"].view(np.uint64)
    learner._eyes[...] = numbers["eyes"].view(np.uint64)
    learner._resets.bit_generator.state = data["resets"]
    unknown = np.full(len(numbers["returns"]), np.nan)  # what older versions did not record
    columns = (numbers.get(f"history.{name}", unknown) for name in History._fields)
    learner._past = [(History(*columns), numbers["returns"])]
