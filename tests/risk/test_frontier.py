"""Efficient points, the knee, the advice and the next ψ, on curves with known answers."""

import numpy as np
import pytest

from vpac.errors import UserError
from vpac.risk import FrontierPoint, Interval, TradeOff, aversion_of, psi_of
from vpac.risk.frontier import first_prices, hypervolume, next_prices


def around(x, error):
    return Interval(x, x - error, x + error)


def point(psi, mean, std, mean_error=0.0, std_error=0.0, measure=None):
    measured = None if measure is None else around(measure, 0.0)
    return FrontierPoint(psi, around(mean, mean_error), around(std, std_error), measure=measured)


def traced(means, stds):
    return TradeOff([point(float(k), m, s) for k, (m, s) in enumerate(zip(means, stds, strict=True))])


def test_dominated_points():
    means, stds = [10.0, 9.0, 8.0, 9.0, 9.0, 8.5], [5.0, 3.0, 4.0, 3.0, 3.5, 3.0]
    found = traced(means, stds).dominated.tolist()
    assert found == [False, False, True, False, True, True]  # equal ones do not beat each other


def test_the_knee_does_not_depend_on_units():
    means, stds = np.array([10.0, 9.8, 9.0, 5.0, 4.0]), np.array([10.0, 6.0, 3.0, 2.5, 9.0])
    assert traced(means, stds).knee == 2
    assert traced(1000.0 * means - 77.0, 0.01 * stds).knee == 2
    assert traced([10.0, 5.0, 0.0], [10.0, 5.0, 0.0]).knee is None  # straight: no point stands out
    assert traced([10.0, 4.0, 0.0], [10.0, 5.0, 0.0]).knee is None  # below the line: worse than a mixture of the ends
    assert traced([10.0, 5.0], [10.0, 5.0]).knee is None


def test_the_sharpe_ratio_needs_a_positive_mean():
    assert traced([10.0, 9.0], [5.0, 3.0]).best_sharpe == 1
    assert traced([-10.0, -9.0], [5.0, 3.0]).best_sharpe is None
    assert traced([-1.0, 2.0, 1.0], [0.1, 5.0, 0.0]).best_sharpe == 2  # a certain gain beats all


def test_risk_aversion_is_a_price_without_a_unit():
    assert psi_of(0.5, 20.0) == pytest.approx(0.025)
    assert aversion_of(psi_of(0.5, 20.0), 20.0) == pytest.approx(0.5)
    assert psi_of(0.0, 0.0) == 0.0
    with pytest.raises(UserError, match="no risk to avoid"):
        psi_of(0.5, 0.0)
    with pytest.raises(UserError, match="not negative"):
        psi_of(-1.0, 2.0)


def test_advice_in_words():
    curve = TradeOff((point(1.0, 2.0, 1.9), point(0.0, 10.0, 10.0), point(0.1, 9.6, 4.2), point(10.0, 1.0, 2.5)))
    assert [p.psi for p in curve.points] == [0.0, 0.1, 1.0, 10.0]
    first, lost = curve.advice()
    assert first == (
        "The curve bends at ψ = 0.1 (the knee): it keeps 96 % of the mean and removes 58 % of the standard deviation."
    )
    assert lost.startswith("Not worth choosing: ψ = 10;")
    assert "overlap" not in lost


def test_a_training_that_stopped_looking_is_noticed():
    """At ψ = 0.5 standing still has U = −100, and the policies of ψ = 0.1 have 9 − 0.5 · 2² = 7."""
    lost = TradeOff((point(0.0, 10.0, 4.0), point(0.1, 9.0, 2.0), point(0.5, -100.0, 0.0)))
    assert [lost.better(i) for i in range(3)] == [None, None, 1]
    assert "At ψ = 0.5 the policies of ψ = 0.1 are better by the objective" in " ".join(lost.advice())
    assert "better by the objective" not in " ".join(TradeOff(lost.points[:2]).advice())
    unsure = TradeOff((point(0.0, 10.0, 4.0), point(0.1, 8.0, 2.0, 1.0)))  # U at ψ = 0.1: 8.4, and 7.6 ± 1
    assert unsure.better(1) is None
    assert TradeOff((unsure.points[0], point(0.1, 8.0, 2.0, 0.7))).better(1) == 0
    assert TradeOff((unsure.points[0], point(0.1, 9.0, 0.5, 0.0, 8.0))).better(1) is None  # its std may be 0, not −7.5
    gini = TradeOff((point(0.0, 10.0, 1.0, measure=4.0), point(0.5, 7.0, 1.0, measure=2.0)))  # U at ψ = 0.5: 8 and 6
    assert gini.better(1) == 0


