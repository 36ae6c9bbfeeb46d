from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from envs.sampling import assert_mean, assert_variance
from vpac.envs import ContinuousPuddleWorld
from vpac.errors import UserError

MINUS_X, PLUS_X, MINUS_Y, PLUS_Y = range(4)


def steps(env, position, action, tries, seed=0):
    """Where one step leads from a position, and what it pays, again and again."""
    env.reset(seed=seed)
    arrivals, rewards = [], []
    for _ in range(tries):
        env.reset(options={"position": position})
        there, reward, *_ = env.step(action)
        arrivals.append(there)
        rewards.append(reward)
    return np.array(arrivals), np.array(rewards)


def step(position, action, **arguments):
    env = ContinuousPuddleWorld(**({"noise": 0.0} | arguments))
    env.reset(seed=0, options={"position": position})
    return env.step(action)


@pytest.mark.parametrize(
    ("action", "arrival"),
    [(MINUS_X, (0.15, 0.25)), (PLUS_X, (0.25, 0.25)), (MINUS_Y, (0.2, 0.2)), (PLUS_Y, (0.2, 0.3))],
)
def test_an_action_moves_a_twentieth_along_one_axis(action, arrival):
    there, reward, terminated, truncated, info = step((0.2, 0.25), action)
    assert there == pytest.approx(arrival, rel=1e-15)
    assert (reward, terminated, truncated, info) == (0.0, False, False, {})


def test_noise_is_uniform_on_both_axes():
    arrivals, _ = steps(ContinuousPuddleWorld(), (0.15, 0.8), PLUS_X, 4000)
    noise = arrivals - [0.2, 0.8]
    assert np.abs(noise).max() <= 0.025 + 1e-15
    assert np.abs(noise).max() > 0.0249
    variance = 0.025**2 / 3
    for axis in noise.T:
        assert_mean(axis, 0.0, variance)
        assert_variance(axis, variance, kurtosis=9 / 5)
    assert_mean(noise[:, 0] * noise[:, 1], 0.0, variance**2)  # independent of each other


def test_the_position_is_clipped_to_the_square():
    assert step((0.0, 0.5), MINUS_X)[0].tolist() == [0.0, 0.5]
    assert step((0.97, 0.5), PLUS_X)[0].tolist() == [1.0, 0.5]
    assert step((0.5, 0.02), MINUS_Y)[0].tolist() == [0.5, 0.0]
    assert step((0.5, 0.99), PLUS_Y)[0].tolist() == [0.5, 1.0]
    arrivals, _ = steps(ContinuousPuddleWorld(), (0.0, 1.0), MINUS_X, 400)
    assert np.all(arrivals[:, 0] == 0.0)
    at_the_edge = (arrivals[:, 1] == 1.0).mean()
    assert abs(at_the_edge - 0.5) <= 4 * 0.5 / np.sqrt(400)
    assert arrivals[:, 1].min() >= 0.975


def test_the_puddle_pays_on_leaving_a_point_in_it():
    _, rewards = steps(ContinuousPuddleWorld(), (0.5, 0.5), PLUS_X, 4000)
    assert_mean(rewards, 0.0, 64.0)
    assert_variance(rewards, 64.0)
    assert step((0.31, 0.5), MINUS_X)[1] != 0.0  # left for dry land
    assert step((0.29, 0.5), PLUS_X)[1] == 0.0  # only entered


@pytest.mark.parametrize(
    ("position", "inside"),
    [
        ((0.3, 0.3), True),
        ((0.7, 0.7), True),
        ((0.3, 0.7), True),
        ((np.nextafter(0.3, 0), 0.5), False),
        ((np.nextafter(0.7, 1), 0.5), False),
        ((0.5, np.nextafter(0.3, 0)), False),
        ((0.5, np.nextafter(0.7, 1)), False),
    ],
)
def test_the_bounds_of_the_puddle_belong_to_it(position, inside):
    env = ContinuousPuddleWorld()
    assert env.in_puddle(np.array(position)) is inside
    assert (step(position, PLUS_X)[1] != 0.0) is inside


def test_the_goal_is_near_the_corner_after_the_move():
    there, reward, terminated, truncated, _ = step((0.95, 0.94), PLUS_Y)  # L1 distance 0.11, then 0.06
    assert there == pytest.approx([0.95, 0.99])
    assert (reward, terminated, truncated) == (50.0, True, False)
    assert step((0.89, 0.94), PLUS_X)[1:3] == (0.0, False)  # distance 0.12 after the move
    assert step((0.98, 0.93), MINUS_X)[1:3] == (0.0, False)  # 0.09 before, 0.14 after
    assert step((0.93, 0.99), PLUS_X)[1:3] == (50.0, True)  # near in L1, too
    assert step((0.93, 0.93), PLUS_X)[1:3] == (50.0, True)  # 0.02 + 0.07


