"""Users' own environments and wrappers on the command line."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import vpac
from cli.test_cli import run
from vpac.cli.arguments import wrappers
from vpac.errors import UserError

MODULE = """
import gymnasium
from gymnasium import spaces

class Coin(gymnasium.Env):
    observation_space, action_space = spaces.Discrete(3), spaces.Discrete(2)

    def __init__(self, stake=1.0, flips=3, honest=True):
        self.stake, self.flips, self.honest = stake, flips, honest

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.flip = 0
        return 0, {}

    def step(self, action):
        self.flip += 1
        gain = self.stake * action * (1 if self.np_random.random() < 0.6 else -1) if self.honest else None
        return min(self.flip, 2), gain, self.flip >= self.flips, False, {}

class Twice(gymnasium.Wrapper):
    def __init__(self, env, by=2.0):
        super().__init__(env)
        self.by = by

    def step(self, action):
        observation, reward, *rest = self.env.step(action)
        return (observation, self.by * reward, *rest)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "coin_for_tests.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("coin_for_tests", None)


def test_check_says_yes(capsys, folder):
    code, out, _ = run(capsys, "check", "coin_for_tests:Coin", "--set", "flips=5")
    assert code == 0
    assert "coin_for_tests:Coin can be learned from" in " ".join(out.split())
    assert "20, of 5 steps" in out
    code, out, _ = run(capsys, "check", "coin_for_tests:Coin", "--json")
    assert code == 0
    assert json.loads(out)["lengths"] == [3] * 20
    assert json.loads(out)["actions"] == "Discrete(2)"


def shown(out):
    """The text of a table, whatever its width."""
    return " ".join(re.sub("[│┌┐└┘─┬┴]", " ", out).split())


def test_check_tells_the_scale_of_psi(capsys, folder):
    found = json.loads(run(capsys, "check", "coin_for_tests:Coin", "--set", "stake=50", "--json")[1])
    for scale, gamma, field in zip(found["random_play"], (1.0, 0.99), ("returns", "discounted"), strict=True):
        assert scale["gamma"] == gamma
        assert scale["mean"] == pytest.approx(np.mean(found[field]))
        assert scale["std"] == pytest.approx(np.std(found[field], ddof=1))
        assert scale["psi"] == pytest.approx([0.1 / scale["std"], 3.0 / scale["std"]])
    text = shown(run(capsys, "check", "coin_for_tests:Coin", "--set", "stake=50")[1])
    undiscounted = found["random_play"][0]
    low, high = (f"{psi:.2g}" for psi in undiscounted["psi"])
    assert f"return mean {undiscounted['mean']:.4g}, standard deviation {undiscounted['std']:.4g}; " in text
    assert f"try ψ from {low} (R = 0.1) to {high} (R = 3)" in text
    assert "R = ψ · standard deviation" in text
    assert "γ" not in text  # three steps: the discount makes no difference


def test_check_tells_both_scales_where_the_discount_matters(capsys, folder):
    """100 steps of independent gains: the variance at γ = 0.99 is 0.43 times that at γ = 1."""
    words = ("check", "coin_for_tests:Coin", "--set", "flips=100", "stake=2")
    one, discounted = json.loads(run(capsys, *words, "--json")[1])["random_play"]
    text = shown(run(capsys, *words)[1])
    for scale, gamma in ((one, "1"), (discounted, "0.99")):
        assert f"return, γ = {gamma} mean {scale['mean']:.4g}, standard deviation {scale['std']:.4g}" in text


def test_check_suggests_no_psi_without_variance(capsys, folder):
    words = ("check", "coin_for_tests:Coin", "--set", "stake=0")
    (one, discounted) = json.loads(run(capsys, *words, "--json")[1])["random_play"]
    assert (one["std"], one["psi"], discounted["psi"]) == (0.0, None, None)
    text = shown(run(capsys, *words)[1])
    assert "without variance there is no ψ to suggest" in text
    assert "R = " not in text
    assert json.loads(run(capsys, *words, "--steps", 5, "--json")[1])["random_play"] == []  # one episode


