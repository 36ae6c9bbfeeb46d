"""Runs on a Ray cluster: one run is one task, and its worker writes straight into the store.

Only a run's content goes out and a few words come back. Results depend on neither: the worker calls what every executor calls.
"""

from __future__ import annotations

import os
import queue
import signal
import socket
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from typing import Any

from vpac._version import __version__
from vpac.errors import UserError
from vpac.execution.deadlines import Deadlines, beating
from vpac.execution.machines import REFRESH, Machines, needs
from vpac.execution.patience import Unreadable
from vpac.execution.reaching import check_address
from vpac.execution.run import Run
from vpac.execution.store import Store
from vpac.execution.worker import Outcome, carry_out
from vpac.liveness import guard

__all__ = ["Flow", "OnRay"]

AHEAD = 2
"""Tasks that are submitted for each core of the cluster, so that no core waits for the driver."""
WORKER_DEATHS, NODE_DEATHS = 3, 10
"""How many workers may die of a run, and how many nodes under it, before it counts as failed."""
LONGEST = 4000
"""Characters of an error that go through Ray; the store has all of it."""
MOST_DAMAGED = 4
"""Checkpoints that were passed over and are named through Ray."""
SILENCE = 120.0
"""Seconds without a sign of life after which a worker counts as hung."""
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
        pause: float = REFRESH,
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
        address: HOST:PORT of its head, ray://HOST:PORT, or auto. None: `$RAY_ADDRESS`, else one that runs on this machine,
            else a new one.
        jobs: how many runs at a time; None: one for each core of the cluster.
        time_limit: seconds after which a run is stopped and recorded as failed; None: none.
        silence: seconds without a sign of life after which a worker is killed, and its run tried once more.
    """

    def __init__(
        self,
        address: str | None = None,
        jobs: int | None = None,
        time_limit: float | None = None,
        silence: float = SILENCE,
    ) -> None:
        self.jobs, self.retried = jobs, 0
        self._ray = _connect(address)
        self._deadlines = Deadlines(self._ray, time_limit, silence)
        self._task = cache(
            lambda cores, memory: self._ray.remote(there).options(max_retries=0, num_cpus=cores, memory=memory)
        )
        self._refs: dict[str, Any] = {}
        self._machines = Machines(self._ray)
        self._given: dict[str, dict[str, int]] = {}

    def run(self, store: Store, runs: Sequence[Run]) -> Iterator[Outcome]:
        """Whichever core is free takes the next. Closing the iterator cancels what is on its way."""
        identity, deaths, limits = store.identity(), Counter[str](), self._deadlines

        def submit(run: Run) -> Future[Outcome]:
            given = self._given[run.name] = needs(run, self._machines.largest)
            task = self._task(given["CPU"], given["memory"])
            sign = limits.expect(run.name), limits.every
            words = (store.address, identity, __version__, run.content, given["CPU"], *sign)
            ref = self._refs[run.name] = task.remote(*words)
            return ref.future()  # type: ignore[no-any-return]

        def look() -> None:
            limits.look(self._refs)
            for name in [name for name, given in self._given.items() if self._machines.lost(given)]:
                del self._given[name]
                self._ray.cancel(self._refs[name], force=True)

        flow = Flow(submit, self._room, partial(self._bury, store, deaths), look, min(REFRESH, limits.pause))
        try:
            for outcome in flow.run(runs):
                self._refs.pop(outcome.name, None)
                self._given.pop(outcome.name, None)
                limits.forget(outcome.name)
                yield outcome
        finally:
            if self._cancel():  # what was killed may have been about to keep a run
                store.tidy()

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        self._cancel()
        self._deadlines.close()
        self._ray.shutdown()

    def _room(self) -> int:
        self._machines.look()
        return AHEAD * max(self._machines.cores, 1) if self.jobs is None else self.jobs

    def _bury(self, store: Store, deaths: Counter[str], run: Run, error: BaseException) -> Outcome | None:
        """A death is tried again, unless it is one too many; anything else is not the run's doing."""
        errors, limits, given = self._ray.exceptions, self._deadlines, self._given.pop(run.name, None)
        del self._refs[run.name]
        if limits.seconds is not None and run.name in limits.late:
            words = f"it was stopped at its time limit of {limits.seconds:g} s"
            store.fail(run, words, {"status": "failed"})
            return Outcome(run.name, "failed", limits.seconds, words)
        cancelled = isinstance(error, errors.TaskCancelledError)
        if given is None or run.name in limits.dropped or (cancelled and run.name not in limits.hung):
            return None  # cancelled by `look`: its machine has gone, or it was never heard of
        if isinstance(error, errors.RayTaskError):
            raise error.cause if isinstance(error.cause, UserError | Unreadable) else error
        node = isinstance(error, errors.NodeDiedError | errors.LocalRayletDiedError)
        if not node and not cancelled and not isinstance(error, errors.WorkerCrashedError | errors.OutOfMemoryError):
            raise error
        kind, most = ("node", NODE_DEATHS) if node else ("worker", WORKER_DEATHS)
        deaths[f"{kind} {run.name}"] += 1
        if deaths[f"{kind} {run.name}"] < most:
            self.retried += 1
            return None
        if isinstance(error, errors.OutOfMemoryError):
            why = "memory ran out"
        elif run.name in limits.hung:
            why = f"it gave no sign of life for {limits.silence:g} s and was killed"
        else:
            why = "SIGKILL often means that memory ran out"
        words = f"its {kind} died, {most} times; {why}"
        store.fail(run, words, {"status": "failed"})
        return Outcome(run.name, "failed", 0.0, words)

    def _cancel(self) -> bool:
        """Nobody goes on with what nobody waits for; returns whether anybody did."""
        refs = list(self._refs.values())
        self._refs.clear()
        self._given.clear()
        for ref in refs:
            self._ray.cancel(ref, force=True)
        if refs:
            self._ray.wait(refs, num_returns=len(refs), timeout=GRACE)
        return bool(refs)


