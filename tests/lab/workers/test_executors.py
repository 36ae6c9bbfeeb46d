from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from multiprocessing import active_children

import numpy as np
import pytest

from tiny import UNDRAWN, contents, little
from vpac.cli import main
from vpac.errors import UserError
from vpac.lab.experiments.catalogue import read_experiment
from vpac.lab.experiments.spec import Arm
from vpac.lab.store.store import Store
from vpac.lab.workers.pool import Processes, Serial, make_executor
from vpac.lab.workers.study import carry_out_studies, plan

RUNS = 70
"""Of the study that is disturbed: many more than are done while a process starts."""


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results")


@pytest.fixture(scope="module")
def pool():
    """Two workers for several studies, as a pool lives until it is closed: to start one takes longer than a study."""
    hands = make_executor("processes", 2)
    assert isinstance(hands, Processes)
    yield hands
    hands.close()


def test_every_executor_gives_the_same_bytes(store, tmp_path, pool):
    plans = [plan(little())]
    carry_out_studies(plans, store, Serial())
    other = Store(tmp_path / "other")
    assert carry_out_studies(plans, other, pool)["little"].done == 12
    assert contents(store) == contents(other)


def broken_study():
    arms = (
        Arm(label="good", algorithm="ac"),
        Arm(label="bad", algorithm="vpac", settings={"psi": -1.0}),
        Arm(label="diverging", algorithm="vpac", settings={"psi": 1e308}),
    )
    return little(runs=2, arms=arms)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_failing_run_is_recorded_and_the_others_go_on(store, jobs, pool):
    hands = pool if jobs == 2 else make_executor("processes", jobs)
    tally = carry_out_studies([plan(broken_study())], store, hands)["little"]
    assert tally.done == 2
    assert sorted(outcome.status for outcome in tally.failed) == ["diverged", "diverged", "failed", "failed"]
    notes = [json.loads(path.read_text(encoding="utf-8")) for path in (store.root / "failed").glob("*.json")]
    assert len(notes) == 4
    assert any("psi must be" in note["error"] and "Traceback" in note["error"] for note in notes)
    assert any("not finite" in note["error"] and "seed" in note["error"] for note in notes)


def test_a_worker_that_is_killed_is_replaced(store, tmp_path, pool):
    plans, before = [plan(little(runs=8, episodes=4000))], pool.retried
    killed = []

    def kill_one(outcome):
        if not killed:
            victim = active_children()[0].pid
            os.kill(victim, signal.SIGKILL)
            killed.append(victim)

    tally = carry_out_studies(plans, store, pool, kill_one)["little"]
    assert killed
    assert pool.retried == before + 1
    assert (tally.done + tally.found, tally.failed) == (16, [])  # found: killed before it could say that it was done
    undisturbed = Store(tmp_path / "undisturbed")
    carry_out_studies(plans, undisturbed, Serial())
    assert contents(store) == contents(undisturbed)


def test_the_number_of_jobs_is_checked():
    with pytest.raises(UserError, match="jobs must be a whole number from 1 up, got 0"):
        make_executor("processes", 0)


def test_a_run_that_kills_its_process_twice_fails_alone(store, pool):
    arms = (
        Arm(label="good", algorithm="ac"),
        Arm(label="deadly", algorithm="ac", env="killer:Killer-v0", settings={"gamma": 0.9}),
    )
    before = pool.retried
    tally = carry_out_studies([plan(little(runs=2, arms=arms))], store, pool)["little"]
    assert tally.done == 2
    assert pool.retried == before + 2
    assert [outcome.error for outcome in tally.failed] == [
        "its process died (SIGKILL), 2 times; SIGKILL often means that memory ran out"
    ] * 2
    assert len(store.failures()) == 2


def test_killed_workers_are_replaced_all_at_once(store, tmp_path, pool):
    plans, seen = [plan(little(runs=30, episodes=2000))], []

    def kill_all(outcome):
        seen.append(outcome)
        if len(seen) == 20:  # once: a run whose process dies twice is reported as failed
            for process in active_children():
                os.kill(process.pid, signal.SIGKILL)

    tally = carry_out_studies(plans, store, pool, kill_all)["little"]
    assert (tally.done + tally.found, tally.failed) == (60, [])
    undisturbed = Store(tmp_path / "undisturbed")
    carry_out_studies(plans, undisturbed, Serial())
    assert contents(store) == contents(undisturbed)


