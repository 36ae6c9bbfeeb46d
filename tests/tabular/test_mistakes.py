"""What users get wrong is named; compiled code never sees it."""

from __future__ import annotations

import numpy as np
import pytest

from vpac.errors import UserError
from vpac.tabular import AC, VPAC, OffPolicyAC, OffPolicyVAAC, OffPolicyVAACTD, OffPolicyVPAC, learn_many

ENV = "vpac/CatchUp-v0"


@pytest.mark.parametrize("episodes", [2.5, "3", -1, None, True])
def test_episodes_are_a_whole_number(episodes):
    with pytest.raises(UserError, match="episodes must be a whole number from 0 up"):
        AC(ENV).learn(episodes)


@pytest.mark.parametrize("every", [0, -1, 1.5, "2"])
def test_every_is_a_whole_number(every):
    with pytest.raises(UserError, match="every must be a whole number from 1 up"):
        AC(ENV).learn(3, every=every)


@pytest.mark.parametrize("seed", [-1, 0.5, "0", None])
def test_a_seed_is_a_whole_number(seed):
    with pytest.raises(UserError, match="seed must be a whole number from 0 up"):
        AC(ENV, seed=seed)
    with pytest.raises(UserError, match="seed must be a whole number from 0 up"):
        learn_many(AC, ENV, [seed], 3)


def test_seeds_are_anything_that_can_be_gone_through():
    assert [x.seed for x in learn_many(AC, ENV, (s for s in (3, 4)), 2)] == [3, 4]
    assert [x.seed for x in learn_many(AC, ENV, np.arange(2), 2)] == [0, 1]
    with pytest.raises(UserError, match="at least one seed"):
        learn_many(AC, ENV, [], 2)
    with pytest.raises(UserError, match="seeds must be whole numbers"):
        learn_many(AC, ENV, 3, 2)
    with pytest.raises(UserError, match="threads must be a whole number from 1 up, got -1"):
        learn_many(AC, ENV, [1, 2], 2, threads=-1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": "hot"}, "temperature must be a positive number, got 'hot'"),
        ({"temperature": None}, "temperature must be"),
        ({"temperature": np.nan}, "temperature must be"),
        ({"gamma": "x"}, "gamma must be a number from 0 to 1"),
        ({"gamma": True}, "gamma must be a number from 0 to 1"),
        ({"baseline": "maybe"}, "baseline must be true or false, got 'maybe'"),
        ({"baseline": 1}, "baseline must be true or false"),
        ({"max_episode_steps": 2.5}, "max_episode_steps must be a whole number from 1 up"),
        ({"max_episode_steps": "5"}, "max_episode_steps must be"),
        ({"tilings": 2.5}, "tilings must be a whole number from 1 up"),
        ({"tilings": None}, "tilings must be"),
        ({"tiles": "many"}, "tiles must be a whole number from 1 up"),
        ({"hash_size": 0}, "hash_size must be a whole number from 1 up"),
        ({"hash_size": 1e3 + 0.5}, "hash_size must be"),
        ({"psi": None}, "psi must be a number or a schedule"),
        ({"form": None}, "unknown form None"),
        ({"form": ["published"]}, "unknown form"),
    ],
)
def test_settings_of_the_wrong_type(settings, message):
    with pytest.raises(UserError, match=message):
        VPAC(ENV, **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epsilon": "x"}, "epsilon must be a number above 0 and at most 1"),
        ({"behaviour": [[0.5, 0.5], [1.0]]}, "must be a table of numbers"),
        ({"behaviour": None}, "must (be a table|have shape)"),
        ({"behaviour": np.full((16, 4), 0.3)}, "the sum over actions must be 1"),
        ({"behaviour": np.full((16, 4), np.inf)}, "the sum over actions must be 1"),
        ({"behaviour": np.full((16, 4), np.nan)}, "the sum over actions must be 1"),
        ({"behaviour": np.tile([0.5, 0.5, 0.5, -0.5], (16, 1))}, "does not cover the target"),
        ({"behaviour": np.full((15, 4), 0.25)}, r"must have shape \[16, 4\]"),
    ],
)
def test_off_policy_settings_of_the_wrong_type(settings, message):
    with pytest.raises(UserError, match=message):
        OffPolicyVPAC("FrozenLake-v1", **settings)


def test_whole_returns_have_no_expected_critics():
    """They carry ratios whatever the setting says, so it must not say otherwise."""
    with pytest.raises(UserError, match=r"'importance' or 'clipped'; OffPolicyVAACTD has expected ones"):
        OffPolicyVAAC(ENV, critics="expected")
    assert OffPolicyVAAC(ENV).options.critics == "importance"
    assert OffPolicyVAACTD(ENV).options.critics == OffPolicyAC(ENV).options.critics == "expected"
