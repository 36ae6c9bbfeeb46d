"""Worlds whose mean and variance are known: critics find the numbers, policies the right arm."""

from __future__ import annotations

import numpy as np
import pytest

import probes
import vpac

pytest.importorskip("jax")
from vpac.deep import PPO, VAACPPO, VPACPPO

QUICK = {
    "envs": 16, "steps": 32, "epochs": 4, "minibatch": 128, "hidden": (16,), "learning_rate": 3e-3, "gamma": 0.9,
    "decay_learning_rate": True, "normalise_observations": False,
}  # fmt: skip


def critics(agent, observation):
    """V and variance at an observation, in units of the raw reward."""
    row = agent.interface.rows(np.asarray([observation]))
    value, spread = float(agent.networks.value(row)[0]), float(agent.networks.spread(row)[0])
    scale = agent.rewards.value
    variance = spread if agent.spread == "variance" else spread - value**2
    return value / scale, variance / scale**2


@pytest.mark.parametrize("kind", [VPACPPO, VAACPPO])
def test_constant_reward_has_its_sum_and_no_variance(kind):
    agent = kind(probes.Constant, seed=1, reward_scale=1.0, form="corrected", **QUICK).learn(40_000)
    value, variance = critics(agent, [0.0])
    assert value == pytest.approx(1 + 0.9 + 0.81, abs=0.02)
    assert variance == pytest.approx(0.0, abs=0.1)


@pytest.mark.parametrize("kind", [VPACPPO, VAACPPO])
def test_critics_find_mean_and_variance_where_episodes_are_only_cut(kind):
    """V = 1 / (1 − γ) = 5 and variance 1 / (1 − γ²) = 2.78 at γ = 0.8, though no episode is longer than 8 steps."""
    settings = {**QUICK, "gamma": 0.8, "learning_rate": 1e-3, "reward_scale": 0.3}
    agent = kind(
        probes.OnlyCut, seed=2, form="corrected", steps=64, **{k: v for k, v in settings.items() if k != "steps"}
    )
    agent.learn(120_000)
    value, variance = critics(agent, [0.0])
    assert value == pytest.approx(5.0, rel=0.04)
    assert variance == pytest.approx(1 / (1 - 0.64), rel=0.2)
    rows = agent.history[-20:]
    for what in ("predicted_variance", "measured_variance"):
        assert np.mean([row[what] for row in rows]) == pytest.approx(1 / (1 - 0.64), rel=0.2)


@pytest.mark.parametrize("world", [probes.Bandit, probes.LateChoice, probes.Pusher])
@pytest.mark.parametrize(("psi", "risky"), [(0.3, True), (0.9, False)])
def test_the_safe_arm_above_the_threshold_and_not_below(world, psi, risky):
    """The risky arm pays ½ more with variance 1: worth it for ψ < ½ (later: ψ < 1/(2γ) = 0.56)."""
    seen = [[0.5]] if world is probes.LateChoice else [[0.0]]
    for weighting in ("uniform", "start"):
        agent = VPACPPO(world, psi=psi, weighting=weighting, seed=3, **QUICK).learn(30_000)
        action = agent.predict(np.array(seen, np.float32), deterministic=True)[0]
        assert bool(np.ravel(action)[0] > 0) == risky, f"{weighting}: {action}"


def test_variance_of_a_discounted_choice_is_found():
    agent = VPACPPO(probes.LateChoice, psi=0.0, seed=4, reward_scale=1.0, **QUICK).learn(40_000)
    value, variance = critics(agent, [0.0])
    assert value == pytest.approx(0.9 * 1.5, rel=0.1)
    assert variance == pytest.approx(0.81, rel=0.2)


@pytest.mark.slow
def test_where_luck_comes_first_the_corrected_form_hedges_and_the_published_one_errs():
    """Catch-up, ψ = 2: without a price J = 9.8 − 2 · 13.2 = −16.6. The exact gradient leads to −10.8."""
    settings = {
        "envs": 32, "steps": 32, "epochs": 4, "minibatch": 256, "hidden": (32,), "learning_rate": 3e-3, "entropy": 0.02,
        "gamma": 0.95, "normalise_observations": False, "weighting": "start",
    }  # fmt: skip
    mdp = vpac.FiniteMDP.from_gymnasium("vpac/CatchUp-v0")

    def objective(psi: float = 2.0, form: str = "corrected") -> float:
        agent = VPACPPO("vpac/CatchUp-v0", psi=psi, form=form, seed=0, **settings).learn(100_000)
        logits = np.asarray(agent.networks.policy.net(np.eye(mdp.n_states, dtype=np.float32)), np.float64)
        moments = vpac.oracle.evaluate(mdp, vpac.oracle.softmax(logits), 0.95)
        return float(moments.mean - 2.0 * moments.total_variance)

    assert objective() > -11.5
    assert objective(psi=0.0) == pytest.approx(-16.5, abs=0.5)
    assert objective(form="published") < -16.0  # it gives up mean and gets nothing for it


def test_psi_zero_is_ppo_bit_for_bit():
    settings = {**QUICK, "seed": 5}
    ours = [kind(probes.Bandit, **settings).learn(6000) for kind in (PPO, VPACPPO, VAACPPO)]
    leaves = [agent.policy().weights + agent.policy().biases for agent in ours]
    for other in leaves[1:]:
        for mine, theirs in zip(leaves[0], other, strict=True):
            np.testing.assert_array_equal(mine, theirs)
