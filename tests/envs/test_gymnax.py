"""The adapter to gymnax 1.x, judged by Gymnasium's own CartPole. `make bench` runs it in an environment that has gymnax."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

pytest.importorskip(
    "gymnax", reason="gymnax needs Gymnasium below 1.4: `make bench` tests it in an environment of its own"
)
import jax

from vpac import UserError
from vpac.deep import PPO
from vpac.envs import make_env
from vpac.envs.functional import GymnaxEnv


def test_cartpole_moves_as_gymnasiums():
    """The same pushes from the same state, until the pole falls: what is seen, paid and ended is the same."""
    ours, theirs, rng = GymnaxEnv("CartPole-v1"), gymnasium.make("CartPole-v1"), np.random.default_rng(0)
    step, ends = jax.jit(ours.step), 0
    for seed in range(5):
        state, seen = ours.reset(jax.random.key(seed))
        theirs.reset(seed=seed)
        theirs.unwrapped.state = tuple(np.asarray(seen, np.float64))
        over = False
        while not over:
            action = int(rng.integers(2))
            state, seen, reward, over, cut = step(jax.random.key(0), state, action)
            observed, paid, terminated, truncated, _ = theirs.step(action)
            np.testing.assert_allclose(seen, observed, rtol=1e-3, atol=1e-4)
            assert (float(reward), bool(over), bool(cut)) == (paid, terminated, truncated)
        ends += over
    assert ends == 5


def test_episodes_are_cut_at_the_limit_and_parameters_are_given():
    env = make_env("gymnax:CartPole-v1", max_episode_steps=3, force_mag=0.0)
    env.reset(seed=1)
    assert [env.step(0)[2:4] for _ in range(3)] == [(False, False), (False, False), (False, True)]


def test_a_training_is_compiled_and_a_saved_agent_acts_without_gymnax(tmp_path):
    settings = {"envs": 4, "steps": 16, "epochs": 1, "minibatch": 32, "hidden": (8,)}
    agent = PPO("gymnax:CartPole-v1", seed=1, **settings).learn(128)
    assert (agent.timesteps, len(agent.history)) == (128, 2)
    again = PPO.load(agent.save(tmp_path / "agent"))
    seen = np.zeros(4, np.float32)
    assert again.predict(seen)[0] == agent.predict(seen)[0]


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("CartPol-v1", {}, "gymnax has no environment 'CartPol-v1'.*CartPole-v1"),
        ("CartPole-v1", {"gravty": 1.0}, "gymnax:CartPole-v1 has no parameter 'gravty'.*gravity"),
    ],
)
def test_misspelt_names_are_answered_with_the_nearest(name, given, words):
    with pytest.raises(UserError, match=words):
        GymnaxEnv(name, **given)
