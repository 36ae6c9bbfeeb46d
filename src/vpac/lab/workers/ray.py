"""Runs on a Ray cluster: one run is one task, and its worker writes directly into the store.

Only a run's content is sent and an `Outcome` comes back. Ray itself retries a task whose worker or node dies.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from functools import cache
from typing import Any

from vpac._version import __version__
from vpac.errors import UserError
from vpac.lab.store.backend import Unreadable
from vpac.lab.store.run import Run
from vpac.lab.store.store import Store
from vpac.lab.workers.pool import TaskLoop
from vpac.lab.workers.worker import Outcome, carry_out

RUN_RESOURCES: dict[str, int] = {"CPU": 1, "memory": 512 * 2**20}
"""Resources of a run; a worker that trains a tabular learner takes about 350 MB on one thread."""
RESOURCES: dict[str, dict[str, int]] = {"deep": {"CPU": 2, "memory": 2**30}}
"""Resources of other kinds of runs. In the PPO family the policy learns beside a critic, and EnvPool's environments are
stepped on as many cores as it is given; 64 copies of HalfCheetah take 840 MB."""
TASKS_PER_CORE = 2
"""Tasks that are submitted for each core of the cluster, so that none waits for the driver."""
MAX_RETRIES = 3
"""Number of times Ray retries a run whose worker or node dies."""
REFRESH = 5.0
"""Seconds between two looks at the cluster's size."""
CONNECT_TIMEOUT = 5.0
"""Seconds for a machine to answer."""
CANCEL_GRACE = 10.0
"""Seconds to wait for cancelled tasks to end."""
LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Variable that, set to 0, makes Ray listen on 127.0.0.1; the name is of the systems on which that is the default."""
LONGEST_ERROR, MOST_DAMAGED = 4000, 4
"""Characters of an error, and number of damaged checkpoints, that are sent through Ray; the store has the whole error."""


class Clock:
    """An actor that knows when tasks started: the time limit does not count the time in Ray's queue."""

    def __init__(self) -> None:
        self._started: dict[str, float] = {}

    def start(self, name: str) -> None:
        """A run starts, or starts again."""
        self._started[name] = time.monotonic()

    def late(self, names: Sequence[str], limit: float) -> list[str]:
        """Names of the runs in flight that have taken longer than `limit` seconds."""
        self._started = {name: self._started[name] for name in names if name in self._started}
        return [name for name, started in self._started.items() if time.monotonic() - started > limit]


