"""Records of importance ratios: the effective share of steps, and the clipped mass."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

import reference
from simulate import assert_mean
from vpac import FiniteMDP, oracle
from vpac.tabular import VPAC, OffPolicyAC, OffPolicyVAAC, OffPolicyVPAC

STEPS = 12


class Hidden(gymnasium.Wrapper):
    """Not one of the wrappers that are looked through: the environment is stepped from Python."""


@pytest.fixture
def endless():
    """A world without an end, where every episode has the same number of steps, and a policy."""
    rng = np.random.default_rng(5)
    return reference.random_mdp(rng, 4, 3, 0), rng.normal(size=(4, 3))


def following(kind, mdp, theta, episodes, env=None, **settings):
    """Episodes of a policy held fixed."""
    learner = kind(mdp if env is None else env, max_episode_steps=STEPS, alpha_theta=0.0, psi=0.0, **settings)
    learner.weights.theta[:] = theta
    return learner.learn(episodes)


def clipped_mass(mdp, policy, behaviour):
    """(1/K) Σ_k Σ_s d_k(s) Σ_a (π(a|s) − b(a|s))⁺, where d_k is where the behaviour policy is at step k."""
    removed = np.maximum(policy - behaviour, 0.0).sum(axis=1)
    step = np.einsum("sa,sat->st", behaviour, mdp.transition)
    there, total = mdp.start, 0.0
    for _ in range(STEPS):
        total += there @ removed
        there = there @ step
    return total / STEPS


@pytest.mark.parametrize(
    "settings",
    [{"critics": "clipped"}, {"critics": "expected", "ratios": "clipped"}, {"critics": "expected", "ratios": "plain"}],
    ids=["clipped", "clipped-actor", "plain"],
)
@pytest.mark.parametrize("uniform", [True, False], ids=["uniform", "table"])
def test_clipped_mass_is_what_the_oracle_says_whether_or_not_ratios_are_clipped(endless, settings, uniform):
    mdp, theta = endless
    policy = oracle.softmax(theta)
    behaviour = oracle.uniform(mdp) if uniform else 0.5 * policy[:, ::-1] + 0.5 / 3
    given = {} if uniform else {"behaviour": behaviour}
    found = following(OffPolicyVPAC, mdp, theta, 20_000, **given, **settings)
    assert_mean(found.history.clipped, clipped_mass(mdp, policy, behaviour), k=4)


def test_clipped_mass_in_the_gymnasium_loop(endless):
    mdp, theta = endless
    found = following(OffPolicyVPAC, mdp, theta, 500, env=Hidden(mdp.to_gymnasium()))
    assert found.environment.world is None
    assert_mean(found.history.clipped, clipped_mass(mdp, oracle.softmax(theta), oracle.uniform(mdp)), k=4)


def test_two_actions_by_hand():
    """π = (3/4, 1/4) against (1/2, 1/2): ρ is 3/2 or 1/2, so a step's excess is 1/2 or 0, as often as the first action."""
    rng = np.random.default_rng(0)
    mdp = reference.random_mdp(rng, 2, 2, 0)
    theta = np.log([[3.0, 1.0], [3.0, 1.0]])
    for kind in (OffPolicyVPAC, OffPolicyVAAC):
        found = following(kind, mdp, theta, 50).history.clipped
        assert np.allclose(found * STEPS / 0.5, np.round(found * STEPS / 0.5))
        assert 0.0 < found.mean() < 0.5


def test_nothing_is_clipped_where_behaviour_and_target_are_one(endless):
    mdp, theta = endless
    for learner in (following(VPAC, mdp, theta, 20), following(OffPolicyAC, mdp, theta, 20, behaviour="target")):
        assert not learner.history.clipped.any()
        assert (learner.history.effective == 1.0).all()


def test_what_was_recorded_is_saved(tmp_path, endless):
    mdp, theta = endless
    learner = following(OffPolicyVPAC, mdp, theta, 20)
    learner.save(tmp_path)
    loaded = OffPolicyVPAC.load(tmp_path, mdp)
    for mine, theirs in zip(learner.history, loaded.history, strict=True):
        assert np.array_equal(mine, theirs)
    assert learner.history.clipped.any()


@pytest.mark.parametrize("stepped", [False, True], ids=["compiled", "stepped"])
@pytest.mark.parametrize("form", ["published", "corrected"])
def test_a_cut_carries_the_ratio_of_the_action_that_would_come_next(form, stepped):
    """One cell, one step, then a cut: G = R + γ ρ' Q̂(A') or, with ratios from the start, ρ (R + γ ρ' Q̂(A')).

    π = (3/4, 1/4) against (1/2, 1/2) makes ρ = (3/2, 1/2). Each of the four pairs of actions has its own result.
    """
    mdp = FiniteMDP(np.ones((1, 2, 1)), [[1.0, 3.0]], 0.0, [1.0])
    first_w, first_z, rho, gamma = np.array([5.0, 7.0]), np.array([30.0, 60.0]), np.array([1.5, 0.5]), 0.8
    seen = set()
    for seed in range(24):
        learner = OffPolicyVAAC(
            Hidden(mdp.to_gymnasium()) if stepped else mdp, seed=seed, max_episode_steps=1, critics="importance", form=form,
            gamma=gamma, alpha_theta=0.0, alpha_z=1.0, alpha_w=1.0,
        )  # fmt: skip
        learner.weights.theta[:], learner.weights.w[:], learner.weights.z[:] = np.log([3.0, 1.0]), first_w, first_z
        learner.learn(1)
        (action,) = np.flatnonzero(learner.weights.w[0] != first_w)
        reward, scale = (1.0, 3.0)[action], rho[action] if form == "published" else 1.0
        discounted = gamma * rho
        means = scale * (reward + discounted * first_w)
        squares = scale**2 * (reward**2 + 2.0 * reward * discounted * first_w + discounted**2 * first_z)
        (then,) = np.flatnonzero(np.isclose(learner.weights.w[0, action], means))
        assert learner.weights.z[0, action] == pytest.approx(squares[then])
        seen.add((int(action), int(then)))
    assert len(seen) == 4
