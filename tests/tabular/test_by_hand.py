"""Updates of the tabular learners, checked by hand: a corridor with two actions."""

from __future__ import annotations

import numpy as np
import pytest

from vpac.tabular import arrays as codes
from vpac.tabular.arrays import GOOD, EpisodeBuffer, Rates, Settings, Weights
from vpac.tabular.kernel.softmax import add_score, greedy_action, mean_value, value
from vpac.tabular.update import (
    Choice,
    StepSizes,
    Trace,
    Transition,
    actor_weight,
    advance,
    augment,
    begin,
    fill_behaviour,
    learn_from_episode,
    learn_step,
    prices,
    ratios,
    record,
    step_sizes,
)  # fmt: skip

HALF = np.array([0.5, 0.5])


def settings(**changes) -> Settings:
    plain = {
        "critic": codes.DIRECT, "form": codes.PUBLISHED, "variance_of": codes.ACTION, "baseline": False, "gamma": 0.5,
        "temperature": 1.0, "score": 1.0, "limit": 90, "on_policy": True, "behaviour": codes.TABLE, "epsilon": 0.0,
        "ratios": codes.IMPORTANCE, "clip_actor": False,
    }  # fmt: skip
    return Settings(**(plain | changes))


def blank(rows=3) -> Weights:
    return Weights(*(np.zeros((rows, 2)) for _ in range(3)), np.zeros(1))


def corridor(form, on_policy=False):
    """Two steps through a corridor, 8 and then 4, cut off in cell 2, of which the critics say Q̂ = 6 and M̂ = 40.

    γ = 1/2; the ratios of the two steps are 2 and 3/2, that of the action after the cut is 4. Returns both critics' tables
    after an episode with step size 1.
    """
    choice = settings(critic=codes.MONTE_CARLO, form=form, on_policy=on_policy)
    weights, buffer = blank(), EpisodeBuffer.make(2, 1, 2)
    weights.w[2, 1], weights.z[2, 1] = 6.0, 40.0
    for step, (reward, rho) in enumerate([(8.0, 2.0), (4.0, 1.5)]):
        taken = Choice(1) if on_policy else Choice(1, rho, rho)
        assert record(buffer, step, np.array([step]), HALF, taken, reward) == GOOD
    after = Choice(1) if on_policy else Choice(1, 4.0, 4.0)
    sizes = StepSizes(0.0, 0.0, 0.0, 1.0, 1.0)
    found = learn_from_episode(choice, weights, weights.theta, sizes, buffer, 2, np.array([2]), after, False)
    assert found == (GOOD, 2)
    assert not weights.w[:, 0].any()
    return weights.w[:2, 1].tolist(), weights.z[:2, 1].tolist()


def test_whole_returns_that_are_cut_off():
    """G_1 = 4 + 6/2 = 7 and G_0 = 8 + 7/2. The square of what is behind the cut has 40 − 6² = 4 more, times 1/4 or 1/16."""
    assert corridor(codes.CORRECTED, on_policy=True) == ([11.5, 7.0], [11.5**2 + 4 / 16, 7.0**2 + 4 / 4])


def test_whole_returns_with_ratios_that_are_cut_off():
    """G_1 = 4 + γ·4·6 = 16 and G_0 = 8 + γ·(3/2)·16 = 20; 4 more behind the cut, times (γ·4)² and (γ·(3/2)·γ·4)²."""
    assert corridor(codes.CORRECTED) == ([20.0, 16.0], [20.0**2 + 1.5**2 * 4, 16.0**2 + 2.0**2 * 4])


def test_published_returns_carry_the_ratios_from_the_start():
    """Σ_j γ^{j−t} ρ_{0:j} R_{j+1} with ρ_{0:0} = 2, ρ_{0:1} = 3 and behind the cut ρ_{0:2} = 12.

    G_1 = 3·4 + γ·12·6 = 48 and G_0 = 2·8 + γ·48 = 40; 4 more behind the cut, times (γ·12)² and (γ²·12)².
    """
    assert corridor(codes.PUBLISHED) == ([40.0, 48.0], [40.0**2 + 3.0**2 * 4, 48.0**2 + 6.0**2 * 4])


