"""Learners on disk: what an agent's folder holds of a tabular or linear learner."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from vpac.envs.make import env_from_record, env_to_record, make_env
from vpac.errors import UserError
from vpac.saved import TABULAR_FORMAT, SavedAgent, reading, write_agent

if TYPE_CHECKING:
    from vpac.tabular.agents import Learner

WEIGHTS = ("theta", "w", "z", "mean")
L = TypeVar("L", bound="Learner")


def save(learner: Learner, folder: Path) -> Path:
    """Write a learner; what was there before can be read until this one can."""
    arrays = dict(zip(WEIGHTS, learner.weights, strict=True))
    arrays |= {
        "words": learner._rng.view(np.int64),
        "eyes": learner._rollout_rng.view(np.int64),
        "returns": learner.returns,
    }
    arrays |= {f"history.{name}": column for name, column in learner.history._asdict().items()}
    data = {
        "format": TABULAR_FORMAT, "algorithm": type(learner).__name__,
        **env_to_record(learner.environment.name, learner.environment.recipe), "seed": learner.seed,
        "options": learner.options.as_dict(), "resets": learner._resets.bit_generator.state,
    }  # fmt: skip
    if learner._controller is not None:
        arrays |= {f"prices.{name}": column for name, column in learner.prices._asdict().items()}
        data["multiplier"] = learner._controller.state._asdict()
    return write_agent(folder, data, arrays, indent=1, default=int)


def load(kind: type[L], folder: Path, env: Any) -> L:
    """Read a learner back into the state it was saved in."""
    return restore(kind, SavedAgent.read(folder), env)


def restore(kind: type[L], saved: SavedAgent, env: Any) -> L:
    """The learner of a folder that was read."""
    saved.check_class(kind.__name__)
    data, folder = saved.data, saved.folder
    numbers = saved.weights()
    with reading(folder):
        made, arguments = env_from_record(data, env, folder, kind.__name__)
        learner = kind(make_env(made, **arguments) if arguments else made, seed=data["seed"], **data["options"])
        _restore(learner, data, numbers, folder)
    return learner


def _restore(learner: Learner, data: dict[str, Any], numbers: dict[str, Any], folder: Path) -> None:
    from vpac.risk.budget import Multiplier, PricePath
    from vpac.tabular.arrays import History

    for name in (*WEIGHTS, "words", "eyes", "returns"):
        if name not in numbers:
            raise UserError(f"{folder} does not hold an agent: weights.safetensors lacks {name!r}")
    for name, mine in zip(WEIGHTS, learner.weights, strict=True):
        _fits(numbers[name], mine.shape, np.float64, f"{folder}: {name}")
        if not np.isfinite(numbers[name]).all():
            raise UserError(f"{folder}: {name} holds a number that is not finite")
        mine[...] = numbers[name]
    for name, state in (("words", learner._rng), ("eyes", learner._rollout_rng)):
        _fits(numbers[name], state.shape, np.int64, f"{folder} does not hold an agent: {name}")
        state[...] = numbers[name].view(np.uint64)
    learner._resets.bit_generator.state = data["resets"]
    count = numbers["returns"].shape[:1]
    _fits(numbers["returns"], count, np.float64, f"{folder} does not hold an agent: returns")
    unknown = np.full(count, np.nan)  # what older versions did not record
    columns = [numbers.get(f"history.{name}", unknown) for name in History._fields]
    for name, column in zip(History._fields, columns, strict=True):
        _fits(column, count, column.dtype, f"{folder} does not hold an agent: history.{name}")
    learner._past = [(History(*columns), numbers["returns"])]
    learner._episodes = len(numbers["returns"])
    if learner._controller is not None:
        numbers.setdefault(
            "prices.error", np.full_like(numbers["prices.at"], np.nan)
        )  # older versions did not record it
        path = zip(*(numbers[f"prices.{name}"].tolist() for name in PricePath._fields), strict=True)
        learner._controller.rows = [(float(at), float(psi), float(variance), float(e)) for at, psi, variance, e in path]
        learner._controller.state = Multiplier.read(data["multiplier"])


def _fits(array: Any, shape: tuple[int, ...], kind: Any, what: str) -> None:
    """Compiled code asks no questions, so arrays are looked at here."""
    if array.shape != shape or array.dtype != kind:
        raise UserError(
            f"{what} has shape {list(array.shape)} of {array.dtype}, the environment needs {list(shape)} of {np.dtype(kind)}"
        )
