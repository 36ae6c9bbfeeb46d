"""Certified episodes can be repeated; each stress changes one thing only."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import vpac
from vpac.errors import UserError
from vpac.evaluation.play import episode_seeds, evaluate_each
from vpac.evaluation.stressing import Axis, Disturbed, arms_of, stress
from vpac.oracle import evaluate as exactly

WORLD = "vpac/CatchUp-v0"


@pytest.fixture(scope="module")
def agent():
    return vpac.VPAC(WORLD, gamma=0.95, psi=0.1, seed=1).learn(300)


def test_every_episode_is_the_one_of_its_seed(agent):
    seeds = episode_seeds(7, 30)
    sample = evaluate_each(agent, WORLD, seeds)
    alone = [vpac.evaluate(agent, WORLD, 1, seed=seed) for seed in seeds[::7]]
    assert [one.returns[0] for one in alone] == sample.returns[::7].tolist()
    assert episode_seeds(7, 10) == seeds[:10]
    mdp = vpac.FiniteMDP.from_gymnasium(WORLD)
    moments = exactly(mdp, agent.policy(), 0.95)
    error = np.sqrt(moments.total_variance / 400)
    assert abs(evaluate_each(agent, WORLD, episode_seeds(0, 400)).mean - moments.mean) < 4.0 * error


@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        (("max-std", "max-variance"), "a budget is max_variance or max_std: give one"),
        (("keep-mean",), "--baseline RUN"),
    ],
    ids=["two of a kind", "nothing to compare with"],
)
def test_limits_that_cannot_be_are_refused_before_an_episode_is_played(kinds, words):
    def plays(observation):
        raise AssertionError

    with pytest.raises(vpac.UserError, match=words):
        vpac.certify(plays, WORLD, 20, limits=[vpac.risk.Limit(kind, 1.0) for kind in kinds])


def test_a_certificate_says_what_was_measured(agent):
    found = vpac.certify(agent, WORLD, 200, below=[5.0], baseline="random", sources=20, seed=3).data
    sample = evaluate_each(agent, WORLD, episode_seeds(3, 200))
    assert found["episodes"]["return"] == sample.returns.tolist()
    assert found["metrics"]["discounted"]["mean"]["estimate"] == sample.mean
    (named,) = [one for one in found["below"] if one["named"]]
    assert named["count"] == int((sample.returns < 5.0).sum())
    assert named["clopper_pearson"]["low"] <= named["count"] / 200 <= named["clopper_pearson"]["high"]
    assert [one["return"] for one in found["worst"]] == np.sort(sample.returns)[:5].tolist()
    assert all(one["repeats"] for one in found["worst"])
    assert found["sources"]["exact"]["environment"] > 0.0
    assert set(found["sources"]["shares"]) == {"start", "policy", "environment"}
    assert found["baseline"]["comparison"]["difference_of_means"]["estimate"] == pytest.approx(
        sample.mean - np.mean(found["baseline"]["episodes"]["return"])
    )
    assert {row["after"] for row in found["monitor"]} == {0, 1000}


def test_a_policy_against_itself_differs_in_nothing(agent):
    found = vpac.certify(agent, WORLD, 50, baseline=agent, sources=0).data["baseline"]
    assert found["comparison"]["difference_of_means"] == {"estimate": 0.0, "low": 0.0, "high": 0.0}


class Unruly(gymnasium.Env):
    """After a while its rewards obey no seed."""

    observation_space, action_space = spaces.Discrete(1), spaces.Discrete(2)
    steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        Unruly.steps += 1
        return 0, float(self.np_random.random()) + max(0, Unruly.steps - 600), True, False, {}


def test_an_environment_that_does_not_repeat_itself_is_noted():
    found = vpac.certify(lambda observation: 0, Unruly, 1000, sources=10).data
    assert found["sources"] is None
    assert any("does not obey its seed" in note for note in found["notes"])
    assert any("was not measured" in note for note in found["notes"])


class Drift(gymnasium.Env):
    """Ten steps; pays minus the distance between the action and where it is, which the observation says."""

    def __init__(self, speed=1.0):
        self.observation_space, self.action_space = spaces.Box(-50, 50, (2,)), spaces.Box(-50.0, 50.0, (2,))
        self.speed = speed

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.time = self.np_random.standard_normal(2), 0
        return self.at.astype(np.float32), {}

    def step(self, action):
        reward = -float(np.abs(action - self.at).sum())
        self.at, self.time = self.at + self.speed * np.array([1.0, 0.0]), self.time + 1
        return self.at.astype(np.float32), reward, self.time >= 10, False, {}


def follow(observation):
    return observation


def measured(*axes, episodes=60, agent=follow, make=lambda given: Drift(**given)):
    found = stress(agent, make, axes, episodes, gamma=1.0)
    return found, {tuple(arm.items()): s for arm, s in zip(found.arms, found.samples, strict=True)}


def test_nothing_changed_is_nothing_changed(agent):
    def make(given):
        return vpac.envs.make_env(WORLD, **given)

    zero = [Axis("noise", (0.0,)), Axis("action-noise", (0.0,)), Axis("delay", (0,)), Axis("drop", (0.0,))]
    found, _ = measured(*zero, agent=agent, make=make, episodes=30)
    assert len(found.arms) == 5
    assert all(np.array_equal(one.returns, found.samples[0].returns) for one in found.samples)


def test_delay_and_loss_cost_what_they_must():
    found, samples = measured(Axis("delay", (1, 2)), Axis("drop", (1.0,)), Axis("speed", (2.0,)))
    assert samples[()].returns == pytest.approx(np.zeros(60), abs=1e-5)
    assert samples[("delay", 1),].returns == pytest.approx(np.full(60, -9.0), abs=1e-4)
    assert samples[("delay", 2),].returns == pytest.approx(np.full(60, -(1.0 + 2.0 * 8)), abs=1e-4)
    assert samples[("drop", 1.0),].returns == pytest.approx(np.full(60, -45.0), abs=1e-4)  # it sees the start for ever
    assert samples[("speed", 2.0),].returns == pytest.approx(np.zeros(60), abs=1e-5)
    assert found.arms[found.worst_first()[0]] == {"drop": 1.0}
    assert len(found.arms) == 5


def test_noise_has_the_scale_of_what_is_seen():
    """E|N(0, s²)| = s √(2/π), for each of the two numbers, with s from its own spread over the episodes."""
    _, samples = measured(Axis("noise", (0.5,)), Axis("action-noise", (0.02,)), Axis("delay", (0,)), episodes=400)
    spread = np.sqrt(1.0 + np.var(np.arange(11.0))), 1.0  # the first moves from 0 to 10, the second does not
    cost = 10.0 * 0.5 * np.sqrt(2.0 / np.pi) * sum(spread)
    assert -samples[("noise", 0.5),].mean == pytest.approx(cost, rel=0.15)  # 20 episodes say what a unit is
    assert -samples[("action-noise", 0.02),].mean == pytest.approx(20.0 * 0.02 * 50.0 * np.sqrt(2.0 / np.pi), rel=0.05)


def test_discrete_spaces_are_mistaken_with_a_probability(agent):
    env = Disturbed(vpac.envs.make_env(WORLD), noise=0.3)
    plain = vpac.envs.make_env(WORLD)
    wrong = total = 0
    for seed in range(150):
        seen, true = env.reset(seed=seed)[0], plain.reset(seed=seed)[0]
        over = False
        while not over:
            wrong, total = wrong + (seen != true), total + 1
            assert env.observation_space.contains(seen)
            seen, (true, *_, truncated, _) = env.step(1)[0], (step := plain.step(1))
            over = truncated or step[2]
    assert abs(wrong / total - 0.3) < 4.0 * np.sqrt(0.21 / total)


def test_two_axes_are_crossed_and_more_are_not():
    two = [Axis("a", (1, 2)), Axis("b", (3,))]
    assert arms_of(two) == [{}, {"a": 1}, {"a": 2}, {"b": 3}, {"a": 1, "b": 3}, {"a": 2, "b": 3}]
    assert len(arms_of([*two, Axis("c", (1,))])) == 5


def test_other_starts_and_mistakes():
    _, samples = measured(Axis("first-steps", (5,)), episodes=20)
    assert samples[("first-steps", 5),].lengths.min() < 10
    for wrong in ((), (Axis("drop", (1.5,)),), (Axis("delay", (1,)), Axis("delay", (2,)))):
        with pytest.raises(UserError):
            measured(*wrong)
    with pytest.raises(UserError, match="probability"):
        Disturbed(vpac.envs.make_env(WORLD), noise=1.5)
