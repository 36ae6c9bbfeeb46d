"""A saved agent comes back with every number, in its shape."""

from __future__ import annotations

import json

import numpy as np
import pytest

jax = pytest.importorskip("jax")

from vpac.deep import VPACPPO  # noqa: E402
from vpac.envs import spec_of  # noqa: E402
from vpac.envs.recipes import Wanted  # noqa: E402
from vpac.errors import UserError  # noqa: E402
from vpac.evaluation import evaluate, load_agent  # noqa: E402
from vpac.execution.agents import find_agents  # noqa: E402


def test_a_saved_agent_is_loaded_number_by_number(tmp_path):
    agent = VPACPPO("vpac/CatchUp-v0", psi=0.1, envs=2, hidden=(4,), seed=3)
    again = VPACPPO.load(agent.save(tmp_path / "agent"))
    mine, theirs = (jax.tree.leaves(each.networks) for each in (agent, again))
    assert any(np.ndim(leaf) == 0 for leaf in mine)  # the optimisers' counters
    for one, other in zip(mine, theirs, strict=True):
        assert one.shape == other.shape
        assert np.array_equal(one, other)
    assert again.options == agent.options


def test_the_recipe_of_the_environment_is_kept(tmp_path, monkeypatch):
    recipe = spec_of("vpac.envs:CatchUp", [("RewardNoise", {"std": 0.5})], luck=1.0)
    VPACPPO(recipe, psi=0.1, envs=2, hidden=(4,)).save(tmp_path / "agent")
    about = json.loads((tmp_path / "agent" / "agent.json").read_text())
    assert (about["env"], about["arguments"]) == ("vpac.envs:CatchUp", {"luck": 1.0})
    assert about["wrappers"] == [["RewardNoise", {"std": 0.5}]]
    monkeypatch.setattr("vpac.envs.naming.NAMED", set())
    with pytest.raises(UserError, match=r"VPACPPO\.load\('.*', 'vpac\.envs:CatchUp'\)"):
        VPACPPO.load(tmp_path / "agent")
    again = VPACPPO.load(tmp_path / "agent", "vpac.envs:CatchUp").environments.recipe
    assert (again.arguments, again.wrappers) == ({"luck": 1.0}, (("RewardNoise", {"std": 0.5}),))


def test_an_agent_is_measured_only_where_it_fits(tmp_path):
    VPACPPO("vpac/CatchUp-v0", psi=0.1, envs=2, hidden=(4,)).save(tmp_path / "agent")
    policy = load_agent(tmp_path / "agent")
    with pytest.raises(UserError, match="CartPole-v1 has Box observations; this policy takes Discrete ones"):
        find_agents(str(tmp_path / "agent"), tmp_path, Wanted("CartPole-v1"))
    with pytest.raises(UserError, match=r"has \d+ numbers to see and 4 actions to choose from; this policy takes"):
        evaluate(policy, "vpac/FourRooms-v0", 2)
