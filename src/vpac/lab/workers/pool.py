"""Executors: carry out runs in this process, in a pool of processes, or on a Ray cluster (`ray.py`).

Results never depend on the executor: a run is its task and its seed, and the process that carries it out stores it.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import queue
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from itertools import islice
from multiprocessing import resource_tracker
from typing import Protocol

from pebble import ProcessExpired, ProcessPool
from pebble.pool.process import WORKERS_NAME
from threadpoolctl import threadpool_limits

from vpac.checks import whole
from vpac.errors import UserError
from vpac.interruption import Terminated, handled, stop_if_asked
from vpac.lab.kinds.task import program_of
from vpac.lab.store.run import Run
from vpac.lab.store.store import Store
from vpac.lab.workers.worker import Outcome, carry_out_batch
from vpac.portable import deduplicate_stderr, without_interrupts

ATTEMPTS = 2
"""Number of times a run is tried if its process dies."""
BATCH_SECONDS, BATCH_RUNS = 0.25, 64
"""Expected seconds, and number, of runs in one task: short runs are synced to disk together."""
MAX_BROKEN = 10
"""Workers that may die between two outcomes before they begin a run."""
CHECKPOINT_GRACE = 30.0
"""Seconds for a worker to reach its next checkpoint; schedulers that send SIGTERM wait about as long."""


class Executor(Protocol):
    """Carries out runs, in any order."""

    def run(self, store: Store, runs: Sequence[Run]) -> Iterator[Outcome]:
        """Carry out runs; yields their outcomes. Closing the iterator stops the rest."""

    def close(self) -> None:
        """Release processes and connections."""


class Serial:
    """One run after the other, in this process."""

    def run(self, store: Store, runs: Sequence[Run]) -> Iterator[Outcome]:
        """Carry out one after the other; on devices other than a CPU, runs of one program at once."""
        waiting = deque(runs)
        while waiting:
            batch = take_program(waiting, 0)
            with threadpool_limits(1):  # as in worker processes: the last bit of a sum depends on the number of threads
                outcomes = carry_out_batch(store, batch, cores=len(batch) > 1)
            yield from outcomes
            stop_if_asked()

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def take_program(waiting: deque[Run], cores: int) -> list[Run]:
    """The next run, with others that the same compiled program trains.

    As many as fit on devices other than a CPU; on a CPU two for each core, so that outcomes arrive often.
    """
    first = waiting.popleft()
    program = program_of(first.task)
    if program is None:
        return [first]
    from vpac.deep.compiled import Layout

    room = Layout.of().most
    room = room if room > 1 else 2 * cores
    others = (run for run in waiting if program_of(run.task) == program)
    batch = [first, *islice(others, max(0, room - 1))]
    taken = {run.name for run in batch}
    left = [run for run in waiting if run.name not in taken]
    waiting.clear()
    waiting.extend(left)
    return batch


class TaskLoop:
    """Keeps as many tasks in flight as there is `room` for; the cost of each does not depend on how many there are.

    `submit` starts a task, a batch of runs that `take` took from the queue, and returns its future. `failed` is called with the
    runs of a task that raised an error: it returns outcomes, and puts runs to be retried back into `waiting`. `tick` is called
    after every task, and every second.
    """

    def __init__(
        self, submit: Callable[[list[Run]], Future[list[Outcome]]], room: Callable[[], int],
        failed: Callable[[list[Run], BaseException], Iterable[Outcome]],
        take: Callable[[deque[Run]], list[Run]] = lambda waiting: [waiting.popleft()],
        tick: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self.submit, self.room, self.failed, self.take, self.tick = submit, room, failed, take, tick
        self.waiting: deque[Run] = deque()
        self.flying: dict[Future[list[Outcome]], list[Run]] = {}
        self._ended: queue.SimpleQueue[Future[list[Outcome]]] = queue.SimpleQueue()

    def run(self, runs: Sequence[Run]) -> Iterator[Outcome]:
        """Submit tasks while there is room; yield outcomes as they arrive."""
        self.waiting.extend(runs)
        while self.waiting or self.flying:
            while self.waiting and len(self.flying) < self.room():
                batch = self.take(self.waiting)
                task = self.submit(batch)
                self.flying[task] = batch
                task.add_done_callback(self._ended.put)
            self.tick()
            try:
                task = self._ended.get(timeout=1.0)
            except queue.Empty:
                continue
            batch = self.flying.pop(task)
            error = CancelledError() if task.cancelled() else task.exception()
            yield from task.result() if error is None else self.failed(batch, error)


class Processes:
    """A pool of processes, which lives until `close`. A worker that dies is replaced and its run is tried again.

    `time_limit`: seconds after which a run is stopped and recorded as failed.
    """

    def __init__(self, jobs: int, time_limit: float | None = None) -> None:
        self.jobs, self.time_limit = jobs, time_limit
        self.retried = 0
        """Number of times a run was started again because its process had died."""
        self._free: list[ProcessPool] = []
        self._busy: dict[Future[list[Outcome]], ProcessPool] = {}
        self._seconds: dict[int, float] = {}
        self._wide: set[Future[list[Outcome]]] = set()
        """Tasks that take all cores: runs of one program."""
        self._alone: set[str] = set()
        self._deaths: Counter[str] = Counter()
        self._running: dict[Future[list[Outcome]], float] = {}
        self._late: set[str] = set()
        self._broken = 0

    def run(self, store: Store, runs: Sequence[Run]) -> Iterator[Outcome]:
        """Carry out runs; the next free worker takes the next batch."""
        size = min(self.jobs, len(runs))
        task_of = {run.name: id(run.task) for run in runs}
        self._seconds.clear()

        def submit(batch: list[Run]) -> Future[list[Outcome]]:
            pool = self._free.pop() if self._free else start_workers()
            try:
                wide = len(batch) > 1 and program_of(batch[0].task) is not None
                task = pool.schedule(_carry_out_batch, (store.address, batch, self.jobs if wide else 0))
            except RuntimeError:  # it died while idle
                stop_workers(pool)
                return submit(batch)
            self._busy[task] = pool
            if wide:
                self._wide.add(task)
            return task

        def failed(batch: list[Run], error: BaseException) -> Iterator[Outcome]:
            return self._failed(store, loop, batch, error)

        loop = TaskLoop(submit, lambda: self._room(size), failed, self._take, lambda: self._cancel(loop))
        try:
            for outcome in loop.run(runs):
                self._broken = 0
                if outcome.seconds:  # else it was already finished
                    self._seconds[task_of[outcome.name]] = outcome.seconds
                yield outcome
        finally:
            if loop.flying:  # stopped before the end
                self.close()

    def close(self) -> None:
        """End the workers. Runs with checkpoints continue to the next one. Ctrl-C meanwhile kills them at once."""
        pools = [*self._free, *self._busy.values()]
        self._free.clear()
        self._busy.clear()
        for pool in pools:
            pool.stop()  # type: ignore[no-untyped-call]
        workers = [process for process in mp.active_children() if process.name == WORKERS_NAME] if pools else []
        try:
            for worker in workers:
                worker.terminate()
            until = time.monotonic() + CHECKPOINT_GRACE
            for worker in workers:
                worker.join(max(0.0, until - time.monotonic()))
        finally:
            for worker in workers:
                worker.kill()
            for pool in pools:
                pool.join()

    def _room(self, size: int) -> int:
        """Free the workers whose task has ended; drop those that died, or were killed at the time limit."""
        for task in [task for task in self._busy if task.done()]:
            pool = self._busy.pop(task)
            if not task.cancelled() and task.exception() is None:
                self._free.append(pool)
                continue
            self._broken += not task.cancelled() and isinstance(task.exception(), BrokenProcessPool)
            stop_workers(pool)
        if self._broken > MAX_BROKEN:
            raise BrokenProcessPool("worker processes end before they begin with a run")
        self._wide &= self._busy.keys()
        return 1 if self._wide else size

    def _cancel(self, loop: TaskLoop) -> None:
        """Cancel tasks that have reached the time limit, and those of a broken pool, which may have lost them.

        Pebble's own time limit reads a clock that can be set.
        """
        now = time.monotonic()
        self._running = {task: self._running.get(task, now) for task in loop.flying if task.running()}
        for task, batch in list(loop.flying.items()):
            late = self.time_limit is not None and now - self._running.get(task, now) > self.time_limit
            if late:
                self._late.update(run.name for run in batch)
            if late or (task in self._busy and not self._busy[task].active):
                task.cancel()

    def _take(self, waiting: deque[Run]) -> list[Run]:
        """The next run, with others of the same program, or as long as all are known to be short."""
        if self.time_limit is None and waiting[0].name not in self._alone:
            batch = take_program(waiting, self.jobs)
        else:
            batch = [waiting.popleft()]
        seconds = 0.0
        while waiting and len(batch) < BATCH_RUNS and program_of(batch[0].task) is None:
            seconds += self._expected(batch[-1])
            if seconds + self._expected(waiting[0]) > BATCH_SECONDS:
                break
            batch.append(waiting.popleft())
        return batch

    def _expected(self, run: Run) -> float:
        return float("inf") if run.name in self._alone else self._seconds.get(id(run.task), float("inf"))

    def _failed(self, store: Store, loop: TaskLoop, batch: list[Run], error: BaseException) -> Iterator[Outcome]:
        """Retry the runs of a task that did not end, each alone; record one that killed its process twice as failed."""
        if not isinstance(error, ProcessExpired | BrokenProcessPool | CancelledError):
            raise error
        names = [run.name for run in batch]
        late = names[0] in self._late
        self._late.difference_update(names)
        self._alone.update(names)
        if len(batch) == 1 and (late or isinstance(error, ProcessExpired)):
            (run,) = batch
            self._deaths[run.name] += 1
            if late or self._deaths[run.name] >= ATTEMPTS:
                code = getattr(error, "exitcode", None)
                how = signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"
                words = f"its process died ({how}), {ATTEMPTS} times; SIGKILL often means that memory ran out"
                words = f"it was stopped at its time limit of {self.time_limit:g} s" if late else words
                store.fail(run, words, {"status": "failed"})
                yield Outcome(run.name, "failed", self.time_limit or 0.0 if late else 0.0, words)
                return
        self.retried += not late
        loop.waiting.extendleft(reversed(batch))


def start_workers(count: int = 1) -> ProcessPool:
    """A pool of spawned processes that ignore Ctrl-C, which is for the driver, and end with the driver.

    Runs have a pool for each worker: those of one pool share a lock, which a worker that is killed may hold for ever.
    """
    pool = ProcessPool(count, initializer=_initialize, context=mp.get_context("spawn"))
    resource_tracker.ensure_running()  # first: starting it would unblock the signal
    with without_interrupts():
        assert pool.active  # starts it; its threads, and all processes they start, inherit the mask
    return pool


def stop_workers(pool: ProcessPool) -> None:
    """End the processes at once."""
    pool.stop()  # type: ignore[no-untyped-call]
    pool.join()


def _initialize() -> None:
    threadpool_limits(1)
    deduplicate_stderr()
    threading.Thread(target=_end_with_driver, daemon=True).start()


def _end_with_driver() -> None:
    """End this process if the driver is killed; otherwise its run would continue."""
    driver = mp.parent_process()
    if driver is not None:
        driver.join()
        os._exit(1)


def _carry_out_batch(address: str, runs: list[Run], cores: int) -> list[Outcome]:
    """The task of a worker. SIGTERM ends the worker, at the next checkpoint of a run that leaves checkpoints."""
    try:
        with handled([signal.SIGTERM]):
            outcomes = carry_out_batch(_store(address), runs, cores)
            stop_if_asked()
            return outcomes
    except Terminated:
        os._exit(128 + signal.SIGTERM)


@cache
def _store(address: str) -> Store:
    """One for each address: closing any descriptor of its lock file would release all locks of this process."""
    return Store(address)


def make_executor(name: str, jobs: int | None, address: str | None = None, time_limit: float | None = None) -> Executor:
    """An executor by its name on the command line.

    `jobs` at a time, by default one for each core; a time limit needs processes, here or on a cluster.
    """
    if time_limit is not None and not 0.0 < time_limit < float("inf"):
        raise UserError(f"a time limit must be a positive number of seconds, got {time_limit!r}")
    if time_limit is not None and name == "serial":
        raise UserError("a time limit needs --executor processes or ray, whose workers can be stopped, not serial")
    count = os.cpu_count() or 1 if jobs is None else whole(jobs, "jobs", 1)
    if name == "ray":
        from vpac.lab.workers.ray import OnRay

        return OnRay(address, jobs, time_limit)
    if address is not None:
        raise UserError(f"an address is that of a Ray cluster: use --executor ray with it, not {name}")
    alone = name == "serial" or (count == 1 and time_limit is None)
    return Serial() if alone else Processes(count, time_limit)
