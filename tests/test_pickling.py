"""Agents are pickled and copied as by `save`, and continue as the original does."""

from __future__ import annotations

import copy
import pickle
import pickletools

import gymnasium
import numpy as np
import pytest

import vpac
from vpac.saved import revived

COIN = [[[0.5, 0.5], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]]


def walked(agent, **how):
    return agent.learn(20, **how)


def codes(data):
    """What a pickle imports."""
    names = ("GLOBAL", "SHORT_BINUNICODE", "BINUNICODE")
    return {argument for code, argument, _ in pickletools.genops(data) if code.name in names}


@pytest.mark.parametrize("env", ["vpac/FourRooms-v0", "CartPole-v1"])
def test_a_learner_goes_on_from_its_copy(env):
    agent = walked(vpac.VPAC(env, psi=0.01, seed=3))
    for again in (copy.deepcopy(agent), pickle.loads(pickle.dumps(agent))):
        assert type(again) is vpac.VPAC
        assert np.array_equal(again.weights.theta, agent.weights.theta)
        assert again.weights.theta is not agent.weights.theta
    after, copied = walked(copy.deepcopy(agent)), walked(pickle.loads(pickle.dumps(agent)))
    assert np.array_equal(after.weights.theta, copied.weights.theta)
    assert np.array_equal(walked(agent).weights.theta, after.weights.theta)


def test_a_process_without_a_name_is_pickled_itself():
    agent = walked(vpac.VPAC(vpac.FiniteMDP(COIN, [[0.0, 1.0]] * 2, [[0.0, 4.0]] * 2, terminal=[False, True]), psi=0.1))
    again = pickle.loads(pickle.dumps(agent))
    assert again.environment.mdp.n_states == agent.environment.mdp.n_states
    assert np.array_equal(walked(again).weights.theta, walked(agent).weights.theta)


class Own(gymnasium.Env):
    """An environment of a user, at the top of a module."""

    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (2,)), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 4
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.left -= 1
        return np.full(2, 0.1 * action, np.float32), float(action) * self.np_random.normal(), self.left == 0, False, {}


SMALL = {"envs": 2, "steps": 8, "epochs": 1, "minibatch": 16, "hidden": (4,)}


@pytest.mark.parametrize("env", ["CartPole-v1", Own])
def test_an_agent_of_the_ppo_family_goes_on_from_its_copy(env):
    jax = pytest.importorskip("jax")
    agent = vpac.VPACPPO(env, psi=0.1, **SMALL).learn(64)
    data = pickle.dumps(agent)
    copies = [copy.deepcopy(agent).learn(64), pickle.loads(data).learn(64), agent.learn(64)]
    for one in copies[1:]:
        for mine, theirs in zip(jax.tree.leaves(copies[0].networks), jax.tree.leaves(one.networks), strict=True):
            assert np.array_equal(mine, theirs)
        assert one.history == copies[0].history or str(one.history) == str(copies[0].history)


def test_what_is_pickled_names_no_code_but_ours():
    agent = vpac.VPAC("vpac/FourRooms-v0", psi=0.01)
    call, (kind, files, env) = agent.__reduce__()
    assert (call, kind, env) == (revived, vpac.VPAC, False)
    assert all(isinstance(content, bytes) for content in files.values())
    assert set(files) == {"agent.json", "weights.safetensors"}
    assert not {"eval", "exec", "system", "builtins"} & codes(pickle.dumps(agent))


def test_damage_is_found():
    call, (kind, files, env) = vpac.VPAC("vpac/FourRooms-v0", psi=0.01).__reduce__()
    files = {**files, "weights.safetensors": files["weights.safetensors"][:-1] + b"x"}
    with pytest.raises(vpac.UserError, match="its checksum differs"):
        call(kind, files, env)


def test_both_families_answer_alike():
    pytest.importorskip("jax")
    for agent in (vpac.VPAC("vpac/FourRooms-v0", psi=0.01), vpac.VPACPPO("vpac/FourRooms-v0", psi=0.01, **SMALL)):
        action, state = agent.predict(3)
        assert (int(action) in range(4), state) == (True, None)


@pytest.mark.parametrize("name", ["VPACPPO", "VAACPPO", "MVPIPPO"])
def test_a_price_is_asked_for(name):
    pytest.importorskip("jax")
    with pytest.raises(vpac.UserError, match=rf"{name} needs a price of variance, psi=…"):
        getattr(vpac, name)("CartPole-v1")
