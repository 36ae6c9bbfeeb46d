from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracle.strategies import cases
from vpac.envs import FiniteMDP
from vpac.oracle import evaluate, softmax
from vpac.oracle.sources import variance_sources


def bandit(start=(1.0, 0.0), noise=0.0):
    """Two rooms, two actions: room 0 pays 0 or 2, room 1 pays 4 or 6, then it is over."""
    transition = np.zeros((3, 2, 3))
    transition[:2, :, 2] = 1.0
    reward = np.zeros((3, 2))
    reward[:2] = [[0.0, 2.0], [4.0, 6.0]]
    return FiniteMDP(transition, reward, noise, start=[*start, 0.0], terminal=[False, False, True])


def test_by_hand():
    """Rooms alike: V is 1 or 5, variance 4. Actions alike: 0 or 2, variance 1. Noise 0.25."""
    found = variance_sources(bandit((0.5, 0.5), 0.25), np.full((3, 2), 0.5), 0.9)
    assert found == pytest.approx((4.0, 1.0, 0.25))
    assert found.total == pytest.approx(5.25)


def test_one_source_alone():
    half, sure = np.full((3, 2), 0.5), np.tile([1.0, 0.0], (3, 1))
    assert variance_sources(bandit(), half, 0.9) == pytest.approx((0.0, 1.0, 0.0))
    assert variance_sources(bandit((0.5, 0.5)), sure, 0.9) == pytest.approx((4.0, 0.0, 0.0))
    assert variance_sources(bandit(noise=3.0), sure, 0.9) == pytest.approx((0.0, 0.0, 3.0))


@given(cases(), st.sampled_from([None, 1, 7]))
def test_the_parts_are_the_whole(case, horizon):
    policy = softmax(case.theta)
    found = variance_sources(case.mdp, policy, case.gamma, horizon)
    total = float(evaluate(case.mdp, policy, case.gamma, horizon).total_variance)
    assert min(found) >= 0.0
    assert found.total == pytest.approx(total, rel=1e-9, abs=1e-9)


def test_undiscounted_episodes_that_end():
    mdp = bandit((0.5, 0.5), 0.25)
    assert variance_sources(mdp, np.full((3, 2), 0.5), 1.0) == pytest.approx((4.0, 1.0, 0.25))
