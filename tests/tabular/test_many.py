"""Many runs at once: neither threads nor the way to name the environment change the result."""

from __future__ import annotations

import time

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import RescaleObservation, TransformReward

from vpac.envs import FourRooms
from vpac.errors import UserError
from vpac.tabular import AC, VPAC, learn_many

SEEDS = range(6)


def same(some, others):
    return all(
        np.array_equal(x, y)
        for a, b in zip(some, others, strict=True)
        for x, y in zip(a.weights, b.weights, strict=True)
    )


def frozen_lake():
    return gymnasium.make("FrozenLake-v1", map_name="8x8", is_slippery=False)


def test_every_run_has_its_own_environment():
    alone = [AC(frozen_lake(), seed=seed).learn(30) for seed in SEEDS]
    for env in (frozen_lake(), frozen_lake().spec):
        for threads in (1, 3, None):
            found = learn_many(AC, env, SEEDS, 30, threads=threads)
            assert same(alone, found)
            assert len({id(learner.environment.env) for learner in found}) == len(SEEDS)
    assert not same(alone, learn_many(AC, "FrozenLake-v1", SEEDS, 30))


def test_wrappers_are_made_again():
    def env():
        inner = gymnasium.make("MountainCar-v0", max_episode_steps=40)
        return RescaleObservation(inner, np.float32(-1.0), np.float32(1.0))

    alone = [VPAC(env(), seed=seed, alpha_theta=0.1).learn(3) for seed in range(3)]
    assert same(alone, learn_many(VPAC, env(), range(3), 3, threads=3, alpha_theta=0.1))
    assert all(learner.history.lengths.tolist() == [40] * 3 for learner in alone)


class Unrecorded(gymnasium.Wrapper):
    """A wrapper that does not say how it was made."""


@pytest.mark.parametrize(
    "env", [Unrecorded(frozen_lake()), frozen_lake().unwrapped.__class__()], ids=["wrapper", "no specification"]
)
def test_an_environment_that_cannot_be_made_again_is_refused(env):
    with pytest.raises(UserError, match=r"cannot be made again \(.*\): pass its id or its specification"):
        learn_many(AC, env, [1, 2], 3, max_episode_steps=50)
    assert learn_many(AC, env, [1], 3, max_episode_steps=50)[0].episodes == 3


def test_compiled_worlds_need_no_copies():
    env = TransformReward(FourRooms(), lambda reward: reward)  # not compiled
    with pytest.raises(UserError, match="cannot be made again"):
        learn_many(AC, env, [1, 2], 3, max_episode_steps=50)
    assert len(learn_many(AC, FourRooms(), [1, 2], 3, max_episode_steps=50)) == 2


def test_a_bar_changes_nothing(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    plain = [AC("vpac/CatchUp-v0", seed=seed).learn(250) for seed in range(3)]
    called = []
    shown = AC("vpac/CatchUp-v0").learn(250, progress=True, every=100, callback=lambda x: called.append(x.episodes))
    assert called == [100, 200, 250]
    assert same(plain[:1], [shown])
    assert same(plain, learn_many(AC, "vpac/CatchUp-v0", range(3), 250, threads=2, progress=True))
    out, err = capsys.readouterr()
    assert not out
    assert "episodes/s" in err


def test_a_callback_after_every_episode_does_not_slow_down():
    """Four times the episodes take about four times as long, not sixteen times."""

    def seconds(episodes):
        learner, begun = AC("vpac/CatchUp-v0"), time.process_time()
        learner.learn(episodes, every=1, callback=lambda x: None)
        return time.process_time() - begun

    seconds(10)
    assert seconds(8000) < 10 * seconds(2000)
