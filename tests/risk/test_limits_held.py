"""Limits of the tail, of ruin and of the mean on plants with a closed form, their intervals, and the text of reports."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from vpac.errors import UserError
from vpac.risk import Budget, BudgetReport, Interval, Multiplier, as_budget
from vpac.risk.budget import Limit, NeutralMean, check_limits

Z = norm.ppf((np.arange(1000) + 0.5) / 1000)
"""A normal sample without any luck."""
Z = Z / np.std(Z, ddof=1)


def exposure(budget, steps=4000, rate=0.005, sure=1.0, mean=1.0, std=2.0, state=None, a=1.0):
    """Exact ascent of a in [0, 1], which returns N(sure + a·mean, a²·std²); the sample has no luck."""
    state = state or Multiplier()
    for _ in range(steps):
        state = budget.look(state, sure + a * mean + a * std * Z)
        step = (mean - 2.0 * state.psi * a * std**2) / (1.0 + state.psi * state.unit)
        a = min(max(a + rate * step, 0.0), 1.0)
    return a, state


def margin(terms):
    return float(np.std(terms, ddof=1) / math.sqrt(len(terms)))


def test_ruin_is_held_with_the_largest_stake():
    """P(N(1 + a, 4a²) < 0) = q means a = 1 / (2z − 1), z = −Φ⁻¹(q). Aimed at is p less its error, at most a fifth of p."""
    a, state = exposure(Budget(max_ruin=(0.05, 0.0)))
    aimed = 0.05 - min(math.sqrt(0.05 * 0.95 / len(Z)), 0.01)
    assert a == pytest.approx(1.0 / (2.0 * -norm.ppf(aimed) - 1.0), rel=0.01)
    assert state.psi == pytest.approx(1.0 / (2.0 * a * 4.0), rel=0.1)


def test_the_tail_is_held_with_the_largest_stake():
    """CVaR = 1 + a − 2 a k, k = φ(z_α) / α, with its standard error to spare."""
    a, _ = exposure(Budget(min_cvar=(0.1, 0.0)))
    k = -float(np.sort(Z)[:100].mean())
    assert k == pytest.approx(norm.pdf(norm.ppf(0.1)) / 0.1, rel=0.01)
    error = 2.0 * margin(np.minimum(Z - np.sort(Z)[99], 0.0) / 0.1)
    assert a == pytest.approx(1.0 / (2.0 * k - 1.0 + error), rel=0.01)


def test_as_much_of_the_mean_is_kept_as_was_asked():
    """At ψ = 0 the mean is 2; 90 % of it are 1.8, and the error of the mean, at most half of 0.2, is to spare."""
    start = Multiplier().with_neutral(1.0 + 1.0 + 2.0 * Z)
    assert start.reference.mean == pytest.approx(2.0)
    assert start.reference.error == pytest.approx(2.0 / math.sqrt(len(Z)))
    a, _ = exposure(Budget(keep_mean=0.9), state=start)
    assert 1.0 + a == pytest.approx(1.8 + 2.0 * a * margin(Z), rel=1e-3)


def test_a_limit_out_of_reach_does_not_drive_the_policy_to_nothing():
    """P(a N(1, 4) < 0) does not depend on a: no price helps, and the best one, mean / (2 s²), leaves every stake as it is."""
    a, state = exposure(Budget(max_ruin=(0.05, 0.0)), sure=0.0)
    assert a > 0.5
    assert state.psi == pytest.approx(a / (2.0 * a**2 * 4.0), rel=1e-3)
    a, _ = exposure(Budget(max_ruin=(0.05, 0.0)), sure=-5.0, a=0.1)
    assert a == 1.0  # the mean is below: first of all it rises


def test_of_two_limits_the_tighter_one_counts_and_the_mean_is_a_brake():
    ruin, both = (exposure(Budget(max_ruin=(0.05, 0.0), **more))[0] for more in ({}, {"max_std": 0.5}))
    assert both == pytest.approx(0.25, rel=0.01)
    assert both < ruin
    start = Multiplier().with_neutral(2.0 + 2.0 * Z)
    kept, _ = exposure(Budget(max_std=0.5, keep_mean=0.9), state=start)
    alone, _ = exposure(Budget(keep_mean=0.9), state=start)
    assert kept == pytest.approx(alone, rel=0.01)
    loose, _ = exposure(Budget(max_std=1.9, keep_mean=0.9), state=start)
    assert loose == pytest.approx(0.95, rel=0.01)


def test_means_of_parts_join_to_the_mean_of_all():
    returns = np.random.default_rng(0).normal(3.0, 2.0, 500)
    state = Multiplier()
    for part in np.split(returns, [100, 100, 130]):
        state = state.with_neutral(part)
    assert state.reference.mean == pytest.approx(returns.mean())
    assert state.reference.error == pytest.approx(margin(returns))
    assert Multiplier.read(state.as_dict()) == state
    assert list(Multiplier(0.1, 0.2, 0.3, 0.4, 5).as_dict()) == ["psi", "integral", "excess", "slope", "looks"]


def test_a_mean_below_zero_loses_the_same_share():
    limit = Limit("keep-mean", 0.9)
    assert limit.floor(NeutralMean(-10.0, 0.0)) == -11.0
    assert limit.excess(np.full(30, -10.0), NeutralMean(-10.0, 0.0)) == pytest.approx(1.0)
    assert limit.excess(np.full(30, -12.0), NeutralMean(-10.0, 0.0)) == pytest.approx(-1.0)


def test_budgets_in_text_and_back():
    assert as_budget("keep-mean:0.95") == Budget(keep_mean=0.95)
    assert as_budget("cvar:0.1:100") == Budget(min_cvar=(0.1, 100.0))
    assert as_budget("ruin:0.05:0:3000, std:2") == Budget(max_ruin=(0.05, 0.0), wait=3000.0, max_std=2.0)
    budget = Budget(min_cvar="0.1:100", max_ruin=[0.05, -3], keep_mean=0.9)
    assert as_budget(budget.as_dict()) == budget
    assert [limit.name for limit in budget.limits] == ["cvar", "ruin", "mean"]
    words = "mean of the worst 10 % ≥ 100 and P(return < -3) ≤ 5 % and at least 90 % of the mean at ψ = 0"
    assert budget.in_words == words


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"keep_mean": 1.0}, "keep_mean of a budget must be above 0 and below 1, got 1"),
        ({"keep_mean": True}, "keep_mean of a budget must be above 0 and below 1"),
        ({"max_ruin": (1.5, 0.0)}, r"max_ruin of a budget must be above 0 and below 1, got 1\.5"),
        (
            {"max_ruin": "5"},
            r"max_ruin of a budget must be a probability and a return, for example 0\.05:0 or \(0\.05, 0\), got '5'",
        ),
        ({"max_ruin": 0.05}, "must be a probability and a return"),
        ({"min_cvar": (0.0, 3.0)}, "min_cvar of a budget must be above 0 and below 1"),
        ({"min_cvar": (0.1, math.inf)}, "the return in min_cvar of a budget must be finite"),
        ({"max_std": 1.0, "max_variance": 4.0, "keep_mean": 0.9}, "give one of them"),
        ("ruin:0.05", "cannot read a budget"),
        ("std:1,std:2", "cannot read a budget"),
        ("std:1,", "cannot read a budget"),
        ("", "cannot read a budget"),
    ],
)
def test_mistakes_are_named(given, message):
    with pytest.raises(UserError, match=message):
        as_budget(given)


def report(budget, returns, neutral=None):
    state = Multiplier() if neutral is None else Multiplier().with_neutral(neutral)
    looks = {"at": np.array([10.0, 20.0, 30.0]), "variance": np.array([1.0, 1.0, 4.0])}
    looks |= {"ruin": np.array([0.3, 0.1, 0.4]), "cvar": np.array([-1.0, 0.5, -2.0]), "mean": np.array([2.0, 1.5, 1.0])}
    mean, variance = (Interval(x, 0.9 * x, 1.1 * x) for x in (float(returns.mean()), float(returns.var(ddof=1))))
    checks, *at = check_limits(budget, returns, state, looks, 0.95, 40.0)
    return BudgetReport(budget, mean, variance, 0.5, variance, 30.0, "steps", len(returns), 3, checks, *at)


def test_what_is_met_and_what_is_not_is_said_plainly():
    good = report(Budget(max_ruin=(0.05, 0.0)), 5.0 + 2.0 * Z)
    assert good.met
    assert (
        "The budget, P(return < 0) ≤ 5 %, is met within its intervals: P(return < 0) is 0.6 % (0.2205 … 1.301 %)"
        in good.words
    )
    bad = report(Budget(max_ruin=(0.05, 0.0)), 1.0 + 2.0 * Z)
    assert not bad.met
    assert "The closest look: P(return < 0) 10 %, after 20 steps. Train longer, or with a stricter limit" in bad.words
    assert "The mean itself is below 3" in report(Budget(min_cvar=(0.1, 3.0)), 1.0 + 2.0 * Z).words
    both = report(Budget(min_cvar=(0.1, 0.0), max_std=1.0), 5.0 + 2.0 * Z)
    assert not both.met
    assert "is not met (the standard deviation): mean of the worst 10 % is 1.4" in both.words
    assert "The closest look: mean of the worst 10 % 0.5, standard deviation 1, after 20 steps" in both.words
    tail, deviation = both.as_dict()["limits"]
    assert (tail["name"], tail["met"], tail["closest"]) == ("cvar", True, 0.5)
    assert (deviation["name"], deviation["limit"], deviation["met"]) == ("std", "standard deviation ≤ 1", False)
    assert [deviation[name] for name in ("bound", "closest")] == [1.0, 1.0]
    assert [deviation[name] for name in ("low", "estimate", "high")] == pytest.approx(
        [2 * x**0.5 for x in (0.9, 1, 1.1)]
    )
    squared = report(Budget(min_cvar=(0.1, 0.0), max_variance=9.0), 5.0 + 2.0 * Z).as_dict()["limits"][1]
    assert (squared["name"], squared["bound"], squared["met"]) == ("variance", 9.0, True)
    kept = Budget(keep_mean=0.95)
    assert "at least 4.75 is asked" in report(kept, 4.9 + 2.0 * Z, 5.0 + 2.0 * Z).words
    lost = report(kept, 3.0 + 2.0 * Z, 5.0 + 2.0 * Z)
    assert "Train longer, so that the price can settle" in lost.words
    assert "was not measured yet" in report(kept, 3.0 + 2.0 * Z).words
    assert " No look during training came closer than this final policy. Train longer" in lost.words
    data = lost.as_dict()
    assert (data["met"], data["max_variance"], data["closest_after_steps"]) == (False, None, 40.0)
    assert data["limits"][0]["closest"] == data["limits"][0]["estimate"] == pytest.approx(3.0)
    near = report(Budget(max_ruin=(0.05, 0.0)), 2.0 + 1.5 * Z)
    assert not near.met
    assert "closest look" not in near.words
    assert near.words.endswith("ask for what the final policy reached.")
    worse = report(kept, 1.8 + 2.0 * Z, 5.0 + 2.0 * Z)
    assert "The closest look: mean 2, after 10 steps." in worse.words
    found = data["limits"][0]
    assert found["name"] == "mean"
    assert found["bound"] == pytest.approx(4.75)
    assert found["low"] < found["estimate"] < found["high"] < found["bound"]


def test_an_uncertain_reference_widens_the_interval():
    limit, returns = Limit("keep-mean", 0.9), 2.0 * Z
    sure, unsure = (limit.check(returns, 0.95, NeutralMean(1.0, error))[0] for error in (0.0, 0.1))
    plain = (sure.high - sure.low) / 2.0
    assert (unsure.high - unsure.low) / 2.0 == pytest.approx(math.hypot(plain, 1.96 * 0.09), rel=1e-3)


def test_intervals_decide():
    assert Limit("max-ruin", 0.05, 0.0).reaches(Interval(0.06, 0.04, 0.08), 0.05)
    assert not Limit("max-ruin", 0.05, 0.0).reaches(Interval(0.08, 0.06, 0.1), 0.05)
    assert Limit("min-cvar", 1.0, 0.1).reaches(Interval(0.9, 0.8, 1.1), 1.0)
    assert not Limit("min-cvar", 1.0, 0.1).reaches(Interval(0.9, math.nan, math.nan), 1.0)
