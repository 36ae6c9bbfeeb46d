from __future__ import annotations

import numpy as np
import pytest

import reference
from seeds import bounds, seeds
from vpac import VPAC, FiniteMDP, oracle
from vpac.errors import UserError
from vpac.tabular import VAACTD
from vpac.tabular.kernel.generator import generator
from vpac.tabular.prediction import Prediction, _streams, log_spaced

KINDS = ("importance", "clipped", "expected")
DECAY = "robbins-monro:0.5:1:200"


@pytest.fixture
def small():
    rng = np.random.default_rng(5)
    mdp = reference.random_mdp(rng, 4, 2, 1, noise=0.3)
    policy = oracle.softmax(rng.normal(size=(4, 2)))
    return mdp, policy, 0.3 * policy + 0.35


def corridor():
    """0 → 1 → end, paying 1 and 2, whichever of two actions is taken."""
    transition = np.zeros((3, 2, 3))
    transition[0, :, 1] = transition[1, :, 2] = 1.0
    return FiniteMDP(transition, np.array([[1.0, 1.0], [2.0, 2.0], [0.0, 0.0]]), 0.0, [1, 0, 0], [False, False, True])


def test_two_steps_by_hand():
    """δ is 1, then 2; after the second step e = (γλ_w, 1) = (0.4, 1) and ē = (γ²λ_z, 1) = (0.125, 1)."""
    mdp = FiniteMDP(corridor().transition[:, :1], corridor().reward_mean[:, :1], 0.0, [1, 0, 0], corridor().terminal)
    settings = Prediction(gamma=0.5, alpha_w=0.5, alpha_z=0.25, lambda_w=0.8, lambda_z=0.5, steps=2, points=1)
    found = settings.run(mdp, np.ones((3, 1)))
    value, variance = np.array([0.5 + 0.5 * 2 * 0.4, 1.0]), np.array([0.25 + 0.25 * 4 * 0.125, 1.0])
    assert found["steps"].tolist() == [2.0]
    assert found["value_error"][0] == pytest.approx(np.sqrt(np.mean((value - 2.0) ** 2)))
    assert found["direct_error"][0] == pytest.approx(np.sqrt(np.mean(variance**2)))
    assert found["indirect_error"][0] == pytest.approx(np.sqrt(np.mean((variance - value**2) ** 2)))
    assert found["direct_bias"][0] == pytest.approx(np.mean(variance))
    assert found["indirect_bias"][0] == pytest.approx(np.mean(variance - value**2))
    assert (found["direct_negative"][0], found["indirect_negative"][0]) == (0.0, 0.5)


@pytest.mark.parametrize("critics", KINDS)
def test_two_steps_off_policy_by_hand(critics):
    """The second TD error is 2 and reaches back with the ratio of the second action; the first counts alike either way."""
    policy, behaviour = np.tile([0.8, 0.2], (3, 1)), np.full((3, 2), 0.5)
    settings = Prediction(
        gamma=0.5, alpha_w=0.5, alpha_z=0.25, lambda_w=0.8, lambda_z=0.5, steps=2, points=1, critics=critics
    )
    truth = settings.truth(corridor(), policy, behaviour)
    expected = {}
    for second in range(2):
        rho = policy[0, second] / 0.5
        kept, kept_bar = (rho, rho**2) if critics == "importance" else (min(1, rho), min(1, rho) ** 2)
        if critics == "expected":
            kept_bar = min(1, rho)
        value, variance = np.zeros((3, 2)), np.zeros((3, 2))
        value[0, 0], value[1, second] = 0.5 + 0.5 * 2 * 0.5 * 0.8 * kept, 1.0
        variance[0, 0], variance[1, second] = 0.25 + 0.25 * 4 * 0.25 * 0.5 * kept_bar, 1.0
        errors = value - truth.action_value, variance - truth.action_variance
        errors += (variance - value**2 - truth.action_variance,)
        expected[second] = [truth.rms(error) for error in errors]
    taken = set()
    for seed in range(20):
        found = settings.run(corridor(), policy, seed, behaviour)
        found = [found[name][0] for name in ("value_error", "direct_error", "indirect_error")]
        (second,) = [action for action, errors in expected.items() if np.allclose(errors, found, rtol=1e-12)]
        taken.add(second)
    assert taken == {0, 1}


def test_without_traces_it_is_the_critics_of_the_learners(small):
    mdp, policy, _ = small
    for kind, column in ((VPAC, "direct_error"), (VAACTD, "indirect_error")):
        learner = kind(mdp, gamma=0.8, psi=0.0, alpha_theta=0.0, alpha_w=0.3, alpha_z=0.2)
        learner.weights.theta[:] = np.log(policy)
        learner._rng = generator(_streams(3)[1])
        learner.learn(50)
        steps = int(learner.history.lengths.sum())
        settings = Prediction(gamma=0.8, alpha_w=0.3, alpha_z=0.2, steps=steps, points=5)
        truth, found = settings.truth(mdp, policy), settings.run(mdp, policy, 3)
        variance = learner.weights.z - (learner.weights.w**2 if kind is VAACTD else 0.0)
        assert found["value_error"][-1] == pytest.approx(truth.rms(learner.weights.w - truth.action_value))
        assert found[column][-1] == pytest.approx(truth.rms(variance - truth.action_variance))


