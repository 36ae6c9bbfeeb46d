"""A loaded agent has all numbers of the saved one, with their shapes."""

from __future__ import annotations

import json

import gymnasium
import numpy as np
import pytest

from forging import forge

jax = pytest.importorskip("jax")

from vpac import FiniteMDP  # noqa: E402
from vpac.cli import main  # noqa: E402
from vpac.deep import VPACPPO, load_policy  # noqa: E402
from vpac.deep.options import PPOOptions  # noqa: E402
from vpac.envs import RememberReturn, spec_of  # noqa: E402
from vpac.envs.make import EnvOverrides  # noqa: E402
from vpac.errors import UserError  # noqa: E402
from vpac.evaluation import evaluate, load_agent  # noqa: E402
from vpac.lab.kinds.saved_agents import find_agents  # noqa: E402
from vpac.risk.schedules import Constant  # noqa: E402


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
    monkeypatch.setattr("vpac.envs.make.NAMED_BY_USER", set())
    with pytest.raises(UserError, match=r"VPACPPO\.load\('.*', 'vpac\.envs:CatchUp'\)"):
        VPACPPO.load(tmp_path / "agent")
    again = VPACPPO.load(tmp_path / "agent", "vpac.envs:CatchUp").environments.recipe
    assert (again.arguments, again.wrappers) == ({"luck": 1.0}, (("RewardNoise", {"std": 0.5}),))


def test_an_agent_is_measured_only_where_it_fits(tmp_path):
    VPACPPO("vpac/CatchUp-v0", psi=0.1, envs=2, hidden=(4,)).save(tmp_path / "agent")
    policy = load_agent(tmp_path / "agent")
    with pytest.raises(UserError, match="CartPole-v1 has Box observations; this policy takes Discrete ones"):
        find_agents(str(tmp_path / "agent"), tmp_path, EnvOverrides("CartPole-v1"))
    with pytest.raises(UserError, match=r"has \d+ numbers to see and 4 actions to choose from; this policy takes"):
        evaluate(policy, "vpac/FourRooms-v0", 2)


OTHER = {
    "psi": 0.1, "psi_warm_up": 0.5, "psi_units": "scaled", "form": "published", "weighting": "uniform", "variance_of": "state",
    "luck_critic": False, "luck_episodes": 20, "time_aware": False, "remember": "return", "gamma": 0.9,
    "variance_gamma": 1.0, "gae_lambda": 0.9, "target_lambda": 1.0,
    "envs": 2, "steps": 8, "epochs": 1, "minibatch": 8, "minibatches": 2, "learning_rate": 1e-3,
    "critic_learning_rate": 2e-3, "decay_learning_rate": False, "weight_decay": 0.01, "adam_eps": 1e-6, "clip": 0.1,
    "entropy": 0.02, "target_kl": 0.05, "max_grad_norm": 1.0, "critic_max_grad_norm": 2.0, "hidden": (4,),
    "critic_hidden": (5,), "closing_layer": True, "activation": "relu", "initialisation": "uniform", "log_std": -0.5,
    "normalise_observations": False, "reward_scale": 0.5, "reward_floor": -5.0, "normalise_advantages": False,
    "checkpoint_every": 2, "reset_every_iteration": True, "encoder": "small", "action_masks": False,
}  # fmt: skip
"""A value for every setting that is not its default; budgets, ranges of prices and penalties exclude others."""


def test_every_setting_survives_saving(tmp_path):
    defaults = PPOOptions()
    others = {"budget", "psi_range", "penalty", "penalty_critic"}
    assert {name for name in PPOOptions.__dataclass_fields__ if name not in OTHER} == others
    assert not [name for name, value in OTHER.items() if getattr(defaults, name) == value]
    agent = VPACPPO("CartPole-v1", **OTHER).learn(48)
    again = VPACPPO.load(agent.save(tmp_path / "agent"))
    assert again.options == agent.options == PPOOptions(**OTHER)
    both = [each.learn(32).policy().weights[0] for each in (agent, again)]
    np.testing.assert_array_equal(*both)


