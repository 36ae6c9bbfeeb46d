"""Measures: their influence functions are derivatives, and the mean update of each learner is the gradient."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from vpac import VPAC, FiniteMDP, UserError, oracle
from vpac.risk import metrics
from vpac.risk.measures import PENALTIES, Law, measure_of, penalty_rows

GAMMA, PSI, LEVELS = 0.8, 0.7, 3
NAMES = [
    "variance", "std", "semivariance", "semivariance:0.4", "cvar", "cvar:0.35", "gini", "mad", "entropic:0.6",
]  # fmt: skip


def ladder(rng) -> FiniteMDP:
    """Three levels of two states; every action leads to a state of the next level."""
    n = 2 * LEVELS + 1
    transition = np.zeros((n, 2, n))
    for state in range(n - 1):
        up = 2 * (state // 2 + 1)
        transition[state][:, [up, up + 1] if up < n - 1 else [n - 1]] = (
            rng.dirichlet(np.ones(2), 2) if up < n - 1 else 1.0
        )
    start = np.append([0.4, 0.6], np.zeros(n - 2))
    return FiniteMDP(transition, rng.normal(0.5, 1.0, (n, 2, n)), 0.0, start, np.arange(n) == n - 1)


@pytest.fixture(scope="module")
def world():
    rng = np.random.default_rng(5)
    mdp = ladder(rng)
    return mdp, rng.normal(scale=0.7, size=(mdp.n_states, 2))


def paths(mdp, policy):
    """(probability, states, actions, rewards) of every episode."""
    found = [(p, (s,), (), ()) for s, p in enumerate(mdp.start) if p]
    for _ in range(LEVELS):
        found = [
            (p * policy[s[-1], a] * q, (*s, t), (*actions, a), (*rewards, mdp.reward_mean[s[-1], a, t]))
            for p, s, actions, rewards in found
            for a in range(mdp.n_actions)
            for t, q in enumerate(mdp.transition[s[-1], a])
            if q
        ]
    chance, states, actions, rewards = (np.array(column) for column in zip(*found, strict=True))
    return chance, states[:, :-1], actions, rewards


def slope(objective, theta):
    """The gradient by finite differences."""
    found, h = np.zeros_like(theta), 1e-5
    for place in np.ndindex(*theta.shape):
        nudge = np.zeros_like(theta)
        nudge[place] = h
        found[place] = (objective(theta + nudge) - objective(theta - nudge)) / (2.0 * h)
    return found


def scores(weights, states, actions, policy):
    """Σ over episodes and steps of weight · ∇log π."""
    found = np.zeros_like(policy)
    np.add.at(found, (states, actions), weights)
    np.add.at(found, states, -weights[..., None] * policy[states])
    return found


def tabular_weights(measure, chance, states, actions, rewards, policy):
    """What the tabular learner's compiled update adds to θ, episode by episode; the mean by AC's exact critic."""
    from vpac.tabular.arrays import CORRECTED, DIRECT, GOOD, RETURN, Settings, Weights, Workspace
    from vpac.tabular.update import Choice, StepSizes, learn_from_return, record

    returns = rewards @ GAMMA ** np.arange(LEVELS)
    law = Law.of(returns, chance)
    table = np.stack([law.value, measure.influence(law.value, law)])
    settings = Settings(DIRECT, CORRECTED, RETURN, True, GAMMA, 1.0, 1.0, LEVELS, by_return=True)
    z = np.random.default_rng(1).normal(size=policy.shape)  # any baseline will do
    weights = Weights(np.zeros_like(policy), np.zeros_like(policy), z, np.zeros(1))
    found = np.zeros_like(policy)
    for p, s, a, r, total in zip(chance, states, actions, rewards, returns, strict=True):
        work, ascent = Workspace.make(1, 2, recorded_steps=LEVELS)._replace(influence=table), np.zeros_like(policy)
        for k in range(LEVELS):
            record(work.buffer, k, s[k : k + 1], policy[s[k]], Choice(int(a[k]), 1.0, 1.0, 0.0), float(r[k]))
        sizes = StepSizes(PSI, 0.0, 1.0, 0.0, 0.0)
        assert learn_from_return(settings, weights, ascent, sizes, work, LEVELS, float(total)) == (GOOD, LEVELS)
        found += p * ascent
    return found


def deep_weights(measure, chance, states, actions, rewards, policy, quantiles):
    """The same of PPO's: γ^k times the penalty's part of the weights, with no critic or with a poor one."""
    jax = pytest.importorskip("jax")
    import jax.numpy as jnp

    from vpac.deep import estimate
    from vpac.deep.estimators import EpisodeTrace
    from vpac.deep.networks import CRITIC_QUANTILES, MLP, Critic

    scale, n = 0.5, len(chance)
    critic = None
    if quantiles:
        W = np.random.default_rng(2).normal(size=(len(policy), CRITIC_QUANTILES))
        critic = Critic(MLP([jnp.asarray(W, jnp.float32)], [jnp.zeros(CRITIC_QUANTILES)], "tanh"), False, True)
    seen = np.eye(len(policy), dtype=np.float32)[np.append(states, np.full((n, 1), len(policy) - 1), axis=1).T]
    running = np.ones((LEVELS, n), np.float32)
    running[-1] = 0.0
    batch = estimate.Batch(
        jnp.asarray(seen), None, jnp.asarray(scale * rewards.T, jnp.float32), jnp.asarray(running), jnp.asarray(running),
        jnp.ones((LEVELS, n)),
    )  # fmt: skip
    returns = rewards @ GAMMA ** np.arange(LEVELS)
    counts = chance * 100.0  # as many as it takes to be known
    with jax.disable_jit():  # three steps: compiling would take longer
        found = estimate.estimate_measure(
            critic, batch, jnp.zeros((LEVELS, n)), EpisodeTrace.first(n), jnp.asarray(returns, jnp.float32),
            jnp.asarray(counts, jnp.float32), jnp.float32(PSI / scale ** (measure.degree - 1)), jnp.float32(scale),
            measure=measure, gamma=GAMMA, lam=1.0, target_lam=0.9,
        )  # fmt: skip
    weights = np.asarray(found.weights, np.float64).T * GAMMA ** np.arange(LEVELS) / scale
    return scores(chance[:, None] * weights, states, actions, policy)


@pytest.fixture(scope="module", params=NAMES)
def judged(request, world):
    """A measure and the gradient of −ψ times it, by finite differences of its exact value."""
    mdp, theta = world
    measure = measure_of(request.param)

    def value(theta):
        chance, _, _, rewards = paths(mdp, oracle.softmax(theta))
        return measure.value(Law.of(rewards @ GAMMA ** np.arange(LEVELS), chance))

    assert measure.exact(mdp, oracle.softmax(theta), GAMMA) == pytest.approx(value(theta), rel=1e-3)  # on a grid
    return measure, slope(lambda theta: -PSI * value(theta), theta)


@pytest.mark.parametrize("learner", ["measure", "tabular", "PPO, quantiles", "PPO, no critic"])
def test_the_mean_update_is_the_gradient(world, judged, learner):
    """By enumeration of all episodes, against finite differences of the exact value."""
    mdp, theta = world
    (measure, exact), policy = judged, oracle.softmax(theta)
    assert np.abs(exact).max() > 0.01
    chance, states, actions, rewards = everything = paths(mdp, policy)
    if learner == "measure":
        returns = rewards @ GAMMA ** np.arange(LEVELS)
        weights = -PSI * chance * measure.influence(returns, Law.of(returns, chance))
        found = scores(np.repeat(weights[:, None], LEVELS, axis=1), states, actions, policy)
    elif learner == "tabular":
        found = tabular_weights(measure, *everything, policy)
    else:
        found = deep_weights(measure, *everything, policy, learner == "PPO, quantiles")
    np.testing.assert_allclose(found, exact, atol=2e-5 if learner.startswith("PPO") else 1e-7)


def test_the_mean_update_of_mvpi_is_the_gradient(world):
    """With y the mean reward, AC's gradient on the reward that pays is that of mean − ψ · volatility of a step's reward."""
    from vpac.risk.measures.volatility import augmented

    mdp, theta = world
    measure, mean = measure_of("volatility"), oracle.step_reward(mdp, oracle.softmax(theta), GAMMA).mean

    def objective(theta):
        policy = oracle.softmax(theta)
        return oracle.step_reward(mdp, policy, GAMMA).mean - PSI * measure.exact(mdp, policy, GAMMA)

    paid = FiniteMDP(mdp.transition, augmented(mdp.reward_mean, PSI, mean), 0.0, mdp.start, mdp.terminal)
    found = (1.0 - GAMMA) * oracle.gradient(paid, theta, GAMMA, 0.0)
    np.testing.assert_allclose(found, slope(objective, theta), atol=1e-8)


@pytest.mark.parametrize("name", [*NAMES, "volatility"])
def test_the_influence_is_the_derivative_at_a_mixture(name):
    rng = np.random.default_rng(3)
    law, measure, h = Law.of(rng.normal(size=9), rng.dirichlet(np.ones(9))), measure_of(name), 1e-6
    influence = measure.influence(law.value, law)
    assert law.mean_of(influence) == pytest.approx(0.0, abs=1e-12)
    towards = rng.dirichlet(np.ones(9)) - law.probability
    up, down = (measure.value(Law(law.value, law.probability + e * towards)) for e in (h, -h))
    assert (towards * influence).sum() == pytest.approx((up - down) / (2.0 * h), abs=1e-6)


SIGMA, BETA, ALPHA = 2.0, 0.3, 0.2
NORMAL = {
    "variance": SIGMA**2, "std": SIGMA, "semivariance": SIGMA**2 / 2.0, "semivariance:1": SIGMA**2 / 2.0,
    f"cvar:{ALPHA}": SIGMA * norm.pdf(norm.ppf(ALPHA)) / ALPHA, "gini": SIGMA / math.sqrt(math.pi),
    "mad": SIGMA * math.sqrt(2.0 / math.pi), f"entropic:{BETA}": BETA * SIGMA**2 / 2.0,
}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), NORMAL.items())
def test_values_of_a_normal_return(name, value):
    """By the oracle, and on a sample within four standard errors, which the influences give."""
    P, pay, noise = np.zeros((2, 1, 2)), np.ones((2, 1, 2)), np.full((2, 1, 2), SIGMA**2)
    P[:, :, 1] = 1.0
    mdp = FiniteMDP(P, pay, noise, np.array([1.0, 0.0]), np.array([False, True]))
    measure = measure_of(name)
    assert measure.exact(mdp, np.ones((2, 1)), 0.9) == pytest.approx(value, rel=2e-3)
    sample = np.random.default_rng(4).normal(1.0, SIGMA, 20_000)
    error = measure.influence(sample, Law.of(sample)).std() / math.sqrt(len(sample))
    assert abs(measure.of_sample(sample) - value) < 4.0 * error + 1e-3


def test_values_agree_with_the_metrics():
    x = np.random.default_rng(6).normal(size=40)
    n = len(x)
    assert measure_of("variance").of_sample(x) == pytest.approx(metrics.variance(x) * (n - 1) / n)
    assert measure_of("semivariance").of_sample(x) == pytest.approx(metrics.semivariance(x) * (n - 1) / n)
    assert measure_of("semivariance:0.2").of_sample(x) == pytest.approx(metrics.semivariance_below(x, 0.2))
    assert measure_of("cvar:0.33").of_sample(x) == pytest.approx(x.mean() - metrics.cvar(x, 0.33))
    assert measure_of("gini").of_sample(x) == pytest.approx(metrics.gini_deviation(x) * (n - 1) / n)


def test_nothing_varies():
    for name in NAMES:
        law, measure = Law.of(np.full(5, 3.0)), measure_of(name)
        assert measure.value(law) == pytest.approx(0.0, abs=1e-12)
        assert np.isfinite(measure.influence(np.array([2.0, 3.0, 4.0]), law)).all()


@pytest.mark.parametrize(
    ("penalty", "words"),
    [
        ("ginni", "did you mean 'gini'"), ("gini:2", "no parameter"), ("cvar:x", "expected a number"), ("cvar:0", "above 0"),
        ("cvar:1.5", "below 1"), ("entropic", "e.g. 'entropic:0.1'"), ("entropic:-1", "got -1.0"), (3, "name of a measure"),
        ("semivariance:nan", "must be finite"),
    ],
)  # fmt: skip
def test_mistakes(penalty, words):
    with pytest.raises(UserError, match=words):
        measure_of(penalty)
    with pytest.raises(UserError, match=words):
        VPAC("vpac/RiskyShortcut-v0", psi=0.1, penalty=penalty)


def test_the_registry_describes_every_measure():
    rows = penalty_rows()
    assert [row["name"] for row in rows] == list(PENALTIES)
    assert all(row["about"] and row["definition"] for row in rows)
    assert {row["name"] for row in rows if row["unit"] == "1/reward"} == {"variance", "semivariance", "volatility"}


@pytest.mark.parametrize(("name", "exact"), [("std", 1.0), ("mad", (2.0 / np.pi) ** 0.5), ("gini", np.pi**-0.5)])
def test_intervals_of_a_measure_hold_its_value_as_often_as_they_say(name, exact):
    rng, measure, trials = np.random.default_rng(5), measure_of(name), 400
    found = [measure.interval(rng.normal(size=300)) for _ in range(trials)]
    held = np.mean([one.low <= exact <= one.high for one in found])
    assert abs(held - 0.95) < 4.0 * (0.95 * 0.05 / trials) ** 0.5
