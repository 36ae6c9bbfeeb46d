"""Episodes longer than the time between checkpoints: they end, their statistics are complete, and resuming is exact."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

pytest.importorskip("jax")
from vpac.deep import VPACPPO
from vpac.deep.checkpoint import latest_checkpoint
from vpac.deep.diagnostics import NoEpisodeEnded
from vpac.deep.logs import Speed

SMALL = {"envs": 2, "steps": 8, "epochs": 1, "minibatch": 16, "hidden": (4,), "checkpoint_every": 1, "psi": 0.1}
LENGTH = 30


class Long(gymnasium.Env):
    """Every episode has 30 steps; the reward of each is 1, and what is seen depends on all that was done and drawn."""

    observation_space, action_space = spaces.Box(-1e3, 1e3, (2,)), spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.k, self.x = 0, self.np_random.normal()
        return self._seen(), {}

    def step(self, action):
        self.k += 1
        self.x = 0.9 * self.x + float(action[0]) + 0.1 * self.np_random.normal()
        return self._seen(), 1.0, False, self.k == LENGTH, {}

    def _seen(self):
        return np.array([self.x, self.k / LENGTH], np.float32)


class Changed(Long):
    """An environment that changes between two runs."""

    change = 0.0

    def step(self, action):
        self.x += self.change
        return super().step(action)


@pytest.mark.filterwarnings("ignore:no episode of")
@pytest.mark.parametrize("more", [{}, {"psi": "conditioned", "psi_range": (0.0, 0.5)}, {"remember": "return"}])
def test_a_run_resumed_within_an_episode_is_the_same_run(tmp_path, more):
    settings = SMALL | more
    steps = 16 * 9
    whole = VPACPPO(Long, seed=3, **settings).learn(steps)
    assert whole.episodes == 2 * (9 * 8 // LENGTH)
    assert whole.history[-1]["score_mean"] == LENGTH
    assert whole.history[-1]["score_variance"] == 0.0
    stops = (2, 5, 6)
    agent = VPACPPO(Long, seed=3, **settings)
    for stop in stops:
        agent.learn(
            steps, checkpoints=tmp_path, resuming=agent.timesteps > 0, callback=lambda a, s=stop: a.iteration < s
        )
        agent, damaged = latest_checkpoint(VPACPPO, tmp_path, Long)
        assert agent.iteration == stop
        assert damaged == []
    agent.learn(steps, resuming=True)
    for name in ("weights.safetensors", "policy.safetensors"):
        assert (whole.save(tmp_path / "a") / name).read_bytes() == (agent.save(tmp_path / "b") / name).read_bytes()
    assert agent.history == whole.history or np.allclose(
        [list(row.values()) for row in agent.history], [list(row.values()) for row in whole.history], equal_nan=True
    )


class Mixed(Long):
    """An episode has 3 or 30 steps, by a coin."""

    def step(self, action):
        seen, reward, _, cut, info = super().step(action)
        return seen, reward, self.k == 3 and self.x > 0.0, cut, info


def test_frequent_checkpoints_change_nothing():
    often, seldom = (VPACPPO(Mixed, seed=3, **SMALL | {"checkpoint_every": every}).learn(16 * 12) for every in (1, 50))
    assert often.episodes > 4
    assert list(often.recent) == list(seldom.recent)
    np.testing.assert_array_equal(often.policy().weights[0], seldom.policy().weights[0])


@pytest.mark.filterwarnings("ignore:no episode of")
def test_an_environment_that_does_something_else_begins_anew(tmp_path, monkeypatch):
    VPACPPO(Changed, seed=3, **SMALL).learn(32, checkpoints=tmp_path)
    monkeypatch.setattr(Changed, "change", 1.0)
    with pytest.warns(UserWarning, match="does not do the same again from the same seed"):
        agent, _ = latest_checkpoint(VPACPPO, tmp_path, Changed)
    assert agent.learn(64, resuming=True).timesteps == 64


def test_scores_that_are_not_known_are_explained():
    with pytest.warns(NoEpisodeEnded, match="has ended in 8 steps") as said:
        VPACPPO(Long, **SMALL).learn(48)
    assert len(said) == 1
    with pytest.warns(NoEpisodeEnded, match="raise steps"):
        VPACPPO(Long, **SMALL | {"reset_every_iteration": True}).learn(16)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        VPACPPO(Long, **SMALL | {"checkpoint_every": 4}).learn(64)


def test_speed_is_that_of_the_whole_training(monkeypatch):
    now = iter([0.0, 2.0, 4.0, 4.1])
    monkeypatch.setattr("vpac.deep.logs.time.monotonic", lambda: next(now))
    agent = SimpleNamespace(timesteps=100)
    speed = Speed(agent)
    for steps, expected in ((200, 50.0), (300, 50.0), (400, 300 / 4.1)):
        agent.timesteps = steps
        assert speed(agent) == pytest.approx(expected)
