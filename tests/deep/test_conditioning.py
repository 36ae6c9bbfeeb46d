"""One policy for all prices, and MVPI in PPO: on worlds where the right choice at each price is known."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import probes
from deep.test_agent import SMALL, digest, stopped_and_resumed
from functional_probes import BANDIT
from seeds import bounds, seeds
from vpac import UserError, budget_report
from vpac.deep import MVPIPPO, PPO, VAACPPO, VPACPPO, load_policy

QUICK = {
    "envs": 16, "steps": 32, "epochs": 4, "minibatch": 128, "hidden": (16,), "learning_rate": 3e-3, "gamma": 0.9,
    "normalise_observations": False,
}  # fmt: skip
ALL = {"psi": "conditioned", "psi_range": (0.0, 2.0)}


@pytest.fixture(scope="module")
def bandits():
    """The risky arm pays ½ more with variance 1: worth it for ψ < ½. One agent for each seed."""
    return VPACPPO.learn_many(BANDIT, 40_000, seeds=seeds(), **{**ALL, **QUICK, "psi": [ALL["psi"]]})


@pytest.fixture
def bandit(bandits):
    return bandits[0]


def chance_of_risk(policy):
    """How likely the risky arm is."""
    outputs = policy.outputs(policy.view(np.zeros((1, 1), np.float32)))[0]
    return 1.0 / (1.0 + np.exp(float(outputs[0] - outputs[1])))


def nearer_the_better_arm(chances, psi):
    """Whether U = mean − ψ · variance, the mean over seeds, is nearer that of the better arm than that of the other."""
    p = np.array(chances)
    found = 1.0 + 0.5 * p - psi * (p + 0.25 * p * (1.0 - p))
    return bounds(found)[0] > 0.5 * (1.0 + 1.5 - psi)


@pytest.mark.parametrize("psi", [0.0, 0.1, 0.25, 1.0, 1.5, 2.0])
def test_one_policy_chooses_rightly_at_every_price(bandits, psi):
    assert nearer_the_better_arm([chance_of_risk(agent.at(psi)) for agent in bandits], psi)


def test_it_is_exported_with_its_range(bandit, tmp_path):
    bandit.save(tmp_path / "agent")
    seen = np.zeros((3, 1), np.float32)
    policy = load_policy(tmp_path / "agent")
    for psi in (0.0, 1.7):
        own = bandit.at(psi)
        assert np.array_equal(policy.at(psi).outputs(policy.at(psi).view(seen)), own.outputs(own.view(seen)))
    bandit.at(1.7).save(tmp_path / "one")
    assert load_policy(tmp_path / "one").psi == 1.7
    assert np.array_equal(load_policy(tmp_path / "one").act(seen, None), bandit.at(1.7).act(seen, None))


def test_what_it_cannot_do_is_named(bandit):
    with pytest.raises(UserError, match=r"from 0 to 2: say for which one it is to act, policy.at\(psi\) or --psi"):
        bandit.predict(np.zeros(1, np.float32))
    with pytest.raises(UserError, match="psi must be a number from 0 to 2, as in training, got 3"):
        bandit.at(3)
    with pytest.raises(UserError, match="PPO has no price of variance to condition on: use VPACPPO"):
        PPO(probes.Bandit, **ALL, **SMALL)
    with pytest.raises(UserError, match="needs psi_range, the smallest and the largest price"):
        VPACPPO(probes.Bandit, psi="conditioned", **SMALL)
    with pytest.raises(UserError, match="psi_range must be"):
        VPACPPO(probes.Bandit, psi="conditioned", psi_range=(1.0, 0.5), **SMALL)
    with pytest.raises(UserError, match='is for psi="conditioned"'):
        VPACPPO(probes.Bandit, psi=0.1, psi_range=(0.0, 0.5), **SMALL)
    with pytest.raises(UserError, match="was learned for one price"):
        VPACPPO(probes.Bandit, psi=0.1, **SMALL).at(0.1)


@pytest.mark.parametrize("mode", [None, AutoresetMode.SAME_STEP])
def test_every_episode_has_its_own_price_to_its_last_state(mode):
    env = probes.Constant
    if mode is not None:
        env = SyncVectorEnv([probes.Constant] * 4, autoreset_mode=mode)
    agent = VPACPPO(env, seed=2, **ALL, **SMALL)
    rollout = agent._collect()
    shown = (rollout.observations[..., -1] + 1.0) ** 2 / 4.0 * 2.0  # back from the scale of √ψ
    prices, valid = rollout.prices, rollout.valid > 0.0
    assert np.allclose(shown[:-1][valid], prices[valid], atol=1e-5)
    ends = (rollout.running == 0.0) & valid
    after = shown[1:] if rollout.successors is None else (rollout.successors[..., -1] + 1.0) ** 2 / 4.0 * 2.0
    assert np.allclose(after[ends], prices[ends], atol=1e-5)  # what comes after the last step is seen at the old price
    for one in range(4):
        runs = np.cumsum(np.concatenate([[0.0], ends[:-1, one]]))[valid[:, one]]
        own = prices[valid[:, one], one]
        each = [np.unique(own[runs == number]) for number in np.unique(runs)]
        assert all(len(found) == 1 for found in each)
        assert len({float(found[0]) for found in each}) == len(each)
    assert prices.min() >= 0.0
    assert prices.max() <= 2.0


def test_each_sample_pays_its_own_price():
    from vpac.deep.estimate import Batch, EpisodeSums, estimate_spread, estimate_value

    agent = VPACPPO(probes.Constant, seed=2, **ALL, **SMALL)
    rollout = agent._collect()
    arrays = (rollout.rewards, rollout.continues, rollout.running, rollout.valid)
    seen = agent.context.beside(rollout).observations
    batch = Batch(jnp.asarray(seen), None, *(jnp.asarray(x, jnp.float32) for x in arrays))
    how = {"gamma": 0.9, "lam": 0.95, "target_lam": 0.95}
    values = estimate_value(agent.networks.value, batch, **how)

    def weights(psi):
        return np.asarray(
            estimate_spread(
                agent.networks.spread, batch, values.advantage, values, agent.trace, EpisodeSums(*np.zeros(6, np.float32)),
                jnp.asarray(psi, jnp.float32), jnp.float32(1.0), kind="variance", form="corrected", weighting="uniform",
                variance_of="return", **how,
            ).weights
        )  # fmt: skip

    none, one, own = weights(0.0), weights(1.0), weights(rollout.prices)
    assert np.allclose(own, none + rollout.prices * (one - none), atol=1e-4)
    assert np.abs(own - one).max() > 0.01


def test_a_stopped_run_ends_where_an_undisturbed_one_does(tmp_path):
    agent = stopped_and_resumed(tmp_path, "Pendulum-v1", iterations=7, **ALL)
    assert agent.episode_prices.within.high > 0.0
    assert {"policy.json", "policy.safetensors"} < digest(tmp_path / "resumed").keys()


def test_mvpi_prices_the_reward_of_a_step():
    """In a world of single steps rewards are returns: λ < ½ for the risky arm; with y = 0 it would be λ < 0.22."""
    prices = (0.35, 1.5)
    agents = MVPIPPO.learn_many(BANDIT, 30_000, seeds=seeds(), psi=prices, **QUICK)
    for first, price in enumerate(prices):
        assert nearer_the_better_arm([chance_of_risk(agent.policy()) for agent in agents[first::2]], price)


def test_mvpi_without_a_price_is_ppo(tmp_path):
    for name, kind in (("mvpi", MVPIPPO), ("ppo", PPO)):
        kind("CartPole-v1", seed=1, psi=0.0, **SMALL).learn(64 * 4).save(tmp_path / name)
    both = [(tmp_path / name / "weights.safetensors").read_bytes() for name in ("mvpi", "ppo")]
    assert both[0] == both[1]


def test_from_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    from vpac.cli import main

    small = [f"{key}={value if key != 'hidden' else '[8]'}" for key, value in SMALL.items()]
    options = ["--option", "psi_range=[0,2]", *small]
    train = ["train", "vpac-ppo", "CartPole-v1", "--psi", "conditioned", "--steps", "128", "--json", "--out", "run"]
    assert main([*train, *options]) == 0
    capsys.readouterr()
    assert main(["evaluate", "run", "--psi", "0", "2", "--episodes", "5", "--out", "seen", "--json"]) == 0
    assert '"run, ψ = 2"' in capsys.readouterr().out
    assert main(["evaluate", "run", "--episodes", "5"]) == 2
    assert "say for which one it is to act" in capsys.readouterr().err


@pytest.mark.parametrize("kind", [VPACPPO, VAACPPO])
@pytest.mark.parametrize("priced", [{"psi": "conditioned", "psi_range": (0.0, 0.5)}, {"budget": {"max_std": 2.0}}])
def test_prices_of_all_kinds_go_with_a_memory_and_a_discount_of_the_variance(kind, priced, tmp_path):
    env, more = "vpac/CatchUp-v0", {"remember": "return", "gamma": 0.9, "variance_gamma": 1.0}
    agent = kind(env, arguments={"max_episode_steps": 20}, **SMALL, **priced, **more)
    agent.learn(10 * agent.per_iteration)
    last = agent.history[-1]
    assert all(np.isfinite(last[name]) for name in ("objective", "penalty_share", "start_variance", "priced_variance"))
    agent.save(tmp_path)
    seen, (one, other) = np.zeros((3, agent.policy().weights[0].shape[0]), np.float32), (agent, kind.load(tmp_path))
    if "budget" in priced:
        assert budget_report(agent, env, episodes=50).words
        one, other = agent.policy(), other.policy()
    else:
        one, other = agent.at(0.3), other.at(0.3)
    np.testing.assert_array_equal(one.outputs(seen), other.outputs(seen))
