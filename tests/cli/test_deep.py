"""`vpac train` for the PPO family: files, display, resuming, mistakes."""

from __future__ import annotations

import json

import pytest

import vpac
from cli.test_cli import run
from vpac.cli import main

pytest.importorskip("jax")

SMALL = ["--envs", "4", "--option", "steps=16", "epochs=1", "hidden=[8]", "checkpoint_every=2"]


def test_train_leaves_an_agent_its_numbers_and_a_picture(tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["train", "vpac-ppo", "CartPole-v1", "--psi", "0.01", "--steps", "320", "--out", str(out), *SMALL]) == 0
    said = capsys.readouterr()
    assert "VPACPPO on CartPole-v1: 320 steps" in said.out
    for name in ("agent.json", "weights.safetensors", "policy.json", "policy.safetensors", "training.png"):
        assert (out / name).stat().st_size > 0
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [row["timesteps"] for row in rows] == [64, 128, 192, 256, 320]
    assert {"kl", "psi", "predicted_variance", "measured_variance", "score_variance"} <= set(rows[0])


def test_tensorboard_files_have_the_tags_people_know(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    out = tmp_path / "run"
    assert main(["train", "ppo", "Pendulum-v1", "--steps", "128", "--json", "--out", str(out), *SMALL]) == 0
    events = accumulator.EventAccumulator(str(out / "tensorboard")).Reload()
    assert {
        "rollout/ep_len_mean", "rollout/ep_rew_mean", "time/fps", "time/iterations", "time/total_timesteps", "train/approx_kl",
        "train/clip_fraction", "train/clip_range", "train/entropy_loss", "train/explained_variance", "train/learning_rate",
        "train/loss", "train/n_updates", "train/policy_gradient_loss", "train/std", "train/value_loss",
    } - {"rollout/ep_len_mean", "rollout/ep_rew_mean"} <= set(events.Tags()["scalars"])  # fmt: skip
    assert [event.step for event in events.Scalars("train/value_loss")] == [64, 128]


def test_a_run_can_be_resumed_and_is_not_written_over(tmp_path, capsys):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    words = ["train", "ppo", "CartPole-v1", *SMALL, "--json"]
    assert main([*words, "--steps", "384", "--out", str(whole)]) == 0
    assert main([*words, "--steps", "384", "--out", str(cut)]) == 0
    assert main([*words, "--steps", "384", "--out", str(cut)]) == 2
    assert f"--resume {cut}" in capsys.readouterr().err
    assert main([*words, "--steps", "384", "--out", str(cut), "--overwrite"]) == 0
    assert len(list((cut / "tensorboard").iterdir())) == 1
    (cut / "agent.json").unlink()
    assert main(["train", "ppo", "CartPole-v1", "--resume", str(cut), "--out", str(cut), "--json"]) == 0
    for name in ("agent.json", "weights.safetensors", "metrics.jsonl"):
        assert (cut / name).read_bytes() == (whole / name).read_bytes()
    for other in (
        ["--gamma", "0.5"],
        ["--option", "epochs=7"],
        ["--option", "learning_rate=0.25"],
        ["--option", "hidden=[5]"],
        ["--preset", "paper"],
        ["--out", str(tmp_path / "other")],
    ):
        assert main(["train", "ppo", "CartPole-v1", "--resume", str(cut), *other, "--json"]) == 2
        assert other[-1].rpartition("=")[2] in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["vpac-pp", "CartPole-v1"], "did you mean 'vpac-ppo'"),
        (["ppo", "CartPole-v1", "--alpha-w", "0.1"], "--alpha-w is an option of the tabular"),
        (["ac", "vpac/FourRooms-v0", "--steps", "10"], "--steps is an option of the PPO family"),
        (["ppo", "CartPole-v1", "--preset", "papr"], "did you mean 'paper'"),
        (["ppo", "CartPole-v1", "--option", "epoch=3"], "did you mean 'epochs'"),
        (["ppo", "CartPole-v1", "--resume", "nowhere"], "no checkpoint"),
        (["ppo", "CartPol-v1"], "did you mean 'CartPole-v1'"),
    ],
)
def test_mistakes_are_named(words, message, tmp_path, capsys):
    assert main(["train", *words, "--out", str(tmp_path / "run"), "--json"]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run" / "agent.json").exists()


def test_what_a_policy_has_saved_is_a_run_of_every_verb(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    vpac.PPO("CartPole-v1", envs=2, steps=16, hidden=(8,)).policy().save("policy")
    for words in (["evaluate"], ["certify"], ["stress", "--drop", "0.1"]):
        assert main([words[0], "policy", *words[1:], "--env", "CartPole-v1", "--episodes", "20", "--json"]) == 0
    assert main(["evaluate", "policy"]) == 2
    assert "name one, vpac evaluate policy --env ENV" in capsys.readouterr().err


def test_an_exported_policy_names_the_wrappers_that_are_not_in_it(capsys, tmp_path):
    wrap = ["--wrap", "gymnasium.wrappers:RescaleAction", "min_action=-0.5", "max_action=0.5"]
    small = ["--steps", 64, "--option", "envs=2", "steps=32", "epochs=1", "minibatch=64", "hidden=[4]"]
    assert run(capsys, "train", "ppo", "Pendulum-v1", *wrap, *small, "--out", tmp_path / "run")[0] == 0
    code, text, error = run(capsys, "export", tmp_path / "run", tmp_path / "policy.h")
    assert code == 0
    assert "which gives the most likely action" in text
    assert "inside gymnasium.wrappers:RescaleAction min_action=-0.5 max_action=0.5, which are not in the file" in error
    # it only rearranges actions, so the file may name it
    assert run(capsys, "evaluate", tmp_path / "run", "--episodes", 2, "--out", tmp_path / "out")[0] == 0
