"""Compiled training gives the same results as the other path, with the same random numbers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from vpac import FiniteMDP, UserError
from vpac.envs.functional import FiniteEnv, FunctionalEnv

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from gymnasium import spaces  # noqa: E402

from vpac.deep import (  # noqa: E402
    MVPIPPO,
    PPO,
    VAACPPO,
    VPACPPO,
    NotFinite,
    compiled,
)
from vpac.deep.collect import Collector  # noqa: E402
from vpac.deep.compiled import CompiledTraining, Draws  # noqa: E402
from vpac.envs.functional import FunctionalEnvironments, advance  # noqa: E402
from vpac.envs.vector import VectorStep  # noqa: E402

SMALL = {"envs": 4, "steps": 16, "epochs": 2, "minibatch": 16, "hidden": (8,), "checkpoint_every": 2}
"""Iterations of 64 steps."""


def chain():
    """Three states in a row with noise; the last step ends the episode. Nothing is certain, and rewards differ."""
    P, pay, noise = np.zeros((4, 2, 4)), np.zeros((4, 2, 4)), np.zeros((4, 2, 4))
    for s in range(3):
        P[s, 0, s], P[s, 0, s + 1] = 0.3, 0.7
        P[s, 1, s], P[s, 1, s + 1] = 0.6, 0.4
    P[3, :, 3] = 1.0
    pay[:3, 0], pay[:3, 1], noise[:3, 1] = 1.0, 1.4, 2.0
    return FiniteMDP(P, pay, noise, np.array([0.5, 0.5, 0.0, 0.0]), np.arange(4) == 3)


CHAIN = FiniteEnv(chain(), limit=5)


class Drift(FunctionalEnv):
    """A point that is pushed; the nearer to 0, the better. Box observations and actions, cut after 9 steps."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    limit = 9

    def reset(self, key):
        state = 3.0 + jax.random.normal(key, (2,))
        return state, state

    def step(self, key, state, action):
        state = state + jnp.concatenate([action, 0.1 * jax.random.normal(key, (1,))])
        return state, state, -jnp.abs(state).sum(), jnp.abs(state).sum() > 8.0, False


class Given(FunctionalEnvironments):
    """Functional environments that take their random numbers from `draws`."""

    def reset(self, seeds):
        self._state, seen = jax.vmap(self.env.reset)(self.draws.starts)
        self._elapsed, self.t = np.zeros(self.n, np.float32), 0
        return np.asarray(seen)

    def step(self, actions):
        steps, resets = (jax.tree.map(lambda x: x[self.t], x) for x in (self.draws.steps, self.draws.resets))
        found = advance(self.env, steps, resets, self._state, self._elapsed, actions)
        self._state, seen, after, rewards, over, cut = (found[0], *map(np.asarray, found[1:]))
        self._elapsed, self.t = np.where(over | cut, 0.0, self._elapsed + 1.0), self.t + 1
        return VectorStep(seen, rewards.astype(np.float64), over, cut, after)


