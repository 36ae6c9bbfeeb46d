"""The controller on plants with a closed form, and the text of its report."""

from __future__ import annotations

import math

import numpy as np
import pytest

from vpac.errors import UserError
from vpac.risk import Budget, BudgetReport, Interval, Multiplier, PricePath, as_budget
from vpac.risk.budget import measured

NEW = Multiplier()


def mixture(budget, steps=3000, rate=0.2, mean=1.0, noise=4.0, start=0.0, state=NEW):
    """Exact policy-gradient ascent of p, the chance of an arm that pays N(mean, noise) instead of 0.

    Its variance p·noise + p(1 − p)·mean² is concave in p: at a constant price the best p is 0 or 1, never between.
    """
    logit, variances, prices = start, [], []
    for _ in range(steps):
        p = 1.0 / (1.0 + math.exp(-logit))
        variance = p * noise + p * (1.0 - p) * mean**2
        state = budget.step(state, variance)
        slope = mean - state.psi * (noise + mean**2 - 2.0 * p * mean**2)
        logit += rate * p * (1.0 - p) * slope / (1.0 + state.psi * budget.std)
        variances.append(variance)
        prices.append(state.psi)
    return np.array(variances), np.array(prices)


def exposure(budget, steps=3000, rate=0.01, mean=1.0, std=2.0, unit=1.0):
    """Exact ascent of a in [0, 1], which pays N(a·mean, a²·std²): ψ = mean / (2 √V std) at the budget V."""
    mean, std, a = mean * unit, std * unit, 1.0
    state, variances, prices = Multiplier(), [], []
    for _ in range(steps):
        state = budget.step(state, (a * std) ** 2)
        variances.append((a * std) ** 2)
        prices.append(state.psi)
        step = (mean - 2.0 * state.psi * a * std**2) / (1.0 + state.psi * budget.std)
        a = min(max(a + rate * step / unit, 0.0), 1.0)
    return np.array(variances), np.array(prices)


@pytest.mark.parametrize("limit", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("rate", [0.02, 0.2, 2.0])
def test_a_mixture_is_held_where_no_constant_price_holds_it(limit, rate):
    variances, prices = mixture(Budget(max_variance=limit), 6000, rate)
    p = (5.0 - math.sqrt(25.0 - 4.0 * limit)) / 2.0
    assert variances[-1] == pytest.approx(limit, rel=1e-3)
    assert prices[-1] == pytest.approx(1.0 / (5.0 - 2.0 * p), rel=1e-2)
    settled = int(np.argmax(np.abs(variances / limit - 1.0) < 0.05))
    assert variances[settled:].max() < (1.05 if limit < 2.5 else 1.25) * limit  # p = ½ is above the budget, or below
    assert variances[settled:].min() > 0.8 * limit


def test_a_constant_price_does_not_hold_it():
    """The right price at the start and no answer: p goes to 0 or 1."""
    state = Multiplier(psi=0.2425, integral=math.log1p(0.2425 * math.sqrt(2.0)))
    for logit in (-0.2, -0.3):
        still = Budget(max_variance=2.0, proportional=0.0, integral=0.0, derivative=0.0)
        variances, prices = mixture(still, start=logit, state=state, steps=10_000)
        assert prices == pytest.approx(0.2425)
        assert not 1.0 < variances[-1] < 3.0


@pytest.mark.parametrize("limit", [0.2, 1.0, 2.0])
def test_the_price_of_an_exposure_is_the_one_of_the_closed_form(limit):
    variances, prices = exposure(Budget(max_variance=limit))
    assert variances[-1] == pytest.approx(limit, rel=1e-3)
    assert prices[-1] == pytest.approx(1.0 / (2.0 * math.sqrt(limit) * 2.0), rel=1e-2)


def test_prices_scale_with_the_unit_of_the_reward():
    _, ones = exposure(Budget(max_std=1.0), 500)
    _, thousands = exposure(Budget(max_std=1000.0), 500, unit=1000.0)
    assert thousands * 1000.0 == pytest.approx(ones, rel=1e-6)


def test_a_budget_that_is_never_reached_costs_nothing():
    _, prices = exposure(Budget(max_std=3.0), 100)
    assert (prices == 0.0).all()


@pytest.mark.parametrize("much", [1e9, 1.5])
def test_after_saturation_the_price_comes_down_as_soon_as_the_variance_does(much):
    """No windup: ten thousand looks at a variance that does not move weigh no more than a hundred."""
    budget = Budget(max_variance=1.0, largest=50.0)
    down = []
    for looks in (1000, 10_000):
        state = Multiplier()
        for _ in range(looks):
            state = budget.step(state, much)
        assert budget.is_largest(state.psi)
        assert state.psi <= 50.0 + 1e-9
        count = 0
        while state.psi > 0.0 and count < 100:
            state, count = budget.step(state, 0.2), count + 1
        down.append(count)
    assert down[0] == down[1] < 60


def test_after_a_long_time_below_the_budget_the_price_rises_at_once():
    budget, state = Budget(max_variance=1.0), Multiplier()
    for _ in range(10_000):
        state = budget.step(state, 0.01)
    assert state.psi == 0.0
    assert state.integral == 0.0
    assert budget.step(state, 2.0).psi > 0.3


def test_the_integral_waits_for_a_variance_that_is_on_its_way():
    budget, falling, still = Budget(max_variance=1.0), Multiplier(), Multiplier()
    for look in range(50):
        falling = budget.step(falling, 4.0 - 0.05 * look)
        still = budget.step(still, 4.0)
    assert still.integral > 5 * falling.integral


def test_time_is_counted_in_samples():
    """Four looks at a quarter of new episodes each add up to one at a new sample."""
    budget = Budget(max_variance=1.0, proportional=0.0, derivative=0.0)
    whole, quarters = budget.step(Multiplier(), 2.0), Multiplier()
    for _ in range(4):
        quarters = budget.step(quarters, 2.0, 0.25)
    assert quarters.psi == pytest.approx(whole.psi)


def test_a_rising_variance_is_met_with_a_higher_price():
    budget = Budget(max_variance=1.0, proportional=0.0, integral=0.0, derivative=1.0)
    state = budget.step(Multiplier(), 1.0)
    assert state.psi == 0.0  # the first look has no slope
    assert budget.step(state, 1.5).psi > 0.0
    assert budget.step(state, 0.5).psi == 0.0


def test_a_variance_that_is_not_known_changes_nothing_and_states_can_be_saved():
    budget = Budget(max_std=1.0)
    state = budget.step(Multiplier(), 3.0)
    assert budget.step(state, math.nan) is state
    assert budget.step(state, math.inf) is state
    assert Multiplier.read(state._asdict()) == state


def test_budgets_in_words_and_back():
    assert as_budget("std:2") == Budget(max_std=2.0)
    assert as_budget("variance:4:300") == Budget(max_variance=4.0, wait=300.0)
    assert as_budget({"max_std": 2, "integral": 0.5}) == Budget(max_std=2.0, integral=0.5)
    assert as_budget(None) is None
    budget = Budget(max_std=3.0, wait=10.0, derivative=0.0)
    assert as_budget(budget) is budget
    assert as_budget(budget.as_dict()) == budget
    assert (budget.variance, budget.std) == (9.0, 3.0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (2.0, "expected std:S or variance:V"),
        ("sd:2", "expected std:S or variance:V"),
        ("std:much", "expected std:S or variance:V"),
        ("std:1:2:3", "expected std:S or variance:V"),
        ("std:-1", "max_std of a budget must be a positive number"),
        ({"max_sdt": 1.0}, "did you mean 'max_std'"),
        ({}, "give one of them"),
        ({"max_std": 1.0, "max_variance": 1.0}, "give one of them"),
        ({"max_std": 0.0}, "must be a positive number"),
        ({"max_std": True}, "must be a positive number"),
        ({"max_std": math.nan}, "must be a positive number"),
        ({"max_std": 1.0, "wait": -1.0}, "wait of a budget must be a number that is not negative"),
    ],
)
def test_mistakes_are_named(given, message):
    with pytest.raises(UserError, match=message):
        as_budget(given)


