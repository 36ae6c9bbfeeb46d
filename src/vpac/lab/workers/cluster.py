"""Runs on a Ray cluster: one run is one task, and its worker writes straight into the store.

Only a run's content goes out and a few words come back. Results depend on neither: the worker calls what every executor calls.

A worker notes in the cluster's own small store of keys that it has begun with a run, and again every so often. Time counts from
the first note: a run that waits for a free core is not late. Ray itself does not see a process that is stopped, or that the
machine does not wake any more; told to cancel its task, it kills it after five seconds.

Of a run that was never heard of nobody knows whether it waits for a free core or its worker stopped before the first note. It
is submitted anew, which costs a run that waits nothing; each time twice as much silence is borne, for machines that are slow.
"""

from __future__ import annotations

import os
import queue
import re
import signal
import socket
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from vpac._version import __version__
from vpac.errors import UserError
from vpac.lab.store.backend import Unreadable
from vpac.lab.store.run import Run
from vpac.lab.store.store import Store
from vpac.lab.workers.worker import Outcome, carry_out
from vpac.liveness import guard

__all__ = ["REFRESH", "Deadlines", "Flow", "Machines", "OnRay", "beating", "check_address", "needs"]

REFRESH = 5.0
"""Seconds between two looks at the cluster."""
USUAL: dict[str, int] = {"CPU": 1, "memory": 512 * 2**20}
"""What a run is given; a worker that trains a tabular learner takes about 350 MB on one thread."""
RESOURCES: dict[str, dict[str, int]] = {"deep": {"CPU": 2, "memory": 2**30}}
"""What runs of another kind are given. The PPO family computes on two threads, always (`deep/improve.py`), and steps
EnvPool's environments on as many as it is given; 64 copies of HalfCheetah take 840 MB."""


class Machines:
    """The nodes of a cluster, looked at now and then: they come and go.

    Args:
        ray: the module, connected.
    """

    def __init__(self, ray: Any) -> None:
        self.cores = 1
        """Of all of them."""
        self.largest: dict[str, float] = {}
        """Of each resource, how much the machine with the most of it has."""
        self._ray, self._seen = ray, float("-inf")

    def look(self) -> None:
        """See which are there, unless that was just done."""
        if time.monotonic() - self._seen > REFRESH:
            nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
            self.cores, self._seen = int(sum(node.get("CPU", 0) for node in nodes)), time.monotonic()
            self.largest = {name: max((node.get(name, 0.0) for node in nodes), default=0.0) for name in USUAL}

    def lost(self, given: dict[str, int]) -> bool:
        """Whether a task that was given so much waits for a machine that has gone, though there are smaller ones."""
        return any(0 < self.largest.get(name, 0) < amount for name, amount in given.items())


def needs(run: Run, largest: dict[str, float]) -> dict[str, int]:
    """What a run is given: what its kind uses, or all that the largest machine has. It would wait for more for ever, and
    threads can share a core; results depend on neither."""
    wanted = RESOURCES.get(str(run.task.get("kind")), USUAL)
    return {name: min(amount, int(largest.get(name, 0)) or amount) for name, amount in wanted.items()}


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
    from vpac.envs.vector import limit_cores

    return limit_cores(cores)


@cache
def _guarded() -> None:
    """A worker whose run hangs ends itself, once for all of its runs; the driver takes it for one that died."""
    guard()


@cache
def _store(address: str, identity: str) -> Store:
    """The driver's store, if this machine sees it."""
    store = Store(address)
    try:
        same = store.backend.read(".identity") == identity.encode()
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
