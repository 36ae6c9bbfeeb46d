"""Is there anybody at an address? Ray itself takes more than a minute to say no."""

from __future__ import annotations

import os
import re
import socket

from vpac.errors import UserError

__all__ = ["check_address"]

PATIENCE = 5.0
"""Seconds for a machine to answer."""
NAMES = ("auto", "local")
"""Addresses that mean this machine."""


def check_address(address: str | None) -> None:
    """Raise a `UserError` if an address of a Ray cluster, or else `$RAY_ADDRESS`, is none, or nobody listens there."""
    given = address or os.environ.get("RAY_ADDRESS") or "auto"
    if given in NAMES:
        return
    found = re.fullmatch(r"(?:ray://)?(?:\[([^\[\]]+)\]|([^\[\]:/?#@\s]+)):([0-9]{1,5})", given)
    if found is None or not 0 < int(found[3]) < 2**16:
        raise UserError(f"{given!r:.200} is no address of a Ray cluster: expected HOST:PORT, ray://HOST:PORT or auto")
    host, port = found[1] or found[2], int(found[3])
    try:
        socket.create_connection((host, port), PATIENCE).close()
    except (OSError, UnicodeError) as error:
        why = f"no answer in {PATIENCE:g} s" if isinstance(error, TimeoutError) else getattr(error, "strerror", None)
        raise UserError(
            f"cannot reach a Ray cluster at {given}: {why or error} ({host}, port {port}). Start one there with `ray start "
            f"--head --port {port}`, mend --address or $RAY_ADDRESS, or leave both out for one on this machine"
        ) from None