class Stub:
    """A generator that returns what it is given."""

    def __init__(self, noise, rows, samples):
        self.noise, self.rows, self.samples = np.asarray(noise), iter(np.asarray(rows)), samples

    def gumbel(self, size):
        return self.noise.reshape(size)

    def standard_normal(self, size, dtype):
        return self.noise.reshape(size).astype(dtype)

    def permutation(self, samples):
        return np.concatenate([next(self.rows) for _ in range(self.samples // 16)])


@partial(jax.jit, static_argnums=0)
def draws_of(plan, key, iteration):
    """What a compiled training draws in an iteration."""
    return Draws.of(plan, jax.random.fold_in(key, iteration))


def both(kind, env, iterations=4, **settings):
    """An agent that was trained on the host and one that was compiled, from the same random numbers."""
    given = {**SMALL, **settings}
    host = kind(Given(env, given["envs"]), seed=3, **given)
    twin = kind(env, seed=3, **given)
    for agent in (host, twin):
        agent.span = (0, 64 * iterations)
    training = CompiledTraining(twin)
    for i in range(iterations):
        draws = draws_of(training.plan, training.key, i)
        host.environments.draws, host.environments.t = draws, 0
        host.generators |= {
            name: Stub(draws.noise, draws.rows, 64) for name in ("act", "policy", "value", "spread", "luck", "score")
        }
        host.updater._generators = host.generators
        if host.episode_prices is not None:
            host.episode_prices.draws = draws
        host._improve(rollout := host._collect(), host._estimate(rollout))
        host._record(None)
        host._restart = False
        training.advance(1)
    return host, twin


def alike(host, twin, rtol=2e-3):
    """Weights to a thousandth of their size, though Adam divides differences of rounding by next to nothing; metrics alike."""
    for one, two in zip(jax.tree.leaves(host.networks), jax.tree.leaves(twin.networks), strict=True):
        size = max(1e-3, float(np.abs(one).max()))
        np.testing.assert_allclose(one, two, rtol=rtol, atol=rtol * size)
    assert set(host.history[-1]) == set(twin.history[-1])
    for name, number in twin.history[-1].items():
        assert number == pytest.approx(host.history[-1][name], rel=2e-2, abs=1e-3, nan_ok=True), name
    np.testing.assert_allclose(twin.window.sums, host.window.sums, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(twin.drift.sums, host.drift.sums, rtol=1e-2, atol=1e-3)
    assert twin.episodes == host.episodes > 5
    np.testing.assert_allclose(np.array(twin.recent), np.array(host.recent), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (VPACPPO, {"psi": 0.2, "luck_episodes": 3}),
        (
            VPACPPO,
            {
                "psi": "warm-up:0.1:50:100",
                "variance_gamma": 1.0,
                "variance_of": "state",
                "target_lambda": 1.0,
                "luck_critic": False,
                "psi_units": "scaled",
            },
        ),
        (VAACPPO, {"budget": "std:1.5:64", "form": "published", "time_aware": False, "reset_every_iteration": True}),
        (MVPIPPO, {"psi": 0.2, "reward_floor": -1.0, "reward_scale": 0.5, "target_kl": 0.01, "weight_decay": 0.01}),
        (VPACPPO, {"psi": 0.5, "penalty": "cvar:0.3", "psi_units": "scaled", "variance_gamma": 1.0}),
        (VPACPPO, {"psi": 0.2, "penalty": "semivariance", "penalty_critic": "none"}),
    ],
)
def test_the_same_random_numbers_give_the_same_weights(kind, settings):
    alike(*both(kind, CHAIN, **settings))


def test_box_observations_and_actions_too():
    alike(*both(VPACPPO, Drift(), psi=0.01, weighting="uniform"))


def test_prices_are_drawn_for_each_episode(monkeypatch):
    from vpac.deep.price import EpisodePrices

    def draw(self, which):
        if hasattr(self, "draws"):
            env = host_env[0]
            first = env.t == 0
            shares = self.draws.first_prices if first else self.draws.prices[env.t - 1]
            self.now = np.where(which, self.within.drawn(np.asarray(shares, np.float64)), self.now)

    host_env = []
    made = Collector.__init__

    def remember(self, envs, *rest):
        if isinstance(envs, Given):
            host_env.append(envs)
        made(self, envs, *rest)

    monkeypatch.setattr(Collector, "__init__", remember)
    monkeypatch.setattr(EpisodePrices, "draw", draw)
    host, twin = both(VPACPPO, CHAIN, psi="conditioned", psi_range=(0.0, 0.5))
    alike(host, twin)
    np.testing.assert_allclose(twin.episode_prices.now, host.episode_prices.now, rtol=1e-5)


def test_many_agents_are_each_the_one_that_learns_alone():
    agents = VPACPPO.learn_many(CHAIN, 64 * 5, seeds=[1, 2], psi=[0.0, 0.3], **SMALL)
    assert [(agent.seed, agent.options.psi) for agent in agents] == [(1, 0.0), (1, 0.3), (2, 0.0), (2, 0.3)]
    alone = VPACPPO(CHAIN, seed=2, psi=0.3, **SMALL).learn(64 * 5)
    np.testing.assert_array_equal(agents[3].policy().weights[0], alone.policy().weights[0])
    assert agents[3].history == alone.history
    assert (len(alone.history), alone.timesteps) == (5, 320)
    assert not np.array_equal(agents[2].policy().weights[0], alone.policy().weights[0])


AS_STUDIES = SMALL | {"env": "jax:vpac/RiskyShortcut-v0", "epochs": 1, "minibatch": 32}
"""Those of tests/lab/test_programs.py, which takes the compiled program from JAX's cache, or this file does."""
FOUR_DEVICES = """
import sys
sys.path[:0] = [{tests!r}, {folder!r}]
import jax
from test_compiled import AS_STUDIES, VPACPPO
agents = VPACPPO.learn_many(total_timesteps=64 * 3, seeds=[1, 2, 3], psi=[0.0, 0.3], together=1, **AS_STUDIES)
weights = [agent.policy().weights[0].tolist() for agent in agents]
import json
print(json.dumps([jax.device_count(), [len(agent.history) for agent in agents], weights]))
"""


@pytest.mark.slow  # compiles for four devices in a new process
def test_runs_side_by_side_on_four_devices_are_those_alone():
    """Six runs on four devices, two of them in the last call; a thousandth of their size apart at most, for rounding."""
    folder = Path(__file__).parent
    code = FOUR_DEVICES.format(folder=str(folder), tests=str(folder.parent))
    flags = os.environ.get("XLA_FLAGS", "")
    env = os.environ | {"XLA_FLAGS": f"{flags} --xla_force_host_platform_device_count=4"}
    found = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True, timeout=600
    )
    devices, lengths, weights = json.loads(found.stdout.splitlines()[-1])
    assert (devices, lengths) == (4, [3] * 6)
    alone = VPACPPO.learn_many(total_timesteps=64 * 3, seeds=[1, 2, 3], psi=[0.0, 0.3], **AS_STUDIES)
    for agent, other in zip(alone, weights, strict=True):
        np.testing.assert_allclose(agent.policy().weights[0], other, rtol=1e-3, atol=1e-3)


def test_an_environment_of_the_other_kind_is_refused():
    with pytest.raises(UserError, match=r"learn_many needs an environment of pure functions of JAX .*got CartPole-v1"):
        VPACPPO.learn_many("CartPole-v1", 64, seeds=[0], **SMALL, psi=[0.1])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"seeds": 3}, "seeds must be several, for example a list, got 3"),
        ({"psi": 0.1}, "psi must be several, for example a list, got 0.1"),
        ({"together": 1.5}, "together must be a whole number from 1 up, got 1.5"),
        ({"cores": 0}, "cores must be a whole number from 1 up, got 0"),
    ],
)
def test_bad_batches_are_refused(given, message):
    with pytest.raises(UserError, match=message):
        VPACPPO.learn_many(CHAIN, 64, **{"seeds": [0], "psi": [0.1]} | given, **SMALL)