def test_check_says_that_the_time_is_hidden_and_how_to_show_it(capsys, folder):
    """Of five flips the last three look alike; the words of the remark are a command that mends it."""
    code, out, _ = run(capsys, "check", "coin_for_tests:Coin", "--set", "flips=5")
    words = ("max_episode_steps=5", "--wrap", "gymnasium.wrappers:TimeAwareObservation")
    assert code == 0
    assert "remark all 20 random episodes ended after 5 steps, and the observation does not show the time" in shown(out)
    assert " ".join(("--set", *words)) in shown(out)
    code, out, _ = run(capsys, "check", "coin_for_tests:Coin", "--set", "flips=5", *words, "--json")
    assert (code, json.loads(out)["remarks"]) == (0, [])


def test_check_says_what_to_change(capsys, folder):
    code, out, err = run(capsys, "check", "coin_for_tests:Coin", "--set", "honest=false")
    assert (code, out) == (2, "")
    assert "cannot be learned from yet" in err
    assert "1. step returned the reward None: return a number" in err
    code, out, _ = run(capsys, "check", "coin_for_tests:Coin", "--set", "honest=false", "--json")
    assert code == 2
    assert len(json.loads(out)["errors"]) == 1


def test_train_checks_first(capsys, folder):
    code, _, err = run(capsys, "train", "ac", "coin_for_tests:Coin", "--set", "honest=false", "--episodes", 5)
    assert code == 2
    assert "the reward None" in err
    assert not (folder / "results").exists()
    code, _, err = run(capsys, "train", "ac", "coin_for_tests:Coin", "--set", "flips=1000000", "--episodes", 5)
    assert code == 2
    assert "no episode ended within 20000 random steps" in err


def test_train_with_arguments_and_wrappers(capsys, folder):
    arguments = [
        "train",
        "vpac",
        "coin_for_tests:Coin",
        "--psi",
        0.1,
        "--set",
        "stake=2",
        "--episodes",
        40,
        "--runs",
        2,
        "--json",
    ]
    found = {}
    thrice = ("--wrap", "coin_for_tests:Twice", "by=3")
    for name, wrap in {"plain": (), "thrice": thrice, "both": (*thrice, "--wrap", "RewardNoise", "std=0")}.items():
        code, out, _ = run(
            capsys, *arguments, *wrap, "--option", "alpha_w=0", "alpha_z=0", "alpha_theta=0", "--out", name
        )
        assert code == 0
        found[name] = json.loads(out)["mean"]["mean"]
    assert found["thrice"] == pytest.approx(3 * found["plain"])
    assert found["both"] == found["thrice"]
    code, *_ = run(capsys, "train", "ac", "coin_for_tests:Coin", "--episodes", 3, "--json")
    assert (folder / "results" / "train" / "ac-Coin" / "run-0" / "agent.json").exists()


def test_it_works_in_a_process_of_its_own(folder):
    command = [sys.executable, "-m", "vpac", "check", "coin_for_tests:Coin"]
    source = {"PYTHONPATH": str(Path(vpac.__file__).parent.parent)}
    assert subprocess.run(command, capture_output=True, cwd=folder, env=os.environ | source).returncode == 0


def test_solve_takes_import_paths(capsys):
    code, out, _ = run(capsys, "solve", "vpac.envs:CatchUp", "--set", "lucky=3", "--json")
    assert code == 0
    assert json.loads(out)["env"] == "vpac.envs:CatchUp"


def test_wrappers_are_read():
    words = ["RewardNoise", "std=2", "a.b:C", "x=[1,2]", "y=no", "D"]
    assert wrappers(words) == [("RewardNoise", {"std": 2}), ("a.b:C", {"x": (1, 2), "y": "no"}), ("D", {})]
    with pytest.raises(UserError, match="--wrap begins with 'std=2': expected a wrapper"):
        wrappers(["std=2"])


def test_mistakes_are_named(capsys, folder):
    for arguments, message in (
        (["coin_for_tests:Con"], "did you mean 'Coin'"),
        (["coin_for_tests:Coin", "--set", "stak=1"], "has no argument 'stak'; did you mean 'stake'"),
        (["coin_for_tests:Coin", "--wrap", "coin_for_tests:Twise"], "did you mean 'Twice'"),
        (["nowhere:Coin"], "run vpac in the folder that holds it"),
        (["coin_for_tests:Coin", "--steps", 0], "steps must be a whole number from 1 up"),
    ):
        code, _, err = run(capsys, "check", *arguments)
        assert code == 2
        assert message in err