class OnRay:
    """A Ray cluster, until `close`.

    `address` is HOST:PORT of its head, ray://HOST:PORT, or auto; without it, `$RAY_ADDRESS`, else one that runs on this
    machine, else a new one. `jobs` runs at a time, or one for each core; after `time_limit` seconds a run is stopped.
    """

    def __init__(self, address: str | None = None, jobs: int | None = None, time_limit: float | None = None) -> None:
        self.jobs, self.time_limit = jobs, time_limit
        self._ray = _connect(address)
        self._clock = self._ray.remote(Clock).options(num_cpus=0).remote() if time_limit else None
        self._refs: dict[str, Any] = {}
        self._late: set[str] = set()
        self._cores, self._looked = 1, float("-inf")

    def run(self, store: Store, runs: Sequence[Run]) -> Iterator[Outcome]:
        """Carry out runs where there is a free core. Closing the iterator cancels the rest."""
        identity, nodes = store.identity(), [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        largest = {name: max((node.get(name, 0.0) for node in nodes), default=0.0) for name in RUN_RESOURCES}

        def submit(batch: list[Run]) -> Future[list[Outcome]]:
            (run,) = batch
            needed = resources(run, largest)
            how = {"max_retries": MAX_RETRIES, "num_cpus": needed["CPU"], "memory": needed["memory"]}
            task = self._ray.remote(remote_run).options(**how)
            ref = task.remote(store.address, identity, __version__, run.content, needed["CPU"], self._clock)
            self._refs[run.name] = ref
            return ref.future()  # type: ignore[no-any-return]

        def failed(batch: list[Run], error: BaseException) -> list[Outcome]:
            return [self._failed(store, batch[0], error)]

        loop = TaskLoop(submit, self._room, failed, tick=self._cancel_late)
        try:
            for outcome in loop.run(runs):
                self._refs.pop(outcome.name, None)
                yield outcome
        finally:
            if self._cancel():  # a killed worker may have left an incomplete folder
                store.tidy()

    def close(self) -> None:
        """Disconnect; a cluster that was started here ends."""
        self._cancel()
        self._ray.shutdown()

    def _room(self) -> int:
        if self.jobs is not None:
            return self.jobs
        if time.monotonic() - self._looked > REFRESH:
            self._cores, self._looked = int(self._ray.cluster_resources().get("CPU", 0)), time.monotonic()
        return TASKS_PER_CORE * max(self._cores, 1)

    def _cancel_late(self) -> None:
        """Cancel runs that have reached the time limit."""
        if self._clock is not None:
            for name in self._ray.get(self._clock.late.remote(list(self._refs), self.time_limit)):
                if name not in self._late:
                    self._late.add(name)
                    self._ray.cancel(self._refs[name], force=True)

    def _failed(self, store: Store, run: Run, error: BaseException) -> Outcome:
        """Record a run that reached its time limit, or whose worker died too often; raise any other error."""
        errors = self._ray.exceptions
        if run.name in self._late:
            self._late.discard(run.name)
            words = f"it was stopped at its time limit of {self.time_limit:g} s"
        elif isinstance(error, errors.OutOfMemoryError):
            words = "its worker died: memory ran out"
        elif isinstance(error, errors.WorkerCrashedError | errors.NodeDiedError | errors.LocalRayletDiedError):
            words = f"its worker died, {MAX_RETRIES + 1} times; SIGKILL often means that memory ran out"
        else:
            cause = getattr(error, "cause", None)
            raise cause if isinstance(cause, UserError | Unreadable) else error
        store.fail(run, words, {"status": "failed"})
        return Outcome(run.name, "failed", 0.0, words)

    def _cancel(self) -> bool:
        """Cancel outstanding tasks; return True if there were any."""
        refs = list(self._refs.values())
        self._refs.clear()
        for ref in refs:
            self._ray.cancel(ref, force=True)
        if refs:
            self._ray.wait(refs, num_returns=len(refs), timeout=CANCEL_GRACE)
        return bool(refs)


def resources(run: Run, largest: dict[str, float]) -> dict[str, int]:
    """Resources that Ray reserves for a run: those its kind uses, but not more than the largest machine has."""
    wanted = RESOURCES.get(str(run.task.get("kind")), RUN_RESOURCES)
    return {name: min(amount, int(largest.get(name, 0)) or amount) for name, amount in wanted.items()}


def remote_run(
    address: str, identity: str, version: str, content: dict[str, Any], cores: int = 1, clock: Any = None
) -> list[Outcome]:
    """The task of a worker: carry out a run on so many cores."""
    from threadpoolctl import threadpool_limits

    from vpac.envs.vector import limit_cores  # by default EnvPool uses all cores of the machine

    if version != __version__:
        raise UserError(f"vpac {version} sent a run to vpac {__version__} on {socket.gethostname()}: install the same")
    store, run = _store(address, identity), Run.read(content)
    if clock is not None:
        clock.start.remote(run.name)
    with threadpool_limits(1), limit_cores(cores):
        found = carry_out(store, run)
    damaged = tuple(words[:LONGEST_ERROR] for words in found.damaged[:MOST_DAMAGED])
    return [Outcome(found.name, found.status, found.seconds, found.error[-LONGEST_ERROR:], damaged)]


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
        here = f"{address} on {socket.gethostname()}"
        raise UserError(f"{here} is not the driver's: use a folder that all machines share, or s3://…")
    return store


def check_address(address: str | None) -> None:
    """Raise a `UserError` if the address of a Ray cluster, or else `$RAY_ADDRESS`, is malformed or does not answer."""
    given = address or os.environ.get("RAY_ADDRESS") or "auto"
    if given in ("auto", "local"):
        return
    found = re.fullmatch(r"(?:ray://)?(?:\[([^\[\]]+)\]|([^\[\]:/?#@\s]+)):([0-9]{1,5})", given)
    if found is None or not 0 < int(found[3]) < 2**16:
        raise UserError(f"{given!r:.200} is no address of a Ray cluster: expected HOST:PORT, ray://HOST:PORT or auto")
    host, port = found[1] or found[2], int(found[3])
    try:
        socket.create_connection((host, port), CONNECT_TIMEOUT).close()
    except (OSError, UnicodeError) as error:
        timeout = f"no answer in {CONNECT_TIMEOUT:g} s" if isinstance(error, TimeoutError) else None
        raise UserError(
            f"cannot reach a Ray cluster at {given}: {timeout or getattr(error, 'strerror', None) or error} ({host}, port "
            f"{port}). Start one there with `ray start --head --port {port}`, mend --address or $RAY_ADDRESS, or take "
            "`--address local` for a new one on this machine"
        ) from None


def _stay_local(ray: Any, address: str | None) -> None:
    """A cluster that is about to be started here listens on the loopback interface alone: it has no password.

    `LOOPBACK=1` in the environment is Ray's own way to say otherwise; or start one with `ray start --head`.
    """
    constants = ray._private.ray_constants
    if (found := ray._private.services.canonicalize_bootstrap_address(address)) is not None:
        check_address(found)  # `ray start` leaves the address of the last cluster in a file; it may be dead
    elif LOOPBACK not in os.environ:
        os.environ[LOOPBACK], constants.ENABLE_RAY_CLUSTER = "0", False  # for its processes, and in this one


def _connect(address: str | None) -> Any:
    """Ray, connected and silent: the driver has the only display."""
    check_address(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # Ray's future default, of whose absence it warns
    try:
        import ray
    except ImportError:
        raise UserError('this executor needs the extra ray: pip install "vpac[ray]"') from None
    # Ray prints deaths of workers on standard output, which is the verb's
    ray._private.worker.print_to_stdstream = lambda *lines, **how: None
    before = signal.getsignal(signal.SIGTERM)
    try:
        _stay_local(ray, address)
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)  # Ray's own would end the driver at once
    except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        words = str(error).strip().splitlines()[0]
        raise UserError(f"cannot reach a Ray cluster at {address or 'this machine'}: {words}") from None
    return ray
