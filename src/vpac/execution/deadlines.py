"""Signs of life and time limits of runs on a Ray cluster: a worker that stands still is killed, a task that is late cancelled.

A worker notes in the cluster's own small store of keys that it has begun with a run, and again every so often. Time counts from
the first note: a run that waits for a free core is not late. Ray itself does not see a process that is stopped, or that the
machine does not wake any more; told to cancel its task, it kills it after five seconds.

Of a run that was never heard of nobody knows whether it waits for a free core or its worker stopped before the first note. It
is submitted anew, which costs a run that waits nothing; each time twice as much silence is borne, for machines that are slow.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

__all__ = ["Deadlines", "beating"]

LOOK = 1.0
"""Seconds between two looks, if there is a time limit."""
BEATS = 6
"""Signs of life in the time after which a worker without any counts as hung; without a time limit as many looks."""


@dataclass
class _Seen:
    sign: str = ""
    """The last sign of life; empty: there was none yet."""
    age: float = 0.0
    """Seconds since the first."""
    silent: float = 0.0
    """Seconds since the last, or since it was submitted."""

    def count(self, passed: float, sign: str) -> None:
        """So many seconds have passed, and this is the sign now. One that is gone was taken back when the run was done; that
        its task has ended is yet to come."""
        self.age += passed if self.sign else 0.0
        self.silent = 0.0 if sign and sign != self.sign else self.silent + passed
        self.sign = sign or self.sign


class Deadlines:
    """Which tasks are under way, for how long, and when their workers were last heard of.

    Args:
        ray: the module, connected.
        seconds: how long each may take; None: as long as it likes.
        silence: seconds without a sign of life after which a worker is killed.
    """

    def __init__(self, ray: Any, seconds: float | None, silence: float) -> None:
        self.seconds, self.silence = seconds, silence
        self.every = silence / BEATS
        """Seconds between two signs of life."""
        self.pause = self.every if seconds is None else min(LOOK, self.every)
        """Seconds between two looks."""
        self.late: set[str] = set()
        """Names of runs whose tasks were cancelled."""
        self.hung: set[str] = set()
        """Names of runs whose worker was heard of, and now no more."""
        self.unheard: dict[str, int] = {}
        """Names of runs whose worker was never heard of, and how often their task was cancelled for it."""
        self.dropped: set[str] = set()
        """Those of them whose task was cancelled and not yet submitted anew."""
        self._ray, self._session, self._looked = ray, f"vpac-{uuid.uuid4().hex}", time.monotonic()
        self._keys: dict[str, str] = {}
        self._seen: dict[str, _Seen] = {}

    def expect(self, name: str) -> str:
        """A run is submitted; returns the key under which its worker is to give signs of life."""
        self._keys[name], self._seen[name] = f"{self._session}-{uuid.uuid4().hex}", _Seen()
        for names in (self.hung, self.late, self.dropped):
            names.discard(name)
        return self._keys[name]

    def forget(self, name: str) -> None:
        """Its task has ended."""
        del self._keys[name], self._seen[name]
        self.unheard.pop(name, None)

    def look(self, refs: dict[str, Any]) -> None:
        """Cancel what is late, kill what is silent. Only time in which the driver was awake counts."""
        now = time.monotonic()
        passed = min(now - self._looked, 2.0 * self.pause)
        if passed < self.pause:
            return
        self._looked = now
        try:
            signs = self._signs()
        except Exception:  # the cluster's head may be busy: nothing is known of anybody
            return
        for name in self._keys.keys() & refs.keys():
            seen, times = self._seen[name], self.unheard.get(name, 0)
            seen.count(passed, signs.get(self._keys[name], ""))
            if self.seconds is not None and seen.age > self.seconds and name not in self.late:
                self.late.add(name)
            elif seen.silent > self.silence * (1 if seen.sign else 2**times):
                seen.silent = 0.0
                if seen.sign:
                    self.hung.add(name)
                else:
                    self.unheard[name] = times + 1
                    self.dropped.add(name)
            else:
                continue
            self._ray.cancel(refs[name], force=True)

    def close(self) -> None:
        """Nothing is left in the cluster's store of keys."""
        from ray.experimental.internal_kv import _internal_kv_del

        with suppress(Exception):  # there may be no cluster any more
            _internal_kv_del(self._session, del_by_prefix=True)

    def _signs(self) -> dict[str, str]:
        from ray.experimental.internal_kv import _internal_kv_list

        found = (bytes(entry).decode().partition("/") for entry in _internal_kv_list(self._session))
        return {key: sign for key, _, sign in sorted(found)}


@contextmanager
def beating(key: str, every: float) -> Iterator[None]:
    """Signs of life every so many seconds, from now on; no key: nobody looks."""
    if not key:
        yield
        return
    from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_put

    over = threading.Event()
    with suppress(Exception):  # the cluster's head may be busy
        _internal_kv_put(f"{key}/{0:09d}", b"")

    def beat() -> None:
        number = 0
        while not over.wait(every):
            with suppress(Exception):
                _internal_kv_put(f"{key}/{number + 1:09d}", b"")
                _internal_kv_del(f"{key}/{number:09d}")
                number += 1

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        with suppress(Exception):
            _internal_kv_del(key, del_by_prefix=True)
