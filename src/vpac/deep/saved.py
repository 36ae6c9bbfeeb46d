"""What a saved agent says of itself, read without JAX."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vpac.errors import UserError

__all__ = ["AGENT", "FORMAT", "read_agent"]

FORMAT = 1
AGENT = "agent.json"
EXPECTED = {
    "algorithm": str, "env": str, "arguments": dict | None, "seed": int, "options": dict, "counters": dict, "generators": dict,
    "history": dict, "recent": list, "sha256": str,
}  # fmt: skip


def read_agent(folder: Path) -> dict[str, Any]:
    """agent.json, checked."""
    path = folder / AGENT
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read an agent from {folder}: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        raise UserError(f"{path} is not what was written: it is not JSON") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        found = data.get("format") if isinstance(data, dict) else None
        raise UserError(f"{folder} is in format {found!r:.40}: this version reads format {FORMAT}")
    for name, kind in EXPECTED.items():
        if not isinstance(data.get(name), kind):
            raise UserError(f"{folder} does not hold an agent: {name!r} in {AGENT} is {data.get(name)!r:.60}")
    return data
