from __future__ import annotations

import json

import numpy as np
import pytest

from cli.test_cli import run
from vpac.lab.report import draw
from vpac.lab.report import training as report
from vpac.tabular import VPAC


def test_a_budget_of_a_tabular_learner(capsys, tmp_path, monkeypatch):
    drawn = []

    def write(chart, *where):
        drawn.append(chart)
        return draw.write(chart, *where)

    monkeypatch.setattr(report, "write", write)
    arguments = ["train", "vpac", "vpac/CatchUp-v0", "--episodes", 60, "--runs", 2, "--gamma", 0.95, "--max-std", 3]
    code, text, err = run(capsys, *arguments, "--wait", 20, "--json", "--out", tmp_path / "x")
    assert code == 0
    found = json.loads(text)
    assert found["policy"] == "softmax"
    assert len(found["budget"]) == 2
    assert found["budget"][0]["max_variance"] == 9.0
    assert found["budget"][0]["exact"]
    assert found["budget"][0]["words"] in err
    learner = VPAC.load(tmp_path / "x" / "run-0")
    assert len(learner.prices.at) == 3
    assert learner.psi == found["budget"][0]["psi"] > 0.0
    variance, price = drawn[0].panels[2:]
    assert [mark.value for mark in variance.references] == [9.0]
    assert len(price.series) == 2
    assert np.array_equal(price.series[0].y, learner.prices.psi)
    assert (tmp_path / "x" / "training.png").stat().st_size > 0
    code, text, _ = run(capsys, *arguments, "--overwrite", "--out", tmp_path / "x")
    assert code == 0
    assert "The budget, standard deviation ≤ 3, is not met" in text


def test_a_budget_where_nothing_is_compiled(capsys, tmp_path):
    arguments = ["train", "vpac", "FrozenLake-v1", "--episodes", 60, "--max-variance", 2, "--max-episode-steps", 9]
    code, text, _ = run(capsys, *arguments, "--json", "--out", tmp_path / "x")
    assert code == 0
    report = json.loads(text)["budget"][0]
    assert report["met"]
    assert report["episodes"] == 1000
    assert report["variance"]["high"] <= 0.25


def test_a_budget_of_the_ppo_family(capsys, tmp_path):
    pytest.importorskip("jax")
    small = ["--envs", 4, "--steps", 512, "--option", "steps=32", "hidden=[8]", "epochs=1"]
    code, text, err = run(
        capsys, "train", "vpac-ppo", "CartPole-v1", "--max-variance", 4, *small, "--json", "--out", tmp_path / "x"
    )
    assert code == 0
    report = json.loads(text)["budget"]
    assert report["max_variance"] == 4.0
    assert "smallest_after_steps" in report
    assert report["words"] in err
    assert '"budget_psi"' in (tmp_path / "x" / "metrics.jsonl").read_text()


def test_limits_of_the_ppo_family(capsys, tmp_path):
    pytest.importorskip("jax")
    small = ["--envs", 4, "--steps", 512, "--option", "steps=32", "hidden=[8]", "epochs=1"]
    limits = ["--keep-mean", 0.5, "--max-ruin", "0.05:5"]
    code, text, err = run(
        capsys, "train", "vpac-ppo", "CartPole-v1", *limits, *small, "--json", "--out", tmp_path / "x"
    )
    assert code == 0
    report = json.loads(text)["budget"]
    assert report["budget"]["max_ruin"] == [0.05, 5.0]
    assert report["max_variance"] is None
    assert [limit["name"] for limit in report["limits"]] == ["ruin", "mean"]
    assert report["limits"][0]["met"]
    assert report["words"] in err
    assert '"budget_ruin"' in (tmp_path / "x" / "metrics.jsonl").read_text()
    code, text, _ = run(capsys, "train", "vpac-ppo", "--help")
    assert code == 0
    assert all(name in text for name in ("--keep-mean", "--min-cvar A:C", "--max-ruin P:C", "--max-ruin 0.05:0"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["vpac-ppo", "--max-ruin", "1.05:0"], "max_ruin of a budget must be above 0 and below 1"),
        (["vpac-ppo", "--max-ruin", "0.05"], "max_ruin of a budget must be a probability and a return"),
        (["vpac-ppo", "--max-ruin", "0.05:0", "--max-ruin=0.1:2"], "--max-ruin is given 2 times: give each limit once"),
        (["vpac-ppo", "--max-std", "3", "--max-variance", "4"], "max_variance or max_std: give one of them"),
        (["vpac-ppo", "--keep-mean", 95], "keep_mean of a budget must be above 0 and below 1"),
        (["vpac-ppo", "--keep-mean", 0.9, "--max-std", 1, "--max-variance", 4], "give one of them"),
        (["vpac", "--min-cvar", "0.1:3"], "VPAC holds max_std or max_variance only"),
        (["ppo", "--keep-mean", 0.9], "PPO has no price of variance and cannot hold a budget"),
        (["vpac", "--max-std", 1, "--max-variance", 1], "a budget is max_variance or max_std"),
        (["vpac", "--max-std", -1], "max_std of a budget must be a positive number"),
        (["vpac", "--wait", 3], "--wait belongs to a budget"),
        (["vpac", "--max-std", 1, "--psi", 0.1], "leave out psi='0.1'"),
        (["ac", "--max-std", 1], "AC has no price of variance and cannot hold a budget: use VPAC"),
        (["vpac", "--option", "budget=sdt:1"], "expected std:S or variance:V"),
    ],
)
def test_a_users_mistake_exits_with_2(capsys, tmp_path, arguments, message):
    algorithm, *rest = arguments
    length = ["--steps" if "ppo" in algorithm else "--episodes", 5]
    code, out, err = run(capsys, "train", algorithm, "vpac/CatchUp-v0", *length, "--out", tmp_path / "x", *rest)
    assert code == 2
    assert message in err
    assert "Traceback" not in out + err
