"""Bounds that hold for every distribution, tested by enumeration where possible, else by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from vpac.errors import UserError
from vpac.risk.intervals import (
    clopper_pearson,
    mean_upper_bound,
    probability_below,
    uniform_margin,
    uniform_probability_below,
)


@pytest.mark.parametrize(("n", "level"), [(1, 0.95), (20, 0.9), (60, 0.95)])
def test_clopper_pearson_covers_every_probability(n, level):
    """Exactly: the probability of the counts whose interval holds p, on each side, for a fine grid of p."""
    found = [clopper_pearson(count, n, level=level) for count in range(n + 1)]
    low, high = (np.array([getattr(one, end) for one in found]) for end in ("low", "high"))
    p = np.linspace(0.0, 1.0, 1001)[:, None]
    chance, tail = binom.pmf(np.arange(n + 1), n, p), (1.0 - level) / 2.0
    assert ((chance * (low > p)).sum(axis=1) <= tail + 1e-12).all()
    assert ((chance * (high < p)).sum(axis=1) <= tail + 1e-12).all()
    # no end could be any closer: at the end itself the error is all that is allowed
    assert binom.sf(n - 1, n, low[n]) == pytest.approx(tail)
    assert binom.cdf(0, n, high[0]) == pytest.approx(tail)


def test_probabilities_are_of_returns_strictly_below():
    assert probability_below([1.0, 2.0, 2.0, 3.0], 2.0).estimate == 0.25
    assert uniform_probability_below([1.0, 2.0, 2.0, 3.0], [0.5, 2.0, 9.0])[0].tolist() == [0.0, 0.25, 1.0]


@pytest.mark.parametrize("draw", ["standard_normal", "coin"])
def test_the_uniform_band_holds_everywhere_at_once(rng, draw):
    trials, n = 2000, 100
    if draw == "coin":
        x, points, truth = (rng.random((trials, n)) < 0.3) * 1.0, np.array([0.5, 1.5]), np.array([0.7, 1.0])
    else:
        from scipy.special import ndtr

        points = np.linspace(-3.0, 3.0, 200)
        x, truth = rng.standard_normal((trials, n)), ndtr(points)
    held = 0
    for sample in x:
        _, low, high = uniform_probability_below(sample, points, level=0.9)
        held += bool(((low <= truth) & (truth <= high)).all())
    assert held / trials >= 0.9 - 3.0 * np.sqrt(0.09 / trials)
    assert uniform_margin(100, level=0.9) == pytest.approx(np.sqrt(np.log(20.0) / 200.0))


BOUNDED = {
    "coin": (lambda rng, size: (rng.random(size) < 0.05) * 1.0, 0.05),
    "skewed": (lambda rng, size: rng.beta(0.2, 2.0, size), 0.2 / 2.2),
    "uniform": (lambda rng, size: rng.random(size), 0.5),
}


@pytest.mark.parametrize("name", BOUNDED)
@pytest.mark.parametrize("anytime", [False, True])
def test_the_mean_is_seldom_above_its_bound(rng, name, anytime):
    draw, mean = BOUNDED[name]
    found = np.array([mean_upper_bound(draw(rng, 150), level=0.9, anytime=anytime) for _ in range(250)])
    assert np.mean(found < mean) <= 0.1
    assert (found <= 1.0).all()


def test_the_bound_is_nearly_that_of_the_central_limit(rng):
    samples = np.clip(0.5 + 0.1 * rng.standard_normal((20, 1000)), 0.0, 1.0)
    margin = np.mean([mean_upper_bound(z, level=0.975) for z in samples]) - 0.5
    assert 1.0 < margin / (1.96 * 0.1 / np.sqrt(1000)) < 1.8


def test_what_is_no_sample_between_0_and_1_is_refused():
    for wrong in ([0.5, 1.5], [-0.1], []):
        with pytest.raises(UserError):
            mean_upper_bound(wrong)
    with pytest.raises(UserError, match="level"):
        clopper_pearson(1, 2, level=1.5)
    with pytest.raises(UserError, match="count"):
        clopper_pearson(3, 2)
