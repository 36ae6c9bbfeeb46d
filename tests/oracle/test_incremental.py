"""Means of the learners' sampled forms, step by step, equal the closed forms of the oracle (5 σ)."""

from __future__ import annotations

from copy import deepcopy
from functools import cache

import numpy as np
import pytest

import reference
from simulate import assert_mean, score_sums, simulate
from vpac import oracle

GAMMA, PSI = 0.8, 0.7
EPISODES, STEPS = 40_000, 90


@pytest.fixture(scope="module", params=[1, 0], ids=["ending", "endless"])
def world(request):
    """A process, a policy's parameters, and what happens when a policy acts in it: sampled once for each."""
    rng = np.random.default_rng(8)
    mdp = reference.random_mdp(rng, 4, 2, request.param, noise=0.2)
    theta = rng.normal(scale=0.7, size=(4, 2))
    policies = {"target": oracle.softmax(theta), "behaviour": behaviour_of(mdp, theta)}

    @cache
    def walk(who):
        return simulate(mdp, policies[who], EPISODES, STEPS, deepcopy(rng))

    return mdp, theta, walk


def behaviour_of(mdp, theta):
    return 0.6 * oracle.softmax(theta) + 0.4 * oracle.uniform(mdp)


def exclusive_sum(terms):
    """Σ_{t<k} terms_t for each k, along the first axis."""
    return np.concatenate([np.zeros((1, terms.shape[1])), np.cumsum(terms, axis=0)[:-1]])


def discounts(power=1):
    return (GAMMA**power) ** np.arange(STEPS)[:, None]


def on_policy_terms(mdp, theta, walk):
    policy = oracle.softmax(theta)
    exact = oracle.evaluate(mdp, policy, GAMMA)
    e = walk("target")
    pair = (e.state, e.action)
    return policy, exact, e, exact.action_value[pair], exact.action_variance[pair], exact.value[e.state]


@pytest.mark.parametrize("variance_of", ["action", "state", "return"])
def test_corrected_vpac_with_and_without_baseline(world, variance_of):
    mdp, theta, walk = world
    policy, exact, e, q, sigma, v = on_policy_terms(mdp, theta, walk)
    c = {"action": q[0], "state": v[0], "return": exact.mean}[variance_of]
    collected = exclusive_sum(discounts() * e.reward)
    plain = discounts(2) * (sigma + q**2) + 2 * discounts() * (collected - c) * q
    value_after = np.concatenate([v[1:], np.zeros((1, EPISODES))])
    luck = exclusive_sum(discounts() * (e.reward + GAMMA * value_after - v))
    a = q - v
    with_baseline = discounts(2) * (sigma + a**2) + 2 * discounts() * (luck + v[0] - c) * a
    if variance_of == "action":
        plain[0] = with_baseline[0] = sigma[0]
    expected = oracle.gradient(mdp, theta, GAMMA, PSI, "exact", variance_of)
    assert_mean(score_sums(e, discounts() * q - PSI * plain, policy), expected)
    assert_mean(score_sums(e, discounts() * a - PSI * with_baseline, policy), expected)


def test_published_vpac_and_vaac(world):
    mdp, theta, walk = world
    policy, exact, e, q, sigma, v = on_policy_terms(mdp, theta, walk)
    vpac = discounts() * q - PSI * discounts(2) * sigma
    assert_mean(score_sums(e, vpac, policy), oracle.gradient(mdp, theta, GAMMA, PSI, "published"))
    m = exact.action_second_moment[e.state, e.action]
    collected = exclusive_sum(discounts(2) * e.reward)
    penalty = discounts(2) * m + 2 * GAMMA * discounts() * collected * q - 2 * discounts() * v[0] * q
    expected = oracle.gradient(mdp, theta, GAMMA, PSI, "published", algorithm="vaac")
    assert_mean(score_sums(e, discounts() * q - PSI * penalty, policy), expected)


def off_policy_walk(mdp, theta, walk, critics):
    policy = oracle.softmax(theta)
    behaviour = behaviour_of(mdp, theta)
    e = walk("behaviour")
    ratio = (policy / behaviour)[e.state, e.action]
    ratio = np.minimum(ratio, 1.0) if critics == "clipped" else ratio
    return policy, behaviour, e, np.where(e.alive, ratio, 0.0)


