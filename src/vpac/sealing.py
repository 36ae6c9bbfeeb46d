"""JSON that may have been written by anybody, and JSON that shows whether it is what was written.

A sealed text holds its own checksum: that of the text with a blank in the checksum's place.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from vpac.errors import Newer, UserError

CHECKSUM = "checksum"
BLANK = "." * 64
LARGEST = 2**26
"""Characters of a text that is parsed; parsed data takes some ten times as much memory."""


def parse(content: bytes | str) -> Any:
    """JSON as data; whatever is wrong with it is a `ValueError`."""
    if len(content) > LARGEST:
        raise ValueError(f"it has {len(content):,} bytes, more than {LARGEST:,}")
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def sealed(data: dict[str, Any], **how: Any) -> str:
    """Data as JSON with a checksum of itself; `how` is for `json.dumps`."""
    blank = json.dumps({**data, CHECKSUM: BLANK}, ensure_ascii=False, **how)
    return blank.replace(BLANK, hashlib.sha256(blank.encode()).hexdigest())


def check_seal(content: bytes, data: Any, required: bool = True) -> None:
    """Raise a `ValueError` unless sealed content, parsed to `data`, is what was written. Old formats have no seal."""
    if not isinstance(data, dict):
        raise ValueError("it is not an object")
    if CHECKSUM not in data and not required:
        return
    checksum = str(data.get(CHECKSUM, "")).encode(errors="replace")
    blank = BLANK.encode()
    if len(checksum) != len(blank) or hashlib.sha256(content.replace(checksum, blank)).hexdigest().encode() != checksum:
        raise ValueError("its checksum differs")


def check_format(content: bytes, data: Any, path: Path, newest: int, older: tuple[int, ...]) -> None:
    """Raise a `UserError` unless the file of an agent is in a format that this version reads and, in the newest, sealed; a
    `Newer` if a later version wrote it and not a fault of the disk."""
    found = data.get("format") if isinstance(data, dict) else None
    words = f"{path.parent} is in format {found!r:.40}: this version reads formats up to {newest}"
    later = isinstance(found, int) and found > newest
    if found not in (newest, *older) and not later:
        raise UserError(words)
    try:
        check_seal(content, data, required=found != 1)
    except ValueError as error:
        raise UserError(f"{path} is not what was written: {error}") from None
    if later:
        raise Newer(f"{words}, use a newer version")
