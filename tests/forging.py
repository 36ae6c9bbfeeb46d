"""Forged files with valid checksums and wrong content."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from vpac.files import sealed


def forge(
    folder: Path, changes: dict | None = None, drop: str = "", weights: bytes | None = None, what: str = "agent"
) -> Path:
    """Change `agent.json` (or `policy.json`) and its weights so that all checksums are good again."""
    note, numbers = (
        folder / f"{what}.json",
        folder / ("weights.safetensors" if what == "agent" else f"{what}.safetensors"),
    )
    data = json.loads(note.read_text(encoding="utf-8"))
    if weights is not None:
        numbers.write_bytes(weights)
        data["sha256"] = hashlib.sha256(weights).hexdigest()
    data = {key: value for key, value in (data | (changes or {})).items() if key not in ("checksum", drop)}
    note.write_text(sealed(data), encoding="utf-8")
    return folder