@pytest.mark.parametrize(
    ("variance_of", "baseline", "offset"),
    [(codes.ACTION, False, -3.0), (codes.STATE, False, -5.0), (codes.RETURN, False, -7.0), (codes.ACTION, True, 2.0),
     (codes.STATE, True, 0.0), (codes.RETURN, True, -2.0)],
)  # fmt: skip
def test_the_trace_is_its_definition(variance_of, baseline, offset):
    """Three steps from Q̂ = 3 and V̂ = 5 at the start, Ĵ = 7: every number is the sum or the product that names it."""
    choice = settings(on_policy=False, variance_of=variance_of, baseline=baseline)
    reward, delta, delta_v = [2.0, -1.0, 3.0], [1.0, 4.0, -2.0], [-3.0, 2.0, 5.0]
    rho, actor = [2.0, 3.0, 0.5], [0.5, 2.0, 5.0]
    trace = begin(choice, 3.0, 5.0, 7.0, Choice(0, rho[0], actor[0]))
    for k in range(3):
        t_bar = [rho[0] * np.prod([0.25 * r**2 for r in rho[1 : j + 1]]) for j in range(k + 1)]
        x = [0.5 ** (k - j) * np.prod(rho[j + 1 : k + 1]) * t_bar[j] * delta[j] for j in range(k)]
        assert trace.i_q == 0.5**k
        assert trace.i_sigma == 0.25**k
        assert trace.collected == sum(0.5**j * reward[j] for j in range(k))
        assert trace.collected_bar == sum(0.25**j * np.prod(actor[: j + 1]) * reward[j] for j in range(k))
        assert trace.luck == sum(0.5**j * delta_v[j] for j in range(k))
        assert (trace.offset, trace.value_0, trace.first) == (offset, 5.0, k == 0)
        assert trace.rho == np.prod(actor[: k + 1])
        assert trace.t_bar == pytest.approx(t_bar[k])
        assert trace.x == pytest.approx(sum(x))
        if k < 2:
            trace = advance(choice, trace, reward[k], delta[k], delta_v[k], Choice(0, rho[k + 1], actor[k + 1]))


LATER = Trace(
    i_q=0.5, i_sigma=0.25, collected=7.0, collected_bar=6.0, luck=3.0, offset=-1.0, value_0=5.0, rho=2.0, t_bar=0.75,
    x=1.5, first=False,
)  # fmt: skip
"""The second step of an episode at γ = 1/2."""


@pytest.mark.parametrize(
    ("changes", "reward", "penalty"),
    [
        ({}, 0.5 * 3, 0.25 * 20),
        ({"critic": codes.INDIRECT}, 2 * 0.5 * 3, 2 * (0.25 * 20 + 2 * 0.5 * (0.5 * 6 - 5) * 3)),
        ({"on_policy": False}, 2 * 0.5 * 3, 2 * 0.75 * 30),
        ({"form": codes.CORRECTED}, 2 * 0.5 * 3, 2 * (0.25 * (30 + 3**2) + 2 * 0.5 * (3 - 1) * 3)),
        (
            {"form": codes.CORRECTED, "critic": codes.INDIRECT},
            2 * 0.5 * 3,
            2 * (0.25 * (5 + 3**2) + 2 * 0.5 * (3 - 1) * 3),
        ),
        ({"form": codes.CORRECTED, "on_policy": False}, 2 * 0.5 * 3, 2 * 0.75 * 30 + 2 * 1.5 * 5),
    ],
    ids=["published", "published VAAC", "off-policy", "corrected", "corrected VAAC", "off-policy corrected"],
)
def test_weights_with_a_baseline(changes, reward, penalty):
    """Q̂ = 5 beside V̂ = 2, so A = 3; the spread 30 beside its mean 10, which only the published on-policy forms subtract.

    A baseline of the wrong sign or size is right on average: enumeration does not see it, these numbers do.
    """
    choice = settings(baseline=True, **changes)
    assert actor_weight(choice, LATER, 0.5, 5.0, 2.0, 30.0, 10.0) == pytest.approx(reward - 0.5 * penalty)


