"""Who carries out runs: this process, some processes of this machine, a cluster; anything with `run(store, runs)` will do.

Results never depend on the executor: a run is its task and its seed, and is written by whoever carries it out.
"""

from __future__ import annotations

import contextlib
import multiprocessing as mp
import os
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from vpac.errors import UserError
from vpac.interruption import deaf, handled, held, stop_if_asked
from vpac.lab.store.run import Run
from vpac.lab.store.store import Store
from vpac.lab.workers.worker import MOMENT, Group, Outcome, carry_out
from vpac.liveness import HUNG, STALL, guard

__all__ = ["Executor", "Processes", "Serial", "make_executor", "serve"]

AHEAD, MOST = 2, 32
"""Runs that a worker is given at a time, so that it does not wait for the next; and as many as that if they are tiny."""
ATTEMPTS = 2
"""How often a run is tried whose process dies."""
LOOK = 1.0
"""Seconds between two looks at who gives no sign of life."""
SILENCE, STARTING = 120.0, 5.0
"""Seconds without a sign of life after which a process counts as hung, and how many times as long it may take to start."""
GRACE = 30.0
"""Seconds that a process has to come to its next checkpoint; schedulers that send SIGTERM wait about as long."""
OVERTIME = "its time limit"


class Executor(Protocol):
    """Anything that carries out runs, in any order."""

    retried: int
    """Runs that were begun once more because who was at them had died."""

    def run(self, store: Store, runs: Sequence[Run]) -> Iterator[Outcome]:
        """Carry out the runs; yields how each went. Closing the iterator stops the rest."""

    def close(self) -> None:
        """Let go of what it holds."""


class Serial:
    """One run after the other, in this process."""

    retried = 0

    def run(self, store: Store, runs: Sequence[Run]) -> Iterator[Outcome]:
        """One after the other."""
        from threadpoolctl import threadpool_limits

        for run in runs:
            with threadpool_limits(1):  # as in the processes: sums of parts differ from sums of wholes in the last bit
                outcome = carry_out(store, run)
            yield outcome

    def close(self) -> None:
        """Nothing to let go of."""


@dataclass
class _Worker:
    process: Any
    pipe: Connection
    at: deque[Run] = field(default_factory=deque)
    """What it was given, the one that it is at first."""
    through: dict[str, Run] = field(default_factory=dict)
    """What it has carried out and not yet kept."""
    heard: bool = False
    """Whether it has said anything yet: it takes a while to start."""
    silent: float = 0.0
    """Seconds since it last said something."""
    age: float = 0.0
    """Seconds since it began the run that it is at."""

    @classmethod
    def start(cls, stall: float = STALL) -> _Worker:
        ours, theirs = mp.get_context("spawn").Pipe()
        process = mp.get_context("spawn").Process(target=serve, args=(theirs, stall), daemon=True)
        with held():
            resource_tracker.ensure_running()  # first: when the standard library starts its tracker, it unblocks signals
            with deaf():
                process.start()
        theirs.close()
        return cls(process, ours)

    @property
    def busy(self) -> bool:
        return bool(self.at or self.through)

    def has_room(self, seconds: dict[int, float]) -> bool:
        """Whether it can be given a run more: tiny ones for a moment's work, by what others of the same task took."""
        if len(self.at) < AHEAD:
            return True
        return len(self.at) < MOST and sum(seconds.get(id(run.task), MOMENT) for run in self.at) < MOMENT

    def tell(self, names: Iterable[str]) -> list[Run]:
        """Runs are through, in the order in which they were given, or settled; returns them."""
        found = []
        for name in names:
            if name not in self.through:
                self.through[name] = self.at.popleft()
                self.age = 0.0
            found.append(self.through[name])
        return found

    def kill(self) -> None:
        self.pipe.close()
        self.process.kill()
        self.process.join()


