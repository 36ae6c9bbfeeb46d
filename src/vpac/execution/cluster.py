"""Runs on a Ray cluster: one run is one task, and its worker writes straight into the store.

Only a run's content goes out and a few words come back. Results depend on neither: the worker calls what every executor calls.
"""

from __future__ import annotations

import os
import queue
import signal
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import cache, partial
from typing import Any

from vpac._version import __version__
from vpac.errors import UserError
from vpac.execution.deadlines import Deadlines, note_beginning
from vpac.execution.run import Run
from vpac.execution.store import Store
from vpac.execution.worker import Outcome, carry_out
from vpac.liveness import guard

__all__ = ["Flow", "OnRay"]

AHEAD = 2
"""Tasks that are submitted for each core of the cluster, so that no core waits for the driver."""
WORKER_DEATHS, NODE_DEATHS = 3, 10
"""How many workers may die of a run, and how many nodes under it, before it counts as failed."""
RESOURCES = {"num_cpus": 1, "memory": 512 * 2**20}
"""What a run is given; a worker that trains a tabular learner takes about 350 MB."""
LONGEST = 4000
"""Characters of an error that go through Ray; the store has all of it."""
LOOK, PAUSE = 5.0, 1.0
"""Seconds between two looks at the size of the cluster, and at who is late."""
GRACE = 10.0
"""Seconds to wait for cancelled tasks to end."""


class Flow:
    """Keeps a bounded number of tasks in flight, whatever carries them out; the cost of each does not depend on how many.

    Args:
        submit: starts a run and returns the future of its outcome.
        room: how many tasks may be in flight now.
        bury: what to do with a run whose task died of an error: an outcome, or None to try again.
        look: called whenever a task has ended, and every so many seconds.
        pause: how many.
    """

    def __init__(
        self,
        submit: Callable[[Run], Future[Outcome]],
        room: Callable[[], int],
        bury: Callable[[Run, BaseException], Outcome | None],
        look: Callable[[], None] = lambda: None,
        pause: float = LOOK,
    ) -> None:
        self.submit, self.room, self.bury, self.look, self.pause = submit, room, bury, look, pause
        self.flying: dict[str, Run] = {}
        self._ended: queue.SimpleQueue[tuple[Run, Future[Outcome]]] = queue.SimpleQueue()

    def run(self, runs: Sequence[Run]) -> Iterator[Outcome]:
        """Submit as there is room, yield as they end."""
        waiting = deque(runs)
        while waiting or self.flying:
            room = self.room()
            while waiting and len(self.flying) < room:
                run = waiting.popleft()
                self.flying[run.name] = run
                self.submit(run).add_done_callback(partial(self._land, run))
            self.look()
            try:
                run, task = self._ended.get(timeout=self.pause)
            except queue.Empty:  # the cluster may have grown
                continue
            del self.flying[run.name]
            error = task.exception()
            outcome = task.result() if error is None else self.bury(run, error)
            if outcome is None:
                waiting.appendleft(run)
            else:
                yield outcome

    def _land(self, run: Run, task: Future[Outcome]) -> None:
        self._ended.put((run, task))


