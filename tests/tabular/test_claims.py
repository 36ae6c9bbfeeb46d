"""What the paper claims of four rooms, at full size, and what the corrections change, each by a number that decides."""

from __future__ import annotations

import numpy as np
import pytest

from seeds import seeds
from vpac import oracle
from vpac.envs import CatchUp, FourRooms, RiskyShortcut
from vpac.tabular import AC, VAACTD, VPAC, learn_many
from vpac.tabular.curves import exact_moments

PAPER = {"form": "published", "baseline": False, "start_policy": "uniform", "start_critics": "uniform"}
"""Table 2's step sizes are the defaults; FACTS: parameters and critics start uniform in (0, 1)."""


def four_rooms(kind, runs=100, **settings):
    """Mean and variance of the greedy policies after 1000 episodes, averaged over runs; evaluation stops at 300 steps."""
    learners = learn_many(kind, FourRooms(), seeds(runs), 1000, max_episode_steps=500, **{**PAPER, **settings})
    policies = oracle.greedy(np.stack([x.weights.theta for x in learners]))
    mean, variance = exact_moments(learners[0].environment.mdp, policies, 0.99, 300, threads=2)
    return float(mean.mean()), float(variance.mean())


@pytest.fixture(scope="module")
def neutral():
    return four_rooms(AC)


@pytest.fixture(scope="module")
def penalised():
    return four_rooms(VPAC, psi=0.015)


def test_vpac_keeps_the_mean_and_cuts_the_variance(neutral, penalised):
    assert penalised[1] <= 0.35 * neutral[1]
    assert abs(penalised[0] - neutral[0]) <= 1.0


def test_vaac_td_lies_between(neutral, penalised):
    _, between = four_rooms(VAACTD, psi=0.01)
    assert penalised[1] < between < neutral[1]


def test_a_high_price_collapses_and_a_warm_up_repairs_it(neutral):
    mean, variance = four_rooms(VPAC, psi=0.05, runs=40)
    assert mean < neutral[0] - 10.0
    assert variance > neutral[1]
    mean, variance = four_rooms(VPAC, psi="warm-up:0.05:500:500", runs=40)
    assert mean > neutral[0] - 1.0
    assert variance < 0.75 * neutral[1]


def test_the_corrected_form_does_as_well_in_four_rooms(penalised):
    mean, variance = four_rooms(VPAC, psi=0.015, form="corrected", baseline=True, variance_of="return")
    assert mean > penalised[0] - 1.0
    assert variance < 1.25 * penalised[1]


def test_both_forms_leave_the_risky_way_for_a_high_price():
    """ψ = 1/2: neither takes the risky way any more. The corrected form takes the safe one; the published form, which
    does not see that its own randomness is a source of variance, stands still."""
    settings = {
        "gamma": 0.95, "max_episode_steps": 200, "variance_of": "return", "alpha_theta": 0.01, "alpha_w": 0.2, "alpha_z": 0.2,
    }  # fmt: skip
    found = {}
    for form, psi in (("corrected", 0.0), ("corrected", 0.5), ("published", 0.5)):
        learners = learn_many(VPAC, RiskyShortcut(), seeds(10), 20_000, psi=psi, form=form, **settings)
        policies = oracle.greedy(np.stack([x.weights.theta for x in learners]))
        found[form, psi] = exact_moments(learners[0].environment.mdp, policies, 0.95, 200)
    assert found["corrected", 0.0][1].min() > 10.0
    assert found["published", 0.5][1].max() < 1e-9
    assert found["corrected", 0.5][1].max() < 1e-9
    assert found["corrected", 0.5][0].min() > 5.0


def test_only_the_corrected_form_hedges_in_catch_up():
    """ψ = 1, 60 000 episodes, ten seeds: below the risk-neutral variance, and a far better objective than the published."""
    settings = {"gamma": 0.95, "max_episode_steps": 200, "alpha_theta": 0.01, "alpha_w": 0.05, "alpha_z": 0.05}
    found = {}
    for form in ("published", "corrected"):
        learners = learn_many(VPAC, CatchUp(), seeds(10), 60_000, psi=1.0, form=form, **settings)
        exact = oracle.evaluate(learners[0].environment.mdp, np.stack([x.policy() for x in learners]), 0.95)
        found[form] = (float(exact.total_variance.mean()), float((exact.mean - exact.total_variance).mean()))
    mdp = CatchUp().mdp
    neutral = float(oracle.evaluate(mdp, oracle.optimal_policy(mdp, 0.95), 0.95).total_variance)
    assert found["corrected"][0] < neutral < found["published"][0]
    assert found["corrected"][1] > found["published"][1] + 10.0
