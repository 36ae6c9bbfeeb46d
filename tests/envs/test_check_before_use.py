"""Environments of Python users are checked before use, and the check does not change results."""

from __future__ import annotations

import random

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

import vpac
from envs.test_check import Forgetful, Old, Right, SeededStartOnly, Unseeded
from vpac.envs import check
from vpac.errors import UserError


class Text(Right):
    def step(self, action):
        return (*super().step(action)[:1], "1", *super().step(action)[2:])


class Late(Right):
    """Pays text, but only after a few hundred steps."""

    taken = 0

    def step(self, action):
        self.taken += 1
        seen, reward, *rest = super().step(action)
        return seen, "1" if self.taken > 350 else reward, *rest


class Counted(Right):
    """Counts what is done to all of its kind."""

    made = resets = closed = 0

    def __init__(self, **wrong):
        super().__init__(**wrong)
        type(self).made += 1

    def reset(self, *, seed=None, options=None):
        type(self).resets += 1
        return super().reset(seed=seed)

    def close(self):
        type(self).closed += 1


@pytest.fixture
def counted():
    class Fresh(Counted):
        pass

    return Fresh


def first(observation):
    return 0


def evaluated(env):
    return vpac.evaluate(first, env, 5)


@pytest.mark.parametrize("use", [vpac.VPAC, evaluated])
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Text, r"cannot be .* yet:\n  1. step returned the reward '1': return a number"),
        (Unseeded, "reset ignores its seed: .* begin reset with super"),
        (SeededStartOnly, "step 1 differs though seed and actions were the same"),
        (Forgetful, "let reset set every attribute that step changes"),
        (Old, "reset takes no seed and no options: write def reset"),
    ],
)
def test_a_class_and_a_function_are_looked_at(use, kind, message):
    for given in (kind, lambda: kind(), gymnasium.envs.registration.EnvSpec("X-v0", entry_point=kind)):
        with pytest.raises(UserError, match=message):
            use(given)


def test_an_id_is_looked_at():
    gymnasium.register("FirstLook-v0", Text, max_episode_steps=20)
    try:
        for use in (vpac.VPAC, evaluated):
            with pytest.raises(UserError, match=r"FirstLook-v0 cannot be .* yet"):
                use("FirstLook-v0")
    finally:
        del gymnasium.registry["FirstLook-v0"]


def test_what_is_used_is_another_one_and_each_name_is_looked_at_once(counted):
    for number in (1, 2, 3):
        vpac.AC(counted, tilings=2)
        assert (counted.made, counted.closed) == (number + 1, 1)
    assert counted.resets > 0
    made = counted.made
    evaluated(counted)
    assert counted.made == made + 5  # who can be learned from can be measured in
    vpac.evaluate(first, lambda: counted(), 5)
    assert counted.made == made + 5 + 5 + 2  # of a function two are made: it might hand out one object


def test_what_comes_with_gymnasium_or_vpac_is_not(monkeypatch):
    monkeypatch.setattr(check, "_look", lambda *_: pytest.fail("looked at"))
    for name in ("CartPole-v1", "vpac/FourRooms-v0", "vpac.envs:CatchUp", vpac.envs.CatchUp):
        vpac.AC(name, tilings=1, tiles=2)
        evaluated(name)


def test_nothing_is_looked_at_in_the_runs_of_a_study(counted):
    with check.skip_checks():
        vpac.AC(counted, tilings=2)
    assert (counted.made, counted.resets) == (1, 0)


def test_an_object_is_neither_reset_nor_stepped_nor_closed(counted):
    env = counted()
    vpac.AC(env, tilings=2)
    vpac.AC(lambda: env, tilings=2)
    assert (counted.made, counted.resets, counted.closed, env.steps) == (1, 0, 0, 0)
    with pytest.raises(UserError, match="reset takes no seed and no options"):
        vpac.AC(Old())
    with pytest.raises(UserError, match="reset takes no seed and no options"):
        evaluated(Old())


@pytest.mark.parametrize("reward", ["1", None, np.ones(1)])
def test_an_object_that_does_not_pay_numbers_is_told_so_when_it_does_not(reward):
    for use in (lambda env: vpac.AC(env, tilings=2).learn(1), evaluated):
        with pytest.raises(UserError, match=r"Right: step returned the reward .*: return a number"):
            use(Right(reward=reward))
    with pytest.raises(UserError, match="step returned four things, as the old gym did"):
        vpac.AC(Right(parts=4), tilings=2).learn(1)
    with pytest.raises(UserError, match="step returned four things, as the old gym did"):
        evaluated(Right(parts=4))
    seen = spaces.Dict(a=spaces.Box(0, 1, (2,), np.float64))  # flattened by a wrapper, which takes the five apart first
    for kind, settings in ((vpac.AC, {"tilings": 2}), (vpac.PPO, {"envs": 1, "steps": 8})):
        with pytest.raises(UserError, match="four things, as the old gym did"):
            kind(Right(seen=seen, observation={"a": np.zeros(2)}, parts=4), **settings).learn(8)


def test_so_is_a_class_that_pays_them_for_a_while():
    with pytest.raises(UserError, match="Late: step returned the reward '1': return a number"):
        vpac.AC(Late, tilings=2).learn(100)


def test_a_vector_environment_that_pays_text():
    class Words(SyncVectorEnv):
        def step(self, actions):
            seen, rewards, *rest = super().step(actions)
            return seen, rewards.astype(str), *rest

    with pytest.raises(UserError, match=r"step returned the rewards .*: return an array of numbers"):
        evaluated(Words([Right] * 2))


class Loose(Right):
    """Uses global noise where no look sees it: the return depends on it, and nothing else does, after 100 steps."""

    def step(self, action):
        answer = super().step(action)
        noise = np.random.random() + random.random()  # noqa: NPY002
        return (answer[0], noise if self.steps > 150 else 1.0, self.steps >= 160, False, {})


def test_looking_changes_no_result(monkeypatch):
    def results(env):
        np.random.seed(3)  # noqa: NPY002
        random.seed(3)
        learner = vpac.VPAC(env, tilings=2, seed=4).learn(5)
        return learner.weights.theta, learner.returns, np.random.random(), random.random()  # noqa: NPY002

    looked = results(lambda: Loose())
    monkeypatch.setattr(check, "_look", lambda *_: None)
    for one, other in zip(looked, results(lambda: Loose()), strict=True):
        assert np.array_equal(one, other)


def test_other_agents_may_see_and_do_what_ours_cannot():
    """An image, several actions at once, an observation outside its bounds: all allowed in `evaluate` of other agents."""
    image = Right(seen=spaces.Box(0, 255, (32, 32, 3), np.uint8), observation=np.zeros((32, 32, 3), np.uint8))
    several = Right(acts=spaces.MultiDiscrete([2, 2]))
    beyond = Right(observation=np.array([5.0, np.nan]))
    for env, action in ((image, 0), (several, np.zeros(2, int)), (beyond, 0)):
        for given in (env, lambda env=env: Right(env.observation_space, env.action_space, **env.wrong)):
            assert vpac.evaluate(lambda _, action=action: action, given, 5).mean > 0.0


def test_a_look_takes_a_few_hundred_steps():
    class Endless(Right):
        taken = 0

        def step(self, action):
            Endless.taken += 1
            return super().step(action)

    vpac.AC(lambda: Endless(terminated=False), tilings=2)
    assert Endless.taken == 3 * check.STEPS_BEFORE_USE
