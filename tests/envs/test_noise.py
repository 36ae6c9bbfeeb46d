"""Noise wrappers: amount and place of the noise, and that the seed determines it."""

from __future__ import annotations

import random
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import FlattenObservation

from vpac.envs import (
    ActionNoise,
    RandomFirstSteps,
    RandomStart,
    RegionalRewardNoise,
    RewardNoise,
    SeedGlobals,
    check_env,
)
from vpac.envs.registration import NOISY_TASKS
from vpac.errors import UserError


class Walk(gymnasium.Env):
    """A point on a line that moves by the action; the reward is the action, the info says where it is."""

    def __init__(self, render_mode=None):
        self.observation_space, self.action_space = spaces.Box(-99, 99, (1,)), spaces.Box(-1, 1, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = np.zeros(1, np.float32)
        return self.x.copy(), {"x_position": 0.0}

    def step(self, action):
        self.last = np.asarray(action)
        self.x = self.x + np.asarray(action, np.float32)
        return self.x.copy(), float(action[0]), False, False, {"x_position": float(self.x[0])}


def walk():
    return gymnasium.make(gymnasium.envs.registration.EnvSpec("Walk-v0", entry_point=Walk, max_episode_steps=20_000))


def rewards(env, actions, seed=0):
    env.reset(seed=seed)
    return np.array([env.step(np.array([a], np.float32))[1] for a in actions])


N = 10_000


def test_reward_noise_is_normal_with_its_standard_deviation():
    noise = rewards(RewardNoise(walk(), 3.0), np.zeros(N))
    assert abs(noise.mean()) < 4 * 3.0 / N**0.5
    assert abs(noise.std() - 3.0) < 4 * 3.0 / (2 * N) ** 0.5
    assert abs(np.mean((noise / 3.0) ** 4) - 3.0) < 4 * (96 / N) ** 0.5


def test_action_noise_is_added_and_clipped():
    env = ActionNoise(walk(), 0.25)
    env.reset(seed=1)
    taken = []
    for _ in range(N):
        env.step(np.array([0.9], np.float32))
        taken.append(env.unwrapped.last[0])
    taken = np.array(taken)
    assert env.unwrapped.last.dtype == np.float32
    assert taken.max() == 1.0
    assert abs(np.mean(taken < 0.9) - 0.5) < 4 * 0.5 / N**0.5
    assert abs(np.mean(taken == 1.0) - 0.34458) < 4 * (0.345 * 0.655 / N) ** 0.5  # P(Z > 0.4)


@pytest.mark.parametrize("where", ["x_position", 0])
def test_regional_noise_is_in_the_region_only(where):
    env = RegionalRewardNoise(walk(), 5.0, where=where, low=2.5, high=4.5)
    env.reset(seed=0)
    seen = [env.step(np.ones(1, np.float32)) for _ in range(6)]
    assert [step[4]["noisy"] for step in seen] == [False, False, True, True, False, False]
    assert [step[1] == 1.0 for step in seen] == [True, True, False, False, True, True]


def test_regional_noise_is_the_same_luck_for_every_policy():
    env = RegionalRewardNoise(walk(), 5.0, low=-0.5)
    still, moving = rewards(env, np.zeros(50)), rewards(env, np.full(50, 0.5))
    assert np.allclose(still, moving - 0.5)


@pytest.mark.parametrize(
    ("wrapper", "arguments"),
    [
        (RewardNoise, {"std": 2.0}),
        (ActionNoise, {"std": 0.5}),
        (RegionalRewardNoise, {"std": 2.0, "where": "x_position", "low": -50.0, "high": None}),
        (RandomFirstSteps, {"most": 5}),
    ],
)
def test_the_seed_decides_and_the_specification_makes_it_again(wrapper, arguments):
    env = wrapper(walk(), **arguments)
    again = gymnasium.make(env.spec)
    assert type(again) is wrapper
    assert again.spec == env.spec
    actions = np.linspace(-1, 1, 30)

    def run(env, seed):
        seen = [env.reset(seed=seed)[0]]
        for action in actions:
            observation, reward, *_ = env.step(np.array([action], np.float32))
            seen += [observation, [reward]]
        return np.concatenate(seen)

    assert np.array_equal(run(env, 7), run(again, 7))
    assert np.array_equal(run(env, 7), run(env, 7))
    assert not np.array_equal(run(env, 7), run(env, 8))
    assert check_env(env, steps=300).errors == []


def test_random_first_steps_spread_the_start_and_leave_the_action_space_alone():
    env = RandomFirstSteps(walk(), 4)
    env.action_space.seed(3)
    starts = np.array([env.reset(seed=seed)[0][0] for seed in range(400)])
    assert abs(np.mean(starts == 0.0) - 0.2) < 4 * (0.16 / 400) ** 0.5
    assert abs(starts.var() - 2 / 3) < 4 * (2 / 3) * (3 / 400) ** 0.5  # a mean of two uniform steps of variance 1/3
    other = spaces.Box(-1, 1, (1,))
    other.seed(3)
    assert np.array_equal(env.action_space.sample(), other.sample())


def test_random_first_steps_start_again_if_the_episode_ends():
    env = RandomFirstSteps(gymnasium.make("FrozenLake-v1", max_episode_steps=1), 1)
    for seed in range(20):
        assert env.reset(seed=seed)[0] == 0  # the start, not where the first step led
        assert env.step(0)[3], "its only step cuts a fresh episode off"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ActionNoise(gymnasium.make("CartPole-v1"), 0.1), "ActionNoise needs Box actions"),
        (lambda: RewardNoise(walk(), -1.0), "std must be a finite number that is not negative, got -1.0"),
        (lambda: RewardNoise(walk(), "big"), "std must be a finite number"),
        (lambda: RegionalRewardNoise(walk(), 1.0), "the region has no end"),
        (lambda: RegionalRewardNoise(walk(), 1.0, low=2, high=1), "the region is empty"),
        (lambda: RegionalRewardNoise(walk(), 1.0, where=1, low=2), "where = 1 is no place .* from 0 to 0"),
        (lambda: RegionalRewardNoise(gymnasium.make("FrozenLake-v1"), 1.0, where=0, low=2), "a Box that is a vector"),
        (lambda: rewards(RegionalRewardNoise(walk(), 1.0, where="height", low=2), [0.0]), "no 'height': it holds x_position"),
        (lambda: RandomStart(walk(), 0.1), "needs a MuJoCo task, got Walk: use RandomFirstSteps"),
        (lambda: RandomFirstSteps(walk(), -1), "most must be a whole number"),
    ],
)  # fmt: skip
def test_mistakes_are_named(make, message):
    with pytest.raises(UserError, match=message):
        make()