class Processes:
    """Several processes of this machine, which stay from study to study until `close`.

    One that dies, or gives no sign of life, is replaced; its run is tried once more, then recorded as failed.

    Args:
        jobs: how many.
        time_limit: seconds after which a run is stopped and recorded as failed; None: none.
        silence: seconds without a sign of life after which a process counts as hung.
        stall: seconds that one step of an environment may take before its process ends itself.
    """

    def __init__(
        self, jobs: int, time_limit: float | None = None, silence: float = SILENCE, stall: float = STALL
    ) -> None:
        self.jobs, self.time_limit, self.silence, self.stall = jobs, time_limit, silence, stall
        self.retried = 0
        self._workers: list[_Worker] = []
        self._looked = time.monotonic()

    def run(self, store: Store, runs: Sequence[Run]) -> Iterator[Outcome]:
        """Whoever is free takes the next."""
        waiting, deaths = deque(runs), Counter[str]()
        seconds: dict[int, float] = {}
        workers = self._workers
        while len(workers) < min(self.jobs, len(runs)):
            workers.append(_Worker.start(self.stall))
        try:
            while waiting or any(worker.busy for worker in workers):
                for worker in workers:
                    while waiting and worker.has_room(seconds):
                        run = waiting.popleft()
                        worker.at.append(run)
                        with contextlib.suppress(OSError):  # it has died: found out below
                            worker.pipe.send((store.address, run, seconds.get(id(run.task), MOMENT)))
                busy = {worker.pipe: worker for worker in workers if worker.busy}
                for pipe in wait(list(busy), timeout=LOOK):
                    worker = busy[pipe]  # type: ignore[index]
                    try:
                        through, outcomes = worker.pipe.recv()
                    except (EOFError, OSError):
                        yield from self._bury(store, worker, waiting, deaths)
                        continue
                    worker.heard, worker.silent = True, 0.0
                    worker.tell(through)
                    for run, outcome in zip(worker.tell(o.name for o in outcomes), outcomes, strict=True):
                        if outcome.seconds:  # else it was finished before, or is elsewhere
                            seconds[id(run.task)] = outcome.seconds
                        del worker.through[run.name]
                        yield outcome
                for worker, why in self._overdue():
                    yield from self._bury(store, worker, waiting, deaths, why)
        finally:
            if any(worker.busy for worker in workers):  # stopped in the middle
                self.close()

    def _overdue(self) -> list[tuple[_Worker, str]]:
        """Workers that hang, or whose run takes too long, and which it is.

        What counts is time in which this process was awake and no clock that can be set: after a break nobody is overdue.
        """
        now = time.monotonic()
        passed, found = min(now - self._looked, 2.0 * LOOK), []
        if passed < LOOK:
            return []
        self._looked = now
        for worker in self._workers:
            if not worker.busy:
                continue
            worker.silent += passed
            worker.age += passed if worker.heard else 0.0
            if worker.silent > self.silence * (1.0 if worker.heard else STARTING):
                found.append((worker, f"it gave no sign of life for {self.silence:g} s"))
            elif self.time_limit is not None and worker.age > self.time_limit:
                found.append((worker, f"{OVERTIME} of {self.time_limit:g} s"))
        return found

    def close(self) -> None:
        """End the processes. A run that leaves checkpoints goes on to the next one; of others what they have done is lost.

        Ctrl-C meanwhile ends them at once.
        """
        workers = list(self._workers)
        self._workers.clear()
        try:
            for worker in workers:
                worker.process.terminate()
            until = time.monotonic() + GRACE
            for worker in workers:
                worker.process.join(max(0.0, until - time.monotonic()))
        finally:
            for worker in workers:
                worker.kill()

    def _bury(
        self, store: Store, worker: _Worker, waiting: deque[Run], deaths: Counter[str], why: str = ""
    ) -> Iterator[Outcome]:
        """Its runs go back to the others, unless the one it was at has now been the death of two, or has had its time.

        Those that were through and not kept are lost with it and no fault of theirs; without any other, the last one's.
        """
        worker.kill()
        self._workers[self._workers.index(worker)] = _Worker.start(self.stall)
        code = worker.process.exitcode
        if code == HUNG and not why:
            why = f"a step of its environment took more than {self.stall:g} s"
        how = signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"
        lost = [*worker.at, *reversed(worker.through.values())]
        first, *rest = lost
        waiting.extendleft(reversed(rest))
        deaths[first.name] += 1
        late = why.startswith(OVERTIME)
        if deaths[first.name] < ATTEMPTS and not late:
            waiting.appendleft(first)
            self.retried += 1
            return
        died = f"its process died ({how}), {ATTEMPTS} times; SIGKILL often means that memory ran out"
        error = f"it was stopped at {why}" if late else f"it hung {ATTEMPTS} times: {why}" if why else died
        store.fail(first, error, {"status": "failed"})
        yield Outcome(first.name, "failed", worker.age, error)


