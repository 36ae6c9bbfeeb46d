"""Processes that read beside this one: the same answers, in order, whatever happens to them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from operator import neg
from pathlib import Path

import pytest

from tiny import little
from vpac.lab.store import index, readers, store
from vpac.lab.store.readers import Ahead, Crew, _serve
from vpac.lab.store.store import Damaged, Store
from vpac.lab.workers.pool import Serial
from vpac.lab.workers.study import carry_out_studies, plan


@pytest.fixture(scope="module")
def pair():
    made = Crew(2)
    yield made
    made.close()


def members(crew):
    return [process.pid for process, _ in crew._members]


def test_answers_come_in_order_from_as_few_or_as_many_as_there_are(pair):
    for crew in (Crew(0), pair):
        assert list(crew.map(neg, range(100))) == [-i for i in range(100)]
        assert list(crew.map(neg, [])) == []
        assert list(crew.map(neg, [7])) == [-7]


@pytest.mark.timeout(60)
def test_parts_and_answers_that_no_pipe_holds(pair):
    assert list(pair.map(str.upper, ["x" * 10**7] * 6)) == ["X" * 10**7] * 6


def test_of_one_that_dies_nothing_is_lost(pair):
    answers = pair.map(neg, range(100))
    found = [next(answers)]
    os.kill(members(pair)[0], signal.SIGKILL)
    assert found + list(answers) == [-i for i in range(100)]
    killed = members(pair)[0]
    assert list(pair.map(neg, range(9))) == [-i for i in range(9)]
    assert killed not in members(pair)  # another one was called


def test_answers_that_nobody_wants_are_not_taken_for_others(pair):
    answers = pair.map(neg, range(100))
    next(answers)
    answers.close()
    assert list(pair.map(abs, range(5))) == list(range(5))


def test_they_are_deaf_to_ctrl_c_and_leave_when_they_are_not_needed(monkeypatch):
    crew = Crew(1)
    assert list(crew.map(neg, [1])) == [-1]
    os.kill(members(crew)[0], signal.SIGINT)
    assert list(crew.map(neg, [2])) == [-2]
    first = members(crew)
    monkeypatch.setattr("vpac.lab.store.readers.IDLE", 0.0)
    reading, writing = os.pipe()
    before = signal.getsignal(signal.SIGINT)
    try:
        _serve(reading)  # nobody says anything: it returns
    finally:
        signal.signal(signal.SIGINT, before)
        os.close(writing)
    assert members(crew) == first
    crew.close()


def test_they_end_with_whoever_asked():
    code = (
        "from operator import neg; from vpac.lab.store.readers import Crew; import os, signal; c = Crew(2);"
        "list(c.map(neg, [1, 2])); print(*[p.pid for p, _ in c._members], flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=False)
    pids = done.stdout.split()
    assert len(pids) == 2
    for _ in range(100):
        if not any(Path(f"/proc/{pid}").exists() for pid in pids):
            return
        time.sleep(0.05)
    raise AssertionError("they are still there")


def test_what_is_not_there_or_was_taken_is_for_whoever_asks_to_find_out():
    coming = Ahead(["a", "b", "c"], iter([1, None, 3]))
    assert (coming.has("c"), coming.has("b"), coming.has("d")) == (True, False, False)
    assert [coming.take(name) for name in "abcdc"] == [1, None, 3, None, None]


@pytest.fixture
def runs(tmp_path, pair, monkeypatch):
    """A store, which is taken for one of very many runs."""
    made = Store(tmp_path)
    carry_out_studies([plan(little(runs=3))], made, Serial())
    monkeypatch.setattr(readers, "CHUNK", 2)
    for module in (store, index):
        monkeypatch.setattr(module, "MANY", 2)
    for module in (readers, index):
        monkeypatch.setattr(module, "crew", lambda: pair)
    return made


def test_runs_are_the_same_whoever_reads_them(runs, monkeypatch):
    alone, names = Store(runs.root), runs.names()
    there = Store(runs.root)
    there.read_ahead(names)
    monkeypatch.setattr(there, "parts", None)  # nothing is read here
    for name in reversed(names):
        assert there.has(name)
        assert there.read(name) == alone.read(name).__class__(*[
            getattr(alone.read(name), part) for part in ("run", "final", "about", "files")
        ], there.place)  # fmt: skip


def test_damage_is_found_by_whoever_asks_and_the_rest_is_read(runs):
    names = runs.names()
    (runs.root / "runs" / names[1] / "policy.safetensors").write_bytes(b"nonsense")
    there = Store(runs.root)
    there.read_ahead([*names, "another-0123456789abcdef"])
    assert not there.has("another-0123456789abcdef")
    with pytest.raises(Damaged, match=r"policy\.safetensors is not what was written"):
        there.read(names[1])
    assert [there.read(name).run.name for name in names if name != names[1]] == [n for n in names if n != names[1]]


def test_the_index_is_the_same_whoever_reads_the_records(runs, monkeypatch):
    (runs.root / "runs" / runs.names()[1] / "run.json").write_bytes(b"nonsense")
    far = index.index(Store(runs.root))
    (runs.root / "index.parquet").unlink()
    monkeypatch.setattr(index, "MANY", 10**9)
    assert index.index(Store(runs.root)) == far
    assert [row["status"][:7] for row in far].count("damaged") == 1
