from __future__ import annotations

import numpy as np
import pytest

import reference
from vpac import FiniteMDP, oracle
from vpac.errors import UserError
from vpac.oracle.off_policy import variance_given_value

KINDS = ("importance", "clipped", "expected")


def by_pairs(mdp, policy, behaviour, q, gamma, critics):
    """Both fixed points from their definitions, over pairs: every next action is written out with its ratio."""
    p, r, v = mdp.transition, mdp.reward_mean, mdp.reward_variance
    chance, rho = behaviour, policy / behaviour
    if critics == "clipped":
        rho = np.minimum(rho, 1.0)
    if critics == "expected":
        chance, rho = policy, np.ones_like(policy)
    pairs = policy.size
    q = q * ~mdp.terminal[:, None]
    joint = p[..., None] * chance  # s, a, s', a'
    discounted = gamma * rho * q
    error = r[..., None] + discounted - q[:, :, None, None]
    direct = (joint * (error**2 + v[..., None])).sum((2, 3))
    indirect = (joint * (r[..., None] ** 2 + v[..., None] + 2.0 * r[..., None] * discounted)).sum((2, 3))
    system = np.eye(pairs) - gamma**2 * (joint * rho**2).reshape(pairs, pairs)
    direct, indirect = (np.linalg.solve(system, x.reshape(-1)).reshape(q.shape) for x in (direct, indirect))
    return direct, indirect - q**2


@pytest.fixture
def case():
    rng = np.random.default_rng(8)
    mdp = reference.random_mdp(rng, 5, 3, 1, noise=0.4)
    policy = oracle.softmax(rng.normal(scale=0.4, size=(5, 3)))
    return mdp, policy, 0.6 * policy + 0.4 / 3, rng.normal(size=(5, 3))


@pytest.mark.parametrize("critics", KINDS)
def test_the_fixed_points_are_those_of_the_definitions(case, critics):
    mdp, policy, behaviour, noise = case
    q = oracle.evaluate_off_policy(mdp, policy, behaviour, 0.9, critics).action_value + noise
    found = variance_given_value(mdp, policy, q, 0.9, behaviour, critics)
    for ours, theirs in zip(found, by_pairs(mdp, policy, behaviour, q, 0.9, critics), strict=True):
        np.testing.assert_allclose(ours[~mdp.terminal], theirs[~mdp.terminal], rtol=1e-10)


@pytest.mark.parametrize("critics", KINDS)
def test_with_the_true_value_both_are_the_variance(case, critics):
    mdp, policy, behaviour, _ = case
    exact = oracle.evaluate_off_policy(mdp, policy, behaviour, 0.9, critics)
    for found in variance_given_value(mdp, policy, exact.action_value, 0.9, behaviour, critics):
        np.testing.assert_allclose(found, exact.action_variance, rtol=1e-9, atol=1e-9)


def test_on_policy_and_without_discount(case):
    mdp, policy, _, noise = case
    exact = oracle.evaluate(mdp, policy, 1.0)
    q = exact.action_value + noise
    for ours, theirs in zip(
        variance_given_value(mdp, policy, q, 1.0), by_pairs(mdp, policy, policy, q, 1.0, "importance"), strict=True
    ):
        np.testing.assert_allclose(ours[~mdp.terminal], theirs[~mdp.terminal], rtol=1e-9)


def test_what_does_not_exist_is_an_error(case):
    mdp = FiniteMDP(np.ones((1, 2, 1)), 1.0)
    with pytest.raises(oracle.OracleError, match="does not exist"):
        variance_given_value(mdp, [[0.99, 0.01]], np.zeros((1, 2)), 0.99, [[0.1, 0.9]])
    with pytest.raises(UserError, match="shape"):
        variance_given_value(case[0], case[1], np.zeros(5), 0.9)