def test_the_return_is_not_remembered():
    with pytest.raises(UserError, match="environments in JAX do not remember"):
        VPACPPO(CHAIN, psi=0.1, remember="return", **SMALL)


class Endless(Drift):
    """Rewards grow beyond all bounds after a while."""

    def step(self, key, state, action):
        state, seen, _, over, cut = super().step(key, state, action)
        return state, seen, jnp.where(state[0] > 4.0, jnp.nan, 1.0), over, cut


def test_what_is_not_finite_is_undone_and_named():
    env = Endless()
    agent = VPACPPO(env, seed=0, psi=0.1, **SMALL)
    with pytest.raises(
        NotFinite, match=r"the reward of Endless is not finite in the iteration after step \d+ \(seed 0\)"
    ):
        agent.learn(6400)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(agent.networks))
    assert len(agent.history) == agent.iteration == agent.timesteps // 64
    many = VPACPPO.learn_many(env, 6400, seeds=[0], psi=[0.1], **SMALL)
    assert isinstance(many[0].diverged, NotFinite)


def test_a_resumed_training_is_the_same_training(tmp_path):
    settings = {**SMALL, "psi": 0.1}
    whole = VPACPPO(CHAIN, seed=1, **settings).learn(64 * 6)
    VPACPPO(CHAIN, seed=1, **settings).learn(64 * 6, checkpoints=tmp_path, callback=lambda agent: agent.iteration < 4)
    resumed = VPACPPO.load(tmp_path / "00000004", CHAIN).learn(64 * 6, resuming=True)
    for one, two in zip(jax.tree.leaves(whole.networks), jax.tree.leaves(resumed.networks), strict=True):
        np.testing.assert_array_equal(one, two)
    assert resumed.history == whole.history
    assert resumed.predict(0)[0] in (0, 1)