def there(
    address: str,
    identity: str,
    version: str,
    content: dict[str, Any],
    cores: int = 1,
    key: str = "",
    every: float = 0.0,
) -> Outcome:
    """What a worker does with a run, on so many cores; signs of life go under a key, every so many seconds."""
    from threadpoolctl import threadpool_limits

    if version != __version__:
        raise UserError(f"vpac {version} sent a run to vpac {__version__} on {socket.gethostname()}: install the same")
    with beating(key, every), threadpool_limits(1):
        store = _store(address, identity)
        _guarded()
        run = Run.read(content)
        with _on(cores) if run.task.get("kind") == "deep" else nullcontext():
            found = carry_out(store, run)
    damaged = tuple(words[:LONGEST] for words in found.damaged[:MOST_DAMAGED])
    return Outcome(found.name, found.status, found.seconds, found.error[-LONGEST:], damaged)


def _on(cores: int) -> AbstractContextManager[None]:
    """The environments of EnvPool on so many cores: without that they take all of the machine's."""
    from vpac.deep.pools import on

    return on(cores)


@cache
def _guarded() -> None:
    """A worker whose run hangs ends itself, once for all of its runs; the driver takes it for one that died."""
    guard()


@cache
def _store(address: str, identity: str) -> Store:
    """The driver's store, if this machine sees it."""
    store = Store(address)
    try:
        same = store.place.read(".identity") == identity.encode()
    except Unreadable:
        raise
    except OSError:
        same = False
    if not same:
        raise UserError(
            f"{address} on {socket.gethostname()} is not the driver's: use a folder that all machines share, or s3://…"
        )
    return store


def _connect(address: str | None) -> Any:
    """Ray, connected; silent, because there is one display, the driver's."""
    check_address(address)
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
