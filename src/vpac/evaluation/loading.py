"""Agents from folders."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

from vpac.errors import UserError, suggestion

__all__ = ["KINDS", "load_agent"]

TABULAR = ("AC", "VPAC", "VAAC", "VAACTD", "OffPolicyAC", "OffPolicyVPAC", "OffPolicyVAAC", "OffPolicyVAACTD")
KINDS: dict[str, str] = dict.fromkeys(TABULAR, "vpac.learners")
"""Where the class of each `"algorithm"` in agent.json lives. Its `load(path, env)` reads the rest of the folder."""


def load_agent(path: str | Path, env: Any = None) -> Any:
    """The agent that was saved to a folder, whatever its kind; nothing in the files is run.

    Args:
        path: the folder with `agent.json`, or one of `vpac train` that holds a single run.
        env: the environment; default: the one that was saved.
    """
    folder = Path(path)
    if not (folder / "agent.json").is_file():
        runs = sorted(p.parent for p in folder.glob("run-*/agent.json"))
        if len(runs) != 1:
            found = f"it holds {len(runs)} runs, name one of them" if runs else "it has no agent.json"
            raise UserError(f"cannot read an agent from {folder}: {found}")
        folder = runs[0]
    try:
        data = json.loads((folder / "agent.json").read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read an agent from {folder}: {error.strerror or error}") from None
    except ValueError as error:
        raise UserError(f"{folder} does not hold an agent: {error}") from None
    name = data.get("algorithm") if isinstance(data, dict) else None
    if not isinstance(name, str) or name not in KINDS:
        raise UserError(
            f"{folder} holds an agent of unknown kind {name!r:.60}: expected one of {', '.join(KINDS)}"
            f"{suggestion(str(name), KINDS)}"
        )
    return getattr(importlib.import_module(KINDS[name]), name).load(folder, env)