@pytest.mark.parametrize("lam", [0.0, 0.7])
@pytest.mark.parametrize("critics", KINDS)
@pytest.mark.parametrize("on_policy", [True, False])
def test_both_converge_to_the_oracle(small, on_policy, critics, lam):
    mdp, policy, behaviour = small
    settings = Prediction(
        gamma=0.8, alpha_w=DECAY, alpha_z=DECAY, lambda_w=lam, lambda_z=lam, critics=critics, steps=500_000, points=4
    )
    behaviour = None if on_policy else behaviour
    truth, found = settings.truth(mdp, policy, behaviour), [settings.run(mdp, policy, n, behaviour) for n in seeds()]
    for name, exact in (
        ("value", truth.action_value),
        ("direct", truth.action_variance),
        ("indirect", truth.action_variance),
    ):
        assert bounds([run[f"{name}_error"][-1] for run in found])[1] < 0.05 * truth.rms(exact)


@pytest.mark.parametrize("lam", [0.0, 0.7])
@pytest.mark.parametrize("critics", KINDS)
def test_a_noisy_value_leads_to_the_exact_fixed_points(small, critics, lam):
    mdp, policy, behaviour = small
    settings = Prediction(
        gamma=0.8, alpha_z=DECAY, lambda_z=lam, critics=critics, value_noise=0.5, steps=1_000_000, points=3
    )
    ends, exact = [], []
    for seed in seeds():
        found, limits = settings.run(mdp, policy, seed, behaviour), settings.limits(mdp, policy, seed, behaviour)
        noise = np.random.default_rng(_streams(seed)[0]).standard_normal((4, 2)) * 0.5
        assert found["value_error"] == pytest.approx(settings.truth(mdp, policy, behaviour).rms(noise))
        ends.append([found[name][-1] for name in limits])
        exact.append(list(limits.values()))
    assert np.mean(exact, axis=0).min() > 0.1
    for gap in np.transpose(np.subtract(ends, exact) / np.mean(exact, axis=0)):
        assert -0.1 < bounds(gap)[0] < bounds(gap)[1] < 0.1


def test_the_result_depends_on_the_seed_only(small):
    mdp, policy, behaviour = small
    settings = Prediction(steps=3000, lambda_w=0.5, max_episode_steps=7, value_noise=1.0)
    first, again, other = (settings.run(mdp, policy, seed, behaviour) for seed in (0, 0, 1))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["direct_error"], other["direct_error"])
    assert all(column.shape == (60,) for column in first.values())
    known = settings.run(mdp, policy, 0, behaviour, settings.truth(mdp, policy, behaviour))
    assert np.array_equal(first["indirect_error"], known["indirect_error"])
    sparse, dense = (Prediction(steps=3000, points=points).run(mdp, policy) for points in (2, 50))
    assert sparse["direct_error"][-1] == dense["direct_error"][-1]


def test_points_are_evenly_spaced_in_their_logarithm():
    assert log_spaced(1000, 3) == [10, 100, 1000]
    assert log_spaced(1000, 1) == [1000]
    assert log_spaced(12, 60) == [10, 11, 12]
    assert log_spaced(3, 2) == [3]


def test_without_discount(small):
    mdp, policy, _ = small
    settings = Prediction(gamma=1.0, alpha_w=DECAY, alpha_z=DECAY, steps=500_000, points=2)
    truth, found = settings.truth(mdp, policy), [settings.run(mdp, policy, seed) for seed in seeds()]
    for name in ("direct_error", "indirect_error"):
        assert bounds([run[name][-1] for run in found])[1] < 0.1 * truth.rms(truth.action_variance)


def test_the_direct_estimate_is_never_negative_without_traces(small):
    mdp, policy, _ = small
    settings = Prediction(gamma=0.8, alpha_w=0.9, alpha_z=0.5, steps=20_000)
    found = [settings.run(mdp, policy, seed) for seed in seeds()]
    assert max(run["direct_negative"].max() for run in found) == 0.0
    assert bounds([run["indirect_negative"].max() for run in found])[0] > 0.1


def test_shares_are_those_of_the_walk(small):
    mdp, policy, behaviour = small
    shares = Prediction(max_episode_steps=2).truth(mdp, policy, behaviour).shares
    second = np.einsum("s,sa,sat->t", mdp.start, behaviour, mdp.transition)
    by_hand = (mdp.start + second)[:, None] * behaviour * ~mdp.terminal[:, None]
    np.testing.assert_allclose(shares, by_hand / by_hand.sum())
    alike = Prediction(weighting="uniform").truth(mdp, policy, behaviour).shares
    assert alike[:3].tolist() == [[1 / 6] * 2] * 3
    assert alike[3].sum() == 0.0


def test_an_estimate_that_diverges_has_an_infinite_error():
    mdp = FiniteMDP(np.ones((1, 1, 1)), 1.0)
    found = Prediction(alpha_w=300.0, steps=20_000).run(mdp, [[1.0]])
    assert found["value_error"][-1] == np.inf
    assert found["direct_error"][-1] == np.inf


@pytest.mark.parametrize(
    "wrong",
    [
        {"gamma": 1.5}, {"lambda_w": -0.1}, {"alpha_w": "linear:1"}, {"steps": 0}, {"value_noise": -1.0},
        {"critics": "retrace"}, {"weighting": "even"}, {"max_episode_steps": 0},
    ],
)  # fmt: skip
def test_mistakes_are_named(wrong):
    with pytest.raises(UserError, match=next(iter(wrong)).split("_")[0]):
        Prediction(**wrong)


def test_a_variance_that_does_not_exist_is_named():
    mdp = FiniteMDP(np.ones((1, 2, 1)), np.array([[0.0, 1.0]]))
    with pytest.raises(UserError, match="spectral radius"):
        Prediction().run(mdp, [[0.9, 0.1]], 0, [[0.1, 0.9]])
    stuck = FiniteMDP(np.eye(2)[:, None, :], 0.0, 0.0, [1, 0], [False, True])
    with pytest.raises(UserError, match="max_episode_steps"):
        Prediction().run(stuck, np.ones((2, 1)))
