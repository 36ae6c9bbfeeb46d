"""Intervals decide limits; episodes with the same seeds are compared as pairs."""

from __future__ import annotations

import numpy as np
import pytest

from vpac.errors import UserError
from vpac.risk.budget import LIMIT_KINDS, Limit
from vpac.risk.compare import compare_paired
from vpac.risk.sample import ReturnSample


def sample(returns):
    n = len(returns)
    return ReturnSample(np.asarray(returns), np.asarray(returns), np.ones(n), np.ones(n, bool), gamma=1.0)


def verdict(kind, text, returns, baseline=None):
    return Limit.read(kind, text).judge(sample(returns), 0.95, None if baseline is None else sample(baseline))[
        "verdict"
    ]


@pytest.mark.parametrize(
    ("kind", "held", "open_", "broken"),
    [
        ("min-mean", -0.2, 0.0, 0.2), ("max-std", 1.3, 1.0, 0.8), ("max-variance", 1.6, 1.0, 0.6),
        ("min-cvar", "0.1:-2.2", "0.1:-1.755", "0.1:-1.3"), ("max-ruin", "0.6:0", "0.5:0", "0.4:0"),
    ],
)  # fmt: skip
def test_verdicts_are_those_of_the_interval(rng, kind, held, open_, broken):
    returns = rng.standard_normal(1000)
    assert [verdict(kind, text, returns) for text in (held, open_, broken)] == ["holds", "undecided", "does not hold"]


def test_keeping_the_mean_is_judged_by_pairs(rng):
    luck = 5.0 * rng.standard_normal(400)
    ours, theirs = 97.0 + luck + 0.1 * rng.standard_normal(400), 100.0 + luck
    assert verdict("keep-mean", 0.95, ours, theirs) == "holds"
    assert verdict("keep-mean", 0.99, ours, theirs) == "does not hold"
    with pytest.raises(UserError, match="--baseline"):
        verdict("keep-mean", 0.95, ours)


def test_unknown_ends_decide_nothing():
    assert verdict("min-cvar", "0.1:0", np.arange(20.0)) == "undecided"


def test_every_limit_has_words_and_a_wrong_one_is_named():
    texts = {"min-cvar": "0.1:3", "max-ruin": "0.05:-1"}
    for kind in LIMIT_KINDS:
        assert len(Limit.read(kind, texts.get(kind, "0.5")).words) > 15
    for kind, text in (
        ("max-ruin", "1.5:0"), ("max-ruin", "0.05"), ("min-cvar", "0:3"), ("max-std", "-1"), ("min-mean", "many"),
        ("keep-mean", "0"), ("min-mean", "inf"), ("max-men", "1"),
    ):  # fmt: skip
        with pytest.raises(UserError):
            Limit.read(kind, text)


def test_pairs_cover_what_they_should(rng):
    """Common luck of exponential distribution; B varies 1.5 times as much in what is its own."""
    trials, n = 400, 300
    held = np.zeros(3)
    variances = 1.0 + 1.0, 1.0 + 1.5**2
    for _ in range(trials):
        luck = rng.exponential(size=n)
        a, b = luck + rng.standard_normal(n), luck + 1.5 * rng.standard_normal(n) - 0.2
        found = compare_paired(a, b)
        ratio = variances[0] / variances[1]
        held[0] += found.difference_of_means.low <= 0.2 <= found.difference_of_means.high
        held[1] += found.ratio_of_variances.low <= ratio <= found.ratio_of_variances.high
        held[2] += found.better.low <= 0.54418 <= found.better.high  # Φ(0.2 / √(1 + 1.5²))
    assert (held / trials >= 0.95 - 3.0 * np.sqrt(0.95 * 0.05 / trials)).all(), held / trials


def test_cvars_of_pairs_are_covered(rng):
    """Of normal returns with a common part: CVaR 0.1 is μ − 1.755 σ."""
    held = 0
    for _ in range(300):
        luck = rng.standard_normal(400)
        a, b = luck + 0.5 * rng.standard_normal(400), 2.0 * luck
        found = compare_paired(a, b, alpha=0.1).difference_of_cvars
        held += found.low <= 1.75498 * (2.0 - np.sqrt(1.25)) <= found.high
    assert held / 300 >= 0.95 - 3.0 * np.sqrt(0.95 * 0.05 / 300)


def test_policies_that_are_the_same_do_not_differ(rng):
    x = rng.standard_normal(100)
    found = compare_paired(x, x)
    assert found.difference_of_means.low == found.difference_of_means.high == 0.0
    assert found.ratio_of_variances.estimate == 1.0
    assert found.better.estimate == found.worse.estimate == 0.0
    assert np.isnan(compare_paired(np.ones(9), x[:9]).correlation)
    with pytest.raises(UserError, match="as many"):
        compare_paired(x, x[1:])
