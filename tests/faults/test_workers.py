"""Workers that hang, starve or are stopped, and clocks that jump: the study goes on and says what happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from tiny import contents, little
from vpac.errors import UserError
from vpac.lab.experiments.spec import Arm
from vpac.lab.store.store import Store
from vpac.lab.workers import pool
from vpac.lab.workers.pool import Processes, Serial, make_executor
from vpac.lab.workers.study import carry_out_studies, plan
from vpac.liveness import HUNG
from vpac.tabular import AC

WORLDS = ("Sound", "Hangs", "Hungry", "NotANumber")


def test_what_goes_wrong_in_one_run_is_reported_and_the_others_go_on(tmp_path):
    AC("broken_worlds:Sound-v0").learn(1)  # compiles, if need be: that takes its time, too
    store, hands = Store(tmp_path), Processes(2, time_limit=12.0)
    arms = tuple(Arm(label=name, algorithm="ac", env=f"broken_worlds:{name}-v0") for name in WORLDS)
    try:
        tally = carry_out_studies([plan(little(runs=1, arms=arms, evaluate="returns"))], store, hands)["little"]
    finally:
        hands.close()
    assert tally.done == 1
    failed = {name: o for o in tally.failed for name in WORLDS if f"-{name}-" in o.name}
    assert {name: o.status for name, o in failed.items()} == {
        "Hangs": "failed", "Hungry": "failed", "NotANumber": "diverged",
    }  # fmt: skip
    assert "it was stopped at its time limit of 12 s" in failed["Hangs"].error
    assert "MemoryError" in failed["Hungry"].error
    assert "the reward is not finite in episode" in failed["NotANumber"].error
    assert "seed" in failed["NotANumber"].error
    assert sorted(store.failures()) == sorted(o.name for o in failed.values())


def test_a_worker_that_gives_no_sign_of_life_is_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "LOOK", 0.1)  # of the driver; workers speak every second
    plans = [plan(little(runs=10, episodes=400))]
    hands, stopped = Processes(2, silence=3.0), []

    def stop_one(outcome):
        if not stopped:
            stopped.append(hands._workers[0].process.pid)
            os.kill(stopped[0], signal.SIGSTOP)

    try:
        tally = carry_out_studies(plans, Store(tmp_path / "a"), hands, stop_one)["little"]
    finally:
        hands.close()
    assert (tally.done, tally.failed) == (20, [])
    with pytest.raises(ProcessLookupError):
        os.kill(stopped[0], 0)
    carry_out_studies(plans, Store(tmp_path / "b"), Serial())
    assert contents(Store(tmp_path / "a")) == contents(Store(tmp_path / "b"))


def test_a_run_that_stands_still_is_stopped_without_any_time_limit(tmp_path):
    """Its process gives signs of life all the time."""
    AC("broken_worlds:Sound-v0").learn(1)
    store, hands = Store(tmp_path), Processes(2, stall=4.0)
    arms = tuple(Arm(label=name, algorithm="ac", env=f"broken_worlds:{name}-v0") for name in ("Sound", "Hangs"))
    try:
        tally = carry_out_studies([plan(little(runs=1, arms=arms, evaluate="returns"))], store, hands)["little"]
    finally:
        hands.close()
    assert tally.done == 1
    (failed,) = tally.failed
    assert failed.error == "it hung 2 times: a step of its environment took more than 4 s"


@pytest.mark.parametrize(("script", "code"), [
    ("with watched(): time.sleep(60)", HUNG),
    ("with watched():\n  for _ in range(30): time.sleep(0.1); advance()", 0),
    ("with watched(): pass\ntime.sleep(2)", 0),
])  # fmt: skip
def test_only_a_loop_that_does_not_advance_is_stopped(script, code):
    before = "import time; from vpac.liveness import advance, guard, watched; guard(1.0)\n"
    assert subprocess.run([sys.executable, "-c", before + script], check=False, timeout=60).returncode == code


def test_after_a_break_nobody_is_overdue(monkeypatch):
    """The machine slept, or the driver was stopped: the clock has jumped, and the workers could not speak either."""
    hands = Processes(1, time_limit=60.0, silence=60.0)
    hands._workers.append(pool._Worker(None, None, at=pool.deque([None]), heard=True))
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 1e6)
    assert hands._overdue() == []
    for tick in range(50):
        monkeypatch.setattr(time, "monotonic", lambda tick=tick: now + 1e6 + 1.0 + tick)
        assert hands._overdue() == []
    for jump in (100, 200, 300, 400):
        monkeypatch.setattr(time, "monotonic", lambda jump=jump: now + 1e6 + jump)
        assert hands._overdue() == []
    monkeypatch.setattr(time, "monotonic", lambda: now + 1e6 + 500.0)
    ((_, why),) = hands._overdue()
    assert "no sign of life for 60 s" in why


def test_the_time_of_day_and_the_speed_of_the_disk_do_not_matter(tmp_path, monkeypatch):
    plans = [plan(little(runs=1))]
    carry_out_studies(plans, Store(tmp_path / "a"), Serial())
    sync, day = os.fsync, iter(range(10**9, 0, -(10**5)))
    monkeypatch.setattr(time, "time", lambda: float(next(day)))
    monkeypatch.setattr(os, "fsync", lambda handle: (time.sleep(0.05), sync(handle)))
    tally = carry_out_studies(plans, Store(tmp_path / "b"), Serial())["little"]
    assert (tally.done, tally.seconds > 0.0) == (2, True)
    assert contents(Store(tmp_path / "a")) == contents(Store(tmp_path / "b"))


def test_a_time_limit_needs_processes_that_can_be_stopped():
    assert isinstance(make_executor("processes", 1), Serial)
    assert isinstance(make_executor("processes", 1, time_limit=5.0), Processes)
    for name, limit in (("serial", 5.0), ("ray", -1.0), ("processes", 0.0), ("processes", float("nan"))):
        with pytest.raises(UserError, match="time limit"):
            make_executor(name, 2, time_limit=limit)
