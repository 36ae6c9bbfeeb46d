"""Training data of an agent, recomputed from its observations: units, discounts, traces, ψ and inputs of critics."""

from __future__ import annotations

import itertools
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from plain_rollout import Past, Row, assess, delta_of, ended, first_rows, gae, walk

jnp = pytest.importorskip("jax.numpy")

from vpac.deep import PPO, VAACPPO, VPACPPO  # noqa: E402
from vpac.deep import improve as module  # noqa: E402
from vpac.deep.estimators import EpisodeTrace  # noqa: E402
from vpac.deep.improve import Optimiser  # noqa: E402
from vpac.errors import UserError  # noqa: E402
from vpac.risk.schedules import as_schedule  # noqa: E402

LIMIT, TOTAL = 5, 5
"""Steps after which an episode is cut off; iterations of an agent."""
SMALL = {
    "envs": 3,
    "steps": 12,
    "epochs": 1,
    "minibatch": 36,
    "hidden": (6,),
    "checkpoint_every": 3,
    "gamma": 0.9,
    "gae_lambda": 0.8,
}


class Dice(gymnasium.Env):
    """Pays, shows and ends at random."""

    observation_space = spaces.Box(-9.0, 9.0, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.see(), self.tell()

    def see(self):
        return self.np_random.normal(size=2).clip(-9, 9).astype(np.float32)

    def tell(self):
        return {}

    def step(self, action):
        ends = self.np_random.random() < 0.2
        return self.see(), 3.0 * self.np_random.normal() + 1.0, bool(ends), False, self.tell()


class Telling(Dice):
    """Shows critics a number more."""

    critic_space = spaces.Box(-np.inf, np.inf, (1,))

    def tell(self):
        return {"critic": np.array([5.0 + 2.0 * self.np_random.normal()])}


def spec(kind=Dice) -> EnvSpec:
    return EnvSpec(id="Dice-v0", entry_point=kind, max_episode_steps=LIMIT, disable_env_checker=True)


class Update:
    """An update, and what was there before it."""

    def __init__(self, agent, rollout) -> None:
        self.rollout, self.old, self.scale = rollout, agent.networks, agent.reward_scale.value
        self.timesteps, self.iteration = agent.timesteps, agent.iteration


def watched(kind, env, **settings):
    """An agent that has learned for five iterations, and its updates; `sources` is what each was made from."""
    updates = []

    class Agent(kind):
        def _improve(self, rollout, inputs):
            update = Update(self, rollout)
            update.sources = {name: np.asarray(x, np.float64) for name, x in inputs.by_name.items()}
            updates.append(update)
            super()._improve(rollout, inputs)

    agent = Agent(env, **SMALL | settings)
    agent.learn(36 * TOTAL)
    return agent, updates


def elapsed_of(rollout, first):
    """Steps of the episode before each row, and at the end."""
    rows = [list(first)]
    for t, i in itertools.product(range(len(rollout.valid)), range(3)):
        if i == 0:
            rows.append([0.0] * 3)
        rows[t + 1][i] = rows[t][i] + 1.0 if rollout.valid[t, i] else 0.0
    return np.array(rows)


def recentred(every, gamma):
    """The rows with V plus the mean of G − V over all of them."""
    deltas = [[delta_of(row, gamma) for row in rows] for rows in every]
    valid_rows = [(i, t) for i, rows in enumerate(every) for t, row in enumerate(rows) if row.valid]
    bias = np.mean([gae(every[i], deltas[i], t, gamma, 1.0) for i, t in valid_rows])
    return [[row._replace(value=row.value + bias, next_value=row.next_value + bias) for row in rows] for rows in every]


def expected_updates(agent, updates):
    """Weights and targets of each update, [time, environment], and the raw luck; NaN where nothing was done."""
    o = agent.options
    kind, gamma = agent.spread, o.gamma if o.variance_gamma is None else o.variance_gamma
    target_lam = o.gae_lambda if o.target_lambda is None else o.target_lambda
    shown, ledger, past, elapsed = [], np.zeros(6), [], np.zeros((1, 3))
    returns, sums = [], np.zeros(3)
    for update in updates:
        r, scale, old = update.rollout, update.scale, update.old
        if update.iteration % o.checkpoint_every == 0:
            past, elapsed, sums = [Past() for _ in range(3)], np.zeros((1, 3)), np.zeros(3)
        assert scale == pytest.approx(1.0 / np.sqrt(np.var(returns) + 1e-8) if returns else 1.0)
        paid = r.rewards if o.reward_floor is None else np.maximum(r.rewards, o.reward_floor)
        for t, i in itertools.product(range(12), range(3)):
            sums[i] = o.gamma * sums[i] + paid[t, i]
            returns += [sums[i]] if r.valid[t, i] else []
            sums[i] *= r.valid[t, i] * r.running[t, i]
        elapsed = elapsed_of(r, elapsed[-1])
        columns = [r.observations]
        if o.time_aware:
            columns.append((2.0 * elapsed / LIMIT - 1.0)[..., None])
        if r.extras is not None:
            known = np.concatenate(shown) if shown else np.zeros(1)
            mean, std = (known.mean(), known.std()) if shown else (0.0, 1.0)
            columns.append((r.extras - mean) / std)
            shown.append(r.extras[:-1][r.valid > 0.0, 0])
        seen = jnp.asarray(np.concatenate(columns, axis=-1), jnp.float32)

        def said(critic, seen=seen):
            return np.asarray(critic(seen), np.float64)

        rewards = scale * paid * r.valid
        spread, values = said(old.spread), {"mean": said(old.value)}
        values["priced"] = values["mean"] if old.score is None else said(old.score)
        ends = r.continues if old.score is None else r.running

        def rows_of(name, i, continues, rewards=rewards, spread=spread, values=values, r=r):
            v = values[name][:, i]
            columns = (
                rewards[:, i],
                v[:-1],
                v[1:],
                spread[:-1, i],
                spread[1:, i],
                continues[:, i],
                r.running[:, i],
                r.valid[:, i],
            )
            return [Row(*(float(x) for x in row)) for row in zip(*columns, strict=True)]

        warmth = min(1.0, update.timesteps / (o.psi_warm_up * 36 * TOTAL)) if o.psi_warm_up else 1.0
        prices = np.full(r.valid.shape, o.psi) if r.prices is None else r.prices
        psi = prices * warmth / (scale if o.psi_units == "raw" else 1.0)
        plain = [rows_of("priced", i, ends) for i in range(3)]
        every = recentred(plain, gamma) if (o.form, o.weighting) == ("corrected", "uniform") else plain
        began = [rows[t] for one, rows in zip(past, every, strict=True) for t in first_rows(one, rows)]
        spreads = [row.spread if kind == "variance" else row.spread - row.value**2 for row in began]
        ends = [pair for one, rows in zip(past, every, strict=True) for pair in ended(one, rows, scale, gamma)]
        began_sums = [len(began), sum(row.value for row in began) / scale, sum(spreads) / scale**2]
        ledger += [*began_sums, len(ends), sum(g for g, _ in ends), sum(v for _, v in ends)]
        assert ledger.max(initial=0.0, where=[True, False, False, True, False, False]) < 100.0  # nothing is forgotten
        walks = [walk(one, rows, scale, gamma) for one, rows in zip(past, every, strict=True)]
        if ledger[3]:
            mean, expected = ledger[4] / ledger[3], ledger[5] / ledger[3]
        else:
            mean = expected = ledger[1] / ledger[0]
        found = {
            name: np.full(r.valid.shape, np.nan)
            for name in ("weight", "target", "luck", "value_target", "first_target")
        }
        for i in range(3):
            mine = rows_of("mean", i, r.continues)
            deltas = [delta_of(row, o.gamma) for row in mine]
            front = [gae(mine, deltas, t, o.gamma, o.gae_lambda) for t in range(len(mine))]
            past[i], numbers = assess(
                past[i], every[i], scale=scale, psi=[float(x) for x in psi[:, i]], kind=kind, form=o.form,
                weighting=o.weighting, gamma=gamma, lam=o.gae_lambda, target_lam=target_lam, advantage=front,
                mean_return=scale * mean if o.variance_of == "return" else None, surplus=scale * (mean - expected),
                used_luck=None if old.luck is None else [float(x) for x in said(old.luck)[:-1, i]],
            )  # fmt: skip
            errors = [delta_of(row, gamma) for row in plain[i]]
            for t, row in enumerate(numbers):
                if row is not None:
                    row["value_target"] = plain[i][t].value + gae(plain[i], errors, t, gamma, target_lam)
                for name in found:
                    if row is not None:
                        found[name][t, i] = row.get(name, mine[t].value + gae(mine, deltas, t, o.gamma, target_lam))
        yield found | {"elapsed": elapsed, "ledger": ledger.copy(), "walks": walks, "warmth": warmth}


VARIANTS = {
    "default": (VPACPPO, Telling, {"psi": 0.2, "psi_warm_up": 0.05}),
    "uniform": (
        VPACPPO, Dice,
        {"psi": 0.4, "weighting": "uniform", "luck_critic": False, "variance_gamma": 1.0, "target_lambda": 0.5,
         "psi_units": "scaled", "reward_floor": -1.5},
    ),
    "moment": (
        VAACPPO, Telling,
        {"psi": 0.1, "variance_of": "state", "variance_gamma": 0.7, "target_lambda": 1.0, "psi_warm_up": 0.0},
    ),
    "blind": (VPACPPO, Dice, {"psi": 0.3, "luck_critic": False, "time_aware": False}),
    "published": (VPACPPO, Dice, {"psi": 0.2, "form": "published", "target_lambda": 0.5}),
    "conditioned": (VPACPPO, Dice, {"psi": "conditioned", "psi_range": (0.1, 0.9), "luck_critic": False, "psi_warm_up": 0.05}),
}  # fmt: skip


@pytest.mark.parametrize("name", VARIANTS)
def test_what_an_agent_learns_from(name, monkeypatch):
    """Five iterations; episodes go on from one to the next, but after the third all begin anew."""
    monkeypatch.setattr("vpac.deep.collect.LEAST_STEPS", 0)
    kind, env, settings = VARIANTS[name]
    agent, updates = watched(kind, spec(env), **settings)
    o, sums, longest = agent.options, np.zeros((3, 16)), 0.0
    assert agent.context.columns == o.time_aware + (env is Telling)
    assert {update.scale for update in updates} != {1.0}
    for update, expected in zip(updates, expected_updates(agent, updates), strict=True):
        done = update.rollout.valid > 0.0
        goals = {
            "advantage": "weight",
            "target of the value critic": "first_target",
            "target of the spread critic": "target",
        }
        if o.variance_gamma is not None:
            goals["target of the score critic"] = "value_target"
        if o.luck_critic and o.form == "corrected":
            goals["target of the luck critic"] = "luck"
        assert set(update.sources) == {*goals, "scaled reward"}
        for mine, theirs in goals.items():
            np.testing.assert_allclose(
                update.sources[mine][done], expected[theirs][done], rtol=2e-3, atol=2e-4, err_msg=mine
            )
        sums *= 0.9
        k_of, longest = expected["elapsed"], max(longest, expected["elapsed"][:-1][done].max())
        for place, k in enumerate((1, 2, 4)):
            steps = [(t, i) for t, i in itertools.product(range(12), range(3)) if done[t, i] and k <= longest]
            luck = [expected["walks"][i][t][0] for t, i in steps if k_of[t, i] == k]
            running = update.rollout.running
            luck += [expected["walks"][i][t][1] for t, i in steps if k_of[t, i] + 1 <= k and not running[t, i]]
            sums[:, place] += len(luck), sum(luck), sum(x * x for x in luck)
    np.testing.assert_allclose(agent.drift.sums, sums, rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(agent.window.sums, expected["ledger"], rtol=2e-3, atol=2e-3)
    row = agent.history[-1]
    assert row["start_value"] == pytest.approx(expected["ledger"][1] / expected["ledger"][0], rel=2e-3, abs=1e-3)
    assert row["start_variance"] == pytest.approx(expected["ledger"][2] / expected["ledger"][0], rel=2e-3, abs=1e-3)
    assert np.isfinite([row[name] for name in ("luck_drift", "penalty_share", "weight_share", "reversed_share")]).all()
    assert row["luck_drift"] == agent.drift.worst.share
    if name == "conditioned":
        over = updates[-1].rollout.running == 0.0
        psi, ended = updates[-1].rollout.prices[over], np.array(agent._ended)
        assert len(ended) == over.sum() > 2
        residual = ended[:, 3] - np.polyval(np.polyfit(psi, ended[:, 3], 1), psi)
        risk = (psi * residual**2).sum() / (len(ended) - 2)
        assert row["objective"] == pytest.approx(ended[:, 1].mean() - risk)
        assert row["psi"] == pytest.approx(updates[-1].rollout.prices.mean())
        return
    assert row["psi"] == pytest.approx(o.psi * expected["warmth"])
    for update, row in zip(updates, agent.history, strict=True):
        price = o.psi * (1.0 if o.psi_units == "raw" else update.scale)  # the whole of it, while it still rises
        assert row["objective"] == pytest.approx(row["return_mean"] - price * row["priced_variance"])
    assert (row["priced_variance"] != row["return_variance"]) == (o.variance_gamma is not None)
    assert agent.history[0]["psi"] == (0.0 if o.psi_warm_up else o.psi)


def test_a_restart_forgets_the_episodes_underway():
    agent = VPACPPO(spec(), psi=0.1, **SMALL).learn(36)
    agent._collect()
    agent.trace = agent.trace._replace(luck=jnp.full(3, 7.0), discount=jnp.full(3, 0.5), begun=jnp.ones(3))
    agent._collect()
    assert float(agent.trace.luck[0]) == 7.0
    agent._restart = True
    agent._collect()
    for found, first in zip(agent.trace, EpisodeTrace.first(3), strict=True):
        np.testing.assert_array_equal(found, first)


def psi_at(timesteps, begin=0, end=1000, **settings):
    agent = VPACPPO(spec(), **SMALL | settings)
    agent.span, agent.timesteps = (begin, end), timesteps
    return agent.psi


def test_the_price_rises_in_a_straight_line_at_first():
    found = [psi_at(k, psi=0.8, psi_warm_up=0.3) for k in (0, 75, 150, 300, 900)]
    assert found == pytest.approx([0.0, 0.2, 0.4, 0.8, 0.8])
    assert psi_at(100, psi=0.8, psi_warm_up=1.0) == pytest.approx(0.08)
    assert psi_at(0, psi=0.8, psi_warm_up=0.0) == 0.8
    assert psi_at(0, 0, 0, psi=0.8) == 0.8  # asked before it learns
    assert psi_at(1000, 1000, 2000, psi=0.8) == 0.8  # goes on learning


def test_a_schedule_is_taken_as_it_is():
    """From 200 on it rises over 100 steps; a warm-up, which would last 600, is not for schedules."""
    for psi in ("warm-up:0.8:200:100", as_schedule("warm-up:0.8:200:100")):
        found = [psi_at(k, psi=psi, psi_warm_up=0.6) for k in (0, 200, 250, 300, 900)]
        assert found == pytest.approx([0.0, 0.0, 0.4, 0.8, 0.8])


def test_what_is_left_of_the_rate_and_of_the_entropy_bonus(monkeypatch):
    """Half the rate is left: a quarter of the bonus. Both optimisers have the settings' numbers, and the policy sees less."""
    agent = VPACPPO(
        spec(), psi=0.1, entropy=0.08, learning_rate=0.01, critic_learning_rate=0.002, weight_decay=0.3, adam_eps=1e-7,
        max_grad_norm=0.7, critic_max_grad_norm=0.9, **SMALL,
    ).learn(36)  # fmt: skip
    seen = {"critics": [], "targets": []}
    improve_policy, fit_critic = module.improve_policy, module.fit_critic

    def improving(policy, state, samples, rows, rate, entropy, **how):
        seen.update(
            rate=float(rate), entropy=float(entropy), actor=how["optimiser"], inputs=samples.observations.shape[1]
        )
        return improve_policy(policy, state, samples, rows, rate, entropy, **how)

    def fitting(critic, state, **how):
        seen["critics"].append((float(how["rate"]), how["optimiser"], how["observations"].shape[1]))
        seen["targets"].append(np.asarray(how["targets"]))
        return fit_critic(critic, state, **how)

    monkeypatch.setattr(module, "improve_policy", improving)
    monkeypatch.setattr(module, "fit_critic", fitting)
    agent.span, agent.timesteps = (0, 72), 36
    rollout = agent._collect()
    agent._improve(rollout, agent._estimate(rollout))
    agent._record(None)
    assert seen["rate"] == pytest.approx(0.005)
    assert seen["entropy"] == pytest.approx(0.02)
    assert seen["actor"] == Optimiser(0.7, 0.3, 1e-7)
    assert seen["inputs"] == 2
    assert seen["critics"] == [(pytest.approx(0.001), Optimiser(0.9, 0.3, 1e-7), 3)] * 3
    for found, name in zip(seen["targets"], ("value", "spread", "luck"), strict=True):
        np.testing.assert_array_equal(found, np.asarray(agent._inputs.by_name[f"target of the {name} critic"]).ravel())


def test_each_critic_learns_its_own_target():
    """With a rate for critics alone, all of them move, and apart from one another."""
    agent = VPACPPO(spec(), psi=0.1, variance_gamma=1.0, critic_hidden=(7,), **SMALL)
    before = agent.networks
    agent.learn(36)
    for name in ("value", "spread", "score", "luck"):
        old, new = getattr(before, name), getattr(agent.networks, name)
        assert new.net.weights[0].shape == (3, 7)
        assert new.positive == (name == "spread")
        assert float(jnp.abs(new.net.weights[0] - old.net.weights[0]).max()) > 0.0
    firsts = [getattr(before, name).net.weights[0] for name in ("value", "spread", "score", "luck")]
    assert all(not np.allclose(a, b) for a, b in itertools.combinations(firsts, 2))


def test_critics_are_there_only_where_they_are_asked_for():
    def critics(kind, **settings):
        networks = kind(spec(), **{"psi": 0.0} | SMALL | settings).networks
        return [name for name in ("spread", "score", "luck") if getattr(networks, name) is not None]

    assert critics(PPO) == []
    assert critics(VPACPPO) == ["spread", "luck"]
    assert critics(VPACPPO, luck_critic=False) == ["spread"]
    assert critics(VPACPPO, form="published") == ["spread"]
    assert critics(VAACPPO, variance_gamma=1.0) == ["spread", "score", "luck"]


def test_an_agent_starts_from_what_another_has_learned() -> None:
    before = PPO("CartPole-v1", seed=0, hidden=(8,), envs=4, steps=16, minibatch=32).learn(64)
    settings: dict[str, Any] = {"psi": 0.1, "hidden": (8,), "envs": 4, "steps": 16, "minibatch": 32}
    agent = VPACPPO("CartPole-v1", seed=1, **settings).start_from(before)
    seen = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    old, new = (one.policy().outputs(one.policy().normalise(seen)) for one in (before, agent))
    assert np.array_equal(old, new)
    assert agent.timesteps == 0
    assert agent.reward_scale.moments == before.reward_scale.moments
    spread = agent.networks.spread
    assert VPACPPO("CartPole-v1", seed=2, **settings).start_from(agent).networks.spread is spread
    moved = agent.learn(64).policy()
    assert not np.array_equal(old, moved.outputs(moved.normalise(seen)))
    for other in ({"hidden": (9,)}, {"time_aware": False}):
        with pytest.raises(UserError, match="do not fit"):
            VPACPPO("CartPole-v1", **(settings | other)).start_from(before)