def make_executor(name: str, jobs: int | None, address: str | None = None, time_limit: float | None = None) -> Executor:
    """An executor by its name on the command line.

    Args:
        name: serial, processes or ray.
        jobs: how many runs at a time; none: one for each core.
        address: of the Ray cluster.
        time_limit: seconds that a run may take; needs processes, here or on a cluster, which can be stopped.
    """
    if time_limit is not None and not 0.0 < time_limit < float("inf"):
        raise UserError(f"a time limit must be a positive number of seconds, got {time_limit!r}")
    if time_limit is not None and name == "serial":
        raise UserError("a time limit needs --executor processes or ray, whose workers can be stopped, not serial")
    if jobs is not None and jobs < 1:
        raise UserError(f"jobs must be a whole number from 1 up, got {jobs!r}")
    if name == "ray":
        from vpac.lab.workers.cluster import OnRay

        return OnRay(address, jobs, time_limit)
    if address is not None:
        raise UserError(f"an address is that of a Ray cluster: use --executor ray with it, not {name}")
    count = os.cpu_count() or 1 if jobs is None else jobs
    alone = name == "serial" or (count == 1 and time_limit is None)
    return Serial() if alone else Processes(count, time_limit)


BEAT = 1.0
"""Seconds between two signs of life."""


class _Mouth:
    """What the process says: names of runs that are through, outcomes of those that are settled; neither is a sign of life."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._lock = pipe, threading.Lock()

    def say(self, through: Sequence[str] = (), outcomes: Sequence[Outcome] = ()) -> None:
        with self._lock:
            self._pipe.send((through, outcomes))

    def beat(self) -> None:
        """Say every second that the process is alive."""
        with contextlib.suppress(OSError, ValueError):
            while True:
                self.say()
                time.sleep(BEAT)


def serve(pipe: Connection, stall: float = STALL) -> None:
    """Until the other end closes. Ctrl-C is the parent's business.

    Runs are kept in groups, which end when they are large, when a moment has passed, before a run that is not known to be tiny,
    or when there is nothing else to do.
    """
    from threadpoolctl import threadpool_limits

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # who started us had blocked it
    mouth = _Mouth(pipe)
    threading.Thread(target=mouth.beat, daemon=True).start()
    guard(stall)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    groups: dict[str, Group] = {}

    def settle() -> None:
        for group in groups.values():
            if len(group):
                mouth.say(outcomes=group.settle())

    with contextlib.suppress(EOFError, OSError, KeyboardInterrupt), handled([signal.SIGTERM]), threadpool_limits(1):
        try:
            while True:
                if not pipe.poll():
                    settle()
                address, run, expected = pipe.recv()
                if expected >= MOMENT:
                    settle()
                group = groups.setdefault(address, Group(Store(address)))
                outcome = group.carry_out(run)
                if outcome is not None:
                    mouth.say(outcomes=[outcome])
                if group.full:
                    settle()
                elif outcome is None:
                    mouth.say(through=[run.name])
                stop_if_asked()
        finally:  # what is done need not be lost
            for group in groups.values():
                group.settle()


def _end_with_parent() -> None:
    """A worker whose parent was killed would go on for as long as its run takes."""
    parent = mp.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
