"""Reading what a user gives: policy files and KEY=VALUE arguments. Nothing that is read is ever run."""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vpac.errors import UserError, suggestion
from vpac.files import read_bytes
from vpac.typing import FloatArray

if TYPE_CHECKING:
    from vpac.envs.finite_mdp import FiniteMDP
    from vpac.envs.make import EnvOverrides

__all__ = ["gather", "key_values", "read_policy", "wanted", "wrappers"]

WORDS = ("uniform", "greedy")
LARGEST = 2**28
"""Bytes of a policy's file."""


def read_policy(name: str, mdp: FiniteMDP, gamma: float) -> FloatArray:
    """A policy by name (uniform, greedy) or from a file that holds π[s, a]."""
    from vpac.oracle import optimal_policy, uniform
    from vpac.oracle.policies import check_policy

    if name == "uniform":
        return uniform(mdp)
    if name == "greedy":
        return optimal_policy(mdp, gamma)
    path = Path(name)
    if not path.suffix and not path.exists():
        raise UserError(f"unknown policy {name!r}: expected uniform, greedy or a file{suggestion(name, WORDS)}")
    found = _read_array(path)
    if np.ndim(found) != 2:
        raise UserError(f"{path} must hold one policy [states, actions], got an array of shape {list(np.shape(found))}")
    return check_policy(mdp, found, f"the policy in {path}")


def _read_array(path: Path) -> Any:
    if path.suffix not in (".npy", ".json", ".csv"):
        raise UserError(f"cannot read a policy from {path}: expected a .npy, .json or .csv file")
    try:
        content = read_bytes(path, LARGEST)
        if path.suffix == ".npy":
            return np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
        text = content.decode("utf-8")
        if path.suffix == ".csv":
            return np.array([[float(x) for x in line.split(",")] for line in text.splitlines() if line.strip()])
        return np.asarray(json.loads(text), np.float64)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None
    except (TypeError, ValueError, EOFError, RecursionError, MemoryError) as error:
        raise UserError(f"{path} does not hold an array of numbers: {error}") from None


def key_values(pairs: Sequence[str]) -> dict[str, Any]:
    """["slip=0.1", "map_name=8x8"] → {"slip": 0.1, "map_name": "8x8"}: values are JSON where they can be, else text."""
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.isidentifier():
            raise UserError(f"cannot read {pair!r}: expected KEY=VALUE, for example slip=0.1")
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = {"True": True, "False": False, "None": None}.get(text, text)
        found[key] = tuple(value) if isinstance(value, list) else value
    return found


def wrappers(words: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
    """["RewardNoise", "std=2", "my.module:Other"] → [("RewardNoise", {"std": 2}), ("my.module:Other", {})]."""
    found: list[tuple[str, list[str]]] = []
    for word in words:
        if "=" not in word:
            found.append((word, []))
        elif found:
            found[-1][1].append(word)
        else:
            raise UserError(f"--wrap begins with {word!r}: expected a wrapper, for example --wrap RewardNoise std=2")
    return [(path, key_values(pairs)) for path, pairs in found]


def wanted(verb: str, run: str, env: str | None, arguments: Sequence[str], wrap: Sequence[str]) -> EnvOverrides:
    """Where a run is to act, by --env, --set and --wrap of a verb; `--wrap none` is without wrappers."""
    from vpac.envs.make import EnvOverrides

    around = None if not wrap else [] if list(wrap) == ["none"] else wrappers(wrap)
    return EnvOverrides(env, key_values(arguments), around, f"vpac {verb} {shlex.quote(run)}")


def gather(arguments: Sequence[str], options: Sequence[str]) -> list[str]:
    """Join the values of an option that is given several times: `--set a=1 --set b=2` is `--set a=1 b=2`."""
    values: dict[str, list[str]] = {option: [] for option in options}
    others: list[str] = []
    left, current = list(arguments), ""
    while left:
        word = left.pop(0)
        name, equals, value = word.partition("=")
        if name in values:
            current = name
            values[name] += [value] if equals else left[:1]
            left = left if equals else left[1:]
        elif current and "=" in word and not word.startswith("-"):
            values[current].append(word)
        else:
            current = ""
            others.append(word)
    return others + [word for name, found in values.items() if found for word in (name, *found)]