def report(variance, psi=0.5, episodes=1000, smallest=None, budget=None):
    found = Interval(variance, 0.9 * variance, 1.1 * variance)
    budget = budget or Budget(max_variance=4.0)
    smallest = variance if smallest is None else smallest
    least = Interval(smallest, 0.81 * smallest, 1.21 * smallest)
    return BudgetReport(budget, Interval(1.0, 0.9, 1.1), found, psi, least, 2000.0, "episodes", episodes, 40)


def test_a_budget_is_met_if_its_interval_reaches_it():
    assert report(4.4).met
    assert "is met within its interval: the variance is 4.4 (3.96 … 4.84)" in report(4.4).words
    assert not report(4.5).met
    assert report(4.1, episodes=None).met
    assert "to within 5 %" in report(4.1, episodes=None).words
    assert not report(4.3, episodes=None).met
    assert "no price is needed (ψ = 0)" in report(2.0, psi=0.0).words


def test_a_budget_that_is_not_met_is_said_plainly():
    short = report(9.0, smallest=6.25, budget=Budget(max_std=2.0))
    assert "The budget, standard deviation ≤ 2, is not met: the standard deviation is 3 (2.846 … 3.146)" in short.words
    least = "that was reached is 2.5 (2.25 … 2.75), after 2,000 episodes, the lowest of 40 looks."
    assert f"The smallest standard deviation {least}" in short.words
    assert "longer training may help" in short.words
    assert "finds no policy that varies so little" in report(9.0, psi=50.0).words
    assert "It was within the budget on the way" in report(9.0, smallest=3.0).words
    assert "It may have been within the budget on the way" in report(9.0, smallest=3.9).words
    assert "It was within the budget on the way" in report(9.0, smallest=3.9, episodes=None).words
    assert "that was reached is 9, after 2,000 episodes. ψ" in report(9.0, episodes=None).words
    data = short.as_dict()
    assert (data["met"], data["exact"], data["smallest_variance"]) == (False, False, 6.25)
    assert data["variance"] == {"estimate": 9.0, "low": 8.1, "high": pytest.approx(9.9)}
    assert data["words"] == short.words


def test_a_path_without_looks_is_empty():
    assert [len(column) for column in PricePath.of([])] == [0, 0, 0, 0]
    assert PricePath.of([(20.0, 0.0, math.nan, math.nan)]).smallest()[2] == 0


def test_the_smallest_of_many_looks_knows_that_it_is():
    """Sixty looks at 200 returns whose variance is 4: the lowest is always below 4, its interval holds 4 nearly always."""
    rng, trials = np.random.default_rng(0), 300
    found = []
    for _ in range(trials):
        looks = [measured(rng.normal(0.0, 2.0, 200), 20) for _ in range(60)]
        path = PricePath.of([(20.0 * k, 0.0, *look) for k, look in enumerate(looks)])
        smallest, at, count = path.smallest()
        assert (smallest.estimate, count) == (path.variance.min(), 60)
        assert path.variance[path.at == at] == smallest.estimate
        found.append((smallest.estimate, smallest.low <= 4.0 <= smallest.high))
    estimates, held = np.array(found).T
    assert (estimates < 4.0).all()
    assert held.mean() >= 0.95
    assert measured(np.ones(200), 20) == (0.0, 0.0)
    assert np.isnan(measured(np.ones(19), 20)).all()
