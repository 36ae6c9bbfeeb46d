"""Budgets on worlds whose best policy under a budget is known.

In one step, with means m and second moments q of the actions, a policy has the mean μ = p·m and the variance p·q − μ². For a
given μ the smallest p·q is on the lower convex hull of the points (m, q): a mixture of two actions at most. So the best mean
under the budget V solves a quadratic equation, q_i + s (μ − m_i) = V + μ² with the slope s of the hull.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import probes
import vpac
from seeds import bounds, seeds
from vpac import Budget, UserError, budget_report
from vpac.tabular import AC, VAACTD, VPAC, OffPolicyVAAC, OffPolicyVPAC, learn_many

STEADY = {"alpha_theta": "linear:0.05:0.002:10000", "alpha_w": 0.05, "alpha_z": 0.05}
TWO, THREE = ([0.0, 1.0], [0.0, 4.0]), ([0.5, 1.0, 1.5], [0.0, 1.0, 4.0])


def one_step(means, variances):
    """A state, and actions that pay so much on average with such a variance."""
    actions = len(means)
    transition, reward, noise = np.zeros((3, 2, actions, 2))
    transition[:, :, 1] = 1.0
    reward[0, :, 1], noise[0, :, 1] = means, variances
    return vpac.FiniteMDP(transition, reward, noise, [1.0, 0.0], [False, True])


def best_mean(means, variances, limit):
    """The best mean of any policy of `one_step` whose variance is at most `limit`."""
    m, q = np.array(means), np.array(variances) + np.array(means) ** 2
    found = [x for x, v in zip(means, variances, strict=True) if v <= limit]
    for i, j in itertools.combinations(range(len(m)), 2):
        slope = (q[j] - q[i]) / (m[j] - m[i])
        roots = np.roots([1.0, -slope, limit - q[i] + slope * m[i]])
        found += [float(x.real) for x in roots if abs(x.imag) < 1e-12 and min(m[i], m[j]) <= x.real <= max(m[i], m[j])]
    return max(found)


def test_the_closed_form_is_right():
    """Against all mixtures on a fine grid; and it meets the oracle's frontier where that is deterministic."""
    p = np.stack(np.meshgrid(*[np.linspace(0.0, 1.0, 401)] * 2), -1).reshape(-1, 2)
    p = np.column_stack([p, 1.0 - p.sum(axis=1)])[p.sum(axis=1) <= 1.0]
    mean = p @ THREE[0]
    variance = p @ (np.array(THREE[1]) + np.array(THREE[0]) ** 2) - mean**2
    for limit in (0.5, 1.5, 3.0):
        assert mean[variance <= limit].max() == pytest.approx(best_mean(*THREE, limit), abs=0.005)
        assert mean[variance <= limit].max() <= best_mean(*THREE, limit)
    frontier = vpac.oracle.frontier(one_step(*THREE), [0.3], 0.9)
    assert best_mean(*THREE, frontier.variances[0]) == pytest.approx(frontier.means[0])


