from __future__ import annotations

import numpy as np
import pytest

from risk.test_sample import sample_of
from vpac.errors import UserError
from vpac.risk import ReturnSample, compare_samples, difference_of_means

RNG = np.random.default_rng(7)
CALM, WILD = sample_of(RNG.normal(1.0, 1.0, 400)), sample_of(RNG.normal(1.0, 2.0, 400))


def test_calm_against_wild():
    found = compare_samples(CALM, WILD)
    assert found.difference_of_means == difference_of_means(CALM.returns, WILD.returns)
    assert found.ratio_of_variances.high < 1.0
    assert found.ratio_of_variances.low < 0.25 < found.ratio_of_variances.high
    assert found.varies_less > 0.999
    assert compare_samples(WILD, CALM).varies_less < 0.001
    assert found.better_episode.low < 0.5 < found.better_episode.high


def test_equal_policies_leave_it_open():
    """Under equality Φ(−log ratio / error) is nearly uniform: 200 pairs, a mean of ½ within 4 standard errors."""
    rng = np.random.default_rng(8)
    from vpac.risk import compare

    found = []
    for _ in range(200):
        x, y = rng.exponential(size=(2, 300))
        found.append(compare._varies_less(compare._ratio(x, y, 0.95), x, y, 0.95))
    assert np.mean(found) == pytest.approx(0.5, abs=4 / np.sqrt(12 * 200))
    assert np.mean(np.array(found) < 0.05) < 0.12


def test_the_ratio_is_covered():
    rng, covered = np.random.default_rng(9), []
    from vpac.risk import compare

    for _ in range(400):
        found = compare._ratio(rng.exponential(2.0, 500), rng.exponential(size=500), 0.95)
        covered.append(found.low <= 4.0 <= found.high)
    assert np.mean(covered) >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / 400)


def test_dominance():
    x = np.arange(50.0)
    better = compare_samples(sample_of(x + 20.0), sample_of(x))
    assert better.first_order == better.second_order == (True, False)
    assert better.first_order_share[0] > 0.9
    safer = compare_samples(sample_of(0.1 * x + 22.5), sample_of(x))
    assert safer.first_order == (False, False)
    assert safer.second_order == (True, False)


def test_a_dominance_that_resamples_contradict_is_undecided():
    """B is A but for one episode: it dominates the sample, and hardly any resample."""
    x = np.arange(50.0)
    found = compare_samples(sample_of(x), sample_of(np.append(x[:-1], 60.0)))
    assert found.first_order == (False, True)
    assert found.first_order_share[1] < 0.5
    assert found.prefers[0] == "undecided"
    assert compare_samples(sample_of(x + 40.0), sample_of(x)).prefers == ("A", "A")
    assert compare_samples(sample_of(x), sample_of(x + 40.0)).prefers == ("B", "B")
    assert compare_samples(CALM, WILD).prefers[0] == "neither"


def test_the_seed_decides_and_nothing_else():
    one, other = sample_of(np.arange(30.0) + 4.0), sample_of(np.arange(30.0))
    first = compare_samples(one, other, seed=1)
    assert first == compare_samples(one, other, seed=1) != compare_samples(one, other, seed=2)


def test_a_policy_without_variance_varies_less():
    flat = sample_of([1.0] * 20)
    assert compare_samples(flat, CALM).varies_less == 1.0
    assert compare_samples(CALM, flat).varies_less == 0.0
    assert np.isnan(compare_samples(flat, flat).varies_less)


def test_unlike_discounts_are_refused():
    other = ReturnSample(CALM.returns, CALM.returns, CALM.lengths, CALM.terminated, 0.5)
    with pytest.raises(UserError, match="same gamma"):
        compare_samples(CALM, other)
    with pytest.raises(UserError, match="cannot compare"):
        compare_samples(CALM, CALM.undiscounted)
    compare_samples(CALM.undiscounted, other.undiscounted)


def test_of_a_handful_of_episodes_the_ratio_may_be_anything():
    """The interval of one variance reaches down to 0 there: the ratio's has no upper end."""
    few = sample_of(np.array([17.1, 9.6, 9.6, 9.6, 9.6]))
    found = compare_samples(sample_of(np.array([8.0, 11.0, 14.0, 20.0, 9.0])), few)
    assert found.ratio_of_variances.low < found.ratio_of_variances.estimate < found.ratio_of_variances.high