def test_the_distance_is_l1_and_must_be_smaller():
    exact = {"step": 0.0625, "goal_distance": 0.125}  # numbers without rounding
    assert step((0.875, 0.9375), PLUS_X, **exact)[1:3] == (0.0, False)  # 1/16 + 1/16 is not below 1/8
    assert step((0.875, 0.9375 + 2**-20), PLUS_X, **exact)[1:3] == (50.0, True)


def test_puddle_and_goal_rewards_add_up():
    env = ContinuousPuddleWorld(puddle=(0.3, 1.0), puddle_std=2.0, goal_reward=30.0)
    _, rewards = steps(env, (1.0, 1.0), PLUS_X, 2000)
    assert_mean(rewards, 30.0, 4.0)
    assert_variance(rewards, 4.0)


def test_starts_are_uniform_in_the_square():
    env = ContinuousPuddleWorld()
    env.reset(seed=5)
    first = np.array([env.reset()[0] for _ in range(3000)])
    assert first.min() >= 0.0
    assert first.max() <= 1.0
    for axis in first.T:
        assert_mean(axis, 0.5, 1 / 12)
        assert_variance(axis, 1 / 12, kurtosis=9 / 5)
    assert_mean((first[:, 0] - 0.5) * (first[:, 1] - 0.5), 0.0, 1 / 144)


def test_arguments_through_gymnasium():
    env = gymnasium.make(
        "vpac/ContinuousPuddleWorld-v0", step=0.2, noise=0.0, puddle=(0.0, 0.1), puddle_std=0.0, goal=(0.0, 0.0),
        goal_distance=0.3, goal_reward=7.0, max_episode_steps=2,
    )  # fmt: skip
    env.reset(options={"position": [0.5, 0.1]})
    assert env.step(MINUS_X)[1:4] == (0.0, False, False)
    assert env.step(MINUS_X)[1:4] == (7.0, True, True)


def test_what_is_returned_is_the_callers():
    env = ContinuousPuddleWorld(noise=0.0)
    given = np.array([0.2, 0.2])
    first, _ = env.reset(options={"position": given})
    given[:] = first[:] = 0.9
    there, *_ = env.step(PLUS_X)
    assert there == pytest.approx([0.25, 0.2])
    there[:] = 0.9
    assert env.step(PLUS_X)[0] == pytest.approx([0.3, 0.2])


def test_mistakes():
    env = ContinuousPuddleWorld()
    with pytest.raises(UserError, match=r"step\(\) before reset\(\)"):
        env.step(0)
    for position in ([0.5, 1.5], [-0.1, 0.0], [0.5], [0.1, 0.1, 0.1], [np.nan, 0.0]):
        with pytest.raises(UserError, match=r"cannot start at \[.*\]: expected two numbers from 0 to 1"):
            env.reset(options={"position": position})
    env.reset(seed=0)
    for action in (4, -1, 0.5):
        with pytest.raises(UserError, match=f"unknown action {action!r}: expected a whole number from 0 to 3"):
            env.step(action)
    env.reset(options={"position": [1.0, 1.0]})
    assert env.step(PLUS_X)[2]
    with pytest.raises(UserError, match="the episode is over"):
        env.step(PLUS_X)
    env.reset()
    env.step(PLUS_X)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"step": -0.1}, "step must be a finite number that is not negative, got -0.1"),
        ({"noise": float("nan")}, "noise must be a finite number that is not negative, got nan"),
        ({"puddle_std": -1.0}, "puddle_std must be a finite number that is not negative, got -1"),
        ({"goal_distance": float("inf")}, "goal_distance must be a finite number that is not negative, got inf"),
        ({"puddle": (0.7, 0.3)}, r"puddle must be a lower and an upper bound, got \(0.7, 0.3\)"),
        ({"goal": (1.0, 2.0)}, r"goal must be two numbers from 0 to 1, got \(1.0, 2.0\)"),
        ({"render_mode": "human"}, "unknown render_mode 'human': expected None, 'ansi' or 'rgb_array'"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(UserError, match=message):
        ContinuousPuddleWorld(**arguments)
