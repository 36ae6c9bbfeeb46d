"""Additional inputs of critics: elapsed time, and numbers that an environment gives to critics only."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import probes
from vpac import UserError
from vpac.envs import check_env

pytest.importorskip("jax")

from vpac.deep import VPACPPO
from vpac.deep.collect import Rollout
from vpac.deep.normaliser import CriticContext

SMALL = {"psi": 0.0, "envs": 2, "steps": 8, "epochs": 1, "minibatch": 16, "hidden": (4,)}


def rollout(elapsed, valid, extras=None, successors=None, led_to=None):
    """Of one environment; its observations are 7, those of successors 8."""
    T = len(valid)
    column = np.array(valid, np.float32)[:, None]
    empty = np.zeros((T, 1))
    return Rollout(
        np.full((T + 1, 1, 1), 7.0, np.float32), None if successors is None else np.full((T, 1, 1), 8.0, np.float32), empty,
        empty, column, column, column, empty[..., None], elapsed=np.array(elapsed, float)[:, None],
        extras=None if extras is None else np.array(extras, float)[:, None, None],
        successor_extras=None if led_to is None else np.array(led_to, float)[:, None, None],
    )  # fmt: skip


def test_up_to_a_known_limit_time_goes_from_minus_one_to_one():
    context = CriticContext(True, 4, 0)
    found = context.beside(rollout([0, 1, 2, 3, 4], [1, 1, 1, 1]))
    assert found.observations[:, 0].tolist() == [[7, -1.0], [7, -0.5], [7, 0.0], [7, 0.5], [7, 1.0]]
    assert found.successors is None
    context.add(rollout([0, 1, 2, 3, 4], [1, 1, 1, 1]))
    assert context.beside(rollout([1, 2], [1])).observations[:, 0, 1].tolist() == [-0.5, 0.0]  # whatever was seen


def test_without_a_limit_time_has_a_running_scale():
    """0, 1, 3 and 4 have mean 2 and variance 2.5: row 2 was idle, and the last row is not a step."""
    context = CriticContext(True, None, 0)
    first = rollout([0, 1, 9, 3, 4, 50], [1, 1, 0, 1, 1])
    assert context.beside(first).observations[:, 0, 1].tolist() == pytest.approx([0, 1, 9, 3, 4, 10])  # kept within ±10
    context.add(first)
    found = context.beside(rollout([2, 3], [1])).observations[:, 0, 1]
    assert found.tolist() == pytest.approx([0.0, 1.0 / np.sqrt(2.5)], rel=1e-5)


def test_extras_come_last_with_a_running_scale():
    context = CriticContext(True, 4, 1)
    assert context.columns == 2
    first = rollout([0, 1, 2], [1, 1], extras=[10, 20, 99])
    context.add(first)
    found = context.beside(first).observations[:, 0]
    assert found[:2].tolist() == [[7, -1.0, pytest.approx(-1.0)], [7, -0.5, pytest.approx(1.0)]]
    blind = CriticContext(False, 4, 1)
    blind.add(first)
    assert blind.beside(first).observations[:2, 0].tolist() == [[7, pytest.approx(-1.0)], [7, pytest.approx(1.0)]]


def test_a_successor_is_one_step_later():
    """Episodes that begin within the step that ends the one before: row 2 is a first one, what led there was at time 2."""
    context = CriticContext(True, 4, 1)
    found = context.beside(rollout([0, 1, 0, 1], [1, 1, 1], extras=[0, 1, 2, 3], successors=True, led_to=[4, 5, 6]))
    assert found.observations[:, 0].tolist() == [[7, -1, 0], [7, -0.5, 1], [7, -1, 2], [7, -0.5, 3]]
    assert found.successors[:, 0].tolist() == [[8, -0.5, 4], [8, 0, 5], [8, -0.5, 6]]


def test_where_there_is_nothing_more_to_see_a_rollout_stays_as_it_is():
    context, given = CriticContext(False, 4, 0), rollout([0, 1], [1])
    assert context.beside(given) is given
    context.add(given)
    assert context.moments.count == 0.0


def elapsed(valid, over, first, same_step):
    """Of one environment."""
    T = len(valid)
    running, acted = 1.0 - np.array(over)[:, None], np.array(valid, float)[:, None]
    raw = np.zeros((T + 1, 1, 1), np.float32)
    successors = raw[1:] if same_step else None
    found = Rollout(raw, successors, None, raw[:-1, :, 0], running, running, acted, raw, elapsed=np.empty((T + 1, 1)))
    found.count_steps(np.array([first]))
    return found.elapsed[:, 0].tolist()


def test_elapsed_time():
    """The row after an episode's last step shows where that step led, unless the next episode begins within it."""
    assert elapsed([1, 1, 0, 1, 1], [0, 1, 0, 0, 0], 3.0, False) == [3, 4, 5, 0, 1, 2]
    assert elapsed([1, 1, 1, 1], [0, 1, 0, 1], 3.0, True) == [3, 4, 0, 1, 0]


