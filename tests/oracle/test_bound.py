from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import reference
from vpac import FiniteMDP, oracle
from vpac.envs import CatchUp
from vpac.errors import UserError
from vpac.oracle.optimal import deterministic_policies


def objectives(mdp, policies, gamma, psi):
    found = oracle.evaluate(mdp, policies, gamma)
    return found.mean - psi * found.total_variance


def on_a_grid(mdp, points):
    """Every policy of two actions whose probabilities are on a grid."""
    alive = np.flatnonzero(~mdp.terminal)
    share = np.array(list(product(np.linspace(0.0, 1.0, points), repeat=len(alive))))
    policies = np.full((len(share), mdp.n_states, 2), 0.5)
    policies[:, alive] = np.stack([share, 1.0 - share], axis=-1)
    return policies


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_no_random_policy_is_above_the_bound_and_more_work_brings_it_down(seed):
    mdp = reference.random_mdp(np.random.default_rng(seed), 3, 2, 1, noise=0.1)
    best = objectives(mdp, on_a_grid(mdp, 41), 0.9, 1.0).max()
    few, more = (oracle.upper_bound(mdp, 1.0, 0.9, programmes=count) for count in (1, 30))
    assert best <= more.bound + 1e-6 <= few.bound + 2e-6
    assert more.objective >= best - 1e-9
    assert more.gap == more.bound - more.objective


def test_the_gap_closes_on_a_tiny_process_that_returns_to_its_states():
    mdp = reference.random_mdp(np.random.default_rng(1), 3, 2, 1)
    found = oracle.upper_bound(mdp, 1.0, 0.9, programmes=250)
    assert 0.0 <= found.gap < 1e-5
    assert objectives(mdp, on_a_grid(mdp, 101), 0.9, 1.0).max() == pytest.approx(found.objective, abs=1e-3)


def ladder(rng: np.random.Generator, gamma: float) -> FiniteMDP:
    """Three layers of two states, which are met once."""
    transition, reward = np.zeros((7, 2, 7)), rng.normal(size=(7, 2, 7))
    for s in range(6):
        following = [2 * (s // 2) + 2, 2 * (s // 2) + 3] if s < 4 else [6]
        transition[s][:, following] = rng.dirichlet(np.ones(len(following)), 2)
    return FiniteMDP(transition, reward, 0.2, np.eye(7)[0], np.arange(7) == 6)


@pytest.mark.parametrize("gamma", [0.9, 1.0])
def test_where_no_state_returns_it_finds_the_best_deterministic_policy(gamma):
    for seed in range(3):
        mdp = ladder(np.random.default_rng(seed), gamma)
        every = np.concatenate([np.eye(2)[batch] for batch in deterministic_policies(mdp)])
        found = oracle.upper_bound(mdp, 0.7, gamma, oracle.uniform(mdp), programmes=400)
        assert found.objective == pytest.approx(objectives(mdp, every, gamma, 0.7).max(), abs=1e-6)
        assert found.gap < 1e-5


def test_the_search_is_proven_right_in_catch_up_at_low_prices():
    mdp = CatchUp().mdp
    found = oracle.frontier(mdp, [0.0, 0.028, 0.083], 0.95, restarts=0)
    for psi, policy, objective in zip(found.psis, found.policies, found.objectives, strict=True):
        bound = oracle.upper_bound(mdp, psi, 0.95, policy)
        assert bound.objective == pytest.approx(objective, abs=1e-9)
        assert bound.gap < 1e-6
    assert oracle.upper_bound(mdp, 0.28, 0.95, found.policies[2], programmes=5).gap > 0.1


@pytest.mark.parametrize("programmes", [0, 1.5, True])
def test_the_number_of_programmes_is_checked(programmes):
    with pytest.raises(UserError, match="programmes must be a whole number"):
        oracle.upper_bound(CatchUp().mdp, 0.1, 0.9, programmes=programmes)
