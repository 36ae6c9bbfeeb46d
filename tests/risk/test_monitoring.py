"""A monitor raises no alarm while nothing changes, for any time, and detects changes."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import vpac
from vpac.errors import UserError
from vpac.risk.budget import Limit
from vpac.risk.monitoring import SHIFTS, Monitor, evidence_paths, online_ranks

RETURNS = {
    "normal": lambda rng, size: rng.standard_normal(size),
    "losses with a long tail": lambda rng, size: -rng.lognormal(0.0, 1.0, size),
    "Student's t, 3": lambda rng, size: rng.standard_t(3, size),
    "ruin in one of ten": lambda rng, size: -10.0 * (rng.random(size) < 0.1),
}


def thresholds(watch):
    return np.array(list(watch.thresholds.values()))[:, None]


@pytest.mark.parametrize("name", RETURNS)
def test_false_alarms_are_rarer_than_promised(rng, name):
    """Every trial has a certificate of its own: its luck is part of the 5 %."""
    trials, alarms = 100, 0
    for _ in range(trials):
        watch = Monitor(RETURNS[name](rng, 200))
        alarms += bool((watch.paths(RETURNS[name](rng, (1, 500)), rng)[0] >= thresholds(watch)).any())
    assert alarms <= 0.05 * trials


def test_a_promise_that_is_just_kept_has_a_mean_evidence_of_one():
    """All sequences of ten returns with P(G < 0) = q, weighted by their probabilities: E[evidence] is 1 at every time."""
    q, length = 0.3, 10
    watch = Monitor(np.arange(20.0), tests=(), limits=[Limit("max-ruin", q, 0.0)])
    ruined = np.array(list(product([0.0, 1.0], repeat=length)))
    chance = np.prod(np.where(ruined > 0.0, q, 1.0 - q), axis=1)
    paths = evidence_paths(watch._bets(-ruined, np.full(ruined.shape, 0.5)))[:, 0]
    assert chance @ paths == pytest.approx(np.ones(length))


def test_the_ranks_bet_fairly():
    """E[bet] = ∫ bet dp = 1 for every bet of the test of ranks."""
    watch = Monitor(np.arange(20.0), tests=("change",))
    edges = np.linspace(0.0, 1.0, 200_001) ** 4 / 2.0  # finer where the bets are large, near 0 and 1
    middles, widths = (edges[1:] + edges[:-1]) / 2.0, np.diff(edges)
    bets = watch._bets(np.zeros(2 * len(middles)), np.concatenate([middles, 1.0 - middles]))[:, 0]
    assert np.concatenate([widths, widths]) @ bets == pytest.approx(np.ones(bets.shape[1]), abs=2e-3)


def test_ranks_are_uniform_and_independent_also_with_ties(rng):
    streams = np.array([
        online_ranks(rng.integers(0, 3, 5).astype(float), rng.integers(0, 3, 4).astype(float), rng) for _ in range(4000)
    ])  # fmt: skip
    error = np.sqrt(1.0 / 12.0 / 4000)
    assert np.abs(streams.mean(axis=0) - 0.5).max() < 4.0 * error
    assert np.abs(streams.var(axis=0) - 1.0 / 12.0).max() < 4.0 * np.sqrt(1.0 / 180.0 / 4000)
    assert np.abs(np.corrcoef(streams.T) - np.eye(4)).max() < 4.0 / np.sqrt(4000)


def test_one_at_a_time_is_the_same_as_all_at_once(rng):
    reference, stream = rng.standard_normal(50), rng.standard_normal(60) - 0.3
    watch = Monitor(reference, seed=3)
    path = Monitor(reference).paths(stream[None], np.random.default_rng(3))[0]
    for number, y in enumerate(stream):
        watch.update(y)
        assert list(watch.evidence.values()) == pytest.approx(path[:, number])
    assert watch.episodes == 60


@pytest.mark.parametrize("before", [0, 300])
def test_shifts_are_found_soon(rng, before):
    watch = Monitor(rng.standard_normal(500))
    found = watch.delays(before, most=200, trials=40)
    assert list(found) == list(SHIFTS)
    for words, (median, most) in found.items():
        assert median <= most
        if "½" not in words:
            assert median < (50 if before == 0 else 110), words
    assert found["mean lower by 2 standard deviations"][1] < found["mean lower by 1 standard deviation"][1]


def test_better_returns_and_smaller_spread_are_no_alarm(rng):
    watch = Monitor(rng.standard_normal(400))
    assert watch.update(0.5 + 0.5 * rng.standard_normal(400)) is None
    assert watch.alarms == {}


def test_alarms_name_what_has_changed(rng):
    wide = Monitor(rng.standard_normal(500), tests=("mean", "variance"))
    alarm = wide.update(3.0 * rng.standard_normal(300))
    assert alarm is not None
    assert alarm.test == "variance"
    assert "standard deviation is at most" in str(alarm)
    low = Monitor(rng.standard_normal(500), tests=("mean",))
    alarm = low.update(rng.standard_normal(300) - 1.0)
    assert alarm is not None
    assert low.alarms == {"mean": alarm}
    assert f"after {alarm.episode} episodes" in str(alarm)
    assert low.episodes == 300  # what comes after an alarm is taken, too
    ruined = Monitor(np.ones(50), tests=(), limits=[Limit("max-ruin", 0.05, 0.0)])
    alarm = ruined.update([1.0, -1.0] * 20)
    assert alarm is not None
    assert alarm.test == "below 0"


def test_returns_that_never_varied_are_watched(rng):
    watch = Monitor(np.full(200, 5.0))
    assert watch.update(np.full(200, 5.0)) is None
    assert watch.update(np.full(60, 3.0)) is not None


def test_the_running_interval_holds_at_all_times(rng):
    misses = 0
    for _ in range(60):
        watch = Monitor(rng.random(100))
        truth = np.clip(rng.random(10_000), watch.promises[0].low, watch.promises[0].high).mean()
        for _ in range(5):
            watch.update(rng.random(20))
            found = watch.interval(0.9)
            misses += not found.low - 0.01 <= truth <= found.high + 0.01
    assert misses <= 0.1 * 60 * 5


def test_what_can_be_watched():
    sample = vpac.evaluate(lambda observation: 0, "vpac/CatchUp-v0", 30)
    assert vpac.monitor(sample).reference.tolist() == sample.returns.tolist()
    assert vpac.monitor(range(20), alpha=0.1).alpha == 0.1
    for wrong in ({"alpha": 0.0}, {"tests": ()}, {"tests": ("men",)}):
        with pytest.raises(UserError):
            vpac.monitor(range(20), **wrong)
    with pytest.raises(UserError, match="ten"):
        vpac.monitor([1.0, 2.0])
    watch = vpac.monitor(range(20))
    for returns in (
        float("nan"),
        float("inf"),
        "abc",
        "1",
        None,
        True,
        [1.0, None],
        [[1.0]],
        [[1.0], [1.0, 2.0]],
        [1.0, "a"],
    ):
        with pytest.raises(UserError, match="a return must be a finite number"):
            watch.update(returns)
    assert watch.episodes == 0  # all of them, or none
    for returns in (3, np.float32(3.0), np.array(3.0), [1, 2.5], (y for y in (1.0, 2.0)), []):
        assert watch.update(returns) is None
    assert watch.episodes == 7
    with pytest.raises(UserError, match="a list of numbers"):
        vpac.monitor(["a"] * 20)
    with pytest.raises(UserError, match="no return"):
        vpac.monitor(range(20)).interval()
