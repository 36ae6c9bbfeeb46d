"""Users' names that collide with names of vpac: clear errors, exit code 2."""

from __future__ import annotations

import pytest

import vpac
from cli.test_cli import run
from forging import forge
from vpac.envs.make import EnvRecipe, make_env
from vpac.errors import UserError

ARGUMENTS = (
    "seed",
    "env",
    "runs",
    "policy",
    "threads",
    "progress",
    "kind",
    "self",
    "arguments",
    "episodes",
    "callback",
)
STUDY = """
name = "s"
env = "CliffWalking-v1"
{top}
[settings]
{settings}
[[arms]]
label = "a"
"""


@pytest.mark.parametrize("algorithm", ["vpac", "off-policy-vpac", "vpac-ppo"])
def test_options_that_are_none(capsys, tmp_path, algorithm):
    for name in ARGUMENTS:
        words = ("--psi", 0.1, "--option", f"{name}=1", "--out", tmp_path / "x")
        code, _, error = run(capsys, "train", algorithm, "CartPole-v1", *words)
        assert code == 2, name
        assert f"{algorithm} has no setting {name!r}" in error
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("frontier", "CartPole-v1", "--option", "seed=1"),
        ("frontier", "CliffWalking-v1", "--algorithm", "vpac", "--option", "self=1"),
        ("tune", "CartPole-v1", "--psi", "0.1", "--option", "arguments=1"),
    ],
)
def test_options_of_other_verbs(capsys, tmp_path, words, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, error = run(capsys, *words)
    assert code == 2
    assert "has no setting" in error


TRAINED = ("evaluate", "watch", "certify", "stress")


@pytest.mark.parametrize("verb", ["check", "solve", "train vpac", "train ppo", "frontier", "tune", *TRAINED])
def test_wrap_is_no_argument(capsys, tmp_path, verb, monkeypatch):
    monkeypatch.chdir(tmp_path)
    where = "x" if verb in TRAINED else "CliffWalking-v1"
    if where == "x":
        vpac.VPAC("CliffWalking-v1").save(tmp_path / "x")
    price = ("--psi", 0.1) if verb == "tune" else ()
    code, _, error = run(capsys, *verb.split(), where, *price, "--set", "wrap=1")
    assert code == 2
    assert "no argument 'wrap': wrappers have an option of their own" in error


def test_an_argument_that_is_called_like_a_disturbance(capsys, tmp_path):
    vpac.VPAC("CliffWalking-v1").save(tmp_path / "x")
    code, _, error = run(capsys, "stress", tmp_path / "x", "--set", "delay=1,2")
    assert (code, "--set delay could also mean --delay" in error) == (2, True)


@pytest.mark.parametrize(
    ("top", "settings", "said"),
    [
        ("algorithm = 'vpac'", "seed = 1", "vpac has no setting 'seed'"),
        ("algorithm = 'vpac'", "self = 1", "vpac has no setting 'self'"),
        ('kind = "deep"\nalgorithm = "ppo"\nsteps = 100', "arguments = 1", "ppo has no setting 'arguments'"),
        ("algorithm = 'vpac'\nenv_settings = {wrap = 1}", "", "cannot have an argument 'wrap'"),
        (
            'kind = "deep"\nalgorithm = "ppo"\nsteps = 100\nenv_settings = {wrap = 1}',
            "",
            "cannot have an argument 'wrap'",
        ),
        ("", f"psi = {'1' * 5000}", "is not TOML"),
        ("", f"psi = 0x{'f' * 5000}", "an integer has more than 64 bits"),
        ("", f"gamma = [{'1' * 4000}]", "an integer has more than 64 bits"),
    ],
)
def test_studies(capsys, tmp_path, top, settings, said):
    (tmp_path / "s.toml").write_text(STUDY.format(top=top, settings=settings))
    code, _, error = run(capsys, "sweep", tmp_path / "s.toml", "--store", tmp_path / "store")
    assert code == 2
    assert said in error


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"arguments": {"wrap": []}}, "cannot have an argument 'wrap'"),
        ({"wrappers": [["RewardNoise", {"std": 1.0}]] * 2000}, "at most 100"),
    ],
)
def test_agents(capsys, tmp_path, change, said):
    vpac.VPAC("CliffWalking-v1").save(tmp_path)
    forge(tmp_path, change)
    code, _, error = run(capsys, "evaluate", tmp_path, "--episodes", 2)
    assert code == 2
    assert said in error


def test_wrap_in_python():
    with pytest.raises(UserError, match="wrap must hold wrappers"):
        make_env("CliffWalking-v1", wrap=1)
    with pytest.raises(UserError, match="wrap must hold wrappers"):
        make_env("CliffWalking-v1", ["RewardNoise"] * 101)
    with pytest.raises(UserError, match="cannot have an argument 'wrap'"):
        EnvRecipe("CliffWalking-v1", {"wrap": 1})
