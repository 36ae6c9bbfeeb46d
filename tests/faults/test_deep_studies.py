"""A stopped study of PPO runs: its runs write checkpoints, resume from them, and end with the same bytes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tiny import contents
from vpac.cli import main
from vpac.lab.experiments.catalogue import read_experiment
from vpac.lab.store.store import Store
from vpac.lab.workers.pool import Serial
from vpac.lab.workers.study import carry_out_studies, check, plan

pytest.importorskip("jax")
pytestmark = pytest.mark.slow  # studies of PPO in new processes, each of which compiles
LATER = 0.1
"""Seconds after a checkpoint; the some twenty steps in them are lost unless the run continues to the next checkpoint."""
SPEC = """
name = "deep"
kind = "deep"
env = "counted:Counted-v0"
env_settings = {{ log = "{log}" }}
steps = 480
episodes = 2
runs = 1
figures = []
settings = {{ envs = 2, steps = 8, epochs = 1, minibatch = 16, hidden = [4], checkpoint_every = 3 }}
arms = [
    {{ label = "PPO", algorithm = "ppo" }},
    {{ label = "VPAC", algorithm = "vpac-ppo", settings = {{ psi = 0.1 }} }},
]
"""


def checkpoints(store: Store) -> dict[str, set[str]]:
    """Those of each run that are whole."""
    found: dict[str, set[str]] = {}
    for note in store.root.glob("checkpoints/*/[0-9]*/agent.json"):
        found.setdefault(note.parts[-3], set()).add(note.parts[-2])
    return found


def steps(log: Path) -> int:
    """Steps taken so far, by all processes; no other file is in this folder."""
    return sum(path.stat().st_size for path in log.iterdir())


def replayed(found: dict[str, set[str]]) -> int:
    """Steps that runs take again to come back to the episodes of their last checkpoints; each third call only begins one."""
    calls = [8 * int(max(iterations)) for iterations in found.values()]
    return sum(2 * (each - each // 3) for each in calls)


def test_it_goes_on_to_the_same_bytes_and_no_step_is_learned_twice(tmp_path, monkeypatch, capfd):
    spec, log, store = tmp_path / "deep.toml", tmp_path / "log", Store(tmp_path / "disturbed")
    log.mkdir()
    spec.write_text(SPEC.format(log=log), encoding="utf-8")
    tests = str(Path(__file__).parents[1])
    monkeypatch.syspath_prepend(tests)
    experiment = read_experiment(spec)
    check(experiment)
    looked = steps(log)  # before anything is run, each command takes a few steps
    command = ["sweep", str(spec), "--store", str(store.root), "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "vpac", *command, "--jobs", "2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([tests, *sys.path])},
    )  # fmt: skip
    while not checkpoints(store):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    time.sleep(LATER)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 143, err
    assert f"To go on: vpac sweep {spec}" in err
    left = checkpoints(store)
    assert left  # of both, unless one had not begun
    assert (store.names(), "Traceback" in err) == ([], False)
    assert list((store.root / "checkpoints").rglob(".*")) == []

    def interrupt() -> None:
        while checkpoints(store) == left:
            time.sleep(0.01)
        time.sleep(LATER)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    assert main([*command, "--executor", "serial"]) == 130
    thread.join()
    then = checkpoints(store)
    moved = {name: iterations for name, iterations in left.items() if then[name] != iterations}
    assert (store.names(), len(moved)) == ([], 1)
    capfd.readouterr()
    assert main([*command, "--executor", "serial"]) == 0
    tally = json.loads(capfd.readouterr().out)["experiments"]["deep"]
    assert (tally["kept"] + tally["done"], tally["failed"], checkpoints(store)) == (2, [], {})
    before, whole = steps(log), Store(tmp_path / "whole")
    carry_out_studies([plan(experiment, full=True)], whole, Serial())
    assert contents(store) == contents(whole)
    assert before - 4 * looked - replayed(moved) - replayed(then) == steps(log) - before