def stepped(choice, weights, trace, *, here, action, reward, there, terminated=False, rates=(0.25, 0.5, 0.5)):
    """One step with ψ = 0.1 after which action 1 comes with ratio 1."""
    t = Transition(np.array(here), HALF, action, reward, terminated, np.array(there), HALF, Choice(1))
    found, after = learn_step(choice, weights, weights.theta, trace, t, StepSizes(0.1, 0.0, *rates))
    assert found == GOOD
    return after


def test_the_actor_uses_the_critics_as_they_are_after_the_step():
    """δ = 2 + 3/2 − 1 = 2.5 makes Q̂ = 2.25; δ̄ = 2.5² + 8/4 − 4 = 4.25 makes σ̂ = 6.125; the score is ±1/2, twice."""
    choice, weights = settings(score=2.0), blank()
    weights.w[:], weights.z[:] = [[9.0, 1.0], [9.0, 3.0], [0.0, 0.0]], [[9.0, 4.0], [9.0, 8.0], [0.0, 0.0]]
    trace = begin(choice, 1.0, 5.0, 0.0, Choice(1))
    stepped(choice, weights, trace, here=[0], action=1, reward=2.0, there=[1])
    assert weights.w.tolist() == [[9.0, 2.25], [9.0, 3.0], [0.0, 0.0]]
    assert weights.z.tolist() == [[9.0, 6.125], [9.0, 8.0], [0.0, 0.0]]
    move = 0.25 * 2.0 * 0.5 * (2.25 - 0.1 * 6.125)
    np.testing.assert_allclose(weights.theta, [[-move, move], [0.0, 0.0], [0.0, 0.0]], rtol=1e-12)


def test_the_baseline_is_the_state_average_of_both_critics():
    """After the end nothing is bootstrapped: Q̂ = 1.5 and σ̂ = 4.5 beside 1 and 2 make A = 0.25 and 1.25 above the mean."""
    choice, weights = settings(baseline=True), blank()
    weights.w[0], weights.z[0] = [1.0, 0.0], [2.0, 0.0]
    trace = begin(choice, 0.0, 0.5, 0.0, Choice(1))
    stepped(choice, weights, trace, here=[0], action=1, reward=3.0, there=[0], terminated=True)
    assert weights.w[0].tolist() == [1.0, 1.5]
    assert weights.z[0].tolist() == [2.0, 4.5]
    np.testing.assert_allclose(weights.theta[0, 1], 0.25 * 0.5 * (0.25 - 0.1 * 1.25), rtol=1e-12)


def test_luck_is_measured_with_the_values_before_the_step():
    """δ^V = 2 + γ·(9 + 3)/2 − (9 + 1)/2 = 0, and one reward more is luck of 1."""
    choice, weights = settings(form=codes.CORRECTED, baseline=True), blank()
    weights.w[:] = [[9.0, 1.0], [9.0, 3.0], [0.0, 0.0]]
    trace = begin(choice, 1.0, 5.0, 0.0, Choice(1))
    for reward, luck in ((2.0, 0.0), (3.0, 1.0)):
        after = stepped(choice, weights, trace, here=[0], action=1, reward=reward, there=[1], rates=(0.0, 0.0, 0.0))
        assert after.luck == luck


