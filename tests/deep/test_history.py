"""The history of an agent: bounded, unchanged by stops, with one line for each iteration in a file."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from forging import forge

pytest.importorskip("jax")
from vpac.deep import PPO, logs
from vpac.deep.logs import JsonLines, MetricsHistory, spacing
from vpac.errors import UserError


@pytest.fixture
def eight(monkeypatch):
    monkeypatch.setattr(logs, "MOST_HISTORY_ROWS", 8)


def row(number: int) -> dict[str, float]:
    return {"timesteps": 10.0 * number, "kl": 0.5}


def test_it_is_complete_at_first_then_even_and_always_ends_with_the_last(eight):
    kept = MetricsHistory()
    for number in range(1, 200):
        kept.add(number, row(number))
        numbers = [int(one["timesteps"]) // 10 for one in kept]
        even = list(range(kept.every, number + 1, kept.every))
        assert numbers == (even if even[-1:] == [number] else [*even, number])
        assert len(kept) <= 8
        assert number < 9 or len(kept) >= 4
    assert kept.every == 32


def test_it_goes_on_from_a_checkpoint_as_if_nothing_had_been(eight):
    for stop in range(40):
        whole, cut = MetricsHistory(), MetricsHistory()
        for number in range(1, 50):
            whole.add(number, row(number))
            cut.add(number, row(number))
            if number == stop:
                cut = MetricsHistory.read([dict(one) for one in cut], cut.every, cut.last)
        assert (list(whole), whole.every, whole.last) == (list(cut), cut.every, cut.last)
    with pytest.raises(ValueError, match="every 0 iterations"):
        MetricsHistory.read([], 0, 0)


def test_a_saved_agent_has_a_bounded_history(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "MOST_HISTORY_ROWS", 4)
    small = {"envs": 2, "steps": 8, "epochs": 1, "minibatch": 16, "hidden": (4,), "checkpoint_every": 2}
    agent = PPO("CartPole-v1", **small).learn(16 * 6)
    agent.save(tmp_path)
    assert [row["timesteps"] for row in agent.history] == [32.0, 64.0, 96.0]
    again = PPO.load(tmp_path)
    assert (list(again.history), again.history.every) == (list(agent.history), 2)
    assert again.learn(16).history[-1]["timesteps"] == 112.0
    text = json.loads((tmp_path / "agent.json").read_text())
    assert len(text["history"]["timesteps"]) == 3
    forge(tmp_path, {"every": 0})
    with pytest.raises(UserError, match="does not hold an agent"):
        PPO.load(tmp_path)


def learner(last: int) -> SimpleNamespace:
    kept = MetricsHistory()
    for number in range(1, last + 1):
        kept.add(number, row(number))
    return SimpleNamespace(history=kept, iteration=last, timesteps=10 * last)


def steps_in(path) -> list[int]:
    return [int(json.loads(line)["timesteps"]) for line in path.read_text().splitlines()]


def go_on(path, agent, last: int) -> None:
    lines = JsonLines(path, agent)
    for number in range(agent.iteration + 1, last + 1):
        agent.history.add(number, row(number))
        agent.iteration, agent.timesteps = number, 10 * number
        lines(agent)
    lines.close()


def test_lines_stay_one_for_each_iteration_over_a_resume(eight, tmp_path):
    path = tmp_path / "metrics.jsonl"
    go_on(path, learner(0), 30)
    assert steps_in(path) == [10 * n for n in range(1, 31)]
    JsonLines(path, learner(20)).close()  # the last checkpoint was at 20
    assert steps_in(path) == [10 * n for n in range(1, 21)]


def test_lines_are_bounded_and_the_same_however_often_a_run_is_stopped(eight, tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "MOST_LINES", 16)
    path, other = tmp_path / "metrics.jsonl", tmp_path / "other.jsonl"
    for last in (15, 16, 17, 33, 64, 65, 200):
        path.unlink(missing_ok=True)
        go_on(path, learner(0), last)
        every = spacing(last)
        assert steps_in(path) == [10 * n for n in range(every, last + 1, every)]
        assert last // 2 < 16 or len(steps_in(path)) in range(8, 17)
        for stopped, checkpoint in ((2, 1), (13, 9), (16, 16), (17, 15), (34, 20), (67, 60), (131, 124)):
            if stopped <= last:
                other.unlink(missing_ok=True)
                go_on(other, learner(0), stopped)
                go_on(other, learner(checkpoint), last)
                assert other.read_bytes() == path.read_bytes()


def test_tensorboard_is_told_of_the_same_iterations(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    monkeypatch.setattr(logs, "MOST_LINES", 4)
    agent = PPO("CartPole-v1", envs=2, steps=8, epochs=1, minibatch=16, hidden=(4,))
    board, written = logs.TensorBoard(tmp_path, agent), []
    monkeypatch.setattr(board, "write", lambda numbers, step: written.append(step // 16))
    agent.learn(16 * 11, callback=board)
    board.close()
    assert written == [1, 2, 3, 4, 6, 8]


@pytest.mark.parametrize(
    "damage", [None, b"", b'{"timesteps": 3}\n' * 40, b"\xff\n" * 40], ids=["missing", "empty", "other", "nonsense"]
)
def test_without_the_lines_what_the_agent_remembers_is_written(eight, tmp_path, damage):
    path = tmp_path / "metrics.jsonl"
    if damage is not None:
        path.write_bytes(damage)
    agent = learner(20)
    JsonLines(path, agent).close()
    assert steps_in(path) == [int(one["timesteps"]) for one in agent.history]
