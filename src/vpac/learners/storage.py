"""Learners on disk: settings as JSON, numbers as safetensors. Neither can hold code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from vpac.envs.making import make_env
from vpac.errors import UserError

if TYPE_CHECKING:
    from vpac.learners.learner import Learner

__all__ = ["load", "save"]

FORMAT = 1
WEIGHTS = ("theta", "w", "z", "mean")
L = TypeVar("L", bound="Learner")


def save(learner: Learner, folder: Path) -> Path:
    """Write a learner; each file is whole or not there."""
    from safetensors.numpy import save_file

    from vpac.files import write_atomically, write_text

    arrays = dict(zip(WEIGHTS, learner.weights, strict=True))
    words = {"words": learner._words.view(np.int64), "eyes": learner._eyes.view(np.int64)}
    history = {f"history.{name}": column for name, column in learner.history._asdict().items()}
    numbers = {**arrays, **words, **history, "returns": learner.returns}
    if learner._holder is not None:
        numbers |= {f"prices.{name}": column for name, column in learner.prices._asdict().items()}
    data = {
        "format": FORMAT, "algorithm": type(learner).__name__, "env": learner.sight.name,
        "arguments": _plain(learner.sight.arguments), "seed": learner.seed,
        "options": learner.options.as_dict(), "resets": learner._resets.bit_generator.state,
    }  # fmt: skip
    if learner._holder is not None:
        data["multiplier"] = learner._holder.state._asdict()
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
    _check(data, kind, folder)
    made = _environment(data, folder) if env is None else env
    try:
        learner = kind(made, seed=data["seed"], **data["options"])
        _restore(learner, data, numbers, folder)
    except UserError:
        raise
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise UserError(f"{folder} does not hold a learner: {type(error).__name__}: {error}") from None
    return learner


def _plain(arguments: dict[str, Any] | None) -> dict[str, Any] | None:
    """An environment's arguments, if JSON can write them."""
    try:
        json.dumps(arguments, allow_nan=False)
    except (TypeError, ValueError):
        return None
    return arguments


def _check(data: Any, kind: type[Learner], folder: Path) -> None:
    """Whether what was read can be a learner of this kind."""
    if not isinstance(data, dict):
        raise UserError(f"{folder} does not hold a learner: agent.json is not an object")
    if data.get("format") != FORMAT:
        raise UserError(f"{folder} is in format {data.get('format')!r}: this version reads format {FORMAT}")
    for name, expected in (("algorithm", str), ("env", str), ("seed", int), ("options", dict), ("resets", dict)):
        if not isinstance(data.get(name), expected):
            raise UserError(f"{folder} does not hold a learner: {name!r} in agent.json is {data.get(name)!r:.60}")
    if data["algorithm"] != kind.__name__:
        raise UserError(f"{folder} holds a {data['algorithm']}, not a {kind.__name__}: use {data['algorithm']}.load")


def _environment(data: dict[str, Any], folder: Path) -> Any:
    """The environment it was saved with. Older versions did not write its arguments down."""
    arguments = data.get("arguments", {})
    if not isinstance(arguments, dict) or ":" in data["env"]:  # an import path: a file must not say what is imported
        raise UserError(
            f"{folder} does not say how its environment, {data['env']}, was made: pass it, {data['algorithm']}.load(path, env)"
        )
    return make_env(data["env"], **arguments)


def _restore(learner: Learner, data: dict[str, Any], numbers: dict[str, Any], folder: Path) -> None:
    from vpac.learners.state import History
    from vpac.risk.budget import Multiplier
    from vpac.risk.budget_report import PricePath

    for name in (*WEIGHTS, "words", "eyes", "returns"):
        if name not in numbers:
            raise UserError(f"{folder} does not hold a learner: weights.safetensors lacks {name!r}")
    for name, mine in zip(WEIGHTS, learner.weights, strict=True):
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
    learner._episodes = len(numbers["returns"])
    if learner._holder is not None:
        path = zip(*(numbers[f"prices.{name}"].tolist() for name in PricePath._fields), strict=True)
        learner._holder.rows = [(float(at), float(psi), float(variance)) for at, psi, variance in path]
        learner._holder.state = Multiplier.read(data["multiplier"])
