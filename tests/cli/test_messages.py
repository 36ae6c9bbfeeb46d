"""Output of the command line: readable help, advice that can be copied, names that are not cut."""

from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console

import vpac
from cli.test_cli import run
from vpac.cli import VERBS
from vpac.cli.studies import runs_table
from vpac.envs.make import make_env
from vpac.errors import UserError

MODULE = """
import gymnasium
from gymnasium import spaces

class Needs(gymnasium.Env):
    observation_space, action_space = spaces.Discrete(3), spaces.Discrete(2)
    def __init__(self, size, *, colour): self.size = size

class Scaled(gymnasium.RewardWrapper):
    def reward(self, reward): return reward
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "needs_for_tests.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield "needs_for_tests"
    sys.modules.pop("needs_for_tests", None)


@pytest.mark.parametrize("verb", VERBS)
def test_help_shows_no_default_that_is_none(capsys, verb):
    code, out, _ = run(capsys, verb, "--help")
    assert code == 0
    text = " ".join(out.replace("│", " ").split())
    for noise in ("default: None", "default: )", "default: False", "{None}", "[FLOAT", "[INT", "[STR"):
        assert noise not in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("vpac-ppo", "CartPole-v1"),
            "vpac-ppo needs a price of variance, --psi PSI, in units of 1/reward, or a budget",
        ),
        (("vaac-ppo", "CartPole-v1"), "vpac frontier CartPole-v1 --risk-aversion 0.1,0.3,1"),
        (("mvpi-ppo", "CartPole-v1"), "Risk-neutral: vpac train ppo CartPole-v1"),
        (("vpac-ppo", "CartPole-v1", "--psi", "conditioned"), "--option psi_range=[0,0.1]"),
        (
            ("ppo", "CartPole-v1", "--penalty", "gini"),
            "no choice of what is penalised, got penalty='gini': use VPACPPO",
        ),
        (("vpac", "CartPole-v1", "--psi", "conditioned"), "is for the PPO family: vpac train vpac-ppo CartPole-v1"),
    ],
)
def test_a_price_is_asked_for(capsys, tmp_path, arguments, said):
    code, _, error = run(capsys, "train", *arguments, "--out", tmp_path / "x")
    assert code == 2
    assert said in error
    assert not (tmp_path / "x").exists()


def test_environments_that_cannot_be_made(module):
    for name, wrap, said in (
        ("Queue", (), "one of your own is named with its module, my_module:Queue"),
        ("shop.Queue", (), "did you mean 'shop:Queue'?"),
        ("CartPole.v1", (), "did you mean 'CartPole-v1'"),
        ("shop.py:Queue", (), "a module is named without .py: did you mean shop:Queue?"),
        (f"{module}:Needs", (), "Needs cannot be made without 'size' and 'colour': --set size=… colour=…"),
        ("CartPole-v1", (f"{module}:Nope",), "has no wrapper 'Nope'; it has Scaled"),
        ("CartPole-v1", (f"{module}:Scald",), "has no wrapper 'Scald'; did you mean 'Scaled'"),
        ("CartPole-v1", (f"{module}:Nees",), "has no wrapper 'Nees'; it has Scaled"),
    ):
        with pytest.raises(UserError) as caught:
            make_env(name, wrap)
        assert said in str(caught.value)


def test_the_next_command_is_said_to_people_only(capsys, tmp_path):
    folder = tmp_path / "q"
    command = ("train", "ac", "vpac/CatchUp-v0", "--episodes", 3, "--out", folder)
    assert run(capsys, *command)[1].endswith(f"next: vpac evaluate {folder}\n")
    code, out, error = run(capsys, *command, "--overwrite", "--json")
    assert code == 0
    assert "next:" not in out + error
    assert (
        "next: vpac frontier vpac/CatchUp-v0 --set luck=1\n"
        in run(capsys, "check", "vpac/CatchUp-v0", "--set", "luck=1")[1]
    )


def test_names_of_runs_are_not_broken():
    name = "vpac-ppo-HalfCheetah-v5-psi0.0015-run4-f2e82d7563c8310f"
    rows = [{"name": name, "status": "finished", "mean": 1234.5, "variance": 123456.0, "seconds": 1000.0}]
    for width, left_out in ((200, []), (80, ["status", "seconds"]), (60, ["status", "seconds", "variance", "mean"])):
        table, hidden = runs_table(rows, "runs", width)
        out = io.StringIO()
        Console(width=width, file=out).print(table)
        assert hidden == left_out
        assert name in out.getvalue()


@pytest.mark.parametrize(
    ("agent", "env", "said"),
    [
        (lambda seen: None, "CartPole-v1", "answered with None: expected an action in Discrete(2)"),
        (lambda seen: 7, "CartPole-v1", "answered with 7: expected an action in Discrete(2)"),
        (lambda seen: 0.5, "CartPole-v1", "answered with 0.5: expected an action in Discrete(2)"),
        (lambda seen: "left", "CartPole-v1", "answered with 'left': expected"),
        (lambda seen: [float("nan")], "Pendulum-v1", "answered with [nan]: expected an action in Box(-2"),
    ],
)
def test_what_is_no_action_is_refused(agent, env, said):
    with pytest.raises(UserError) as caught:
        vpac.evaluate(agent, env, 2)
    assert said in str(caught.value)


def test_actions_beyond_a_box_are_clipped_and_whole_floats_are_actions():
    assert len(vpac.evaluate(lambda seen: [9.0], "Pendulum-v1", 1)) == 1
    assert len(vpac.evaluate(lambda seen: 1.0, "CartPole-v1", 1)) == 1


def test_a_process_that_asks_often_is_not_answered_more_slowly(capsys):
    """What the parser reads does not grow from call to call."""
    run(capsys, "runs", "--help")
    before = {name: dict(kind.__annotations__) for name, kind in VERBS.items()}
    run(capsys, "runs", "--help")
    assert {name: dict(kind.__annotations__) for name, kind in VERBS.items()} == before
