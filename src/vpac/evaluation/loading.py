"""Agents from folders."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from vpac.errors import UserError, suggestion
from vpac.files import read_bytes
from vpac.sealing import LARGEST, parse

__all__ = ["KINDS", "described", "load_agent"]

TABULAR = ("AC", "MVPI", "VPAC", "VAAC", "VAACTD", "OffPolicyAC", "OffPolicyVPAC", "OffPolicyVAAC", "OffPolicyVAACTD")
DEEP = ("PPO", "VPACPPO", "VAACPPO", "MVPIPPO")
KINDS: dict[str, str] = dict.fromkeys(TABULAR, "vpac.learners") | dict.fromkeys(DEEP, "vpac.deep")
"""Where the class of each `"algorithm"` in agent.json lives. Its `load(path, env)` reads the rest of the folder."""


def load_agent(path: str | Path, env: Any = None) -> Any:
    """The agent that was saved to a folder, whatever its kind; of the PPO family, its policy. Nothing in the files is run.

    Args:
        path: the folder with `agent.json`, or one of `vpac train` that holds a single run.
        env: the environment, or its name as in the file, which then has the arguments and wrappers of training; default: the
            one that was saved.
    """
    folder = _folder(Path(path))
    name = described(folder).get("algorithm")
    if not isinstance(name, str) or name not in KINDS:
        raise UserError(
            f"{folder} holds an agent of unknown kind {name!r:.60}: expected one of {', '.join(KINDS)}"
            f"{suggestion(str(name), KINDS)}"
        )
    if name in DEEP:  # its policy is all that acts, and needs neither JAX nor the environment it was learned in
        from vpac.deep.policy import load_policy

        return load_policy(folder)
    return getattr(importlib.import_module(KINDS[name]), name).load(folder, env)


def _folder(folder: Path) -> Path:
    """The folder itself, or that of the only run in it."""
    if (folder / "agent.json").is_file():
        return folder
    runs = sorted(p.parent for p in folder.glob("run-*/agent.json"))
    if len(runs) != 1:
        found = f"it holds {len(runs)} runs, name one of them" if runs else "it has no agent.json"
        raise UserError(f"cannot read an agent from {folder}: {found}")
    return runs[0]


def described(folder: Path) -> dict[str, Any]:
    """What agent.json says."""
    try:
        data = parse(read_bytes(folder / "agent.json", LARGEST))
    except OSError as error:
        raise UserError(f"cannot read an agent from {folder}: {error.strerror or error}") from None
    except ValueError as error:
        raise UserError(f"{folder} does not hold an agent: {error}") from None
    if not isinstance(data, dict):
        raise UserError(f"{folder} does not hold an agent: agent.json is not an object")
    return data