def test_a_worker_that_is_killed_while_it_is_idle_is_replaced_and_none_is_left_behind(store, pool):
    assert carry_out_studies([plan(little(runs=1))], store, pool)["little"].done == 2
    workers = [*pool._free, *pool._busy.values()]
    for process in active_children():
        os.kill(process.pid, signal.SIGKILL)
    while any(worker.active for worker in workers):  # until its death is noticed
        time.sleep(0.01)
    assert carry_out_studies([plan(little(runs=3))], store, pool)["little"].done == 4
    pids = [process.pid for process in active_children()]
    assert pids
    pool.close()  # and another study would start workers anew
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


class Command:
    """`vpac sweep` of a little study as a process of its own, by default with workers of its own."""

    def __init__(self, spec, root, *executor):
        executor = executor or ("--jobs", "2")
        command = [sys.executable, "-m", "vpac", "sweep", str(spec), "--store", str(root), "--json", *executor]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def end(self):
        out, err = self.process.communicate(timeout=240)
        return self.process.returncode, out, err


def tally_of(out):
    return json.loads(out)["experiments"]["little"]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The bytes of the study that the next tests disturb, and its file."""
    folder = tmp_path_factory.mktemp("undisturbed")
    spec = folder / "little.toml"
    spec.write_text(UNDRAWN.format(runs=RUNS // 2, episodes=2000), encoding="utf-8")
    store = Store(folder / "results")
    carry_out_studies([plan(read_experiment(spec), full=True)], store, Serial())
    return spec, contents(store)


def wait_for_runs(store, count, process):
    while len(store.names()) < count:
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)


def stamps(store):
    """Finished runs, each with what changes when it is written once more."""
    found = {name: (store.root / "runs" / name / "run.json").stat() for name in store.names()}
    return {name: (state.st_ino, state.st_mtime_ns) for name, state in found.items()}


def test_a_killed_study_goes_on_where_it_stopped(store, undisturbed, capfd):
    """And never does again what was finished: records stay as they are, and only what is left is counted as done."""
    spec, expected = undisturbed
    rng = np.random.default_rng(5)
    command = Command(spec, store.root)
    wait_for_runs(store, int(rng.integers(1, RUNS // 3)), command.process)  # `make torture` kills a hundred times
    time.sleep(float(rng.random()) * 0.05)
    os.killpg(command.process.pid, signal.SIGKILL)
    command.end()
    finished = stamps(store)
    assert main(["sweep", str(spec), "--store", str(store.root), "--executor", "serial", "--json"]) == 0
    tally = tally_of(capfd.readouterr().out)
    assert 1 <= len(finished) <= tally["kept"]
    assert tally["kept"] + tally["done"] + tally["found"] == RUNS
    now = stamps(store)
    assert {name: now.get(name) for name in finished} == finished
    assert contents(store) == expected
    assert [entry for entry in os.listdir(store.root / "runs") if entry.startswith(".")] == []


def test_ctrl_c_stops_cleanly_and_says_how_to_go_on(store, undisturbed, capfd):
    """And what it says is right: pasted, it goes on."""
    spec, expected = undisturbed
    command = Command(spec, store.root)
    wait_for_runs(store, 5, command.process)
    os.killpg(command.process.pid, signal.SIGINT)
    code, _, err = command.end()
    assert code == 130
    assert "Traceback" not in err
    (suggested,) = (line.partition("To go on: vpac ")[2] for line in err.splitlines() if "To go on: " in line)
    assert suggested == f"sweep {spec} --jobs 2 --store {store.root}"
    done = len(store.names())
    assert 5 <= done < RUNS
    _, listed, _ = run("ps", "-eo", "args")
    assert str(store.root) not in listed
    capfd.readouterr()
    assert main([*shlex.split(suggested), "--json"]) == 0
    assert tally_of(capfd.readouterr().out)["kept"] >= done
    assert contents(store) == expected


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow  # two commands start and share 70 runs
def test_two_processes_on_one_store_share_the_work(store, undisturbed):
    spec, expected = undisturbed
    commands = [Command(spec, store.root), Command(spec, store.root, "--executor", "serial")]
    counts = []
    for command in commands:
        code, out, err = command.end()
        assert code == 0, err
        found = tally_of(out)
        assert found["failed"] == []
        counts.append(found)
    assert contents(store) == expected
    assert [sum(found[key] for key in ("kept", "done", "found")) for found in counts] == [RUNS, RUNS]
    assert sum(found["done"] for found in counts) == RUNS  # each run was done once, by one of the two
    times = [
        json.loads((store.root / "runs" / n / "run.json").read_text(encoding="utf-8"))["about"]["time"]
        for n in store.names()
    ]
    assert len(times) == RUNS
    assert all(re.match(r"20\d\d-", text) for text in times)
