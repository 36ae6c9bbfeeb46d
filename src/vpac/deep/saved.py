"""What a saved agent says of itself, read without JAX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vpac.errors import UserError
from vpac.files import read_bytes
from vpac.sealing import LARGEST, check_format, parse

__all__ = ["AGENT", "FORMAT", "read_agent"]

FORMAT, OLDER = 3, (1, 2)
"""Since the second, agent.json is sealed; since the third, critics see the time."""
AGENT = "agent.json"
EXPECTED = {
    "algorithm": str, "env": str, "arguments": dict | None, "seed": int, "options": dict, "counters": dict, "generators": dict,
    "history": dict, "recent": list, "sha256": str,
}  # fmt: skip


def read_agent(folder: Path) -> dict[str, Any]:
    """agent.json, checked."""
    path = folder / AGENT
    try:
        text = read_bytes(path, LARGEST)
        data: dict[str, Any] = parse(text)
    except OSError as error:
        raise UserError(f"cannot read an agent from {folder}: {error.strerror or error}") from None
    except ValueError:
        raise UserError(f"{path} is not what was written: it is not JSON") from None
    check_format(text, data, path, FORMAT, OLDER)
    for name, kind in EXPECTED.items():
        if not isinstance(data.get(name), kind):
            raise UserError(f"{folder} does not hold an agent: {name!r} in {AGENT} is {data.get(name)!r:.60}")
    return data
