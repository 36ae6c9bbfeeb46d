"""Trackers get the numbers of metrics.jsonl, step by step. Each is tested if its library is installed."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing

import pytest

pytest.importorskip("jax")

from cli.test_cli import run
from vpac.deep import VPACPPO
from vpac.deep.logs import Tracker
from vpac.deep.trackers import TRACKERS, track
from vpac.errors import UserError


def agent():
    return VPACPPO("vpac/CatchUp-v0", psi=0.1, envs=2, steps=16, epochs=1, minibatch=16, hidden=(4,))


class Kept(Tracker):
    """A tracker of a user's own."""

    def __init__(self, agent):
        super().__init__(agent)
        self.rows = []

    def write(self, scalars, step):
        self.rows.append((step, scalars))


def test_a_tracker_of_ones_own_is_a_class_with_write():
    learner = agent()
    with closing(Kept(learner)) as log:
        learner.learn(96, callback=log)
    assert [step for step, _ in log.rows] == [32, 64, 96]
    for (_, scalars), row in zip(log.rows, learner.history, strict=True):
        assert scalars["rollout/return_mean"] == row["return_mean"]
        assert scalars["variance/psi"] == row["psi"]
        assert scalars["time/total_timesteps"] == row["timesteps"]
        assert scalars["train/loss"] == row["policy_loss"] + row["value_loss"]


def test_what_is_not_installed_is_said_in_words(monkeypatch, tmp_path):
    for name in TRACKERS:
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(UserError, match=rf"pip install 'vpac\[{name}\]'"):
            track(name, agent(), tmp_path)
    (tmp_path / "trackio.py").write_text("import gradio_that_is_not_there")
    monkeypatch.delitem(sys.modules, "trackio")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=r"its extra \(No module named 'gradio_that_is_not_there'\)"):
        track("trackio", agent(), tmp_path)
    with pytest.raises(UserError, match=r"unknown tracker 'wand': .* did you mean 'wandb'"):
        track("wand", agent(), tmp_path)


def learned(name, folder):
    """An agent that learned in two parts with a tracker, as a resumed run does."""
    learner = agent()
    for _ in range(2):
        with closing(track(name, learner, folder)) as log:
            learner.learn(64, callback=log)
    return learner


def test_weights_and_biases_offline(monkeypatch, tmp_path):
    pytest.importorskip("wandb", reason="the extra wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    learned("wandb", tmp_path / "careful")
    files = sorted((tmp_path / "careful" / "wandb").glob("offline-run-*/run-careful-*.wandb"))
    assert len(files) == 2
    content = b"".join(path.read_bytes() for path in files)
    assert content.count(b"variance/objective") >= 4
    assert b"vpac/CatchUp-v0" in content


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # MLflow's own, of SQLAlchemy 2.1
def test_mlflow_in_a_local_folder(monkeypatch, tmp_path):
    mlflow = pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    learner = learned("mlflow", tmp_path / "careful")
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'careful' / 'mlflow.db'}")
    (found,) = client.search_runs([client.get_experiment_by_name("vpac").experiment_id])
    assert found.data.params["psi"] == "0.1"
    assert found.info.status == "FINISHED"
    history = client.get_metric_history(found.info.run_id, "rollout/return_mean")
    assert [(m.step, m.value) for m in history] == [(r["timesteps"], r["return_mean"]) for r in learner.history]


def test_trackio(monkeypatch, tmp_path):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "kept"))
    trackio = pytest.importorskip("trackio", reason="the extra trackio is not installed")
    learner = learned("trackio", tmp_path / "careful")
    (found,) = trackio.Api().runs("vpac")
    assert found.name.startswith("careful-")
    (kept,) = (tmp_path / "kept").glob("vpac*.db")
    with closing(sqlite3.connect(kept)) as base:
        steps = [step for (step,) in base.execute("SELECT step FROM metrics ORDER BY step")]
    assert steps == [row["timesteps"] for row in learner.history]


def test_the_command_line_names_trackers(capsys, tmp_path):
    short = ("--steps", "64", "--envs", "2", "--option", "steps=16")
    code, _, error = run(
        capsys,
        "train",
        "vpac-ppo",
        "vpac/CatchUp-v0",
        "--psi",
        "0.1",
        *short,
        "--track",
        "tensorbord",
        "--out",
        tmp_path,
    )
    assert code == 2
    assert "unknown tracker 'tensorbord'" in error
    settings = tmp_path / "best.toml"
    settings.write_text("psi = 0.1\nhidden = [8]\nsteps = 16\nenvs = 4\n")
    train = ("train", "vpac-ppo", "vpac/CatchUp-v0", "--settings", settings, "--steps", "64")
    code, _, error = run(capsys, *train, "--envs", "2", "--out", tmp_path / "a")
    assert code == 0, error
    options = json.loads((tmp_path / "a" / "agent.json").read_text())["options"]
    assert (options["hidden"], options["envs"], options["steps"]) == ([8], 2, 16)
    settings.write_text("learning_rat = 0.1\n")
    code, _, error = run(capsys, *train, "--out", tmp_path / "b")
    assert (code, "did you mean 'learning_rate'" in error) == (2, True)
    settings.write_text("psi = \n")
    code, _, error = run(capsys, *train, "--out", tmp_path / "b")
    assert (code, "best.toml" in error) == (2, True)
