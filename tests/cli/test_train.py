from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

import vpac.tabular
from cli.test_cli import run
from vpac.algorithms import ALGORITHMS, option_docs
from vpac.tabular import AC, VPAC, Diverged


def test_train_writes_policies_curves_and_a_figure(capsys, tmp_path):
    out = tmp_path / "trained"
    code, text, _ = run(
        capsys, "train", "vpac", "vpac/CatchUp-v0", "--episodes", 50, "--runs", 3, "--gamma", 0.95, "--out", out
    )
    assert code == 0
    assert "VPAC on vpac/CatchUp-v0: 3 × 50 episodes" in text
    assert "95 % interval" in text
    assert {p.name for p in out.iterdir()} == {
        "returns.parquet",
        "curves.parquet",
        "training.png",
        "run-0",
        "run-1",
        "run-2",
    }
    learner = VPAC.load(out / "run-1")
    returns = pl.read_parquet(out / "returns.parquet").filter(pl.col("run") == 1)["return"].to_numpy()
    assert np.array_equal(returns, learner.returns)
    curves = pl.read_parquet(out / "curves.parquet")
    assert set(curves.columns) == {"run", "episode", "mean", "variance"}


def test_json_has_the_numbers_of_the_table(capsys, tmp_path):
    arguments = ["train", "off-policy-vpac", "vpac/CatchUp-v0", "--episodes", 20, "--runs", 2, "--out", tmp_path / "x"]
    code, text, _ = run(capsys, *arguments, "--psi", "warm-up:0.1:5:5", "--option", "critics=clipped", "--json")
    found = json.loads(text)
    assert code == 0
    assert found["options"]["critics"] == "clipped"
    assert found["options"]["psi"] == "warm-up:0.1:5:5"
    assert found["mean"]["low"] <= found["mean"]["mean"] <= found["mean"]["high"]
    returns = pl.read_parquet(tmp_path / "x" / "returns.parquet")
    assert set(returns.columns) == {"run", "episode", "return", "length", "effective", "clipped"}
    assert returns["clipped"].is_between(0.0, 2.0).all()
    assert returns["effective"].is_between(0.0, 1.0).all()


def test_the_seed_decides(capsys, tmp_path):
    arguments = ["train", "ac", "vpac/CatchUp-v0", "--episodes", 20, "--policy", "softmax", "--json"]
    one, again, other = (
        json.loads(run(capsys, *arguments, "--seed", seed, "--out", tmp_path / name)[1])["mean"]
        for seed, name in ((1, "a"), (1, "b"), (2, "c"))
    )
    assert one == again != other


def test_an_environment_that_is_only_stepped(capsys, tmp_path):
    code, text, _ = run(capsys, "train", "ac", "FrozenLake-v1", "--episodes", 20, "--out", tmp_path / "x", "--json")
    assert code == 0
    assert json.loads(text)["policy"] == "training"


def test_arguments_of_a_stepped_environment(capsys, tmp_path):
    """Every run has an environment of its own, so threads do not change the result."""
    arguments = ["train", "ac", "FrozenLake-v1", "--set", "map_name=8x8", "is_slippery=false", "--episodes", 30]
    for threads in (1, 3):
        code, *_ = run(
            capsys, *arguments, "--runs", 4, "--threads", threads, "--json", "--out", tmp_path / str(threads)
        )
        assert code == 0
    one, three = (pl.read_parquet(tmp_path / name / "returns.parquet") for name in ("1", "3"))
    assert one.equals(three)
    assert AC.load(tmp_path / "1" / "run-3").environment.n_features == 64


def test_ac_takes_a_price_of_zero(capsys, tmp_path):
    code, *_ = run(capsys, "train", "ac", "vpac/CatchUp-v0", "--psi", 0, "--episodes", 5, "--out", tmp_path / "x")
    assert code == 0


def test_an_earlier_training_leaves_nothing_behind(capsys, tmp_path):
    out = tmp_path / "x"
    run(capsys, "train", "ac", "vpac/CatchUp-v0", "--runs", 3, "--episodes", 5, "--out", out)
    (out / "notes.txt").write_text("mine")
    (out / "tensorboard").mkdir()
    (out / "tensorboard" / "mine").write_text("mine")
    (out / "run-2" / "notes.txt").write_text("mine")
    again = ("train", "ac", "FrozenLake-v1", "--episodes", 5, "--out", out)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    code, _, error = run(capsys, *again)
    assert code == 2
    assert f"{out} holds a training already: choose another --out, or replace it, --overwrite" in error
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    assert run(capsys, *again, "--overwrite")[0] == 0
    assert {p.name for p in out.iterdir()} == {
        "returns.parquet",
        "training.png",
        "run-0",
        "run-2",
        "notes.txt",
        "tensorboard",
    }
    assert [p.name for p in (out / "run-2").iterdir()] == ["notes.txt"]


