"""Budgets of the PPO family: a stake in [0, 1] whose best value under a budget is known, and exact resuming."""

from __future__ import annotations

import json

import numpy as np
import pytest

import probes
from deep.test_agent import SMALL, stopped_and_resumed
from functional_probes import EXPOSURE
from seeds import bounds, seeds
from vpac import UserError, budget_report

pytest.importorskip("jax")
from vpac.deep import PPO, VAACPPO, VPACPPO
from vpac.deep.price import BUDGET_AIM
from vpac.lab.report.training import DeepTrainingSummary

QUICK = {
    "envs": 16, "steps": 64, "epochs": 4, "minibatch": 128, "hidden": (16,), "learning_rate": 3e-3, "gamma": 0.9,
    "normalise_observations": False, "log_std": -1.5,
}  # fmt: skip


def stake_of(agent):
    """The stake μ, the policy's noise τ around it, and the variance of the return: 4 (μ² + τ²) + τ²."""
    stake = float(agent.predict(np.zeros((1, 1), np.float32))[0][0, 0])
    noise = float(np.exp(agent.policy().log_std[0]))
    return stake, noise, 4.0 * (stake**2 + noise**2) + noise**2


@pytest.mark.slow  # five trainings of 100 000 steps, because a claim about learning needs several seeds
def test_the_stake_is_the_largest_that_the_budget_allows():
    """V is what is aimed at, 0.9 of the budget of 1. Without a policy's own noise the stake is √V / 2, without a budget 1.
    With noise τ the best stake is √((V − 5τ²) / 4). The averages over seeds are V and the exact frontier within four standard
    errors, which are small, and one percent; every budget is met. Reports agree with the closed form; their intervals are four
    standard errors wide."""
    variances, gaps, prices = [], [], []
    settings = QUICK | {"learning_rate": 1e-3}
    for agent in VPACPPO.learn_many(EXPOSURE, 100_000, seeds=seeds(), budget="std:1", **settings):
        report = budget_report(agent, probes.Exposure, episodes=3000)
        stake, noise, variance = stake_of(agent)
        assert abs(report.variance.estimate - variance) < report.variance.high - report.variance.low
        assert abs(report.mean.estimate - stake) < report.mean.high - report.mean.low
        prices.append(agent.psi)
        variances.append(variance)
        assert report.met
        gaps.append(stake - np.sqrt((BUDGET_AIM - 5.0 * noise**2) / 4.0))
    for found, exact, largest in ((variances, BUDGET_AIM, 0.03), (gaps, 0.0, 0.01)):
        error = np.std(found, ddof=1) / np.sqrt(len(found))
        assert abs(np.mean(found) - exact) < 4.0 * error + 0.01
        assert error < largest
    assert 0.05 < bounds(prices)[0] < bounds(prices)[1] < 1.0  # ¼ is the price of the best stake


def test_both_critics_hold_it():
    """In one step, from one state, direct and indirect critics differ by a constant, which normalising takes away."""
    for seed in seeds():
        settings = QUICK | {"steps": 32, "seed": seed}
        one, other = (kind(probes.Exposure, budget="std:0.3", **settings).learn(8_000) for kind in (VPACPPO, VAACPPO))
        assert max(one.prices.psi) > 1.0
        assert one.prices.psi == pytest.approx(other.prices.psi, abs=1e-3)
        assert stake_of(one) == pytest.approx(stake_of(other), rel=1e-3, abs=1e-3)


def test_a_stopped_run_ends_where_an_undisturbed_one_does(tmp_path):
    agent = stopped_and_resumed(tmp_path, probes.Exposure, probes.Exposure, budget={"max_std": 0.1, "wait": 128})
    assert len(agent.prices.at) == 8
    assert agent.prices.psi[0] == 0.0
    assert agent.prices.psi[-1] == agent.psi > 0.0
    chart = DeepTrainingSummary(agent).charts()[0]
    assert [reference.value for reference in chart.panels[1].references] == [pytest.approx(0.01)]
    assert np.array_equal(chart.panels[-1].series[0].y, agent.prices.psi)
    named = [(line.label, place) for panel in chart.panels for place, line in enumerate(panel.series) if line.label]
    assert named == [("predicted", 0), ("measured", 1)]  # the legend has no two entries that look the same
    saved = json.loads((tmp_path / "whole" / "agent.json").read_text())
    assert saved["multiplier"]["psi"] == agent.psi


def test_the_price_is_in_units_of_the_reward_whatever_psi_is_counted_in():
    raw, scaled = (
        VPACPPO(probes.Exposure, budget="std:0.1", psi_units=units, **SMALL).learn(64 * 4)
        for units in ("raw", "scaled")
    )
    assert raw.psi > 0.0
    assert raw.reward_scale.value != 1.0
    assert np.array_equal(raw.networks.policy.log_std, scaled.networks.policy.log_std)


def test_mistakes_are_named():
    with pytest.raises(UserError, match="PPO has no price of variance and cannot hold a budget: use VPACPPO"):
        PPO("CartPole-v1", budget="std:1", **SMALL)
    with pytest.raises(UserError, match=r"a budget finds the price of variance itself: leave out psi=0\.1"):
        VPACPPO("CartPole-v1", budget="std:1", psi=0.1, **SMALL)
    with pytest.raises(UserError, match="expected std:S or variance:V"):
        VPACPPO("CartPole-v1", budget=3.0, **SMALL)
    with pytest.raises(UserError, match="pass it, budget_report"):
        budget_report(VPACPPO("CartPole-v1", budget="std:1", **SMALL))
