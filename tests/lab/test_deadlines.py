"""Who is taken for late, for silent, and for one that nobody ever heard of; clusters do it for real in `test_cluster.py`."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from vpac.lab.workers import cluster
from vpac.lab.workers.cluster import Deadlines


class Looks:
    """A run under a driver's eyes, a second at a time; `told` are the seconds at which its task was cancelled."""

    def __init__(self, monkeypatch, seconds=None):
        self.now, self.told, self.signs = 0.0, [], {}
        monkeypatch.setattr(cluster, "time", SimpleNamespace(monotonic=lambda: self.now))
        cancel = lambda ref, force: self.told.append(self.now)  # noqa: E731
        self.limits = Deadlines(SimpleNamespace(cancel=cancel), seconds, silence=6.0)
        monkeypatch.setattr(self.limits, "_signs", lambda: self.signs)
        self.key = self.limits.expect("run")

    def wait(self, seconds, beat=False):
        for _ in range(seconds):
            self.now += 1.0
            if beat:
                self.signs = {self.key: str(self.now)}
            self.limits.look({"run": "its task"})


@pytest.fixture
def looks(monkeypatch):
    return Looks(monkeypatch)


def test_who_gives_signs_is_left_alone(looks):
    looks.wait(100, beat=True)
    assert (looks.told, looks.limits.hung, looks.limits.unheard) == ([], set(), {})


def test_who_gives_no_more_signs_is_hung(looks):
    looks.wait(10, beat=True)
    looks.wait(6)
    assert looks.told == []
    looks.wait(1)
    assert looks.told == [17.0]
    assert looks.limits.hung == {"run"}


def test_who_took_its_sign_back_and_never_ends_is_hung(looks):
    looks.wait(10, beat=True)
    looks.signs = {}
    looks.wait(8)
    assert looks.told == [17.0]
    assert (looks.limits.hung, looks.limits.unheard) == ({"run"}, {})


def test_who_was_never_heard_of_is_tried_anew_with_twice_the_patience(looks):
    for patience in (7, 13, 25):
        begun = looks.now
        looks.wait(patience)
        assert looks.told.pop() == begun + patience
        looks.key = looks.limits.expect("run")
    assert looks.told == []
    assert (looks.limits.hung, looks.limits.unheard, looks.limits.dropped) == (set(), {"run": 3}, set())
    looks.limits.forget("run")
    assert looks.limits.unheard == {}


def test_time_counts_from_the_first_sign(monkeypatch):
    looks = Looks(monkeypatch, seconds=20.0)
    looks.wait(5)
    looks.wait(21, beat=True)
    assert looks.told == []
    looks.wait(5, beat=True)
    assert looks.told == [27.0]
    assert looks.limits.late == {"run"}


def test_nobody_is_silent_while_the_head_does_not_answer(looks, monkeypatch):
    looks.wait(5, beat=True)
    monkeypatch.setattr(looks.limits, "_signs", lambda: 1 / 0)
    looks.wait(100)
    assert looks.told == []


def test_a_driver_that_slept_has_heard_nothing_of_anybody(looks):
    looks.wait(1, beat=True)
    looks.now += 1000.0
    looks.wait(1)
    assert looks.told == []
