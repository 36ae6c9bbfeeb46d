"""Rollouts match the episodes: truncation, traces, vector environments, interruptions."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import probes
from vpac import UserError

jnp = pytest.importorskip("jax.numpy")

from vpac.deep import PPO, VPACPPO  # noqa: E402
from vpac.deep.estimate import Batch, estimate_value  # noqa: E402
from vpac.deep.networks import MLP, Critic  # noqa: E402

SMALL = {"envs": 4, "steps": 16, "epochs": 2, "minibatch": 32, "hidden": (8,), "checkpoint_every": 3}
"""Iterations of 64 steps."""


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_cut_bootstraps_from_the_last_observation(mode):
    """An episode that is only cut, and shows the time: R + γ V(the last observation) − V there, however the next one begins."""

    class Clock(probes.Constant):
        def step(self, action):
            seen, reward, over, _, info = super().step(action)
            return seen, reward, False, over, info

    critic = Critic(MLP([jnp.full((1, 1), 10.0)], [jnp.zeros(1)], "tanh"), False)
    small = {k: v for k, v in SMALL.items() if k != "envs"}
    agent = PPO(SyncVectorEnv([Clock] * 2, autoreset_mode=mode), normalise_observations=False, **small)
    rollout = agent._collect()
    values = estimate_value(critic, Batch.of(rollout, rollout.rewards), gamma=0.5, lam=0.9, target_lam=0.9)
    cut = (rollout.running == 0.0) & (rollout.valid > 0.0)
    assert cut.sum() >= 6
    np.testing.assert_allclose(values.delta[cut], 1.0 + 0.5 * 10.0 - 10.0 * 2.0 / 3.0, rtol=1e-5)
    inside = ~cut & (rollout.valid > 0.0)
    here = 10.0 * rollout.observations[:-1, :, 0]
    np.testing.assert_allclose(values.delta[inside], (1.0 + 0.5 * (here + 10.0 / 3.0) - here)[inside], rtol=1e-5)


def test_the_trace_goes_on_with_the_episode_across_iterations():
    agent = VPACPPO("Pendulum-v1", psi=0.1, **SMALL | {"checkpoint_every": 100}).learn(64 * 3)
    np.testing.assert_allclose(agent.trace.discount, agent.options.gamma ** (3 * SMALL["steps"]), rtol=1e-4)


@pytest.mark.parametrize("made", ["vector_entry_point", "sync"])
def test_vector_environments_of_gymnasium(made):
    vector = gymnasium.make_vec("CartPole-v1", num_envs=3, vectorization_mode=made)
    small = {k: v for k, v in SMALL.items() if k != "envs"}
    agents = [VPACPPO(vector, psi=0.01, seed=1, **small).learn(3 * 16 * 2) for _ in range(2)]
    assert agents[0].episodes > 0
    np.testing.assert_array_equal(*(agent.policy().weights[0] for agent in agents))


def test_an_object_of_envpool_cannot_be_seeded_and_is_refused_with_what_to_do():
    envpool = pytest.importorskip("envpool")
    with pytest.raises(UserError, match=r"pass its id, .Hopper-v5. for example, and envs=4"):
        PPO(envpool.make("Hopper-v5", env_type="gymnasium", num_envs=4))


def test_after_an_interruption_episodes_begin_anew(monkeypatch):
    agent = PPO("CartPole-v1", **SMALL).learn(64)
    step = agent.environments.step

    def interrupted(actions):
        raise KeyboardInterrupt

    monkeypatch.setattr(agent.environments, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        agent.learn(64)
    monkeypatch.setattr(agent.environments, "step", step)
    agent._collector.episodes.underway.length[:] = 100.0
    agent._collect()
    assert (agent._collector.episodes.underway.length <= SMALL["steps"]).all()


def test_a_variance_is_never_negative(rng):
    net = MLP([jnp.asarray(rng.normal(size=(3, 1)) * 1e3, jnp.float32)], [jnp.full(1, -50.0)], "tanh")
    found = np.asarray(Critic(net, True)(jnp.asarray(rng.normal(size=(1000, 3)), jnp.float32)))
    assert (found >= 0.0).all()
    assert found.max() > 100.0
