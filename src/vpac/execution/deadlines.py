"""Time limits of runs on a Ray cluster: a task that takes longer is cancelled, and its worker killed.

Time counts from when a worker has begun with a run, which it notes in the cluster's own small store of keys: a run that waits
for a free core is not late. The driver looks once a second.
"""

from __future__ import annotations

import time
import uuid
from typing import Any

__all__ = ["Deadlines", "note_beginning"]

LOOK = 1.0
"""Seconds between two looks."""


class Deadlines:
    """Which tasks are under way for how long.

    Args:
        ray: the module, connected.
        seconds: how long each may take.
    """

    def __init__(self, ray: Any, seconds: float) -> None:
        self.seconds = seconds
        self.late: set[str] = set()
        """Names of runs whose tasks were cancelled."""
        self._ray, self._session, self._looked = ray, f"vpac-{uuid.uuid4().hex}", time.monotonic()
        self._keys: dict[str, str] = {}
        self._ages: dict[str, float] = {}

    def expect(self, name: str) -> str:
        """A run is submitted; returns the key that its worker is to note."""
        self.forget(name)
        self._keys[name] = f"{self._session}-{uuid.uuid4().hex}"
        return self._keys[name]

    def forget(self, name: str) -> None:
        """Its task has ended."""
        from ray.experimental.internal_kv import _internal_kv_del

        key = self._keys.pop(name, None)
        if key is not None and self._ages.pop(key, None) is not None:
            _internal_kv_del(key)

    def look(self, refs: dict[str, Any]) -> None:
        """Cancel what is late. Only time in which the driver was awake counts."""
        from ray.experimental.internal_kv import _internal_kv_list

        now = time.monotonic()
        passed = min(now - self._looked, 2.0 * LOOK)
        if passed < LOOK:
            return
        self._looked = now
        begun = {bytes(key).decode() for key in _internal_kv_list(self._session)}
        for name, key in self._keys.items():
            if key not in begun:
                continue
            self._ages[key] = self._ages.get(key, -passed) + passed
            if self._ages[key] > self.seconds and name in refs and name not in self.late:
                self.late.add(name)
                self._ray.cancel(refs[name], force=True)


def note_beginning(key: str) -> None:
    """A worker begins with a run; no key: there is no time limit."""
    if key:
        from ray.experimental.internal_kv import _internal_kv_put

        _internal_kv_put(key, b"")
