"""Who carries out runs: this process, some processes of this machine, a cluster; anything with `run(store, runs)` will do.

Results never depend on the executor: a run is its task and its seed, and is written by whoever carries it out.
"""

from __future__ import annotations

import contextlib
import multiprocessing as mp
import os
import signal
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from vpac.errors import UserError
from vpac.execution.run import Run
from vpac.execution.store import Store
from vpac.execution.worker import Outcome, carry_out

__all__ = ["Executor", "Processes", "Serial", "make_executor"]

AHEAD = 2
"""Runs that a worker is given at a time, so that it does not wait for the next."""
ATTEMPTS = 2
"""How often a run is tried whose process dies."""


class Executor(Protocol):
    """Anything that carries out runs, in any order."""

    def run(self, store: Store, runs: Sequence[Run]) -> Iterator[Outcome]:
        """Carry out the runs; yields how each went. Closing the iterator stops the rest."""

    def close(self) -> None:
        """Let go of what it holds."""


class Serial:
    """One run after the other, in this process."""

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

    @classmethod
    def start(cls) -> _Worker:
        ours, theirs = mp.get_context("spawn").Pipe()
        process = mp.get_context("spawn").Process(target=_serve, args=(theirs,), daemon=True)
        process.start()
        theirs.close()
        return cls(process, ours)

    def stop(self) -> None:
        self.pipe.close()
        self.process.terminate()
        self.process.join()


class Processes:
    """Several processes of this machine, which stay from study to study until `close`.

    One that dies is replaced; its run is tried once more, then recorded as failed.
    """

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self._workers: list[_Worker] = []

    def run(self, store: Store, runs: Sequence[Run]) -> Iterator[Outcome]:
        """Whoever is free takes the next."""
        waiting, deaths = deque(runs), Counter[str]()
        workers = self._workers
        while len(workers) < min(self.jobs, len(runs)):
            workers.append(_Worker.start())
        try:
            while waiting or any(worker.at for worker in workers):
                for worker in workers:
                    while waiting and len(worker.at) < AHEAD:
                        run = waiting.popleft()
                        worker.at.append(run)
                        with contextlib.suppress(OSError):  # it has died: found out below
                            worker.pipe.send((store.address, run))
                busy = {worker.pipe: worker for worker in workers if worker.at}
                for pipe in wait(list(busy)):
                    worker = busy[pipe]  # type: ignore[index]
                    try:
                        outcome = worker.pipe.recv()
                    except (EOFError, OSError):
                        workers[workers.index(worker)] = _Worker.start()
                        yield from self._bury(store, worker, waiting, deaths)
                        continue
                    worker.at.popleft()
                    yield outcome
        finally:
            if any(worker.at for worker in workers):  # stopped in the middle
                self.close()

    def close(self) -> None:
        """End the processes; a run that one of them is at is lost, nothing else."""
        for worker in self._workers:
            worker.stop()
        self._workers.clear()

    def _bury(self, store: Store, worker: _Worker, waiting: deque[Run], deaths: Counter[str]) -> Iterator[Outcome]:
        """Its runs go back to the others, unless the one it was at has now been the death of two."""
        worker.stop()
        code = worker.process.exitcode
        how = signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"
        first, *rest = worker.at
        waiting.extendleft(reversed(rest))
        deaths[first.name] += 1
        if deaths[first.name] < ATTEMPTS:
            waiting.appendleft(first)
            return
        error = f"its process died ({how}), {ATTEMPTS} times; SIGKILL often means that memory ran out"
        store.fail(first, error, {"status": "failed"})
        yield Outcome(first.name, "failed", 0.0, error)


def _serve(pipe: Connection) -> None:
    """A worker's life: runs in, outcomes out, until the other end closes. Ctrl-C is the parent's business."""
    from threadpoolctl import threadpool_limits

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stores: dict[str, Store] = {}
    with threadpool_limits(1):
        while True:
            try:
                address, run = pipe.recv()
                pipe.send(carry_out(stores.setdefault(address, Store(address)), run))
            except (EOFError, OSError):
                return


def make_executor(name: str, jobs: int | None, address: str | None = None) -> Executor:
    """An executor by its name on the command line.

    Args:
        name: serial, processes or ray.
        jobs: how many runs at a time; none: one for each core.
        address: of the Ray cluster.
    """
    if jobs is not None and jobs < 1:
        raise UserError(f"jobs must be a whole number from 1 up, got {jobs!r}")
    if name == "ray":
        from vpac.execution.cluster import OnRay

        return OnRay(address, jobs)
    if address is not None:
        raise UserError(f"an address is that of a Ray cluster: use --executor ray with it, not {name}")
    count = os.cpu_count() or 1 if jobs is None else jobs
    return Serial() if name == "serial" or count == 1 else Processes(count)
