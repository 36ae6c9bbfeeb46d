"""With exact critics held fixed, the mean of the sampled actor update is the oracle's direction (4 standard errors)."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import reference
from simulate import assert_mean
from vpac import oracle
from vpac.tabular import arrays as codes
from vpac.tabular.arrays import GOOD, History, Rates, Settings, Weights, Workspace
from vpac.tabular.environment import compile_mdp
from vpac.tabular.kernel.generator import generator
from vpac.tabular.loop import train
from vpac.tabular.options import Options

GAMMA, PSI = 0.8, 0.7
BATCH = 20
FORMS = {"published": codes.PUBLISHED, "exact": codes.CORRECTED}
KINDS = {"action": codes.ACTION, "state": codes.STATE, "return": codes.RETURN}


def settings(**changes) -> Settings:
    plain = {
        "critic": codes.DIRECT, "form": codes.CORRECTED, "variance_of": codes.ACTION, "baseline": True, "gamma": GAMMA,
        "temperature": 1.0, "score": 1.0, "limit": 90, "on_policy": True, "behaviour": codes.TABLE, "epsilon": 0.0,
        "ratios": codes.EXPECTED, "clip_actor": False,
    }  # fmt: skip
    return Settings(**(plain | changes))


def updates(mdp, theta, choice, critics, mean, behaviour=None, psi=PSI, episodes=20_000, seed=0):
    """The actor's mean update in each of many batches of episodes, with θ and the critics held fixed, [batches, S, A]."""
    world = compile_mdp(mdp)
    weights = Weights(theta.copy(), critics[0].copy(), critics[1].copy(), np.array([mean]))
    rates = Rates(np.full(BATCH, psi), np.ones(BATCH), *np.zeros((3, BATCH)))
    table = np.full_like(theta, 1 / mdp.n_actions) if behaviour is None else behaviour
    rng, recorded = generator(np.random.SeedSequence(seed)), choice.limit if choice.critic == codes.MONTE_CARLO else 0
    work = Workspace.make(1, mdp.n_actions, table, recorded)
    result = np.zeros((episodes // BATCH, *theta.shape))
    for one in result:
        found, *_ = train(world, choice, weights, one, rates, rng, work, History.make(BATCH), rng, np.zeros(0))
        assert found == GOOD
    assert np.array_equal(weights.theta, theta)
    assert np.array_equal(weights.w, critics[0])
    return result / BATCH


@pytest.fixture(params=[1, 0], ids=["ending", "endless"])
def world(request):
    rng = np.random.default_rng(8)
    return reference.random_mdp(rng, 4, 2, request.param, noise=0.2), rng.normal(scale=0.7, size=(4, 2))


def own_critics(mdp, theta, critic, temperature=1.0):
    exact = oracle.evaluate(mdp, oracle.softmax(theta, temperature), GAMMA)
    spread = exact.action_variance if critic == codes.DIRECT else exact.action_second_moment
    return (exact.action_value, spread), float(exact.mean)


@pytest.mark.parametrize(
    ("critic", "algorithm"), [(codes.DIRECT, "vpac"), (codes.INDIRECT, "vaac"), (codes.MONTE_CARLO, "vaac")]
)
@pytest.mark.parametrize("baseline", [True, False])
@pytest.mark.parametrize(
    ("form", "variance_of"), [("published", "action"), *itertools.product(["exact"], KINDS)], ids=lambda x: x
)
def test_on_policy(world, critic, algorithm, form, variance_of, baseline):
    mdp, theta = world
    critics, mean = own_critics(mdp, theta, critic)
    choice = settings(critic=critic, form=FORMS[form], variance_of=KINDS[variance_of], baseline=baseline)
    expected = oracle.gradient(mdp, theta, GAMMA, PSI, form, variance_of, algorithm=algorithm)
    assert_mean(updates(mdp, theta, choice, critics, mean), expected, k=4)


@pytest.mark.parametrize(
    ("critic", "algorithm"), [(codes.DIRECT, "vpac"), (codes.INDIRECT, "vaac"), (codes.MONTE_CARLO, "vaac")]
)
@pytest.mark.parametrize(("form", "variance_of"), [("published", "action"), ("exact", "return")], ids=lambda x: x)
def test_on_policy_with_four_actions(critic, algorithm, form, variance_of):
    """The loop is compiled anew for them."""
    rng = np.random.default_rng(8)
    mdp, theta = reference.random_mdp(rng, 4, 4, 0, noise=0.2), rng.normal(scale=0.7, size=(4, 4))
    critics, mean = own_critics(mdp, theta, critic)
    choice = settings(critic=critic, form=FORMS[form], variance_of=KINDS[variance_of])
    expected = oracle.gradient(mdp, theta, GAMMA, PSI, form, variance_of, algorithm=algorithm)
    assert_mean(updates(mdp, theta, choice, critics, mean), expected, k=4)


@pytest.mark.parametrize("score", ["exact", "published"])
@pytest.mark.parametrize("temperature", [0.4, 2.5])
@pytest.mark.parametrize(
    ("critic", "algorithm", "n_actions"),
    [(codes.DIRECT, "vpac", 2), (codes.DIRECT, "vpac", 4), (codes.INDIRECT, "vaac", 2), (codes.MONTE_CARLO, "vaac", 2)],
)
def test_the_score_of_a_temperature(critic, algorithm, n_actions, temperature, score):
    """The exact score is divided by the temperature, as the derivative of the softmax is; the published one is not."""
    rng = np.random.default_rng(8)
    mdp, theta = reference.random_mdp(rng, 4, n_actions, 1, noise=0.2), rng.normal(scale=0.7, size=(4, n_actions))
    critics, mean = own_critics(mdp, theta, critic, temperature)
    options = Options(temperature=temperature, score=score, gamma=GAMMA, variance_of="return")
    choice = options.compile(critic, 90)
    gradient = oracle.gradient(mdp, theta, GAMMA, PSI, "exact", "return", algorithm=algorithm, temperature=temperature)
    expected = gradient if score == "exact" else temperature * gradient
    assert_mean(updates(mdp, theta, choice, critics, mean), expected, k=4)
    assert np.abs(gradient).max() > 0.01


@pytest.mark.parametrize("baseline", [True, False])
def test_without_a_price_every_algorithm_follows_the_mean(world, baseline):
    mdp, theta = world
    critics, mean = own_critics(mdp, theta, codes.DIRECT)
    found = updates(mdp, theta, settings(baseline=baseline), critics, mean, psi=0.0)
    assert_mean(found, oracle.gradient(mdp, theta, GAMMA, 0.0), k=4)


def behaviour_of(mdp, theta):
    return 0.6 * oracle.softmax(theta) + 0.4 * oracle.uniform(mdp)


@pytest.mark.parametrize(("ratios", "critics"), [(codes.IMPORTANCE, "importance"), (codes.CLIPPED, "clipped")])
@pytest.mark.parametrize(
    ("critic", "form"),
    [(codes.DIRECT, "published"), (codes.DIRECT, "exact"), (codes.INDIRECT, "exact"), (codes.MONTE_CARLO, "exact")],
)
def test_off_policy_with_ratios_in_the_critics(world, ratios, critics, critic, form):
    """The published VAAC is stated for the target policy's own moments: it is tested with those, below."""
    mdp, theta = world
    behaviour = behaviour_of(mdp, theta)
    exact = oracle.evaluate_off_policy(mdp, oracle.softmax(theta), behaviour, GAMMA, critics)
    q, sigma = exact.action_value, exact.action_variance
    choice = settings(
        critic=critic, form=FORMS[form], baseline=False, on_policy=False, ratios=ratios,
        clip_actor=ratios == codes.CLIPPED,
    )  # fmt: skip
    expected = oracle.gradient(mdp, theta, GAMMA, PSI, form, behaviour=behaviour, critics=critics)
    found = updates(mdp, theta, choice, (q, sigma if critic == codes.DIRECT else sigma + q**2), 0.0, behaviour)
    assert_mean(found, expected, k=4)


@pytest.mark.parametrize(
    ("critic", "algorithm"), [(codes.DIRECT, "vpac"), (codes.INDIRECT, "vaac"), (codes.MONTE_CARLO, "vaac")]
)
@pytest.mark.parametrize("clip_actor", [False, True], ids=["plain", "clipped"])
@pytest.mark.parametrize(
    ("form", "variance_of"), [("published", "action"), *itertools.product(["exact"], KINDS)], ids=lambda x: x
)
def test_off_policy_with_the_target_policys_own_critics(world, critic, algorithm, form, variance_of, clip_actor):
    mdp, theta = world
    behaviour = behaviour_of(mdp, theta)
    critics, mean = own_critics(mdp, theta, critic)
    published_vpac = form == "published" and algorithm == "vpac"
    choice = settings(
        critic=critic, form=FORMS[form], variance_of=KINDS[variance_of], baseline=form == "exact" and algorithm == "vpac",
        on_policy=False, clip_actor=clip_actor, ratios=_critic_ratios(published_vpac, clip_actor),
    )  # fmt: skip
    expected = oracle.gradient(
        mdp, theta, GAMMA, PSI, form, variance_of, algorithm=algorithm, behaviour=behaviour, critics="expected",
        ratios="clipped" if clip_actor else "plain",
    )  # fmt: skip
    assert_mean(updates(mdp, theta, choice, critics, mean, behaviour), expected, k=4)


def _critic_ratios(published_vpac, clip_actor):
    """The published VPAC carries T̄, made of the critics' ratios; with the critics held fixed they may be any."""
    if not published_vpac:
        return codes.EXPECTED
    return codes.CLIPPED if clip_actor else codes.IMPORTANCE


@pytest.mark.parametrize(
    ("critic", "algorithm"), [(codes.DIRECT, "vpac"), (codes.INDIRECT, "vaac"), (codes.MONTE_CARLO, "vaac")]
)
def test_published_forms_do_not_follow_the_gradient(critic, algorithm):
    """The same test as above must fail where the risk is in the dynamics."""
    rng = np.random.default_rng(3)
    mdp, theta = reference.random_mdp(rng, 4, 2, 1), rng.normal(scale=0.7, size=(4, 2))
    critics, mean = own_critics(mdp, theta, critic)
    found = updates(mdp, theta, settings(critic=critic, form=codes.PUBLISHED), critics, mean, psi=5.0)
    with pytest.raises(AssertionError, match="standard errors"):
        assert_mean(found, oracle.gradient(mdp, theta, GAMMA, 5.0, "exact", algorithm=algorithm), k=4)


def test_the_published_off_policy_form_does_not_follow_the_gradient():
    rng = np.random.default_rng(3)
    mdp, theta = reference.random_mdp(rng, 4, 2, 1), rng.normal(scale=0.7, size=(4, 2))
    behaviour = behaviour_of(mdp, theta)
    exact = oracle.evaluate_off_policy(mdp, oracle.softmax(theta), behaviour, GAMMA, "importance")
    choice = settings(form=codes.PUBLISHED, baseline=False, on_policy=False, ratios=codes.IMPORTANCE)
    found = updates(mdp, theta, choice, (exact.action_value, exact.action_variance), 0.0, behaviour, psi=5.0)
    with pytest.raises(AssertionError, match="standard errors"):
        assert_mean(found, oracle.gradient(mdp, theta, GAMMA, 5.0, "exact", behaviour=behaviour), k=4)


def test_with_its_own_actions_off_policy_vpac_counts_later_penalties_twice(world):
    """All ratios are one, but σ has been differentiated through ρ²: from the second step on its price is 2ψ.

    With on(ψ) = g − ψ (p₀ + p₁), p₀ the first step's share, it is g − ψ (p₀ + 2 p₁) = 2 on(ψ) − on(0) + ψ p₀.
    """
    mdp, theta = world
    policy, price = oracle.softmax(theta), 5.0
    (q, sigma), _ = own_critics(mdp, theta, codes.DIRECT)
    first_step = mdp.start[:, None] * policy * (sigma - (policy * sigma).sum(axis=1, keepdims=True))
    on = oracle.gradient(mdp, theta, GAMMA, price, "published")
    expected = 2.0 * on - oracle.gradient(mdp, theta, GAMMA, 0.0, "published") + price * first_step
    shared = {"form": codes.PUBLISHED, "baseline": False, "behaviour": codes.TARGET}
    off_policy = settings(on_policy=False, ratios=codes.IMPORTANCE, **shared)
    found = updates(mdp, theta, off_policy, (q, sigma), 0.0, psi=price, episodes=100_000)
    assert_mean(found, expected, k=4)
    with pytest.raises(AssertionError, match="standard errors"):
        assert_mean(found, on, k=4)
