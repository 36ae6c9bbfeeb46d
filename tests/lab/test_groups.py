"""Tiny runs are kept in groups: none is finished before all that it consists of is durable, and none is lost by half."""

from __future__ import annotations

import errno
import os
import signal
from collections import Counter, deque
from pathlib import Path

import pytest

from tiny import contents, little
from vpac.lab.store import folder
from vpac.lab.store.run import runs_of
from vpac.lab.store.store import Store
from vpac.lab.workers import pool, worker
from vpac.lab.workers.pool import AHEAD, MOST, Processes
from vpac.lab.workers.worker import MOMENT, Group, carry_out


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results")


def runs(count: int = 3):
    experiment = little(runs=count, episodes=2, every=1)
    return list(runs_of(experiment, experiment.arms[0], count))


def test_a_run_is_finished_when_its_group_is_settled_and_not_before(store, tmp_path):
    group, given = Group(store), runs()
    assert [group.carry_out(run) for run in given] == [None] * 3
    assert (len(group), store.names()) == (3, [])
    assert [(o.name, o.status) for o in group.settle()] == [(run.name, "finished") for run in given]
    assert (len(group), group.settle()) == (0, [])
    one_by_one = Store(tmp_path / "others")
    assert [carry_out(one_by_one, run).status for run in given] == ["finished"] * 3
    assert contents(store) == contents(one_by_one)
    assert [(o.status, o.well, o.seconds) for o in map(group.carry_out, given)] == [("found", True, 0.0)] * 3


def test_nothing_gets_its_name_before_everything_of_it_is_durable(store, monkeypatch):
    group, calls = Group(store), []
    for run in runs():
        group.carry_out(run)
    together, sync, rename = folder.sync_folders, os.fsync, os.rename

    def sync_folders(folders, witness):
        calls.append({Path(folder).name: len(os.listdir(folder)) for folder in folders})
        together(folders, witness)

    monkeypatch.setattr(folder, "sync_folders", sync_folders)
    monkeypatch.setattr(
        os, "fsync", lambda handle: (calls.append(os.readlink(f"/proc/self/fd/{handle}")), sync(handle))
    )
    monkeypatch.setattr(os, "rename", lambda old, new, **how: (calls.append("rename"), rename(old, new, **how)))
    group.settle()
    parts = {f".{name}.part": 3 for name in store.names()}
    assert len(parts) == 3
    assert calls == [parts, "rename", "rename", "rename", os.fspath(store.root / "runs")]


@pytest.mark.parametrize("when", range(5))
def test_a_disk_that_fails_leaves_whole_runs_or_none(store, monkeypatch, when):
    group, given, left = Group(store), runs(), [when]
    for run in given:
        group.carry_out(run)

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
        patch.setattr(folder, "sync_folders", failing(folder.sync_folders))
        outcomes = group.settle()
    assert left[0] < 0
    assert {o.status for o in outcomes} == {"unwritable"}
    assert all("No space left on device; it needs" in o.error for o in outcomes)
    assert list((store.root / "runs").glob(".*")) == []
    for name in store.names():
        store.read(name)
    assert all(carry_out(Store(store.root), run).well for run in given)  # nobody holds a lock


def test_a_group_is_full_when_it_is_large_heavy_or_late(store, monkeypatch):
    group, given = Group(store), runs()
    assert not group.full
    group.carry_out(given[0])
    monkeypatch.setattr(worker, "MOMENT", 1e9)
    assert not group.full
    for name, value in (("MOMENT", 0.0), ("MOST", 1), ("MOST_BYTES", 1)):
        with monkeypatch.context() as patch:
            patch.setattr(worker, name, value)
            assert group.full, name


def test_a_worker_gets_a_moments_work_of_tiny_runs_and_two_of_others():
    given = runs(MOST + 1)
    known = pool._Worker(None, None)
    for seconds, most in (({}, AHEAD), ({id(given[0].task): 1e-3}, MOST), ({id(given[0].task): 0.1}, 3)):
        known.at.clear()
        for run in given:
            if known.has_room(seconds):
                known.at.append(run)
        assert len(known.at) == most
    assert MOMENT < 0.3


def test_runs_that_were_through_are_not_blamed_for_a_death(store, monkeypatch):
    class Dead:
        exitcode = -9

    first, second, third = runs()
    hands, waiting, deaths = Processes(1), deque(), Counter({first.name: 1, second.name: 1})
    monkeypatch.setattr(pool._Worker, "start", classmethod(lambda cls, stall: None))
    monkeypatch.setattr(pool._Worker, "kill", lambda self: None)
    dead = pool._Worker(Dead(), None, at=deque([second, third]), through={first.name: first})
    hands._workers.append(dead)
    (outcome,) = hands._bury(store, dead, waiting, deaths)
    assert (outcome.name, outcome.status) == (second.name, "failed")
    assert {run.name for run in waiting} == {first.name, third.name}
    assert deaths == {first.name: 1, second.name: 2}


def test_signs_of_life_do_not_make_a_run_younger():
    given = runs()
    alive = pool._Worker(None, None, at=deque(given), age=5.0)
    assert alive.tell(()) == []
    assert alive.age == 5.0
    assert alive.tell([given[0].name]) == [given[0]]
    assert (alive.age, list(alive.at)) == (0.0, given[1:])
    assert alive.tell([given[0].name]) == [given[0]]  # settled
    assert list(alive.at) == given[1:]


def test_runs_do_not_wait_for_one_that_may_be_long(store, monkeypatch):
    """A worker's conversation, spoken by hand: two tiny runs wait together, and not for one of which nothing is known."""
    given, said = runs(3), []
    words = [(store.address, run, expected) for run, expected in zip(given, (0.0, 0.0, MOMENT), strict=True)]

    class Pipe:
        def poll(self):
            return bool(words)

        def recv(self):
            if not words:
                raise EOFError
            return words.pop(0)

        def send(self, message):
            if any(message):
                said.append([list(message[0]), [outcome.name for outcome in message[1]]])

    monkeypatch.setattr(worker, "MOMENT", 1e9)
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    pool.serve(Pipe())
    one, two, three = (run.name for run in given)
    assert said == [[[one], []], [[two], []], [[], [one, two]], [[three], []], [[], [three]]]
    assert set(store.names()) == {one, two, three}
