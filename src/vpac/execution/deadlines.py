"""Signs of life and time limits of runs on a Ray cluster: a worker that stands still is killed, a task that is late cancelled.

A worker notes in the cluster's own small store of keys that it has begun with a run, and again every so often. Time counts from
the first note: a run that waits for a free core is not late. Ray itself does not see a process that is stopped, or that the
machine does not wake any more, and cannot tell it to end; a task on its own machine kills it, and Ray then sees it dead.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Deadlines", "beating"]

LOOK = 1.0
"""Seconds between two looks, if there is a time limit."""
BEATS = 6
"""Signs of life in the time after which a worker without any counts as hung; without a time limit as many looks."""


@dataclass
class _Seen:
    sign: str
    """The last sign of life."""
    age: float = 0.0
    """Seconds since the first."""
    silent: float = 0.0
    """Seconds since the last."""


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
        """Names of runs whose worker was killed."""
        self._ray, self._session, self._looked = ray, f"vpac-{uuid.uuid4().hex}", time.monotonic()
        self._keys: dict[str, str] = {}
        self._seen: dict[str, _Seen] = {}
        self._killing: dict[str, Any] = {}

    def expect(self, name: str) -> str:
        """A run is submitted; returns the key under which its worker is to give signs of life."""
        self._keys[name] = f"{self._session}-{uuid.uuid4().hex}"
        return self._keys[name]

    def forget(self, name: str) -> None:
        """Its task has ended."""
        key = self._keys.pop(name, "")
        self._seen.pop(key, None)
        self._killing.pop(key, None)

    def look(self, refs: dict[str, Any]) -> None:
        """Cancel what is late, kill what is silent. Only time in which the driver was awake counts."""
        now = time.monotonic()
        passed = min(now - self._looked, 2.0 * self.pause)
        if passed < self.pause:
            return
        self._looked = now
        signs = self._signs()
        for name, key in self._keys.items():
            if key not in signs or name not in refs:
                continue
            seen = self._seen.setdefault(key, _Seen("", -passed))
            seen.age += passed
            seen.silent = 0.0 if signs[key] != seen.sign else seen.silent + passed
            seen.sign = signs[key]
            if self.seconds is not None and seen.age > self.seconds and name not in self.late:
                self.late.add(name)
                self._ray.cancel(refs[name], force=True)
            if seen.silent > self.silence:
                seen.silent = 0.0
                self.hung.add(name)
                self._killing[key] = self._kill(seen.sign)

    def close(self) -> None:
        """Nothing is left in the cluster's store of keys."""
        from ray.experimental.internal_kv import _internal_kv_del

        with suppress(Exception):  # there may be no cluster any more
            _internal_kv_del(self._session, del_by_prefix=True)

    def _signs(self) -> dict[str, str]:
        from ray.experimental.internal_kv import _internal_kv_list

        found = (bytes(entry).decode().partition("/") for entry in _internal_kv_list(self._session))
        return {key: sign for key, _, sign in sorted(found)}

    def _kill(self, sign: str) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        node, pid, born, _ = sign.split("/")
        there = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
        task = self._ray.remote(_end).options(num_cpus=0, max_retries=0, scheduling_strategy=there)
        return task.remote(int(pid), born)


@contextmanager
def beating(key: str, every: float) -> Iterator[None]:
    """Signs of life every so many seconds, from now on; no key: nobody looks."""
    if not key:
        yield
        return
    import ray
    from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_put

    me = f"{key}/{ray.get_runtime_context().get_node_id()}/{os.getpid()}/{_birth(os.getpid())}"
    over = threading.Event()
    _internal_kv_put(f"{me}/{0:09d}", b"")

    def beat() -> None:
        number = 0
        while not over.wait(every):
            with suppress(Exception):  # the cluster's head may be busy
                _internal_kv_put(f"{me}/{number + 1:09d}", b"")
                _internal_kv_del(f"{me}/{number:09d}")
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


def _end(pid: int, born: str) -> None:
    """Kill a process of this machine, if it is still the one that was meant."""
    if _birth(pid) == born:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _birth(pid: int) -> str:
    """When a process was started, as Linux counts it; a number may be given to another one."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""