@pytest.mark.parametrize(("world", "limit"), [(TWO, 1.0), (TWO, 2.0), (THREE, 1.0), (THREE, 1.5)])
def test_the_budget_is_held_with_the_best_mean(world, limit):
    """At a variance of 1 the best of THREE is the oracle's frontier at ψ = 0.3: always the middle action."""
    lost, over, late = [], [], []
    for learner in learn_many(VPAC, one_step(*world), seeds(6), 10_000, budget=Budget(max_variance=limit), **STEADY):
        report = budget_report(learner)
        moments = vpac.oracle.evaluate(learner.environment.mdp, learner.policy(), 0.99)
        assert report.variance.estimate == pytest.approx(float(moments.total_variance))
        assert report.mean.estimate == pytest.approx(float(moments.mean))
        lost.append(1.0 - report.mean.estimate / best_mean(*world, report.variance.estimate))
        over.append(report.variance.estimate / limit - 1.0)
        late.append(learner.prices.variance[len(learner.prices.at) // 2 :].mean() / limit - 1.0)
        assert lost[-1] >= -1e-9
        assert report.met == (over[-1] <= 0.05)
    assert bounds(lost)[1] < 0.02
    assert bounds(over)[0] < 0.03
    assert bounds(over)[1] > -0.03
    assert bounds(late)[0] < 0.01
    assert bounds(late)[1] > -0.01


def lucky_start():
    """Half of the episodes begin where 3 more are paid; then one chooses between that and a gamble, mean 1, variance 4."""
    transition, reward, noise = np.zeros((3, 3, 2, 3))
    transition[:, :, 2] = 1.0
    reward[0, :, 2], reward[1, :, 2], noise[:2, 1, 2] = [3.0, 4.0], [0.0, 1.0], 4.0
    return vpac.FiniteMDP(transition, reward, noise, [0.5, 0.5, 0.0], [False, False, True])


def test_risk_is_taken_where_it_costs_least():
    """With gambles p after luck and q after none: the mean is 1.5 + (p + q)/2, the variance the mean of both kinds of
    episodes' own plus that between them. A gamble after bad luck brings the two closer and is cheaper: at V = 3.5 one
    gambles always after bad luck and, by 3 + 3.5p − p²/4 = V, with p = 0.144 after good luck."""
    p, q = np.meshgrid(*[np.linspace(0.0, 1.0, 1001)] * 2)
    mean = 1.5 + (p + q) / 2.0
    variance = (5.0 * p - p**2 + 5.0 * q - q**2) / 2.0 + ((3.0 + p - q) / 2.0) ** 2
    apart, lost, always = [], [], []
    for learner in learn_many(VPAC, lucky_start(), seeds(6), 12_000, budget="variance:3.5", **STEADY):
        after_luck, after_none = learner.policy()[:2, 1]
        report = budget_report(learner)
        always.append(after_none)
        apart.append(after_luck - (7.0 - np.sqrt(61.0 - 4.0 * report.variance.estimate)))
        lost.append(1.0 - (report.mean.estimate - 1.5) / (mean[variance <= report.variance.estimate].max() - 1.5))
    assert bounds(always)[0] > 0.9
    assert bounds(apart)[0] < 0.05
    assert bounds(apart)[1] > -0.05
    assert bounds(lost)[1] < 0.05


def test_a_budget_that_does_not_bind_costs_nothing():
    learner = VPAC(one_step(*TWO), budget=Budget(max_std=3.0), **STEADY).learn(6_000)
    neutral = AC(one_step(*TWO), **STEADY).learn(6_000)
    assert (learner.prices.psi == 0.0).all()
    assert np.array_equal(learner.weights.theta, neutral.weights.theta)
    assert "no price is needed" in budget_report(learner).words


def test_a_budget_that_cannot_be_met_is_said_plainly():
    """Both actions vary: 1 is the least there is."""
    world, budget = one_step([0.0, 1.0], [1.0, 4.0]), Budget(max_variance=0.5)
    learners = learn_many(VPAC, world, seeds(), 8_000, budget=budget, **STEADY)
    reports = [budget_report(learner) for learner in learners]
    assert not any(report.met for report in reports)
    assert min(report.smallest.estimate for report in reports) >= 1.0
    assert bounds([report.smallest.estimate for report in reports])[1] < 1.02
    learner, report = learners[0], reports[0]
    assert report.smallest.estimate == min(*learner.prices.variance, report.variance.estimate)
    assert report.smallest.low == report.smallest.high == report.smallest.estimate  # exact
    assert "is not met" in report.words
    assert "finds no policy that varies so little" in report.words


def test_an_environment_that_is_only_stepped_is_measured():
    """The policy is the same in every state, so its variance is known; 200 returns tell one to within 10 %."""
    found, covered = [], 0
    for seed in seeds():
        learner = VPAC(probes.Lottery(), budget=Budget(max_variance=2.0), seed=seed, **STEADY).learn(4_000)
        report = budget_report(learner, probes.Lottery, episodes=1000)
        p = learner.policy()[0, 1]
        found.append(4.0 * p + p * (1.0 - p))
        covered += report.variance.low <= found[-1] <= report.variance.high
        assert report.episodes == 1000
        assert report.met == (report.variance.low <= 2.0)
        assert report.smallest.low < report.smallest.estimate < report.smallest.high
    assert covered >= 3  # of five intervals of 95 %; fewer happen once in a thousand times
    assert bounds(found)[0] < 2.2
    assert bounds(found)[1] > 1.8
    with pytest.raises(UserError, match="pass it, budget_report"):
        budget_report(learner)


@pytest.mark.parametrize(
    ("kind", "variance_of"), [(VAACTD, "return"), (OffPolicyVPAC, "return"), (OffPolicyVAAC, "action")]
)
def test_other_learners_hold_it_too(kind, variance_of):
    learners = learn_many(kind, one_step(*TWO), seeds(), 6_000, budget="variance:2", max_episode_steps=5, **STEADY)
    assert {learner.options.variance_of for learner in learners} == {variance_of}
    low, high = bounds([learner.prices.variance[-100:].mean() for learner in learners])
    assert low < 2.1
    assert high > 1.9
    assert high - low < 1.0


def test_the_price_waits():
    """Until then the learner is risk-neutral and above the budget: so there is a price from the next look on."""
    least = []
    for learner in learn_many(VPAC, one_step(*TWO), seeds(), 1_000, budget="variance:1:500"):
        waiting = learner.prices.at < 500
        assert (learner.prices.psi[waiting] == 0.0).all()
        assert learner.prices.psi[~waiting][0] > 0.0
        assert learner.psi == learner.prices.psi[-1]
        least.append(learner.prices.variance[waiting].min())
    assert bounds(least)[0] > 2.0


@pytest.mark.parametrize("env", [one_step(*TWO), "vpac/ContinuousPuddleWorld-v0"], ids=["exact", "measured"])
def test_pauses_and_files_change_nothing(env, tmp_path):
    def made():
        return VPAC(env, budget=Budget(max_std=0.5, derivative=0.2), seed=4, max_episode_steps=40)

    whole = made().learn(130)
    parts = made().learn(33).learn(50, every=7, callback=lambda learner: None)
    parts.save(tmp_path)
    loaded = VPAC.load(tmp_path, env)
    assert loaded.options == parts.options
    loaded.learn(47)
    assert loaded.prices.psi[-1] > 0.0
    for one, other in zip(whole.prices, loaded.prices, strict=True):
        assert np.array_equal(one, other, equal_nan=True)
    for one, other in zip(whole.weights, loaded.weights, strict=True):
        assert np.array_equal(one, other)


def test_mistakes_are_named():
    world = one_step(*TWO)
    with pytest.raises(UserError, match="AC has no price of variance and cannot hold a budget: use VPAC"):
        AC(world, budget="std:1")
    with pytest.raises(UserError, match=r"a budget finds the price of variance itself: leave out psi=0\.1"):
        VPAC(world, budget="std:1", psi=0.1)
    with pytest.raises(UserError, match="the behaviour policy's and say nothing"):
        OffPolicyVPAC(probes.Lottery(), budget="std:1")
    with pytest.raises(UserError, match="was not trained with a budget"):
        budget_report(VPAC(world))
