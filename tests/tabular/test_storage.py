"""Learners on disk."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import TransformReward
from safetensors.numpy import load_file, save

from forging import forge
from vpac.envs import ContinuousPuddleWorld, FourRooms
from vpac.errors import UserError
from vpac.tabular import AC, VAAC, VAACTD, VPAC, OffPolicyAC, OffPolicyVAAC, OffPolicyVAACTD, OffPolicyVPAC

EVERY = (AC, VPAC, VAAC, VAACTD, OffPolicyAC, OffPolicyVPAC, OffPolicyVAAC, OffPolicyVAACTD)


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one.weights, other.weights, strict=True))


@pytest.mark.parametrize("kind", EVERY)
def test_saving_and_loading_goes_on_where_it_was(tmp_path, kind):
    learner = kind("vpac/FourRooms-v0", max_episode_steps=60, seed=9, psi=0.0).learn(10)
    learner.save(tmp_path / "agent")
    assert {p.name for p in (tmp_path / "agent").iterdir()} == {"agent.json", "weights.safetensors"}
    loaded = kind.load(tmp_path / "agent")
    assert loaded.episodes == 10
    assert loaded.options == learner.options
    assert same(learner.learn(10), loaded.learn(10))
    assert np.array_equal(learner.returns, loaded.returns)


def test_loading_something_else_is_a_clear_error(tmp_path):
    with pytest.raises(UserError, match="cannot read an agent"):
        VPAC.load(tmp_path / "nowhere")
    AC("vpac/CatchUp-v0").learn(1).save(tmp_path / "ac")
    with pytest.raises(UserError, match=r"holds a AC, not a VPAC: use AC\.load"):
        VPAC.load(tmp_path / "ac")
    forge(tmp_path / "ac", weights=b"\xff" * 40)
    with pytest.raises(UserError, match="does not hold an agent"):
        AC.load(tmp_path / "ac")
    forge(tmp_path / "ac", {"format": 99})
    with pytest.raises(UserError, match="is in format 99: this version reads formats up to 2"):
        AC.load(tmp_path / "ac")


def test_the_arguments_of_the_environment_are_kept(tmp_path):
    for env in (
        gymnasium.make("FrozenLake-v1", map_name="8x8", is_slippery=False),
        gymnasium.make("vpac/FourRooms-v0", slip=0.3),
        gymnasium.make("vpac/ContinuousPuddleWorld-v0", puddle=(0.2, 0.4), max_episode_steps=77),
    ):
        learner = VPAC(env, seed=1).learn(5)
        loaded = VPAC.load(learner.save(tmp_path / "agent"))
        assert loaded.environment.limit == learner.environment.limit
        assert same(learner.learn(5), loaded.learn(5))
    assert loaded.environment.limit == 77


@pytest.mark.parametrize(
    "env",
    [
        FourRooms(),
        ContinuousPuddleWorld(),
        TransformReward(gymnasium.make("FrozenLake-v1"), lambda reward: 2 * reward),
        gymnasium.make("vpac/ContinuousPuddleWorld-v0", puddle=np.array([0.2, 0.4])),
    ],
    ids=["no specification", "no specification, continuous", "wrapper", "arguments"],
)
def test_an_environment_that_cannot_be_made_from_the_files_must_be_given(tmp_path, env):
    learner = AC(env, max_episode_steps=50).learn(3)
    learner.save(tmp_path / "agent")
    with pytest.raises(
        UserError, match=r"does not say how its environment, .*, was made: pass it, AC\.load\(path, env\)"
    ):
        AC.load(tmp_path / "agent")
    assert same(AC.load(tmp_path / "agent", env).learn(3), learner.learn(3))


def test_saves_of_older_versions_have_no_arguments(tmp_path):
    learner = AC("vpac/CatchUp-v0").learn(3)
    forge(learner.save(tmp_path / "agent"), drop="arguments")
    assert same(AC.load(tmp_path / "agent"), learner)


KEYS = ("format", "algorithm", "env", "seed", "options", "resets")
DAMAGES = [
    "[]", "3", "null", "{}",
    *({key: None} for key in KEYS), *({key: []} for key in KEYS), {"options": {"psi": []}}, {"options": {"gamma": "x"}},
    {"resets": {}}, {"resets": {"bit_generator": "PCG64", "state": 3}}, {"resets": {"bit_generator": "MT19937"}},
    {"seed": -1}, {"seed": 0.5}, {"arguments": []}, {"arguments": {"nothing": 1}}, {"env": "nowhere-v0"},
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES, ids=str)
def test_a_damaged_file_is_a_clear_error(tmp_path, damage):
    path = AC("vpac/CatchUp-v0").learn(2).save(tmp_path / "agent") / "agent.json"
    if isinstance(damage, str):
        path.write_text(damage)
    else:
        forge(path.parent, damage)
    with pytest.raises(UserError):
        AC.load(tmp_path / "agent")


@pytest.mark.parametrize("key", KEYS)
def test_a_missing_key_is_a_clear_error(tmp_path, key):
    forge(AC("vpac/CatchUp-v0").learn(2).save(tmp_path / "agent"), drop=key)
    with pytest.raises(UserError, match=key):
        AC.load(tmp_path / "agent")


@pytest.mark.parametrize("name", ["theta", "mean", "words", "eyes", "returns"])
def test_missing_or_misshapen_numbers_are_a_clear_error(tmp_path, name):
    folder = AC("vpac/CatchUp-v0").learn(2).save(tmp_path / "agent")
    numbers = load_file(folder / "weights.safetensors")
    forge(folder, weights=save({key: value for key, value in numbers.items() if key != name}))
    with pytest.raises(UserError, match=f"lacks '{name}'"):
        AC.load(tmp_path / "agent")
    if name != "returns":
        forge(folder, weights=save(numbers | {name: np.zeros((2, 3))}))
        with pytest.raises(UserError, match=r"does not hold an agent|has shape"):
            AC.load(tmp_path / "agent")