def test_two_active_tiles():
    """Values are sums over tiles, and each tile gets the whole step: δ = 1 − (1 + 2) moves Q̂ by 2·α_w·δ."""
    choice, weights = settings(), blank()
    weights.w[:] = [[0.0, 1.0], [0.0, 2.0], [0.0, 0.0]]
    trace = begin(choice, 3.0, 1.5, 0.0, Choice(1))
    stepped(choice, weights, trace, here=[0, 1], action=1, reward=1.0, there=[2, 2], rates=(0.25, 0.125, 0.5))
    assert weights.w[:, 1].tolist() == [0.75, 1.75, 0.0]
    assert weights.z[:, 1].tolist() == [2.0, 2.0, 0.0]
    move = 0.25 * 0.5 * (2.5 - 0.1 * 4.0)
    np.testing.assert_allclose(weights.theta, [[-move, move], [-move, move], [0.0, 0.0]], rtol=1e-12)


def test_averages_and_scores():
    table, active, policy = np.array([[1.0, 4.0], [2.0, 8.0]]), np.array([0, 1]), np.array([0.25, 0.75])
    assert value(table, active, 1) == 12.0
    assert mean_value(table, active, policy) == 0.25 * 3.0 + 0.75 * 12.0
    add_score(table, active, policy, 0, 4.0)
    assert table.tolist() == [[4.0, 1.0], [5.0, 5.0]]
    assert greedy_action(table, active) == 0
    assert greedy_action(table, active[:1]) == 0
    assert greedy_action(table, active[1:]) == 0


def test_ratios_and_what_clipping_takes_away():
    policy, acting = np.array([0.75, 0.25]), np.array([0.3, 0.7])
    assert ratios(settings(), policy, acting, 0) == (0, 1.0, 1.0, 0.0)
    for critics, clip in ((codes.CLIPPED, True), (codes.IMPORTANCE, False), (codes.EXPECTED, True)):
        choice = settings(on_policy=False, ratios=critics, clip_actor=clip)
        mine, actors = 1.0 if critics == codes.CLIPPED else 2.5, 1.0 if clip else 2.5
        assert ratios(choice, policy, acting, 0) == pytest.approx((0, mine, actors, 1.5))
        assert ratios(choice, policy, acting, 1) == pytest.approx((1, 0.25 / 0.7, 0.25 / 0.7, 0.0))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (codes.UNIFORM, [0.5, 0.5]),
        (codes.TABLE, [0.1, 0.9]),
        (codes.EPSILON_GREEDY, [0.1, 0.9]),
        (codes.TARGET, [0.6, 0.4]),
    ],
)
def test_behaviour_policies(kind, expected):
    """ε = 0.2 of two actions: 0.1 for each, and 0.8 more for the preferred one."""
    acting, choice = np.zeros(2), settings(on_policy=False, behaviour=kind, epsilon=0.2)
    table, theta = np.array([[0.5, 0.5], [0.1, 0.9]]), np.array([[1.0, 0.0], [0.0, 1.0]])
    fill_behaviour(choice, table, theta, np.array([1]), np.array([0.6, 0.4]), acting)
    assert acting.tolist() == pytest.approx(expected)


def test_step_sizes_are_shared_by_the_active_features():
    rates = Rates(*np.array([[9.0, 0.5], [9.0, 1.0], [9.0, 2.0], [9.0, 3.0], [9.0, 4.0]]))
    assert step_sizes(settings(), rates, 1, 10) == pytest.approx((0.5, 0.0, 0.1, 0.2, 0.3))
    assert step_sizes(settings(volatility=True), rates, 1, 1) == (0.0, 0.5, 1.0, 2.0, 3.0)


def test_who_pays_the_price():
    """Of MVPI the reward, R − λR² + 2λRy: 3 − 0.5·9 + 2·0.5·3·2 = 4.5; of the others the actor."""
    assert prices(settings(), 0.5) == (0.5, 0.0)
    assert prices(settings(volatility=True), 0.5) == (0.0, 0.5)
    assert augment(3.0, 0.5, 2.0) == 4.5
    assert augment(3.0, 0.0, 2.0) == 3.0
