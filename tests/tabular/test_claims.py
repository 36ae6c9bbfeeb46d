"""The paper's claims about four rooms at full size, and the effect of the corrections.

A claim is about the mean over runs, four standard errors away; runs of the same seed are compared with one another.
"""

from __future__ import annotations

import numpy as np
import pytest

from seeds import bounds, seeds
from vpac import oracle
from vpac.envs import CatchUp, FourRooms, RiskyShortcut
from vpac.tabular import AC, VAACTD, VPAC, learn_many
from vpac.tabular.curves import exact_moments

PAPER = {"form": "published", "baseline": False, "start_policy": "uniform", "start_critics": "uniform"}
"""Table 2's step sizes are the defaults; FACTS: parameters and critics start uniform in (0, 1)."""


def four_rooms(kind, runs=100, **settings):
    """Mean and variance of the greedy policy of each run after 1000 episodes; evaluation stops at 300 steps."""
    learners = learn_many(kind, FourRooms(), seeds(runs), 1000, max_episode_steps=500, **{**PAPER, **settings})
    policies = oracle.greedy(np.stack([x.weights.theta for x in learners]))
    return exact_moments(learners[0].environment.mdp, policies, 0.99, 300)


@pytest.fixture(scope="module")
def neutral():
    return four_rooms(AC)


@pytest.fixture(scope="module")
def penalised():
    return four_rooms(VPAC, psi=0.015)


def test_vpac_keeps_the_mean_and_cuts_the_variance(neutral, penalised):
    assert bounds(0.4 * neutral[1] - penalised[1])[0] > 0.0
    assert -2.0 < bounds(penalised[0] - neutral[0])[0] < bounds(penalised[0] - neutral[0])[1] < 2.0


def test_vaac_td_lies_between(neutral, penalised):
    _, between = four_rooms(VAACTD, psi=0.01)
    assert bounds(between - penalised[1])[0] > 0.0
    assert bounds(neutral[1] - between)[0] > 0.0


def test_a_high_price_collapses_and_a_warm_up_repairs_it(neutral):
    runs = 40
    means, variances = neutral[0][:runs], neutral[1][:runs]
    mean, variance = four_rooms(VPAC, psi=0.05, runs=runs)
    assert bounds(means - mean)[0] > 10.0
    assert bounds(variance - variances)[0] > 0.0
    mean, variance = four_rooms(VPAC, psi="warm-up:0.05:500:500", runs=runs)
    assert bounds(mean - means)[0] > -2.0
    assert bounds(variances - variance)[0] > 0.0


def test_the_corrected_form_does_as_well_in_four_rooms(penalised):
    mean, variance = four_rooms(VPAC, psi=0.015, form="corrected", baseline=True, variance_of="return")
    assert bounds(mean - penalised[0])[0] > -1.0
    assert bounds(1.25 * penalised[1] - variance)[0] > 0.0


def test_both_forms_leave_the_risky_way_for_a_high_price():
    """ψ = 1/2: neither takes the risky way any more. The corrected form takes the safe one; the published form, which
    does not see that its own randomness is a source of variance, stands still. So does a rare run of the corrected form."""
    settings = {
        "gamma": 0.95, "max_episode_steps": 200, "variance_of": "return", "alpha_theta": 0.003, "alpha_w": 0.1, "alpha_z": 0.1,
    }  # fmt: skip
    found = {}
    for form, psi, runs in (("corrected", 0.0, 10), ("corrected", 0.5, 40), ("published", 0.5, 10)):
        learners = learn_many(VPAC, RiskyShortcut(), seeds(runs), 20_000, psi=psi, form=form, **settings)
        policies = oracle.greedy(np.stack([x.weights.theta for x in learners]))
        found[form, psi] = exact_moments(learners[0].environment.mdp, policies, 0.95, 200)
    assert bounds(found["corrected", 0.0][1])[0] > 10.0
    assert bounds(found["published", 0.5][1])[1] < 1.0
    assert bounds(found["corrected", 0.5][1])[1] < 1.0
    assert bounds(found["corrected", 0.5][0] > 5.0)[0] > 0.7  # the share of runs that take the safe way
    assert bounds(found["corrected", 0.5][0][:10] - found["published", 0.5][0])[0] > 0.0


def test_only_the_corrected_form_hedges_in_catch_up():
    """ψ = 1, 60 000 episodes: below the risk-neutral variance, and a far better objective than the published."""
    settings = {"gamma": 0.95, "max_episode_steps": 200, "alpha_theta": 0.01, "alpha_w": 0.05, "alpha_z": 0.05}
    found = {}
    for form, runs in (("published", 10), ("corrected", 40)):
        learners = learn_many(VPAC, CatchUp(), seeds(runs), 60_000, psi=1.0, form=form, **settings)
        exact = oracle.evaluate(learners[0].environment.mdp, np.stack([x.policy() for x in learners]), 0.95)
        found[form] = exact.total_variance, exact.mean - exact.total_variance
    mdp = CatchUp().mdp
    neutral = float(oracle.evaluate(mdp, oracle.optimal_policy(mdp, 0.95), 0.95).total_variance)
    assert bounds(found["corrected"][0])[1] < neutral < bounds(found["published"][0])[0]
    assert bounds(found["corrected"][1][:10] - found["published"][1])[0] > 10.0