@pytest.mark.parametrize("critics", ["importance", "clipped"])
@pytest.mark.parametrize("form", ["published", "exact"])
def test_off_policy_vpac_with_ratios_in_its_critics(world, critics, form):
    mdp, theta, walk = world
    policy, behaviour, e, rho = off_policy_walk(mdp, theta, walk, critics)
    exact = oracle.evaluate_off_policy(mdp, policy, behaviour, GAMMA, critics)
    q, sigma = exact.action_value[e.state, e.action], exact.action_variance[e.state, e.action]
    bar, x, weight = rho[0], np.zeros(EPISODES), []
    for k in range(STEPS):
        if k:
            delta = e.reward[k - 1] + GAMMA * rho[k] * q[k] - q[k - 1]
            x = GAMMA * rho[k] * (x + bar * delta)
            bar = bar * GAMMA**2 * rho[k] ** 2
        penalty = (1 + (k > 0)) * bar * sigma[k] + (2 * x * q[k] if form == "exact" else 0.0)
        weight.append(GAMMA**k * rho[: k + 1].prod(axis=0) * q[k] - PSI * penalty)
    expected = oracle.gradient(mdp, theta, GAMMA, PSI, form, behaviour=behaviour, critics=critics)
    assert_mean(score_sums(e, np.array(weight), policy), expected)


@pytest.mark.parametrize("variance_of", ["action", "state", "return"])
@pytest.mark.parametrize("ratios", ["plain", "clipped"])
def test_off_policy_vpac_with_expected_critics(world, ratios, variance_of):
    mdp, theta, walk = world
    policy, behaviour, e, rho = off_policy_walk(mdp, theta, walk, "importance" if ratios == "plain" else "clipped")
    exact = oracle.evaluate(mdp, policy, GAMMA)
    q, sigma, v = exact.action_value[e.state, e.action], exact.action_variance[e.state, e.action], exact.value[e.state]
    c = {"action": q[0], "state": v[0], "return": exact.mean}[variance_of]
    value_after = np.concatenate([v[1:], np.zeros((1, EPISODES))])
    luck = exclusive_sum(discounts() * (e.reward + GAMMA * value_after - v))
    a = q - v
    penalty = discounts(2) * (sigma + a**2) + 2 * discounts() * (luck + v[0] - c) * a
    if variance_of == "action":
        penalty[0] = sigma[0]
    weight = np.cumprod(rho, axis=0) * (discounts() * a - PSI * penalty)
    options = {"behaviour": behaviour, "critics": "expected", "ratios": ratios}
    expected = oracle.gradient(mdp, theta, GAMMA, PSI, "exact", variance_of, **options)
    assert_mean(score_sums(e, weight, policy), expected)


@pytest.mark.parametrize("ratios", ["plain", "clipped"])
def test_off_policy_published_forms_with_the_target_policys_own_critics(world, ratios):
    mdp, theta, walk = world
    policy, behaviour, e, rho = off_policy_walk(mdp, theta, walk, "importance" if ratios == "plain" else "clipped")
    exact = oracle.evaluate(mdp, policy, GAMMA)
    pair = (e.state, e.action)
    q, sigma, m, v = (
        exact.action_value[pair],
        exact.action_variance[pair],
        exact.action_second_moment[pair],
        exact.value,
    )
    options = {"behaviour": behaviour, "critics": "expected", "ratios": ratios}
    products = np.cumprod(rho, axis=0)

    twice = rho[0] * np.cumprod(np.concatenate([np.ones((1, EPISODES)), rho[1:] ** 2]), axis=0)
    factor = np.where(np.arange(STEPS) > 0, 2.0, 1.0)[:, None]
    vpac = discounts() * products * q - PSI * factor * discounts(2) * twice * sigma
    expected = oracle.gradient(mdp, theta, GAMMA, PSI, "published", **options)
    assert_mean(score_sums(e, vpac, policy), expected)

    collected = exclusive_sum(discounts(2) * products * e.reward)
    penalty = discounts(2) * m + 2 * GAMMA * discounts() * collected * q - 2 * discounts() * v[e.state[0]] * q
    vaac = products * (discounts() * q - PSI * penalty)
    expected = oracle.gradient(mdp, theta, GAMMA, PSI, "published", algorithm="vaac", **options)
    assert_mean(score_sums(e, vaac, policy), expected)
