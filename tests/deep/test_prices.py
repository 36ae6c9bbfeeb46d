"""Budgets and conditioned policies with time-aware critics, the critic of luck and another discount of the variance."""

from __future__ import annotations

import numpy as np
import pytest

import probes
from deep.test_agent import SMALL
from functional_probes import EXPOSURE
from seeds import bounds, seeds
from vpac import budget_report, evaluate

pytest.importorskip("jax")
from vpac.deep import VAACPPO, VPACPPO
from vpac.lab.report.training import DeepTrainingSummary

OPTIONS = [
    {},
    {"variance_gamma": 1.0},
    {"variance_gamma": 1.0, "luck_critic": False, "variance_of": "state"},
    {"weighting": "uniform", "time_aware": False},
    {"form": "published", "variance_gamma": 1.0},
]


@pytest.mark.parametrize("kind", [VPACPPO, VAACPPO])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("price", [{"budget": "std:0.1"}, {"psi": "conditioned", "psi_range": (0.0, 2.0)}], ids=str)
def test_both_go_with_every_option(kind, options, price):
    agent = kind(probes.Exposure, **SMALL, **options, **price).learn(64 * 4)
    assert agent.psi > 0.0
    assert np.isfinite(agent.history[-1]["policy_loss"])


def test_the_report_is_of_the_variance_that_is_limited():
    """γ of the mean and of the variance differ: the report has the latter, the score's, and so has the curve."""
    agent = VPACPPO("Pendulum-v1", gamma=0.5, variance_gamma=1.0, budget="std:300", **SMALL).learn(64 * 16)
    report = budget_report(agent, "Pendulum-v1", episodes=20, seed=3)
    score, discounted = (evaluate(agent, "Pendulum-v1", 20, seed=3, gamma=gamma) for gamma in (1.0, None))
    assert (report.mean.estimate, report.variance.estimate) == (score.mean, score.variance)
    assert score.variance > 4.0 * discounted.variance  # two discounts that are hard to take for one another
    panel = DeepTrainingSummary(agent).charts()[0].panels[1]
    assert panel.title == "variance of recent scores"
    drawn, scores = panel.series[0].y, [row["score_variance"] for row in agent.history]
    assert np.array_equal(drawn, scores, equal_nan=True)


def test_a_higher_price_buys_less_variance():
    """A stake a in [0, 1] that pays a · N(1, 2²): best at a = min(1, 1 / 8ψ), and the variance is at least 4a². Over five
    seeds the variance falls from price to price by more than four standard errors of the difference."""
    quick = {
        "envs": 16, "steps": 64, "epochs": 4, "minibatch": 128, "hidden": (16,), "learning_rate": 3e-3, "gamma": 0.9,
        "variance_gamma": 1.0, "psi_range": (0.0, 1.0),
    }  # fmt: skip
    prices, found = (0.0, 0.25, 1.0), []
    for agent in VPACPPO.learn_many(EXPOSURE, 40_000, seeds=seeds(), psi=["conditioned"], **quick):
        found.append([evaluate(agent.at(psi), probes.Exposure, 500, seed=agent.seed).variance for psi in prices])
    for fall in -np.diff(np.array(found), axis=1).T:
        assert bounds(fall)[0] > 0.0, found
