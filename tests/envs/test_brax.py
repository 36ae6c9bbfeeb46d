"""The adapter to Brax, where it is installed."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("brax", reason="Brax is not a dependency: `pip install brax` in an environment of its own")
import jax

from vpac import UserError
from vpac.deep import PPO
from vpac.envs import make_env
from vpac.envs.functional import BraxEnv

pytestmark = pytest.mark.filterwarnings("ignore")


def test_it_steps_as_brax_does_until_the_end():
    from brax import envs

    ours, theirs = (
        BraxEnv("inverted_pendulum", backend="positional"),
        envs.get_environment("inverted_pendulum", backend="positional"),
    )
    step, other, key = jax.jit(ours.step), jax.jit(theirs.step), jax.random.key(3)
    (state, seen), expected, over, steps = ours.reset(key), theirs.reset(key), False, 0
    while not over:
        np.testing.assert_array_equal(seen, expected.obs)
        state, seen, reward, over, cut = step(key, state, np.float32([0.8]))
        expected, steps = other(expected, np.float32([0.8])), steps + 1
        assert (float(reward), bool(over), bool(cut)) == (float(expected.reward), bool(expected.done), False)
    assert 1 < steps < 100


def test_a_training_is_compiled_and_episodes_are_cut():
    settings = {"envs": 4, "steps": 16, "epochs": 1, "minibatch": 32, "hidden": (8,)}
    agent = PPO("brax:fast", seed=1, **settings).learn(128)
    assert (agent.timesteps, len(agent.history)) == (128, 2)
    env = make_env("brax:fast", max_episode_steps=3)
    env.reset(seed=1)
    assert [env.step(np.zeros(1, np.float32))[3] for _ in range(3)] == [False, False, True]


def test_wrong_names_are_told():
    with pytest.raises(UserError, match=r"Brax has no environment 'hoper'.*hopper"):
        BraxEnv("hoper")
    with pytest.raises(UserError, match=r"brax:inverted_pendulum: .*gravty"):
        BraxEnv("inverted_pendulum", gravty=1.0)
