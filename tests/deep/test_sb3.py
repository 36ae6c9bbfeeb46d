"""`vpac.sb3`: the estimators of `vpac.deep` in NumPy, step by step, and a model of Stable-Baselines3 that uses them."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch (the extra sb3) is not installed")
sb3 = pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 (the extra sb3) is not installed")
jnp = pytest.importorskip("jax.numpy")

import vpac  # noqa: E402
from vpac.deep import estimators, penalties  # noqa: E402
from vpac.deep.estimators import EpisodeTrace  # noqa: E402
from vpac.errors import UserError  # noqa: E402
from vpac.sb3 import VPACPPO, Carried, advantages, estimate_luck, estimate_penalty  # noqa: E402

GAMMA, LAM = 0.97, 0.9


def batch(seed, steps=40, n=3):
    """A rollout with ends, cuts and an episode underway; [time, environment]."""
    rng = np.random.default_rng(seed)
    value, variance = rng.normal(size=(steps, n)), rng.uniform(0.0, 2.0, (steps, n))
    kind = rng.choice(3, (steps, n), p=[0.85, 0.1, 0.05])
    running, continues = (kind == 0) * 1.0, (kind != 1) * 1.0
    reward, next_value = rng.normal(size=(2, steps, n))
    next_variance = rng.uniform(0.0, 2.0, (steps, n))
    return value, variance, reward, next_value, next_variance, running, continues


def test_every_step_is_that_of_vpac_deep():
    trace, carried, earlier = EpisodeTrace.first(3), Carried.first(3), np.zeros(2)
    for seed in range(3):  # episodes go on from batch to batch
        value, variance, reward, next_value, next_variance, running, continues = batch(seed)
        valid = np.ones_like(value)
        delta = np.asarray(estimators.td_error(*map(jnp.asarray, (reward, value, next_value, continues)), GAMMA))
        error = estimators.variance_error(*map(jnp.asarray, (delta, variance, next_variance, continues)), GAMMA)
        a_v, a_sigma = (
            estimators.advantages(x, running, valid, g, LAM) for x, g in ((delta, GAMMA), (error, GAMMA**2))
        )
        assert np.allclose(advantages(delta, running, GAMMA, LAM), a_v, atol=1e-4)
        rows, trace = estimators.traces(trace, *map(jnp.asarray, (delta, reward, value, running, valid)), GAMMA)
        last = valid * (1.0 - running)
        after = np.asarray(rows.luck + rows.discount * delta + rows.start_value)
        new = np.array([last.sum(), (last * after).sum()])
        count, total = earlier + new
        mean = total / count
        earlier = earlier * min(1.0, max(0.0, 100.0 - new[0]) / max(earlier[0], 1e-9)) + new
        luck, share = penalties.luck_and_share(rows, "start", jnp.float32(mean))
        found, discount, _ = estimate_luck(delta, value, running, carried, GAMMA)
        assert np.allclose(found, luck, atol=1e-4)
        assert np.allclose(discount, share, atol=1e-5)
        penalty = penalties.corrected(a_v, a_sigma, luck, share)
        spread = estimate_penalty(delta, value, variance, continues * next_variance, running, carried, GAMMA, LAM)
        assert np.allclose(spread.penalty, penalty, atol=1e-3)
        assert np.allclose(spread.target, np.asarray(a_sigma) + variance, atol=1e-4)
        carried = spread.carried


SHORT = {"n_steps": 32, "batch_size": 32, "n_epochs": 2, "seed": 0, "device": "cpu"}


def model(env="CartPole-v1", **settings):
    return VPACPPO("MlpPolicy", env, **{"psi": 0.05, **SHORT, **settings})


def test_psi_0_is_ppo_bit_for_bit():
    ours, theirs = model(psi=0.0).learn(128), sb3.PPO("MlpPolicy", "CartPole-v1", **SHORT).learn(128)
    for one, other in zip(ours.policy.parameters(), theirs.policy.parameters(), strict=True):
        assert torch.equal(one, other)


def test_the_buffer_has_the_weights_of_vpac_deep():
    """One rollout of a model, with episodes that a time limit cuts off, estimated again from what was seen."""
    env = gymnasium.make("CartPole-v1", max_episode_steps=7)
    one = model(env, psi_warm_up=0.0, n_epochs=1)
    cuts = []
    seen = BaseCallbackOf(cuts)
    one.learn(32, callback=seen)
    two = sb3.PPO("MlpPolicy", gymnasium.make("CartPole-v1", max_episode_steps=7), **{**SHORT, "n_epochs": 1}).learn(32)
    penalty = (two.rollout_buffer.advantages - one.rollout_buffer.advantages) / 0.05
    fresh = model(env)  # the critics as they were in that rollout
    variance, luck = (x.detach().numpy() for x in fresh.critics(torch.as_tensor(np.array(seen.observations))))
    behind = np.append(variance[1:], fresh.critics(torch.as_tensor(one._last_obs))[0].detach().numpy())
    running = np.array([not done for done in seen.dones], float)
    for step, last in cuts:
        behind[step] = float(fresh.critics(torch.as_tensor(last[None]))[0].detach())
    ended = np.array([done and step not in dict(cuts) for step, done in enumerate(seen.dones)])
    a_v = two.rollout_buffer.advantages.reshape(32, 1)
    value = two.rollout_buffer.values.reshape(32, 1)
    delta = a_v - 0.99 * 0.95 * running[:, None] * np.vstack([a_v[1:], np.zeros((1, 1))])
    continues, valid = 1.0 - ended[:, None], np.ones((32, 1))
    error = estimators.variance_error(*map(jnp.asarray, (delta, variance[:, None], behind[:, None], continues)), 0.99)
    a_sigma = estimators.advantages(error, running[:, None], valid, 0.99**2, 0.95)
    rows, _ = estimators.traces(
        EpisodeTrace.first(1), *map(jnp.asarray, (delta, delta, value, running[:, None], valid)), 0.99
    )
    expected = penalties.corrected(a_v, a_sigma, jnp.asarray(luck[:, None]), rows.discount)
    assert cuts
    assert np.abs(expected).max() > 0.1
    assert np.allclose(penalty.reshape(32, 1), expected, atol=2e-3)


class BaseCallbackOf(sb3.common.callbacks.BaseCallback):
    """Keeps what a rollout saw."""

    def __init__(self, cuts):
        super().__init__()
        self.cuts, self.observations, self.dones = cuts, [], []

    def _on_step(self):
        self.observations.append(np.array(self.model._last_obs[0]))
        done, info = bool(self.locals["dones"][0]), self.locals["infos"][0]
        if done and info.get("TimeLimit.truncated"):
            self.cuts.append((len(self.dones), info["terminal_observation"]))
        self.dones.append(done)
        return True


def test_it_learns_saves_and_loads(tmp_path):
    one = model(psi_warm_up=0.5)
    before = {name: value.clone() for name, value in one.critics.state_dict().items()}
    one.learn(96)
    changed = [not torch.equal(before[name], value) for name, value in one.critics.state_dict().items()]
    assert all(changed)
    assert one._price() == pytest.approx(0.05)
    one.save(tmp_path / "model")
    again = VPACPPO.load(tmp_path / "model", env=gymnasium.make("CartPole-v1"))
    assert (again.psi, list(again.spread_net)) == (0.05, [64, 64])
    for name, value in one.critics.state_dict().items():
        assert torch.equal(value, again.critics.state_dict()[name])
    observation = np.zeros(4, np.float32)
    assert again.predict(observation, deterministic=True)[0] == one.predict(observation, deterministic=True)[0]
    again.learn(32)
    assert vpac.evaluate(again, "CartPole-v1", 5).mean > 0


def test_mistakes_are_named():
    for wrong in (-1.0, float("nan"), "0.1", None):
        with pytest.raises(UserError, match="needs a price of variance psi"):
            model(psi=wrong)