REGISTERED = MODULE + "\ngymnasium.register('CoinForTests-v0', entry_point='coin_for_tests:Coin')\n"
OTHER = """
import gymnasium

class Plus(gymnasium.RewardWrapper):
    def reward(self, reward):
        return reward + 100.0
"""


@pytest.fixture
def unnamed(folder, monkeypatch):
    """A folder with modules, as in a new process: the user has not named any import path."""
    (folder / "coin_for_tests.py").write_text(REGISTERED)
    (folder / "other_for_tests.py").write_text(OTHER)

    def forget():
        monkeypatch.setattr("vpac.envs.make.NAMED_BY_USER", set())

    forget()
    yield forget
    gymnasium.registry.pop("CoinForTests-v0", None)
    sys.modules.pop("other_for_tests", None)


def about(folder):
    return json.loads((folder / "run-0" / "agent.json").read_text())


@pytest.mark.parametrize("env", ["coin_for_tests:CoinForTests-v0", "coin_for_tests:Coin"])
def test_the_name_is_kept_and_the_next_command_is_said(capsys, folder, unnamed, env):
    assert run(capsys, "train", "ac", env, "--episodes", 3, "--out", "q", "--json")[0] == 0
    assert about(folder / "q")["env"] == env
    unnamed()
    for verb in ("evaluate", "watch"):
        code, _, error = run(capsys, verb, "q")
        assert code == 2
        assert error.endswith(f"name it yourself, vpac {verb} q --env {env}\n")
    assert run(capsys, "evaluate", "q", "--env", env, "--episodes", 5, "--log", "a log.parquet")[0] == 0
    unnamed()
    _, _, error = run(capsys, "offline", "a log.parquet", "--policy", "q")
    assert error.endswith(f"name it yourself, vpac offline 'a log.parquet' --policy q --env {env}\n")
    with pytest.raises(UserError, match=rf"AC\.load\('q/run-0', '{env}'\)"):
        vpac.AC.load("q/run-0")
    assert vpac.AC.load("q/run-0", env).episodes == 3


def mean_of(capsys, *arguments):
    code, out, error = run(capsys, "evaluate", *arguments, "--episodes", 20, "--json", "--deterministic")
    assert code == 0, error
    return next(iter(json.loads(out)["policies"].values()))["undiscounted"]["mean"]["estimate"], error


def test_it_is_measured_where_it_learned(capsys, folder, unnamed):
    wrap = ("--wrap", "coin_for_tests:Twice", "by=3", "--wrap", "other_for_tests:Plus")
    command = ("train", "ac", "coin_for_tests:Coin", "--set", "flips=5", "stake=0", *wrap, "--episodes", 3)
    assert run(capsys, *command, "--out", "q", "--json")[0] == 0
    found = about(folder / "q")
    assert found["arguments"] == {"flips": 5, "stake": 0}
    assert found["wrappers"] == [["coin_for_tests:Twice", {"by": 3}], ["other_for_tests:Plus", {}]]
    unnamed()
    named = ("q", "--env", "coin_for_tests:Coin")
    code, _, error = run(capsys, "evaluate", *named)
    assert code == 2
    assert "names a wrapper of its environment by an import path, 'other_for_tests:Plus'" in error
    assert f"vpac evaluate {' '.join(named)} --wrap coin_for_tests:Twice by=3 --wrap other_for_tests:Plus" in error
    mean, error = mean_of(capsys, *named, "--wrap", "other_for_tests:Plus")
    assert mean == 500.0
    assert "q/run-0: in coin_for_tests:Coin flips=5 stake=0, wrapped by other_for_tests:Plus" in error
    assert "(from its training: flips=5, stake=0)" in error
    mean, error = mean_of(capsys, *named)  # once it is named, it need not be named again
    assert mean == 500.0
    assert "(from its training: flips=5, stake=0, its wrappers)" in error
    assert mean_of(capsys, *named, "--wrap", "none", "--set", "flips=2")[0] == 0.0
    assert mean_of(capsys, "q", "--set", "flips=2")[0] == 200.0  # by now its environment has been named
    assert (
        mean_of(capsys, "q", "--env", "coin_for_tests:CoinForTests-v0")[0] != 500.0
    )  # another name: as it is by itself


