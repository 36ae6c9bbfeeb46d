"""Learners on disk: settings as JSON, numbers as safetensors. Neither can hold code."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from vpac.envs.make import env_from_record, env_to_record, make_env
from vpac.errors import UserError
from vpac.files import read_bytes, read_pair, write_pair
from vpac.sealing import LARGEST, check_format, parse, sealed

if TYPE_CHECKING:
    from vpac.tabular.agents import Learner

FORMAT, OLDER = 2, (1,)
"""Since the second, both files are checked when they are read."""
AGENT, NUMBERS = "agent.json", "weights.safetensors"
WEIGHTS = ("theta", "w", "z", "mean")
L = TypeVar("L", bound="Learner")


def save(learner: Learner, folder: Path) -> Path:
    """Write a learner; what was there before can be read until this one can."""
    from safetensors.numpy import save as as_bytes

    arrays = dict(zip(WEIGHTS, learner.weights, strict=True))
    words = {"words": learner._rng.view(np.int64), "eyes": learner._rollout_rng.view(np.int64)}
    history = {f"history.{name}": column for name, column in learner.history._asdict().items()}
    numbers = {**arrays, **words, **history, "returns": learner.returns}
    if learner._controller is not None:
        numbers |= {f"prices.{name}": column for name, column in learner.prices._asdict().items()}
    data = {
        "format": FORMAT, "algorithm": type(learner).__name__,
        **env_to_record(learner.environment.name, learner.environment.recipe), "seed": learner.seed,
        "options": learner.options.as_dict(), "resets": learner._resets.bit_generator.state,
    }  # fmt: skip
    if learner._controller is not None:
        data["multiplier"] = learner._controller.state._asdict()
    content = as_bytes({name: np.ascontiguousarray(x) for name, x in numbers.items()})
    data["sha256"] = hashlib.sha256(content).hexdigest()
    write_pair(folder / NUMBERS, content, folder / AGENT, sealed(data, indent=1, default=int))
    return folder


def load(kind: type[L], folder: Path, env: Any) -> L:
    """Read a learner back into the state it was saved in."""
    from safetensors import SafetensorError
    from safetensors.numpy import load as from_bytes

    try:
        text = read_bytes(folder / AGENT, LARGEST)
        data = parse(text)
        _check(data, text, kind, folder)
        digest = data.get("sha256")
        content = read_bytes(folder / NUMBERS) if digest is None else read_pair(folder / NUMBERS, str(digest))
        numbers = from_bytes(content)
    except UserError:
        raise
    except OSError as error:
        raise UserError(f"cannot read a learner from {folder}: {error.strerror or error}") from None
    except (ValueError, TypeError, KeyError, SafetensorError) as error:
        raise UserError(f"{folder} does not hold a learner: {error!s:.200}") from None
    try:
        made, arguments = env_from_record(data, env, folder, kind.__name__)
        learner = kind(make_env(made, **arguments) if arguments else made, seed=data["seed"], **data["options"])
        _restore(learner, data, numbers, folder)
    except UserError:
        raise
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        raise UserError(f"{folder} does not hold a learner: {type(error).__name__}: {error!s:.200}") from None
    return learner


def _check(data: Any, text: bytes, kind: type[Learner], folder: Path) -> None:
    """Whether what was read can be a learner of this kind."""
    if not isinstance(data, dict):
        raise UserError(f"{folder} does not hold a learner: agent.json is not an object")
    check_format(text, data, folder / AGENT, FORMAT, OLDER)
    if data["format"] == FORMAT and not isinstance(data.get("sha256"), str):
        raise UserError(f"{folder} does not hold a learner: 'sha256' in agent.json is {data.get('sha256')!r:.60}")
    for name, expected in (("algorithm", str), ("env", str), ("seed", int), ("options", dict), ("resets", dict)):
        if not isinstance(data.get(name), expected):
            raise UserError(f"{folder} does not hold a learner: {name!r} in agent.json is {data.get(name)!r:.60}")
    if isinstance(data["seed"], bool):
        raise UserError(f"{folder} does not hold a learner: 'seed' in agent.json is {data['seed']!r}")
    if data["algorithm"] != kind.__name__:
        raise UserError(f"{folder} holds a {data['algorithm']}, not a {kind.__name__}: use {data['algorithm']}.load")


def _restore(learner: Learner, data: dict[str, Any], numbers: dict[str, Any], folder: Path) -> None:
    from vpac.risk.budget import Multiplier, PricePath
    from vpac.tabular.arrays import History

    for name in (*WEIGHTS, "words", "eyes", "returns"):
        if name not in numbers:
            raise UserError(f"{folder} does not hold a learner: weights.safetensors lacks {name!r}")
    for name, mine in zip(WEIGHTS, learner.weights, strict=True):
        _fits(numbers[name], mine.shape, np.float64, f"{folder}: {name}")
        if not np.isfinite(numbers[name]).all():
            raise UserError(f"{folder}: {name} holds a number that is not finite")
        mine[...] = numbers[name]
    for name, state in (("words", learner._rng), ("eyes", learner._rollout_rng)):
        _fits(numbers[name], state.shape, np.int64, f"{folder} does not hold a learner: {name}")
        state[...] = numbers[name].view(np.uint64)
    learner._resets.bit_generator.state = data["resets"]
    count = numbers["returns"].shape[:1]
    _fits(numbers["returns"], count, np.float64, f"{folder} does not hold a learner: returns")
    unknown = np.full(count, np.nan)  # what older versions did not record
    columns = [numbers.get(f"history.{name}", unknown) for name in History._fields]
    for name, column in zip(History._fields, columns, strict=True):
        _fits(column, count, column.dtype, f"{folder} does not hold a learner: history.{name}")
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