@pytest.mark.parametrize(
    ("psi", "asked"), [(0.3, 0.2), ("0.3", 0.2), (1, 2 / 3), ("constant:0.3", 0.3), (Constant(0.3), 0.3)]
)
def test_a_price_warms_up_if_it_is_a_number_however_it_is_written_and_saved(tmp_path, psi, asked):
    """32 of 160 steps are learned: two thirds of the way to 0.3 of them."""
    agent = VPACPPO("CartPole-v1", psi=psi, psi_warm_up=0.3, envs=2, steps=8, epochs=1, minibatch=16, hidden=(4,))
    agent.learn(160, callback=lambda agent: agent.iteration < 2)
    for each in (agent, VPACPPO.load(agent.save(tmp_path / "agent"))):
        assert each.psi == pytest.approx(asked)


@pytest.mark.parametrize("env", ["CartPole-v1", "vpac/CatchUp-v0"])
def test_a_policy_that_remembers_its_return_says_so(tmp_path, env):
    small = {"envs": 2, "steps": 8, "epochs": 1, "minibatch": 16, "hidden": (4,)}
    agent = VPACPPO(env, psi=0.1, gamma=0.9, remember="return", **small).learn(32)
    agent.save(tmp_path / "agent")
    policy, again = load_policy(tmp_path / "agent"), VPACPPO.load(tmp_path / "agent")
    found = [evaluate(each, env, 5, seed=1).returns for each in (agent, policy, again, load_agent(tmp_path / "agent"))]
    assert all(np.array_equal(found[0], other) for other in found[1:])
    assert agent.memory == policy.memory == again.memory == {"gamma": 0.9}
    ((acts, where),) = find_agents(str(tmp_path / "agent"), tmp_path, EnvOverrides(env, wrappers=())).values()
    assert np.array_equal(evaluate(acts, where, 5, seed=1).returns, found[0])


def test_a_finite_process_remembers_too():
    mdp = FiniteMDP.from_gymnasium("vpac/CatchUp-v0")
    agent = VPACPPO(mdp, psi=0.1, envs=3, steps=8, epochs=1, hidden=(4,), remember="return").learn(24)
    assert agent.interface.inputs == mdp.n_states + 2
    assert len(evaluate(agent, mdp, 4).returns) == 4


def test_what_remembers_already_is_not_wrapped_again():
    env = RememberReturn(gymnasium.make("CartPole-v1"), gamma=0.5)
    agent = VPACPPO(env, psi=0.1, envs=1, hidden=(4,), remember="return")
    assert agent.memory == {"gamma": 0.5}
    assert agent.interface.inputs == 6
    with pytest.raises(UserError, match="does not remember"):
        VPACPPO(gymnasium.make_vec("CartPole-v1", 2), psi=0.1, remember="return")


def test_the_command_line_remembers(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = [
        "train",
        "vpac-ppo",
        "CartPole-v1",
        "--psi",
        "0.01",
        "--steps",
        "64",
        "--envs",
        "2",
        "--json",
        "--out",
        "run",
    ]
    assert main([*words, "--option", "steps=16", "hidden=[4]", "remember=return"]) == 0
    capsys.readouterr()
    assert main(["evaluate", "run", "--episodes", "4", "--json", "--out", "seen"]) == 0
    assert main(["evaluate", "run", "--env", "CartPole-v1", "--wrap", "none", "--episodes", "4", "--out", "bare"]) == 0
    assert main(["watch", "run", "--out", "film.gif"]) == 0
    assert (tmp_path / "film.gif").stat().st_size > 0
    assert main(["train", "vpac-ppo", "CartPole-v1", "--psi", "0.01", "--option", "remember=all", "--out", "no"]) == 2
    assert "remember" in capsys.readouterr().err


@pytest.mark.parametrize("memory", [3, {}, {"gamma": "x"}, {"gamma": 0.9, "path": "os"}, {"gamma": True}])
def test_a_memory_that_is_none_is_refused(tmp_path, memory):
    agent = VPACPPO("CartPole-v1", psi=0.1, envs=2, hidden=(4,), remember="return")
    agent.save(tmp_path)
    forge(tmp_path, {"memory": memory}, what="policy")
    with pytest.raises(UserError, match="does not hold a policy"):
        load_policy(tmp_path)
