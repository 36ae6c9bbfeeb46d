"""Tiny runs are stored in batches: no run is finished before all its files are durable, and no run is stored in part."""

from __future__ import annotations

import errno
import os
from collections import deque
from pathlib import Path

import pytest

from tiny import contents, little
from vpac import files
from vpac.interruption import Terminated
from vpac.lab.store.run import runs_of
from vpac.lab.store.store import Store
from vpac.lab.workers import worker
from vpac.lab.workers.pool import BATCH_RUNS, BATCH_SECONDS, Processes
from vpac.lab.workers.worker import carry_out, carry_out_batch


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results")


def runs(count: int = 3):
    experiment = little(runs=count, episodes=2, every=1)
    return list(runs_of(experiment, experiment.arms[0], count))


def test_a_batch_gives_the_same_bytes_as_one_run_after_the_other(store, tmp_path):
    given, one_by_one = runs(), Store(tmp_path / "others")
    assert [(o.name, o.status) for o in carry_out_batch(store, given)] == [(run.name, "finished") for run in given]
    assert [carry_out(one_by_one, run).status for run in given] == ["finished"] * 3
    assert contents(store) == contents(one_by_one)
    assert [(o.status, o.well, o.seconds) for o in carry_out_batch(store, given)] == [("found", True, 0.0)] * 3


def test_nothing_gets_its_name_before_everything_of_it_is_durable(store, monkeypatch):
    calls = []
    together, sync, rename = files.sync_folders, os.fsync, os.rename

    def sync_folders(folders, handle):
        assert store.names() == []
        calls.append({Path(folder).name: len(os.listdir(folder)) for folder in folders})
        together(folders, handle)

    monkeypatch.setattr(files, "sync_folders", sync_folders)
    monkeypatch.setattr(
        os, "fsync", lambda handle: (calls.append(os.readlink(f"/proc/self/fd/{handle}")), sync(handle))
    )
    monkeypatch.setattr(os, "rename", lambda old, new, **how: (calls.append("rename"), rename(old, new, **how)))
    carry_out_batch(store, runs())
    parts = {f".{name}.part": 3 for name in store.names()}
    assert len(parts) == 3
    assert calls == [parts, "rename", "rename", "rename", os.fspath(store.root / "runs")]


@pytest.mark.parametrize("when", range(5))
def test_a_disk_that_fails_leaves_whole_runs_or_none(store, monkeypatch, when):
    given, left = runs(), [when]

    def failing(call):
        def instead(*arguments, **named):
            left[0] -= 1
            if left[0] == -1:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return call(*arguments, **named)

        return instead

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing(os.fsync))
        patch.setattr(os, "rename", failing(os.rename))
        patch.setattr(files, "sync_folders", failing(files.sync_folders))
        outcomes = carry_out_batch(store, given)
    assert left[0] < 0
    assert {o.status for o in outcomes} == {"unwritable"}
    assert all("No space left on device; it needs" in o.error for o in outcomes)
    assert list((store.root / "runs").glob(".*")) == []
    for name in store.names():
        store.read(name)
    assert all(carry_out(Store(store.root), run).well for run in given)  # no lock is held


def test_what_is_done_is_stored_when_a_batch_is_interrupted(store, monkeypatch):
    given, perform = runs(), worker.perform

    def interrupted(run, scratch):
        if run == given[1]:
            raise Terminated
        return perform(run, scratch)

    monkeypatch.setattr(worker, "perform", interrupted)
    with pytest.raises(Terminated):
        carry_out_batch(store, given)
    assert store.names() == [given[0].name]
    store.read(given[0].name)
    with store.lock(given[0].name) as free:
        assert free


def test_only_runs_that_are_known_to_be_short_share_a_task():
    given, pool = runs(BATCH_RUNS + 1), Processes(1)
    for seconds, most in ((None, 1), (1e-4, BATCH_RUNS), (0.4 * BATCH_SECONDS, 2), (2.0 * BATCH_SECONDS, 1)):
        pool._seconds = {} if seconds is None else {id(given[0].task): seconds}
        assert pool._take(deque(given)) == given[:most]
    pool._seconds, pool._alone = {id(given[0].task): 1e-4}, {given[2].name}
    assert pool._take(deque(given)) == given[:2]  # the process of the third has died
    assert pool._take(deque(given[2:])) == given[2:3]
