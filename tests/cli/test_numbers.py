"""Notations of whole numbers, options of learners, and progress without a terminal."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from cli.test_cli import run
from vpac.cli import parse
from vpac.errors import UserError
from vpac.progress import Bar, ProgressLines, steps


@pytest.mark.parametrize("text", ["100000", "100_000", "1e5", "1E+5", "0.1e6"])
def test_whole_numbers(text):
    assert parse(["train", "ppo", "CartPole-v1", "--steps", text]).ppo.steps == 100_000
    assert parse(["evaluate", "x", f"--episodes={text}"]).episodes == 100_000
    assert parse(["check", "x", "--steps", text]).steps == 100_000
    assert parse(["frontier", "x", "--steps", text, "--psi", "1e-1"]).steps == 100_000


def test_what_is_no_whole_number(capsys):
    for text in ("1e-5", "1.5e0", "many", "1e999"):
        with pytest.raises(SystemExit) as stop:
            parse(["train", "ppo", "CartPole-v1", "--steps", text])
        assert stop.value.code == 2
    capsys.readouterr()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("frontier", "CartPole-v1", "--learning-rate", "0.01"), "--option learning_rate=VALUE"),
        (("tune", "CartPole-v1", "--clip=0.1"), "vpac tune … --option clip=0.1"),
        (("frontier", "CartPole-v1", "--alpha_theta", "0.01"), "--option alpha_theta=VALUE"),
    ],
)
def test_options_of_the_learner_are_pointed_to(words, said, capsys):
    with pytest.raises(UserError, match="is an option of the learner") as caught:
        parse(words)
    assert said in str(caught.value)
    assert run(capsys, *words)[0] == 2


def test_lines_where_there_is_no_terminal(capsys, monkeypatch):
    now = iter([0.0, 5.0, 20.0, 30.0, 60.0, 60.0, 99.0])
    monkeypatch.setattr("vpac.progress.time.monotonic", lambda: next(now))
    lines = ProgressLines(1000, "steps", already=100)
    for done in (150, 300, 400, 1000):
        lines.tell(done, f"score {done}")
    first, second = capsys.readouterr().err.splitlines()
    assert first[8:] == "  30% (300 of 1,000 steps)  0:01:10 left  score 300"
    assert second[8:] == "  100% (1,000 of 1,000 steps)  0:00:00 left  score 1000"
    quiet = ProgressLines(1000, "steps", quiet=True)
    quiet.tell(500)
    assert capsys.readouterr().err == ""


def test_steps_are_told_where_there_is_no_terminal(capsys, monkeypatch):
    """The second of four arms begins after ten seconds: a quarter is done. Lines come every half minute at most."""
    now = iter([0.0, 0.0, 0.0, 10.0, 10.0, 20.0, 20.0, 30.0, 30.0])
    monkeypatch.setattr("vpac.progress.time.monotonic", lambda: next(now))
    with steps("arms", 4, quiet=False) as tell:
        for arm in ("control", "delay = 1", "delay = 2"):
            tell(arm)
    assert [line[8:] for line in capsys.readouterr().err.splitlines()] == [
        "  25% (1 of 4 arms)  0:00:30 left  arms: delay = 1"
    ]


def test_a_training_is_timed_from_its_first_episodes_which_wait_for_compilation(capsys, monkeypatch):
    """After 100 seconds of compiling and 2 episodes, 10 episodes a second: 88 are left."""
    clock = [0.0]
    monkeypatch.setattr("vpac.progress.time.monotonic", lambda: clock[0])
    bar = Bar(100)
    for at, episodes in ((100.0, 2), (101.0, 12)):
        clock[0] = at
        bar.update(SimpleNamespace(seed=0, episodes=episodes, returns=np.full(episodes, 5.0)))
    words = "  12% (12 of 100 episodes)  0:00:09 left  10 episodes/s  mean 5, variance 0"
    assert [line[8:] for line in capsys.readouterr().err.splitlines()] == [words]