def test_advice_owns_up_to_noise_and_to_failure():
    unsure = TradeOff(
        (point(0.0, 10.0, 10.0, 1.0, 4.0), point(0.1, 9.6, 4.2, 1.0, 4.0), point(1.0, 2.0, 4.0, 1.0, 4.0))
    )
    assert "(the intervals of both overlap: use more seeds or episodes to decide)" in unsure.advice()[0]
    worse = TradeOff((point(0.0, -10.0, 5.0), point(0.1, -20.0, 6.0)))
    words = " ".join(worse.advice())
    assert "No price that was tried lowered the standard deviation." in words
    assert "Not worth choosing: ψ = 0.1" in words
    negative = TradeOff((point(0.0, -10.0, 5.0), point(0.1, -11.0, 2.0)))
    assert negative.advice() == [
        "ψ = 0.1: it takes the mean from -10 to -11 and removes 60 % of the standard deviation."
    ]
    assert "one point only" in TradeOff((point(0.0, 1.0, 1.0),)).advice()[0]


@pytest.mark.parametrize(
    ("mean_error", "std_error", "doubt"),
    [
        (0.1, 0.1, ""),
        (0.3, 0.1, " (the intervals of the mean overlap: use more seeds or episodes to decide)"),
        (0.1, 4.0, " (the intervals of the standard deviation overlap: use more seeds or episodes to decide)"),
        (0.3, 4.0, " (the intervals of both overlap: use more seeds or episodes to decide)"),
        (np.nan, np.nan, ""),
    ],
)
def test_words_doubt_the_mean_as_they_doubt_the_spread(mean_error, std_error, doubt):
    curve = TradeOff((point(0.0, 10.0, 10.0, mean_error, std_error), point(0.1, 9.6, 4.2, mean_error, std_error)))
    assert curve.in_words(1) == f"it keeps 96 % of the mean and removes 58 % of the standard deviation{doubt}"
    same = TradeOff((point(0.0, 10.0, 10.0, 1.0, 1.0), point(0.1, 10.0, 10.0, 1.0, 1.0)))
    assert "overlap" not in same.in_words(1)


def test_first_prices_follow_the_scale_of_the_reward():
    assert first_prices(10.0) == [0.01, 0.05, 0.25]
    assert first_prices(1000.0) == [0.0001, 0.0005, 0.0025]


def curve(psi):
    """A trade-off that happens around ψ = 0.03: almost nothing below 0.01 and above 0.1."""
    share = 1.0 / (1.0 + np.exp(-6.0 * (np.log10(psi + 1e-12) - np.log10(0.03))))
    return 10.0 - 4.0 * share**2, 10.0 - 8.0 * share


def test_prices_are_placed_where_the_curve_bends():
    psis = [0.0, *first_prices(10.0)]
    while len(psis) < 10:
        means, stds = zip(*(curve(psi) for psi in psis), strict=True)
        psis += next_prices(psis, means, stds, psis, 2)
    new = psis[4:]
    assert sum(0.01 < psi < 0.1 for psi in new) >= 4
    assert len(set(psis)) == len(psis)
    # the largest gap that is left, in shares of the picture, is much smaller than that of even spacing
    s = np.sort([curve(psi)[1] for psi in psis]) / 8.0
    assert np.diff(s).max() < 0.3


def test_a_curve_that_still_moves_is_followed():
    psis = [0.0, 0.01, 0.02]
    found = next_prices(psis, [10.0, 9.9, 5.0], [10.0, 9.9, 5.0], psis, 3)
    assert 0.08 in found
    flat = next_prices(psis, [10.0, 10.0, 10.0], [10.0, 10.0, 10.0], psis, 3)
    assert flat == [0.08]  # nothing has happened yet: a higher price might
    far = next_prices([0.0, 90.0], [1.0, 1.0], [10.0, 10.0], [], 2)
    assert far == []  # nor will anything beyond all reason


def test_what_was_tried_is_not_tried_again():
    psis = [0.0, 0.01, 0.1]
    once = next_prices(psis, [10.0, 9.0, 5.0], [10.0, 5.0, 1.0], psis, 1)
    again = next_prices(psis, [10.0, 9.0, 5.0], [10.0, 5.0, 1.0], [*psis, *once], 1)
    assert len(once) == len(again) == 1
    assert once != again


def test_the_hypervolume_by_hand():
    """Floor 1, ceiling 10: from (2, 3) straight to (5, 4), which lies above (4, 3.2), then level to 10."""
    means, risks = np.array([4.0, 3.0, 3.2, 9.0, 0.0]), np.array([5.0, 2.0, 4.0, 11.0, 0.0])
    assert hypervolume(means, risks, 1.0, 10.0) == pytest.approx(3 * 2.5 + 5 * 3)
    rows = hypervolume(np.stack([means, means + 1.0]), np.stack([risks, risks]), 1.0, 10.0)
    assert rows == pytest.approx([22.5, 2 * 0.0 + 3 * 3.5 + 5 * 4])
    assert hypervolume(np.array([0.0]), np.array([1.0]), 1.0, 10.0) == 0.0


def test_averages_of_two_policies_do_not_raise_the_hypervolume():
    two = hypervolume(np.array([8.0, 5.0]), np.array([15.0, 0.0]), 1.0, 20.0)
    three = hypervolume(np.array([8.0, 5.0, 6.5, 6.0]), np.array([15.0, 0.0, 7.5, 5.0]), 1.0, 20.0)
    assert two == pytest.approx(three)
    assert hypervolume(np.array([8.0, 5.0, 7.0]), np.array([15.0, 0.0, 7.5]), 1.0, 20.0) > two