def test_registering_noisy_tasks_imports_no_mujoco():
    code = "import sys, vpac, gymnasium; print('vpac/NoisyHopper-v0' in gymnasium.registry, 'mujoco' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.split() == ["True", "False"]


@pytest.mark.parametrize("task", NOISY_TASKS, ids=lambda task: task.id)
def test_noisy_tasks_show_x_and_are_noisy_beyond_their_threshold(task):
    pytest.importorskip("mujoco")
    noisy, plain = gymnasium.make(task.id), gymnasium.make(task.id).unwrapped
    for env in (noisy, plain):
        env.reset(seed=0)
    assert noisy.observation_space.shape == (gymnasium.make(f"{task.id[10:-3]}-v5").observation_space.shape[0] + 1,)
    action = np.zeros(noisy.action_space.shape, np.float32)
    for x, expected in ((0.0, False), (task.noise["low"] + 1.0, True)):
        for env in (noisy.unwrapped, plain):
            position = env.data.qpos.copy()
            position[0] = x
            env.set_state(position, env.data.qvel.copy())
        (seen, reward, *_, info), (_, clean, *_) = noisy.step(action), plain.step(action)
        assert info["noisy"] is expected
        assert (reward != float(clean)) is expected
        assert seen[0] == pytest.approx(info["x_position"], abs=0.1)


def test_random_start_spreads_joints():
    pytest.importorskip("mujoco")
    env = RandomStart(gymnasium.make("Hopper-v5", reset_noise_scale=0.0), 0.3)
    first, again = env.reset(seed=1)[0], env.reset(seed=1)[0]
    assert np.array_equal(first, again)
    starts = np.array([env.reset(seed=seed)[0] for seed in range(300)])
    assert np.all(np.abs(starts.std(axis=0) - 0.3) < 5 * 0.3 / 600**0.5)
    with pytest.raises(UserError, match="put RandomStart around the task first"):
        RandomStart(FlattenObservation(gymnasium.make("Hopper-v5")), 0.3)


class Global(Walk):
    """Draws from the generators that all share, as packages on PyPI do."""

    def reset(self, *, seed=None, options=None):
        self.x = np.array([np.random.randint(50)], np.float32)  # noqa: NPY002
        return self.x.copy(), {}

    def step(self, action):
        self.x = np.array([np.random.randint(50)], np.float32)  # noqa: NPY002
        return self.x.copy(), random.random(), random.random() < 0.1, False, {}


def test_global_generators_are_seeded_by_reset():
    with pytest.raises(UserError, match="--wrap SeedGlobals"):
        check_env(Global())
    assert check_env(SeedGlobals(Global())).errors == []


def test_each_environment_has_its_own_stream_of_the_global_generators():
    alone = rewards(SeedGlobals(Global()), np.zeros(9), seed=3)
    one, two = SeedGlobals(Global()), SeedGlobals(Global())
    before = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    one.reset(seed=3)
    two.reset(seed=4)
    both = [(one.step([0.0])[1], two.step([0.0])[1]) for _ in range(9)]
    assert [x for x, _ in both] == alone.tolist()
    assert [x for _, x in both] != alone.tolist()
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # noqa: NPY002
    one.reset()  # without a seed the stream goes on
    assert one.step([0.0])[1] not in alone