class Slow(Drift):
    """Never ends before its limit, which is longer than the time between checkpoints."""

    limit = 40

    def step(self, key, state, action):
        state, seen, reward, _, cut = super().step(key, state, action)
        return state, seen, reward, False, cut


@pytest.mark.parametrize("price", [{"psi": 0.1}, {"psi": "conditioned", "psi_range": (0.0, 0.5)}])
def test_episodes_go_on_across_checkpoints_and_after_resuming(tmp_path, price):
    env, settings = Slow(), {**SMALL, "checkpoint_every": 1, **price}
    whole = VPACPPO(env, seed=1, **settings).learn(64 * 6)
    assert whole.episodes == 4 * (6 * 16 // 40)
    assert {episode.length for episode in whole.recent} == {40.0}
    VPACPPO(env, seed=1, **settings).learn(64 * 6, checkpoints=tmp_path, callback=lambda agent: agent.iteration < 4)
    resumed = VPACPPO.load(tmp_path / "00000004", env).learn(64 * 6, resuming=True)
    for one, two in zip(jax.tree.leaves(whole.networks), jax.tree.leaves(resumed.networks), strict=True):
        np.testing.assert_array_equal(one, two)
    for one, two in zip(resumed.history, whole.history, strict=True):
        np.testing.assert_equal(one, two)  # where nan is nan
    assert list(resumed.recent) == list(whole.recent)


def test_a_checkpoint_goes_on_in_the_other_kind_of_environment(tmp_path):
    worlds = {"functional": CHAIN, "stepped": lambda: chain().to_gymnasium(max_episode_steps=5)}
    for name, env in worlds.items():
        VPACPPO(env, psi=0.1, **SMALL).learn(64 * 2, checkpoints=tmp_path / name)
        other = next(world for world in worlds.values() if world != env)
        assert VPACPPO.load(tmp_path / name / "00000002", other).learn(64 * 3, resuming=True).timesteps == 64 * 3


class Untraceable(Drift):
    def step(self, key, state, action):
        if state[0] > 0.0:
            return super().step(key, state, action)
        return state, state, 0.0, False, False


class Growing(Drift):
    def step(self, key, state, action):
        state, seen, *rest = super().step(key, state, action)
        return jnp.append(state, 1.0), seen, *rest


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (
            Untraceable(),
            r"Untraceable: JAX cannot trace step \(TracerBoolConversionError: Attempted boolean conversion",
        ),
        (
            Growing(),
            r"Growing: the state changes from \[\(\(2,\), 'float32'\)\] in reset to \[\(\(3,\), 'float32'\)\] in step",
        ),
    ],
)
def test_what_cannot_be_compiled_is_named(env, message):
    with pytest.raises(UserError, match=message):
        PPO(env, **SMALL)


@pytest.mark.parametrize("part", ["_collect", "_estimate", "_improve"])
def test_a_class_that_overrides_what_is_compiled_is_refused(part):
    Changed = type("Changed", (PPO,), {part: lambda self, *given: getattr(PPO, part)(self, *given)})
    with pytest.raises(UserError, match=f"Changed overrides {part}, which a compiled training does not call"):
        Changed(CHAIN, **SMALL)
    Changed("CartPole-v1", **SMALL).learn(64)


def test_training_takes_its_numbers_from_seed_and_iteration():
    """One call of two iterations is two calls of one."""
    once, twice = (VPACPPO(CHAIN, seed=5, psi=0.1, **SMALL) for _ in range(2))
    for agent, calls in ((once, [2]), (twice, [1, 1])):
        agent.span = (0, 64 * 2)
        training = CompiledTraining(agent)
        for count in calls:
            training.advance(count)
    np.testing.assert_array_equal(once.policy().weights[0], twice.policy().weights[0])


def test_programs_are_forgotten_before_there_are_too_many(monkeypatch):
    """A process that compiles many would run out of memory maps, and XLA would end it."""
    forgotten = []
    monkeypatch.setattr(compiled, "_compiled", set(range(compiled.MOST_PROGRAMS)))
    monkeypatch.setattr(jax, "clear_caches", lambda: forgotten.append(True))
    for seed in (0, 1):
        VPACPPO(CHAIN, psi=0.1, seed=seed, **SMALL).learn(64)
    assert (len(forgotten), len(compiled._compiled)) == (1, 1)