class Counted(probes.Constant):
    """Three steps; critics are shown 10 times the number of steps so far, the policy nothing."""

    critic_space = spaces.Box(0.0, 100.0, (1,))

    def see(self):
        return np.zeros(1, np.float32)

    def reset(self, *, seed=None, options=None):
        seen, info = super().reset(seed=seed)
        return seen, info | {"critic": [10.0 * self.t]}

    def step(self, action):
        *found, info = super().step(action)
        return *found, info | {"critic": np.array([10.0 * self.t], np.float32)}


def test_what_an_environment_shows_to_critics_alone():
    agent = VPACPPO(Counted, **SMALL)
    assert agent.networks.value.net.weights[0].shape[0] == 3
    assert agent.policy().weights[0].shape[0] == 1
    rollout = agent._collect()
    assert rollout.extras[:, 0, 0].tolist() == [0, 10, 20, 30, 0, 10, 20, 30, 0]
    assert rollout.elapsed[:, 0].tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0]
    assert rollout.valid[:, 0].tolist() == [1, 1, 1, 0, 1, 1, 1, 0]
    again = agent._collect()
    assert again.extras[:5, 0, 0].tolist() == [0, 10, 20, 30, 0]
    assert agent.learn(32).history[-1]["steps"] > 0


def test_time_goes_on_into_the_next_rollout():
    agent = VPACPPO(Counted, **SMALL | {"steps": 2})
    assert [agent._collect().elapsed[:, 0].tolist() for _ in range(3)] == [[0, 1, 2], [2, 3, 0], [0, 1, 2]]


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_vector_environments_have_time_too(mode):
    small = {k: v for k, v in SMALL.items() if k != "envs"}
    agent = VPACPPO(SyncVectorEnv([probes.Constant] * 2, autoreset_mode=mode), **small)
    rollout = agent._collect()
    assert (rollout.successors is None) == (mode == AutoresetMode.NEXT_STEP)
    done = rollout.valid > 0.0
    np.testing.assert_array_equal(
        rollout.elapsed[:-1][done], np.rint(3.0 * rollout.raw[:-1, :, 0])[done]
    )  # it shows t / 3
    assert agent.learn(16).iteration == 1


def test_a_limit_is_known_from_the_specification():
    spec = EnvSpec(id="Counted-v0", entry_point=Counted, max_episode_steps=2, disable_env_checker=True)
    assert VPACPPO(spec, **SMALL).context.limit == 2
    assert VPACPPO(Counted, **SMALL).context.limit is None


class Telling(Counted):
    """Shows critics what it is given."""

    def __init__(self, shown, space=Counted.critic_space) -> None:
        self.shown, self.critic_space = shown, space

    def reset(self, *, seed=None, options=None):
        seen, _ = super().reset(seed=seed)
        return seen, self.shown

    def step(self, action):
        return *super().step(action)[:4], self.shown


@pytest.mark.parametrize(
    ("shown", "got"),
    [
        ({}, "nothing"),
        ({"critic": [1.0, 2.0]}, r"\[1.0, 2.0\]"),
        ({"critic": np.nan}, "nan"),
        ({"critic": "much"}, "much"),
        ({"critic": None}, "None"),
    ],
)
def test_something_else_than_was_promised_to_critics_is_refused(shown, got):
    agent = VPACPPO(Telling(shown), **SMALL | {"envs": 1})
    wrong = rf"info\['critic'\] must hold 1 finite numbers, as critic_space says, got .*{got}"
    with pytest.raises(UserError, match=wrong):
        agent.learn(8)
    with pytest.raises(UserError, match=f"after reset {wrong}"):
        check_env(Telling(shown))


def test_what_critics_are_shown_must_be_numbers():
    with pytest.raises(UserError, match=r"critic_space must be a Box of what info\['critic'\] holds, got Discrete"):
        VPACPPO(Telling({"critic": 1}, spaces.Discrete(3)), **SMALL | {"envs": 1})
    with pytest.raises(UserError, match="critic_space must be a Box"):
        check_env(Telling({"critic": 1}, spaces.Discrete(3)))


def test_wrappers_let_the_promise_through():
    agent = VPACPPO(lambda: gymnasium.wrappers.TimeLimit(Counted(), 2), **SMALL)
    assert agent._collect().extras[:, 0, 0].tolist() == [0, 10, 20, 0, 10, 20, 0, 10, 20]
