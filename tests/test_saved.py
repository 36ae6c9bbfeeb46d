"""A damaged folder of an agent is an error of `vpac evaluate`, never a wrong number."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tiny import little
from vpac import UserError, saved
from vpac.cli import main
from vpac.evaluation import load_agent
from vpac.lab.kinds.saved_agents import find_agents
from vpac.lab.store.records import index
from vpac.lab.store.run import Run, runs_of
from vpac.lab.store.store import Result, Store, arrays_of
from vpac.lab.workers.worker import carry_out
from vpac.tabular import VPAC


def changed(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new, 1))


def refused(folder: Path, capsys: pytest.CaptureFixture, *words: str) -> str:
    """What `vpac evaluate` says when it ends with code 2."""
    capsys.readouterr()
    found = main(["evaluate", str(folder), "--episodes", "2", "--out", str(folder.parent / "out"), *words])
    assert found == 2
    return capsys.readouterr().err


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder of each family, as `vpac train` writes it."""
    pytest.importorskip("jax")
    root = tmp_path_factory.mktemp("trained")
    noisy = ["--wrap", "RewardNoise", "std=2", "--episodes", "3"]
    assert main(["train", "vpac", "vpac/CatchUp-v0", *noisy, "--out", str(root / "vpac"), "--json"]) == 0
    small = ["--steps", "16", "--envs", "2", "--option", "steps=8", "hidden=[4]"]
    assert main(["train", "ppo", "CartPole-v1", *small, "--out", str(root / "ppo"), "--json"]) == 0
    return root


@pytest.fixture
def folder(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "trained")
    return tmp_path / "trained"


@pytest.mark.parametrize("name", ["vpac/run-0", "ppo"])
def test_a_missing_file_is_named(folder, capsys, name):
    (folder / name / "agent.json").unlink()
    assert "agent.json is missing" in refused(folder / name, capsys)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [("vpac/run-0", b'"std": 2', b'"std": 3'), ("ppo", b"CartPole-v1", b"CartPole-v0"), ("ppo", b"PPO", b"PPN")],
)
def test_a_bit_of_the_note(folder, capsys, name, old, new):
    changed(folder / name / "agent.json", old, new)
    assert "agent.json is not what was written" in refused(folder / name, capsys)


@pytest.mark.parametrize("name", ["vpac/run-0", "ppo"])
def test_a_bit_of_the_weights(folder, capsys, name):
    path = folder / name / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + bytes([path.read_bytes()[-1] ^ 1]))
    assert "weights.safetensors is not what was written" in refused(folder / name, capsys)


def test_a_stored_run_without_its_policy(tmp_path, capsys):
    experiment = little(runs=1)
    (run,) = runs_of(experiment, experiment.arms[0], 1)
    store = Store(tmp_path)
    store.write(run, Result({"episode": [1]}, {}, {}), {})
    assert "has no theta" in refused(store.root / "runs" / run.name, capsys)


class Mine(VPAC):
    """A class of a user."""


def test_a_class_of_a_user_loads_its_agents(tmp_path):
    folder = Mine("vpac/CatchUp-v0").learn(2).save(tmp_path / "agent")
    assert Mine.load(folder).episodes == 2
    with pytest.raises(UserError, match="unknown algorithm 'Mine'"):
        load_agent(folder)


def test_the_note_is_read_once(tmp_path, monkeypatch):
    folder = VPAC("vpac/CatchUp-v0").learn(2).save(tmp_path / "agent")
    real, seen = saved.read_bytes, []
    monkeypatch.setattr(saved, "read_bytes", lambda path, *most: seen.append(path.name) or real(path, *most))
    load_agent(folder)
    assert seen.count("agent.json") == 1


@pytest.mark.parametrize(("name", "kind", "unit"), [("vpac/run-0", "training", "episodes"), ("ppo", "deep", "steps")])
def test_a_training_has_the_record_of_a_run(folder, capsys, name, kind, unit):
    record = json.loads((folder / name / "run.json").read_text(encoding="utf-8"))
    run = Run.read(record)
    assert record["name"] == run.name
    assert (run.task["kind"], run.task[unit]) == (kind, {"episodes": 3, "steps": 16}[unit])
    assert {"agent.json", "weights.safetensors", "metrics.parquet"} <= set(record["files"])
    assert record["about"]["versions"]["vpac"]
    changed(folder / name / "run.json", b'"kind"', b'"kinc"')
    assert "run.json is not what was written" in refused(folder / name, capsys)
    (folder / name / "run.json").unlink()  # as earlier versions wrote it
    out = str(folder / "out")
    assert main(["evaluate", str(folder / name), "--episodes", "2", "--json", "--out", out]) == 0


@pytest.mark.parametrize("name", ["vpac/run-0", "ppo"])
def test_a_training_is_a_run_like_those_of_a_study(folder, tmp_path, name):
    """What a study asks of a run has the fields, the numbers and the policy of the training."""
    store = Store(tmp_path / "store")
    shutil.copytree(folder, store.root / "train")
    training = store.read(f"train/{name}")
    assert carry_out(store, training.run).status == "finished"
    stored = store.read(training.run.name)
    assert stored.final == training.final
    assert stored.metrics().equals(training.metrics(), null_equal=True)
    learned = arrays_of(training.file("policy.safetensors" if name == "ppo" else "weights.safetensors"))
    for array, values in stored.policy().items():
        np.testing.assert_array_equal(values, learned[array])
    rows = {row["name"]: row for row in index(store)}
    own = {"name": "", "stamp": 0, "time": "", "seconds": 0.0}
    assert rows[f"train/{name}"] | own == rows[training.run.name] | own
    assert {"mean", "variance"} <= set(training.final)
    experiment = little(runs=1) if name != "ppo" else little(runs=1, kind="deep", algorithm="ppo")
    (run,) = runs_of(experiment, experiment.arms[0], 1)
    assert set(run.task) | {"wrappers"} == set(training.run.task)


def test_another_agent_in_the_folder_of_a_training(folder, capsys):
    for name in ("agent.json", "weights.safetensors"):
        path = VPAC("vpac/CatchUp-v0").learn(2).save(folder / "other") / name
        shutil.copy(path, folder / "vpac" / "run-0" / name)
    assert "agent.json is not what was written" in refused(folder / "vpac", capsys)


def test_an_agent_that_is_saved_again_needs_no_record(folder):
    home = folder / "vpac" / "run-0"
    VPAC.load(home).learn(1).save(home)
    assert not (home / "run.json").exists()
    assert len(find_agents(str(home), folder)) == 1