def test_runs_that_diverge_are_reported_and_the_others_written(capsys, tmp_path, monkeypatch):
    class Fragile(VPAC):
        def _learn(self, episodes):
            if self.seed == broken:
                raise Diverged("the reward is not finite")
            super()._learn(episodes)

    broken = int(np.random.SeedSequence(0).spawn(3)[1].generate_state(1)[0])
    monkeypatch.setattr(vpac.tabular, "VPAC", Fragile)
    arguments = ["train", "vpac", "vpac/CatchUp-v0", "--runs", 3, "--episodes", 5, "--out", tmp_path / "x"]
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert "2 × 5 episodes" in out
    assert "a run is missing: the reward is not finite" in err
    assert pl.read_parquet(tmp_path / "x" / "returns.parquet")["run"].unique().to_list() == [0, 1]
    code, out, _ = run(capsys, *arguments, "--overwrite", "--json")
    assert code == 2
    assert json.loads(out)["diverged"] == ["the reward is not finite"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["vpca", "vpac/CatchUp-v0"], "did you mean 'vpac'?"),
        (["vpac", "vpac/CatchUpp-v0"], "did you mean 'vpac/CatchUp-v0'?"),
        (
            ["vpac", "vpac/CatchUp-v0", "--psi", "-1"],
            "psi: value of the constant schedule must be a finite number that is not negative",
        ),
        (["vpac", "vpac/CatchUp-v0", "--option", "temperature=0"], "temperature must be a positive number"),
        (["vpac", "vpac/CatchUp-v0", "--option", "temprature=1"], "did you mean 'temperature'"),
        (["vpac", "Pendulum-v1"], "vpac needs Discrete ones: vpac train vpac-ppo Pendulum-v1"),
        (["vpac", "vpac/CatchUp-v0", "--runs", "0"], "runs must be a whole number from 1 up"),
        (["vpac", "vpac/CatchUp-v0", "--policy", "gready"], "did you mean 'greedy'"),
        (["vpac", "vpac/CatchUp-v0", "--seed", "-1"], "seed must be a whole number from 0 up"),
        (["vpac", "vpac/CatchUp-v0", "--threads", "-1", "--runs", "2"], "threads must be a whole number from 1 up"),
        (["vpac", "vpac/CatchUp-v0", "--option", "temperature=hot"], "temperature must be a positive number"),
        (["vpac", "vpac/CatchUp-v0", "--option", "gamma=x"], "gamma must be a number from 0 to 1"),
        (["off-policy-vpac", "vpac/CatchUp-v0", "--option", "epsilon=x"], "epsilon must be a number"),
        (["vpac", "MountainCar-v0", "--option", "tilings=2.5"], "tilings must be a whole number"),
        (["vpac", "MountainCar-v0", "--option", "tiles=many"], "tiles must be a whole number"),
        (["vpac", "vpac/CatchUp-v0", "--option", "baseline=maybe"], "baseline must be true or false"),
        (["off-policy-vaac", "vpac/CatchUp-v0", "--option", "critics=expected"], "'importance' or 'clipped'"),
        (["vpac", "vpac/CatchUp-v0", "--alpha-w", "1e300"], "is not finite"),
    ],
)
def test_a_users_mistake_exits_with_2(capsys, tmp_path, arguments, message):
    code, out, err = run(capsys, "train", *arguments, "--episodes", 5, "--out", tmp_path / "x")
    assert code == 2
    assert message in err
    assert "Traceback" not in out + err


def test_every_algorithm_has_a_name(capsys):
    listed = json.loads(run(capsys, "list", "algorithms", "--json")[1])["algorithms"]
    assert {row["name"] for row in listed} == set(ALGORITHMS)


@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=lambda algorithm: algorithm.name)
def test_help_shows_the_options_of_the_learner_with_their_docstrings(capsys, monkeypatch, algorithm):
    monkeypatch.setenv("COLUMNS", "200")
    code, out, _ = run(capsys, "train", algorithm.name, "--help")
    text = " ".join(out.replace("│", " ").split())
    assert code == 0
    assert f"Options of {algorithm.class_name}" in text
    for name, words in option_docs(algorithm.load_options()).items():
        if name != "steps":
            assert f"--{name.replace('_', '-')} " in text
            assert words in text
    assert ("--behaviour " in text) == algorithm.off_policy
    assert ("--alpha-z VALUE Step size of the spread critic. (default: 0.005)" in text) == (algorithm.name == "vaac")


def test_every_option_of_the_learner_is_an_option_of_the_command(capsys, tmp_path):
    words = ("train", "off-policy-vpac", "vpac/CatchUp-v0", "--episodes", 5, "--json", "--out")
    named = ("--temperature", 2, "--critics", "importance", "--baseline", "false", "--hash-size", "null")
    code, out, _ = run(capsys, *words, tmp_path / "x", *named)
    assert code == 0
    options = json.loads(out)["options"]
    assert [options[name] for name in ("temperature", "critics", "baseline", "hash_size")] == [
        2,
        "importance",
        False,
        None,
    ]
    pairs = ("--option", "temperature=2", "critics=importance", "baseline=false", "hash_size=null")
    assert run(capsys, *words, tmp_path / "y", *pairs)[1] == out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["vpac", "--epochs", "3"], "--epochs is an option of the PPO family, not of vpac"),
        (["vpac", "--epsilon", "0.1"], "--epsilon is an option of the off-policy learners, not of vpac"),
        (["ppo", "--max-episode-steps", "9"], "not of ppo: use --set max_episode_steps=N"),
        (["vpac", "--form", "publishd"], "did you mean 'published'?"),
        (["vpac", "--temprature", "2"], "--temperature"),
    ],
)
def test_an_option_of_another_learner_is_named(capsys, tmp_path, words, message):
    algorithm, *rest = words
    code, out, err = run(capsys, "train", algorithm, "vpac/CatchUp-v0", "--out", tmp_path / "x", *rest)
    assert code == 2
    assert message in out + err


@pytest.mark.parametrize("algorithm", ["vpac", "vpac-ppo"])
def test_a_bad_option_is_an_error_before_the_environment_is_tried(capsys, algorithm):
    words = ["train", algorithm, "nowhere:Nothing", "--psi", 0.1, "--option", "variance_of=foo"]
    code, _, said = run(capsys, *words)
    assert (code, "variance_of" in said, "nowhere" in said) == (2, True, False)
