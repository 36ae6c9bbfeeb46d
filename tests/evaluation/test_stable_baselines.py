"""Models of Stable-Baselines3, if the extra `bench` is installed; stand-ins are always tested."""

from __future__ import annotations

import pytest

import vpac

sb3 = pytest.importorskip("stable_baselines3")


@pytest.mark.parametrize(("kind", "env"), [("PPO", "CartPole-v1"), ("DQN", "CartPole-v1"), ("SAC", "Pendulum-v1")])
def test_models_are_measured_as_they_are(kind, env):
    model = getattr(sb3, kind)("MlpPolicy", env, seed=0)
    noisy, sure = (
        vpac.evaluate(model, env, episodes=20, seed=0, gamma=0.99, deterministic=still) for still in (False, True)
    )
    assert (noisy.lengths > 0).all()
    assert (noisy.mean == sure.mean) == (kind == "DQN")  # an untrained DQN explores only while it learns
