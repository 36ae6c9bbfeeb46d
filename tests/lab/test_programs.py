"""Studies in environments of pure functions: one compiled program trains all runs, with the results of single runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jax")

from lab.test_frontier import spec
from tiny import contents
from vpac.interruption import Terminated, handled, is_asked
from vpac.lab.experiments.spec import Arm, Experiment
from vpac.lab.frontier import PriceChoice, trace_frontier
from vpac.lab.kinds.task import program_of
from vpac.lab.store.backend import Scratch
from vpac.lab.store.run import runs_of
from vpac.lab.store.store import Store
from vpac.lab.workers.pool import Processes, Serial, take_program
from vpac.lab.workers.worker import carry_out, carry_out_batch

WORLD = "jax:vpac/RiskyShortcut-v0"
SMALL = {"envs": 4, "steps": 16, "epochs": 1, "minibatch": 32, "hidden": [8], "checkpoint_every": 2}
"""Iterations of 64 steps, a checkpoint after every second."""


def runs(count=2, **changes):
    """Of two prices."""
    experiment = Experiment(**{
        "name": "little", "title": "A little study", "kind": "deep", "env": WORLD, "algorithm": "vpac-ppo", "settings": SMALL,
        "steps": 64 * 5, "episodes": 20, "runs": count,
        "arms": tuple(Arm(label=f"{psi}", settings={"psi": psi}) for psi in (0.0, 0.1)),
    } | changes)  # fmt: skip
    return [run for arm in experiment.arms for run in runs_of(experiment, arm, count)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The store of the same runs, one by one."""
    store = Store(tmp_path_factory.mktemp("alone"))
    assert [carry_out(store, run).status for run in runs()] == ["finished"] * 4
    return store


def test_runs_differ_from_their_program_by_seed_and_price_alone():
    of = [program_of(run.task) for run in runs()]
    assert set(of) == {of[0]} != {None}
    assert program_of(runs(settings=SMALL | {"epochs": 2})[0].task) not in of
    assert program_of(runs(algorithm="vaac-ppo")[0].task) not in of
    assert program_of(runs(env="vpac/RiskyShortcut-v0")[0].task) is None
    assert program_of(runs(wrappers=[("gymnasium.wrappers:TimeLimit", {"max_episode_steps": 9})])[0].task) is None
    task = runs()[0].task
    one, other = (program_of(task | {"settings": task["settings"] | {"psi": psi}}) for psi in ("conditioned", 0.3))
    assert other == of[0] != one


def test_a_batch_takes_all_runs_of_a_program_and_leaves_the_others_in_order():
    mixed = [*runs(), *runs(env="vpac/RiskyShortcut-v0"), *runs(3, settings=SMALL | {"epochs": 2})]
    waiting = deque([mixed[4], mixed[0], mixed[5], *mixed[1:4], *mixed[6:]])
    assert [run.name for run in take_program(waiting, 2)] == [mixed[4].name]
    assert [run.name for run in take_program(waiting, 2)] == [run.name for run in mixed[:4]]
    assert [run.name for run in waiting] == [run.name for run in mixed[5:]]
    assert len(Processes(2, time_limit=9.0)._take(deque(mixed))) == 1


def test_runs_in_threads_have_the_bytes_that_they_have_alone(alone, tmp_path):
    store = Store(tmp_path / "results")
    outcomes = carry_out_batch(store, runs(), cores=2)
    assert sorted((o.name, o.status) for o in outcomes) == sorted((run.name, "finished") for run in runs())
    assert all(o.seconds > 0.0 for o in outcomes)
    assert contents(store) == contents(alone)
    assert [o.status for o in carry_out_batch(store, runs(), cores=2)] == ["found"] * 4


def test_a_run_that_fails_does_not_stop_the_others(alone, tmp_path, monkeypatch):
    from vpac.lab.kinds import deep

    measure, bad = deep.measure, runs()[1]

    def measured(agent, task):
        if agent.seed == bad.seed and agent.options.psi == 0.0:
            raise RuntimeError("no luck")
        return measure(agent, task)

    monkeypatch.setattr(deep, "measure", measured)
    store = Store(tmp_path / "results")
    outcomes = carry_out_batch(store, runs(), cores=2)
    assert sorted(o.status for o in outcomes) == ["failed", *["finished"] * 3]
    assert next(o for o in outcomes if not o.well).last_line == "RuntimeError: no luck"
    assert contents(store).items() < contents(alone).items()


def test_an_interrupted_chunk_goes_on_from_its_checkpoints_to_the_same_bytes(alone, tmp_path, monkeypatch):
    store, keep, kept = Store(tmp_path / "results"), Scratch.keep, []

    def signalled(scratch):
        keep(scratch)
        kept.append(scratch)
        if len(kept) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
            while not is_asked():  # the main thread hears of it when it is its turn
                time.sleep(0.001)

    monkeypatch.setattr(Scratch, "keep", signalled)
    with handled(), pytest.raises(Terminated):
        carry_out_batch(store, runs(), cores=1)
    assert len(store.names()) <= 1
    assert len(kept) <= 3  # what was underway came to its checkpoint, the rest did not begin
    monkeypatch.undo()
    assert {o.status for o in carry_out_batch(store, runs(), cores=2)} <= {"finished", "found"}
    assert contents(store) == contents(alone)


def test_a_frontier_is_the_same_by_any_executor(tmp_path):
    question = spec(WORLD, settings=SMALL, length=64 * 3, seeds=2, measure=20)
    found = {}
    for executor in (Serial(), Processes(2)):
        store = Store(tmp_path / type(executor).__name__)
        try:
            frontier = trace_frontier(question, PriceChoice(psis=(0.1,)), store, executor)
        finally:
            executor.close()
        assert not frontier.failed
        found[type(executor)] = contents(store)
    assert found[Serial] == found[Processes]
    assert len(found[Serial]) >= 8


FOUR_DEVICES = """
import sys
import time
sys.path[:0] = [{tests!r}, {folder!r}]
from test_programs import Store, carry_out_batch, runs
store = Store({store!r})
print([outcome.status for outcome in carry_out_batch(store, runs(), cores=1)])
"""


@pytest.mark.slow  # compiles for four devices in a new process
def test_a_study_on_four_devices_is_the_one_alone_but_for_rounding(alone, tmp_path):
    folder, store = Path(__file__).parent, tmp_path / "results"
    code = FOUR_DEVICES.format(folder=str(folder), tests=str(folder.parent), store=str(store))
    flags = os.environ.get("XLA_FLAGS", "")
    env = os.environ | {"XLA_FLAGS": f"{flags} --xla_force_host_platform_device_count=4"}
    found = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True, timeout=600
    )
    assert found.stdout.splitlines()[-1] == str(["finished"] * 4)
    for run in runs():
        one, other = (place.read(run.name).policy() for place in (alone, Store(store)))
        for name in (name for name in one if name.startswith(("weight.", "bias."))):
            np.testing.assert_allclose(other[name], one[name], rtol=1e-3, atol=1e-3)