def test_wrappers_of_the_same_module_are_named_with_it(capsys, folder, unnamed):
    command = ("train", "ac", "coin_for_tests:Coin", "--wrap", "coin_for_tests:Twice", "--wrap", "RewardNoise", "std=0")
    assert run(capsys, *command, "--episodes", 3, "--out", "q", "--json")[0] == 0
    unnamed()
    _, error = mean_of(capsys, "q", "--env", "coin_for_tests:Coin")
    assert (
        "in coin_for_tests:Coin, wrapped by coin_for_tests:Twice and RewardNoise std=0 (from its training: its wrappers)"
        in error
    )


def test_an_environment_that_does_not_draw_itself(capsys, folder, unnamed):
    assert run(capsys, "train", "ac", "coin_for_tests:Coin", "--episodes", 3, "--out", "q", "--json")[0] == 0
    code, _, error = run(capsys, "watch", "q", "--env", "coin_for_tests:Coin")
    assert code == 2
    assert "__init__ an argument render_mode=None" in error
    assert "render() that returns pixels" in error
    shy = "from coin_for_tests import Coin\n\nclass Shy(Coin):\n    def __init__(self, render_mode=None):\n"
    shy += "        super().__init__()\n        assert render_mode in (None, 'human')\n"
    (folder / "shy_for_tests.py").write_text(shy)
    code, _, error = run(capsys, "watch", "q", "--env", "shy_for_tests:Shy")
    assert (code, "shy_for_tests:Shy does not draw itself" in error) == (2, True)


GAMES = """
import gymnasium

from coin_for_tests import Coin, Twice

class Thrice(Twice):
    def __init__(self, env):
        super().__init__(env, 3.0)

gymnasium.register("coins/Toss", entry_point="coin_for_tests:Coin")
"""
SHORT = {
    "frontier": ["--algorithm", "vpac", "--episodes", "30", "--seeds", "1", "--measure", "20", "--psi", "0,0.1"],
    "evaluate": ["--episodes", "20"],
    "stress": ["--episodes", "20"],
    "certify": ["--episodes", "20", "--sources", "2"],
    "tune": ["--psi", "0.1", "--trials", "1", "--seeds", "1", "--measure", "20", "--steps", "256"],
    "train vpac-ppo": ["--steps", "256"],
}


@pytest.mark.slow  # ten commands, some of which compile and train PPO
@pytest.mark.parametrize(
    ("env", "wrap"),
    [
        ("coin_for_tests:Coin", ["--wrap", "coin_for_tests:Twice", "by=2", "--wrap", "RewardNoise", "std=0.5"]),
        ("coins.games:coins/Toss", ["--wrap", "coin_for_tests:Twice", "--wrap", "coins.games:Thrice"]),
    ],
)
def test_what_is_suggested_works_when_it_is_pasted(capsys, folder, monkeypatch, env, wrap):
    """Each command in a process that knows no import path yet; `SHORT` makes it quick."""
    (folder / "coins").mkdir()
    (folder / "coins" / "games.py").write_text(GAMES)
    begin = ["--set", "flips=3", *wrap]
    pasted = [["check", env, *begin], ["tune", env, *begin], ["stress", "q", "--env", env, *wrap, "--first-steps", "1"]]
    pasted += [["train", "vpac", env, "--psi", "0.1", "--episodes", "20", "--out", "q", *begin]]
    seen = []
    try:
        while pasted:
            words = pasted.pop()
            monkeypatch.setattr("vpac.envs.make.NAMED_BY_USER", set())
            code, out, err = run(capsys, *words, *SHORT.get(words[0], SHORT.get(" ".join(words[:2]), ())))
            assert code == 0, (words, err)
            seen.append(words[0])
            pasted += [shlex.split(line)[2:] for line in out.splitlines() if line.startswith("next: ")]
    finally:
        gymnasium.registry.pop("coins/Toss", None)
        for name in ("coins.games", "coins"):
            sys.modules.pop(name, None)
    assert " ".join(seen) == "train evaluate stress certify tune train evaluate check frontier evaluate"
    (trained,) = (json.loads(file.read_text()) for file in folder.glob("results/train/vpac-ppo-*/agent.json"))
    assert (trained["arguments"], len(trained["wrappers"])) == ({"flips": 3}, 2)
    (best,) = folder.glob("results/tune/*/best.toml")
    assert f"\n# vpac train vpac-ppo {env} {' '.join(begin)} --settings " in best.read_text()
