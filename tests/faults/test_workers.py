"""Runs that hang or run out of memory, workers that die, clocks that jump: the study continues and reports it."""

from __future__ import annotations

import os
import time

import pytest

from tiny import contents, little
from vpac.errors import UserError
from vpac.lab.experiments.spec import Arm
from vpac.lab.store.store import Store
from vpac.lab.workers.pool import Processes, Serial, make_executor
from vpac.lab.workers.study import carry_out_studies, plan
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
