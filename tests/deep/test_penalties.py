"""Learners with `penalty=`: ψ = 0, invalid settings, saving and loading, and learned quantiles."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seeds import bounds, seeds
from vpac import AC, MVPI, MVPIPPO, PPO, VAAC, VAACPPO, VPAC, VPACPPO, FiniteMDP, OffPolicyVPAC, UserError
from vpac.deep import estimators
from vpac.deep.improve import quantile_loss
from vpac.envs.functional import FiniteEnv
from vpac.risk.measures import PENALTIES

WORLD = "vpac/RiskyShortcut-v0"
SMALL = {"envs": 4, "steps": 24, "epochs": 2, "minibatch": 32, "hidden": (8,), "checkpoint_every": 2, "gamma": 0.9}
NAMES = [f"{name}:0.5" if name == "entropic" else name for name in PENALTIES]


def weights(agent):
    return [np.asarray(leaf) for leaf in jax.tree.leaves((agent.networks.policy, agent.networks.value))]


def same(one, two):
    assert all(np.array_equal(x, y) for x, y in zip(weights(one), weights(two), strict=True))


def test_without_a_price_it_is_ppo_bit_for_bit():
    same(VPACPPO(WORLD, psi=0.0, penalty="cvar:0.2", **SMALL).learn(200), PPO(WORLD, **SMALL).learn(200))


def test_the_variance_is_the_default_bit_for_bit():
    """In trainings step by step and compiled ones, of tables and of linear features."""
    for env in (WORLD, FiniteEnv(FiniteMDP.from_gymnasium(WORLD))):
        one, two = (VPACPPO(env, psi=0.5, **SMALL, **given).learn(400) for given in ({}, {"penalty": "variance"}))
        same(one, two)
        assert one.history[-1]["penalty_share"] > 0.0
    for env in (WORLD, "CartPole-v1"):
        tables = [VPAC(env, psi=0.1, **given).learn(30).weights for given in ({}, {"penalty": "variance"})]
        assert all(np.array_equal(x, y) for x, y in zip(*tables, strict=True))


def test_volatility_is_mvpi_bit_for_bit():
    same(VPACPPO(WORLD, psi=0.1, penalty="volatility", **SMALL).learn(200), MVPIPPO(WORLD, psi=0.1, **SMALL).learn(200))
    one, two = VPAC(WORLD, psi=0.1, penalty="volatility").learn(30), MVPI(WORLD, psi=0.1).learn(30)
    assert np.array_equal(one.weights.theta, two.weights.theta)


def test_a_resumed_training_is_the_same_training(tmp_path):
    settings = {**SMALL, "psi": 0.5, "penalty": "cvar:0.2"}
    whole = VPACPPO(WORLD, seed=1, **settings).learn(96 * 6)
    assert whole.history[-1]["penalty_value"] > 0.0
    price = whole.history[-1]["return_mean"] - whole.history[-1]["objective"]
    assert price == pytest.approx(0.5 * whole.history[-1]["penalty_value"], rel=1e-5)
    VPACPPO(WORLD, seed=1, **settings).learn(96 * 6, checkpoints=tmp_path, callback=lambda agent: agent.iteration < 4)
    resumed = VPACPPO.load(tmp_path / "00000004").learn(96 * 6, resuming=True)
    same(whole, resumed)
    assert resumed.options.penalty == "cvar:0.2"
    assert resumed.history[-1] == whole.history[-1]


@pytest.mark.parametrize(
    ("kind", "settings", "words"),
    [
        (PPO, {"penalty": "gini"}, "PPO has no choice"), (VAACPPO, {"psi": 1.0, "penalty": "gini"}, "use VPACPPO"),
        (MVPIPPO, {"psi": 1.0, "penalty": "std"}, "MVPIPPO has no choice"),
        (VPACPPO, {"psi": 1.0, "penalty": "ginni"}, "did you mean 'gini'"),
        (VPACPPO, {"psi": 1.0, "penalty": "std", "penalty_critic": "direct"}, "learns the variance"),
        (VPACPPO, {"psi": 1.0, "penalty": "volatility", "penalty_critic": "none"}, "charged in the rewards"),
        (VPACPPO, {"budget": "std:2", "penalty": "cvar"}, "needs the variance and its direct critic"),
        (VPACPPO, {"psi": "conditioned", "psi_range": (0, 1), "penalty": "mad"}, "needs the variance"),
        (VPACPPO, {"psi": 1.0, "form": "published", "penalty": "mad"}, "form='published' needs"),
        (VPACPPO, {"psi": 1.0, "weighting": "uniform", "penalty_critic": "quantile"}, "needs the variance"),
        (VPACPPO, {"penalty": "gini"}, "needs a price"),
        (AC, {"penalty": "gini"}, "AC cannot have"), (VAAC, {"penalty": "gini"}, "use VPAC"),
        (MVPI, {"penalty": "std"}, "MVPI cannot have"),
        (OffPolicyVPAC, {"penalty": "cvar"}, "needs returns of the policy itself"),
        (VPAC, {"penalty": "gini", "form": "published"}, "is for the variance"),
        (VPAC, {"penalty": "gini", "budget": "std:2"}, "is for the variance"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(kind, settings, words):
    with pytest.raises(UserError, match=words):
        kind(WORLD, **settings)


def test_episodes_that_never_end_are_refused():
    loop = FiniteMDP(np.ones((1, 1, 1)), 1.0, 0.0, np.ones(1), np.zeros(1, bool))
    with pytest.raises(UserError, match="penalty='gini' records whole episodes"):
        VPAC(loop, psi=1.0, penalty="gini")


def test_a_tabular_learner_at_no_price_is_ac_and_pauses_change_nothing(tmp_path):
    settings = {"penalty": "gini", "gamma": 0.9, "seed": 3}
    free, ac = VPAC(WORLD, psi=0.0, **settings).learn(60), AC(WORLD, gamma=0.9, seed=3).learn(60)
    assert np.array_equal(free.weights.theta, ac.weights.theta)
    whole = VPAC(WORLD, psi=0.3, **settings).learn(90)
    parts = VPAC(WORLD, psi=0.3, **settings).learn(25).learn(10)
    parts.save(tmp_path / "agent")
    resumed = VPAC.load(tmp_path / "agent").learn(55, every=7, callback=lambda learner: None)
    assert np.array_equal(whole.weights.theta, resumed.weights.theta)
    assert not np.array_equal(whole.weights.theta, ac.weights.theta)


def gamble() -> FiniteMDP:
    """A safe arm that pays 1 and one that pays 2 with standard deviation 3."""
    P, pay, noise = np.zeros((2, 2, 2)), np.zeros((2, 2, 2)), np.zeros((2, 2, 2))
    P[:, :, 1], pay[0, :, 1], noise[0, 1, 1] = 1.0, (1.0, 2.0), 9.0
    return FiniteMDP(P, pay, noise, np.array([1.0, 0.0]), np.array([False, True]))


@pytest.mark.parametrize("penalty", [name for name in NAMES if name != "volatility"])
def test_tabular_learners_leave_a_gamble_that_costs_too_much(penalty):
    """At a price that is twice what the gamble gains; the risk-neutral learner takes it. Five seeds, by a wide margin."""
    price = 0.5 if penalty in ("variance", "semivariance") else 2.0
    how = {"gamma": 1.0, "alpha_theta": 0.02, "max_episode_steps": 1}
    chances = [
        [VPAC(gamble(), psi=psi, penalty=penalty, seed=seed, **how).learn(3000).policy()[0, 0] for seed in seeds()]
        for psi in (price, 0.0)
    ]
    assert bounds(chances[0])[0] > 0.7
    assert bounds(chances[1])[1] < 0.3


def test_targets_are_samples_of_the_lambda_return():
    """λ = 1: the return with the critic's quantiles behind a cut; λ = 0: the reward and the quantiles of the next state."""
    reward, running = jnp.array([[1.0], [2.0], [3.0]]), jnp.array([[1.0], [0.0], [1.0]])
    quantiles = jnp.arange(12.0).reshape(3, 1, 4)
    whole = estimators.quantile_targets(reward, quantiles, running, 0.5, 1.0)
    np.testing.assert_allclose(whole[:, 0], [[2.0] * 4, [2.0] * 4, 3.0 + 0.5 * np.arange(8.0, 12.0)])
    short = estimators.quantile_targets(reward, quantiles, running, 0.5, 0.0)
    np.testing.assert_allclose(short[:, 0], [1.0 + 0.5 * np.arange(4.0), [2.0] * 4, 3.0 + 0.5 * np.arange(8.0, 12.0)])


def test_the_loss_is_smallest_at_the_quantiles():
    sample = np.sort(np.random.default_rng(0).exponential(size=2000))
    share = (np.arange(8) + 0.5) / 8
    best = jnp.asarray(np.quantile(sample, share))
    slope = jax.grad(lambda q: quantile_loss(q, jnp.asarray(sample)).sum())(best)
    assert np.abs(slope).max() < 2.0 / 2000 + 1e-6
    assert np.abs(jax.grad(lambda q: quantile_loss(q, jnp.asarray(sample)).sum())(best + 0.2)).max() > 0.05
