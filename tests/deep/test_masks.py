"""Actions of several parts, and masks: probabilities, gradients and entropies by enumeration; no masked action is taken."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import vpac
from probes import Probe
from seeds import bounds, seeds
from vpac import FiniteMDP, UserError, oracle
from vpac.envs import arranged, check_env
from vpac.envs.observations import allowed_action, choices
from vpac.evaluation.actors import load_agent
from vpac.evaluation.log import Chances, Log, load_log
from vpac.evaluation.stressing import Axis, stress

jax = pytest.importorskip("jax")

from vpac.deep import PPO, VPACPPO, load_policy  # noqa: E402
from vpac.deep.improve import Samples, policy_gradient  # noqa: E402
from vpac.deep.networks import MLP, Categorical  # noqa: E402
from vpac.deep.spaces import Interface, Seen  # noqa: E402

SMALL = {"envs": 4, "steps": 16, "epochs": 2, "minibatch": 32, "hidden": (8,)}


def table(theta, parts=()) -> Categorical:
    """A policy with these logits for each of a few states, which are one-hot."""
    return Categorical(MLP([np.float32(theta)], [np.zeros(np.shape(theta)[1], np.float32)], "tanh"), parts)


log_prob, entropy = jax.jit(Categorical.log_prob), jax.jit(Categorical.entropy)


def masked_softmax(theta, allowed):
    weights = np.exp(theta) * allowed
    return weights / weights.sum(-1, keepdims=True)


def test_a_mask_gives_probability_zero_exactly_and_the_entropy_of_what_is_allowed(rng):
    theta, allowed = rng.normal(0, 3, (6, 5)), rng.random((6, 5)) < 0.6
    allowed[:, 2] = True
    seen, policy = Seen(np.eye(6, dtype=np.float32), allowed=allowed), table(theta)
    found = np.stack([np.exp(log_prob(policy, seen, np.full(6, a))) for a in range(5)], axis=1)
    assert (found[~allowed] == 0.0).all()
    expected = masked_softmax(theta, allowed)
    np.testing.assert_allclose(found, expected, rtol=2e-5)
    logs = np.log(expected, where=allowed, out=np.zeros_like(expected))
    np.testing.assert_allclose(entropy(policy, seen), -(expected * logs).sum(1), rtol=1e-4, atol=1e-6)
    only = seen._replace(allowed=np.eye(6, 5, dtype=bool) | ((np.arange(6) == 5)[:, None] & (np.arange(5) == 0)))
    np.testing.assert_array_equal(entropy(policy, only), np.zeros(6))


def test_the_gradient_of_a_masked_policy_is_that_of_its_return(rng):
    """Over all states and allowed actions, Σ d(s) π(a|s) Q(s,a) ∇log π(a|s) is the finite difference of the exact mean."""
    S, A, gamma, terminal = 4, 3, 0.9, np.array([False] * 3 + [True])
    mdp = FiniteMDP(rng.dirichlet(np.ones(S), (S, A)), rng.normal(size=(S, A, S)), 0.0, [1.0, 0.0, 0.0, 0.0], terminal)
    allowed = np.array([[1, 1, 0], [0, 1, 1], [1, 1, 1], [1, 0, 0]], bool)
    theta = rng.normal(size=(S, A))

    def mean(theta):
        return float(oracle.evaluate(mdp, masked_softmax(theta, allowed), gamma).value[0])

    step = 1e-5 * np.eye(S * A).reshape(-1, S, A)
    expected = np.array([mean(theta + d) - mean(theta - d) for d in step]).reshape(S, A) / 2e-5
    policy = masked_softmax(theta, allowed)
    moments = oracle.evaluate(mdp, policy, gamma)
    moved = np.einsum("sa,sat->st", policy, mdp.transition) * ~terminal[:, None]
    visits = np.linalg.solve(np.eye(S) - gamma * moved.T, mdp.start) * ~terminal
    Q = (mdp.transition * (mdp.reward_mean + gamma * (moments.value * ~terminal))).sum(-1)
    s, a = np.nonzero(allowed & ~terminal[:, None])
    weights = len(s) * visits[s] * policy[s, a] * Q[s, a]
    seen, net = Seen(np.eye(S, dtype=np.float32)[s], allowed=allowed[s]), table(theta)
    samples = Samples(seen, a, log_prob(net, seen, a), weights.astype(np.float32), np.ones(len(s), np.float32))
    found = np.asarray(jax.jit(policy_gradient)(net, samples).net.weights[0])
    np.testing.assert_allclose(found, expected, atol=2e-5)
    assert (found[~allowed] == 0.0).all()


@pytest.mark.parametrize("acts", [spaces.MultiDiscrete([3, 2, 4], start=[5, 0, -1]), spaces.MultiBinary((2, 2))])
@pytest.mark.parametrize("masked", [False, True])
def test_actions_of_several_parts_are_products(acts, masked, rng):
    interface = Interface.of(spaces.Box(-1, 1, (2,)), acts, "x")
    sizes = interface.choices
    theta = rng.normal(size=(2, sum(sizes)))
    policy = table(theta, tuple(map(tuple, interface.table.tolist())))
    allowed = rng.random((2, sum(sizes))) < 0.7 if masked else np.ones((2, sum(sizes)), bool)
    allowed[:, np.cumsum((0, *sizes[:-1]))] = True
    seen = Seen(np.eye(2, dtype=np.float32), allowed=allowed) if masked else np.eye(2, dtype=np.float32)
    every = np.array(list(product(*map(range, sizes))))
    found = np.array([np.exp(log_prob(policy, seen, np.tile(a, (2, 1)))) for a in every], np.float64).T
    np.testing.assert_allclose(found.sum(1), 1.0, rtol=1e-5)
    ends = np.cumsum((0, *sizes))
    each = [masked_softmax(theta[:, i:j], allowed[:, i:j]) for i, j in pairwise(ends)]
    joint = np.prod([part[:, every[:, k]] for k, part in enumerate(each)], axis=0)
    np.testing.assert_allclose(found, joint, rtol=1e-4)
    assert (found[joint == 0.0] == 0.0).all()
    logs = np.log(joint, where=joint > 0, out=np.zeros_like(joint))
    np.testing.assert_allclose(entropy(policy, seen), -(joint * logs).sum(1), rtol=1e-4)
    drawn = interface.choose(theta[:1] + np.where(allowed[:1], 0, -1e9) + rng.gumbel(size=(20_000, sum(sizes))))
    share = np.array([(drawn == a).all(1).mean() for a in every])
    error = np.sqrt(joint[0] * (1 - joint[0]) / len(drawn)) + 1e-9
    assert (np.abs(share - joint[0]) < 5 * error).all()
    commands = interface.commands(drawn[:50])
    assert all(acts.contains(one) for one in commands)
    assert commands.dtype == acts.dtype


NEXT = np.eye(4)[np.array([[1, 0, 3], [2, 0, 3], [3, 1, 0], [3, 3, 3]])]
"""Action 0 goes on, 1 back, and 2 is a short cut to the end, but in state 2 one to the start."""
PAID = np.array([[-1.0, -1.0, 50.0], [-1.0, -1.0, 50.0], [10.0, -1.0, 50.0], [0.0, 0.0, 0.0]])
ALLOWED = np.array([[1, 1, 0], [1, 1, 0], [0, 1, 1], [0, 0, 0]], bool)
"""The short cut to the end is forbidden, and so is the step to the end in state 2: the best is to go round and round."""


class Forbidding(gymnasium.Env):
    """A finite process that stops the test at a forbidden action. The mask is in `info`, a method or the observation."""

    def __init__(self, place: str = "info"):
        mdp = FiniteMDP(NEXT, PAID, 0.0, [1.0, 0.0, 0.0, 0.0], np.arange(4) == 3)
        self.env, self.place = mdp.to_gymnasium(max_episode_steps=12), place
        self.observation_space, self.action_space = self.env.observation_space, self.env.action_space
        if place == "dict":
            self.observation_space = spaces.Dict(action_mask=spaces.MultiBinary(3), state=self.observation_space)
        if place == "method":
            self.action_masks = lambda: ALLOWED[self.state]

    def _show(self, state, info):
        self.state, mask = int(state), ALLOWED[int(state)].astype(np.int8)
        seen = {"action_mask": mask, "state": state} if self.place == "dict" else state
        return seen, info | ({"action_mask": mask} if self.place == "info" else {})

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._show(*self.env.reset(seed=seed, options=options))

    def step(self, action):
        assert ALLOWED[self.state, action], f"action {action} is forbidden in state {self.state}"
        state, reward, terminated, truncated, info = self.env.step(action)
        seen, info = self._show(state, info)
        return seen, reward, terminated, truncated, info


@pytest.mark.parametrize("place", ["info", "method", "dict"])
def test_masks_are_found_in_three_places_and_nothing_forbidden_is_done(tmp_path, place):
    def make():
        return Forbidding(place)

    assert set(check_env(make()).lengths) == {12}
    agent = VPACPPO(make, psi=0.01, **SMALL).learn(256)
    assert agent.interface.masked
    assert agent.interface.discrete_observations
    agent.save(tmp_path / "agent")
    policy, again = load_policy(tmp_path / "agent"), VPACPPO.load(tmp_path / "agent", make)
    found = [vpac.evaluate(each, make, 6, seed=3).returns for each in (agent, policy, again)]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    np.testing.assert_array_equal(agent.learn(64).policy().weights[0], again.learn(64).policy().weights[0])
    same = VPACPPO(lambda: Forbidding("info"), psi=0.01, **SMALL).learn(256)
    np.testing.assert_array_equal(same.policy().weights[0], policy.weights[0])
    for state in range(3):
        assert ALLOWED[state, agent.predict(state, action_masks=ALLOWED[state])[0]]
        assert ALLOWED[state, policy(state, ALLOWED[state])]
        drawn, _ = agent.predict(
            np.full(200, state), deterministic=False, action_masks=np.tile(ALLOWED[state], (200, 1))
        )
        assert ALLOWED[state, drawn].all()
    seen, _ = arranged(make(), masked=True).reset(seed=0)
    assert policy(seen) == agent.predict(seen)[0]


@pytest.mark.parametrize("place", ["info", "method", "dict"])
def test_nothing_forbidden_is_done_by_a_random_baseline_or_under_stress(place):
    """The environment stops at a forbidden action. Late and lost observations come with the mask of now."""

    def make(given=None):
        return Forbidding(place)

    agent = VPACPPO(make, psi=0.01, **SMALL).learn(64)
    found = vpac.certify(agent, make, 20, baseline="random", sources=0).data
    assert np.std(found["baseline"]["episodes"]["return"]) > 0.0
    log = Log(np.zeros((4, 1)), np.zeros(4, int), np.zeros(4), np.ones(4), np.arange(4), np.ones(4, bool))
    for mask, said in ((None, "no column of that name"), (np.ones((4, 2), bool), "2")):
        with pytest.raises(UserError, match=f"expected 3 numbers of 'action_mask' in the log, which has {said}"):
            vpac.offline(replace(log, mask=mask), agent)
    axes = [Axis("action-noise", (1.0,)), Axis("delay", (2,)), Axis("drop", (0.5,)), Axis("first-steps", (3,))]
    axes += [Axis("noise", (0.5,))] if place != "dict" else []  # noise on a Dict is refused
    arms = dict(zip(("control", "action-noise"), stress(agent, make, axes, 20).samples, strict=False))
    assert not np.array_equal(arms["control"].returns, arms["action-noise"].returns)


@pytest.mark.parametrize("place", ["info", "dict"])
def test_a_log_with_masks_judges_another_policy(tmp_path, place):
    """Every method is within four errors of what the policy returns when it acts; its errors are those of its interval."""

    def make():
        return Forbidding(place)

    acted, asked = (VPACPPO(make, psi=0.01, seed=seed, learning_rate=0.01, **SMALL).learn(320) for seed in (1, 2))
    sample = vpac.evaluate(acted, make, 600, gamma=0.9, log=tmp_path / "log.parquet")
    log = load_log(tmp_path / "log.parquet")
    np.testing.assert_array_equal(log.mask, ALLOWED[log.observation[:, 0].astype(int)])
    assert (log.probability <= 1.0).all()
    own = vpac.offline(log, acted, gamma=0.9, methods=("per-decision",)).estimates[0]
    assert own.mean.estimate == pytest.approx(sample.mean)
    direct = vpac.evaluate(asked, make, 600, gamma=0.9, seed=1).interval("mean")
    assert not direct.low < sample.mean < direct.high
    found = vpac.offline(log, asked, gamma=0.9, methods=("per-decision", "doubly-robust", "weighted"))
    for one in found.estimates:
        error = np.hypot(one.mean.high - one.mean.low, direct.high - direct.low) / (2 * 1.96)
        assert abs(one.mean.estimate - direct.estimate) < 4.0 * error
    every = Chances.of(asked, log.observation, log.action, log.mask)
    assert (every.every[~log.mask] == 0.0).all()
    assert every.finite
    other = log.mask.copy()
    other[0] = [True, False, False]
    assert not Chances.of(asked, log.observation, log.action, other).finite  # a state with two masks is not one state


@pytest.mark.parametrize(
    "space", [spaces.Discrete(3, start=2), spaces.MultiDiscrete([2, 3]), spaces.MultiBinary((1, 2))], ids=type
)
def test_drawn_actions_are_all_that_are_allowed(space, rng):
    row = np.array([True, False, True, True, False])[: sum(choices(space))]
    drawn = [allowed_action(space, row, rng) for _ in range(200)]
    assert all(space.contains(one) for one in drawn)
    expected = {"Discrete": {(2,), (4,)}, "MultiDiscrete": {(0, 0), (0, 1)}, "MultiBinary": {(0, 0), (0, 1)}}
    assert {tuple(np.ravel(one).tolist()) for one in drawn} == expected[type(space).__name__]


def test_masks_matter():
    """The best that is allowed is to go round, four times for 50 − 2; without masks a short cut would pay 50 and end."""
    scores = []
    for seed in seeds():
        settings = {"steps": 64, "envs": 8, "gamma": 0.99, "time_aware": True, "hidden": (16,), "seed": seed}
        agent = PPO(Forbidding, **settings).learn(6_000)
        scores.append(vpac.evaluate(agent, Forbidding, 4, gamma=1.0, deterministic=True).mean)
    assert max(scores) <= 4 * 48.0
    assert bounds(scores)[0] > 0.9 * 4 * 48.0


def test_a_policy_that_remembers_keeps_its_masks(tmp_path):
    agent = PPO(lambda: Forbidding("dict"), remember="return", **SMALL).learn(128)
    assert agent.interface.masked
    assert agent.interface.inputs == 4 + 2
    agent.save(tmp_path / "agent")
    assert len(vpac.evaluate(load_agent(tmp_path / "agent"), lambda: Forbidding("dict"), 3)) == 3


def test_masks_can_be_ignored_and_older_agents_do_not_know_them():
    agent = PPO(lambda: Forbidding("dict"), action_masks=False, **SMALL)
    assert not agent.interface.masked
    assert agent.interface.inputs == 4 + 3
    from vpac.deep.checkpoint import EARLIER_DEFAULTS

    assert EARLIER_DEFAULTS["action_masks"] is False
    with pytest.raises(UserError, match="learned without masks"):
        agent.predict(np.zeros(7), action_masks=[1, 1, 1])


def test_what_is_wrong_with_a_mask_is_said(monkeypatch):
    agent = PPO(Forbidding, **SMALL)
    with pytest.raises(UserError, match=r"takes vector and action_mask, got vector.*action_masks=… is missing"):
        agent.predict(0)
    with pytest.raises(UserError, match="the mask allows no action"):
        agent.predict(0, action_masks=[0, 0, 0])
    with pytest.raises(UserError, match=r"action_mask has the shape \[2\]: this policy takes \[3\]"):
        agent.predict(0, action_masks=[1, 1])
    for mask, message in (
        ([1, 1], "expected 3 zeros and ones"),
        ([2, 0, 1], "expected 3"),
        ([0, 0, 0], "allows no action"),
    ):
        monkeypatch.setitem(Forbidding.__dict__["step"].__globals__, "ALLOWED", np.tile(np.array(mask), (4, 1)))
        with pytest.raises(UserError, match=message):
            check_env(Forbidding())
        with pytest.raises(UserError, match=message):
            PPO(Forbidding(), envs=1, action_masks=True, steps=4, minibatch=4).learn(4)
    with pytest.raises(UserError, match="after reset there is no mask of actions"):
        PPO(Probe(), envs=1, action_masks=True, steps=4, minibatch=4).learn(4)


class Lights(gymnasium.Env):
    """Ten steps; each pays 1 for every switch that is set as its light shows; the third has three settings."""

    observation_space = spaces.Dict(a=spaces.MultiBinary(2), b=spaces.Discrete(3))

    def __init__(self, binary=False):
        self.action_space = spaces.MultiBinary(2) if binary else spaces.MultiDiscrete([2, 2, 3])

    def _show(self):
        self.light = [*self.np_random.integers(2, size=2), self.np_random.integers(3)]
        return {"a": np.array(self.light[:2], np.int8), "b": np.int64(self.light[2])}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._show(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        reward, self.t = float(np.sum(action == np.array(self.light[: len(action)]))), self.t + 1
        return self._show(), reward, self.t == 10, False, {}


@pytest.mark.parametrize("binary", [False, True])
def test_several_switches_at_once_are_learned(tmp_path, binary):
    def make():
        return Lights(binary)

    check_env(make())
    best = 20.0 if binary else 30.0
    agents = [
        PPO(make, gamma=0.5, seed=seed, learning_rate=3e-3, entropy=0.0, envs=8, steps=32, hidden=(16,))
        for seed in seeds()
    ]
    scores = [vpac.evaluate(agent.learn(6_000), make, 5, gamma=1.0, deterministic=True).mean for agent in agents]
    assert max(scores) <= best
    assert bounds(scores)[0] > 0.75 * best  # at random 0.5 or 0.44 of it
    agents[0].save(tmp_path / "agent")
    policy = load_agent(tmp_path / "agent")
    seen, _ = arranged(make()).reset(seed=1)
    np.testing.assert_array_equal(policy(seen), agents[0].predict(seen)[0])
    assert vpac.evaluate(policy, make, 5, gamma=1.0, deterministic=True).mean == scores[0]


class JobShop(gymnasium.Env):
    """The job shop of JSSEnv, whose `reset` is that of the old gym. A forbidden job stops the test."""

    def __init__(self):
        from JSSEnv.envs import JssEnv

        self.shop = JssEnv()
        self.observation_space, self.action_space = self.shop.observation_space, self.shop.action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.shop.reset(), {}

    def step(self, action):
        assert self.shop.get_legal_actions()[action]
        seen, reward, over, cut, info = self.shop.step(int(action))
        return seen, float(reward), bool(over), cut, info


def test_a_job_shop_from_the_package_index_is_scheduled_as_its_masks_allow(tmp_path):
    pytest.importorskip("JSSEnv")
    check_env(JobShop())
    agent = PPO(JobShop, envs=2, steps=256, epochs=2, minibatch=128).learn(1024)
    assert agent.interface.masked
    agent.save(tmp_path / "agent")
    assert len(vpac.evaluate(load_agent(tmp_path / "agent"), JobShop, 2)) == 2
