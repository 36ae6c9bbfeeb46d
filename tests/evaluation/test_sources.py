from __future__ import annotations

import numpy as np
import pytest

import vpac
from evaluation.worlds import Dice
from vpac.errors import UserError
from vpac.evaluation import variance_sources
from vpac.oracle import softmax
from vpac.oracle.sources import variance_sources as exact_sources


def coin(observation):
    return int(np.random.random() < 0.5)  # noqa: NPY002


def near(found, exact, k=4.0):
    """Each part within k standard errors of the truth; an interval is 1.96 of them wide to each side."""
    for part, truth in exact.items():
        interval = found.parts[part]
        error = (interval.high - interval.estimate) / 1.96
        assert abs(interval.estimate - truth) <= k * error + 1e-9, part


@pytest.mark.parametrize("noise", [0.0, 1.5])
def test_three_sources_that_are_known(noise):
    found = variance_sources(coin, lambda: Dice(noise), 300, gamma=1.0)
    near(found, {"start": 36.0, "policy": 2.0, "environment": 2.0 * noise**2})
    assert sum(i.estimate for i in found.parts.values()) == pytest.approx(found.total.estimate)
    assert sum(i.estimate for i in found.shares.values()) == pytest.approx(1.0)
    assert bool(found.notes) == (noise == 0.0)
    assert found.exact is None


def test_a_policy_that_draws_nothing_adds_nothing():
    """A function might draw: 400 equal actions for each start bound the share of other actions by 3.7 in 400."""
    found = variance_sources(lambda x: 1, lambda: Dice(1.0), 100, gamma=1.0)
    assert found.parts["policy"].estimate == pytest.approx(0.0, abs=1e-9)
    assert 0.0 < found.shares["policy"].high < 0.05
    assert any("two draws of the policy" in note for note in found.notes)


class Slipping:
    """An agent of ours that slips once in two hundred steps; asked for its most preferred action, never."""

    def act(self, observations, rng, deterministic):
        return np.array([int(not deterministic and rng.random() < 0.005) for _ in observations])


def test_a_policy_that_has_nearly_made_up_its_mind():
    """Dice pays for action 1, twice an episode: the policy's part is 2 · 0.005 · 0.995 of what it is for a coin's ¼, 2.

    Coverage is the matter of test_parts.py; here the terms are right. Each estimate sees 4 slips or so."""
    truth, found = 8.0 * 0.005 * 0.995, []
    for seed in range(10):
        found.append(variance_sources(Slipping(), lambda: Dice(0.5), 100, seed=seed, gamma=1.0))
    inside = [s.parts["policy"].low <= truth <= s.parts["policy"].high for s in found]
    assert np.mean(inside) >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / 10)
    estimates = [s.parts["policy"].estimate for s in found]
    assert np.mean(estimates) == pytest.approx(truth, abs=4 * np.std(estimates) / np.sqrt(10))
    certain = variance_sources(Slipping(), lambda: Dice(0.5), 20, gamma=1.0, deterministic=True)
    assert certain.parts["policy"].high == 0.0
    assert not certain.notes


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_learner_in_a_finite_process(deterministic):
    learner = vpac.VPAC("vpac/CatchUp-v0", gamma=0.95, psi=0.0).learn(100)
    found = variance_sources(learner, "vpac/CatchUp-v0", 120, deterministic=deterministic, seed=3)
    theta = learner.weights.theta
    policy = vpac.oracle.greedy(theta) if deterministic else softmax(theta)
    assert found.exact == exact_sources(learner.environment.mdp, policy, 0.95, 200)
    near(found, found.exact._asdict())


def test_the_seed_decides():
    one, again, other = (variance_sources(coin, Dice, 20, seed=seed, gamma=1.0) for seed in (1, 1, 2))
    assert one == again != other


def test_what_cannot_be_separated_is_said():
    with pytest.raises(UserError, match="does not repeat itself"):
        variance_sources(coin, Dice(loose=True), 20)
    with pytest.raises(UserError, match="step 1 differs though seed and actions were the same"):
        variance_sources(coin, lambda: Dice(loose=True), 20)
    from gymnasium.vector import SyncVectorEnv

    with pytest.raises(UserError, match="not a vector environment"):
        variance_sources(coin, SyncVectorEnv([Dice]), 20)
    with pytest.raises(UserError, match="starts"):
        variance_sources(coin, Dice, 1)

    class Recurrent:
        observation_space = Dice.observation_space

        def predict(self, observation, state=None, episode_start=None, deterministic=False):
            return np.zeros(1, int), 1

    with pytest.raises(UserError, match="without a memory"):
        variance_sources(Recurrent(), Dice, 20)