class OnRay:
    """A Ray cluster, until `close`. Ray itself retries nothing: the driver does, and knows why.

    Args:
        address: HOST:PORT of its head, or auto. None: `$RAY_ADDRESS`, else one that runs on this machine, else a new one.
        jobs: how many runs at a time; None: one for each core of the cluster.
        time_limit: seconds after which a run is stopped and recorded as failed; None: none.
    """

    def __init__(self, address: str | None = None, jobs: int | None = None, time_limit: float | None = None) -> None:
        self.jobs = jobs
        self._ray = _connect(address)
        self._deadlines = None if time_limit is None else Deadlines(self._ray, time_limit)
        self._task = self._ray.remote(there).options(max_retries=0, **RESOURCES)
        self._refs: dict[str, Any] = {}
        self._seen, self._cores = float("-inf"), 1

    def run(self, store: Store, runs: Sequence[Run]) -> Iterator[Outcome]:
        """Whichever core is free takes the next. Closing the iterator cancels what is on its way."""
        identity, deaths, limits = store.identity(), Counter[str](), self._deadlines

        def submit(run: Run) -> Future[Outcome]:
            key = "" if limits is None else limits.expect(run.name)
            ref = self._refs[run.name] = self._task.remote(store.address, identity, __version__, run.content, key)
            return ref.future()  # type: ignore[no-any-return]

        def look() -> None:
            if limits is not None:
                limits.look(self._refs)

        flow = Flow(submit, self._room, partial(self._bury, store, deaths), look, LOOK if limits is None else PAUSE)
        try:
            for outcome in flow.run(runs):
                del self._refs[outcome.name]
                if limits is not None:
                    limits.forget(outcome.name)
                yield outcome
        finally:
            self._cancel()

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        self._cancel()
        self._ray.shutdown()

    def _room(self) -> int:
        if self.jobs is not None:
            return self.jobs
        if time.monotonic() - self._seen > LOOK:
            self._cores, self._seen = int(self._ray.cluster_resources().get("CPU", 0)), time.monotonic()
        return AHEAD * max(self._cores, 1)

    def _bury(self, store: Store, deaths: Counter[str], run: Run, error: BaseException) -> Outcome | None:
        """A death is tried again, unless it is one too many; anything else is not the run's doing."""
        errors, limits = self._ray.exceptions, self._deadlines
        if limits is not None and run.name in limits.late:
            words = f"it was stopped at its time limit of {limits.seconds:g} s"
            store.fail(run, words, {"status": "failed"})
            return Outcome(run.name, "failed", limits.seconds, words)
        if isinstance(error, errors.RayTaskError):
            raise error.cause if isinstance(error.cause, UserError) else error
        node = isinstance(error, errors.NodeDiedError | errors.LocalRayletDiedError)
        if not node and not isinstance(error, errors.WorkerCrashedError | errors.OutOfMemoryError):
            raise error
        kind, most = ("node", NODE_DEATHS) if node else ("worker", WORKER_DEATHS)
        deaths[f"{kind} {run.name}"] += 1
        if deaths[f"{kind} {run.name}"] < most:
            return None
        why = (
            "memory ran out"
            if isinstance(error, errors.OutOfMemoryError)
            else "SIGKILL often means that memory ran out"
        )
        words = f"its {kind} died, {most} times; {why}"
        store.fail(run, words, {"status": "failed"})
        return Outcome(run.name, "failed", 0.0, words)

    def _cancel(self) -> None:
        """Nobody goes on with what nobody waits for."""
        refs = list(self._refs.values())
        self._refs.clear()
        for ref in refs:
            self._ray.cancel(ref, force=True)
        if refs:
            self._ray.wait(refs, num_returns=len(refs), timeout=GRACE)


def there(address: str, identity: str, version: str, content: dict[str, Any], key: str = "") -> Outcome:
    """What a worker does with a run."""
    from threadpoolctl import threadpool_limits

    if version != __version__:
        raise UserError(f"vpac {version} sent a run to vpac {__version__} on {socket.gethostname()}: install the same")
    store = _store(address, identity)
    _guarded()
    note_beginning(key)
    with threadpool_limits(1):
        found = carry_out(store, Run.read(content))
    return Outcome(found.name, found.status, found.seconds, found.error[-LONGEST:])


@cache
def _guarded() -> None:
    """A worker whose run hangs ends itself, once for all of its runs; the driver takes it for one that died."""
    guard()


@cache
def _store(address: str, identity: str) -> Store:
    """The driver's store, if this machine sees it."""
    store = Store(address)
    try:
        same = store.place.read(".identity").decode() == identity
    except OSError:
        same = False
    if not same:
        raise UserError(
            f"{address} on {socket.gethostname()} is not the driver's: use a folder that all machines share, or s3://…"
        )
    return store


def _connect(address: str | None) -> Any:
    """Ray, connected; silent, because there is one display, the driver's."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # what Ray will do anyway, and warns of
    try:
        import ray
    except ImportError:
        raise UserError('this executor needs the extra ray: pip install "vpac[ray]"') from None
    # Ray prints on standard output which workers have died; that is the verb's, and the driver reports what came of it
    ray._private.worker.print_to_stdstream = lambda *lines, **how: None
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)  # Ray's own would end the driver where it is
    except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        words = str(error).strip().splitlines()[0]
        raise UserError(f"cannot reach a Ray cluster at {address or 'this machine'}: {words}") from None
    return ray
