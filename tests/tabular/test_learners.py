from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import reference
from seeds import ERRORS, seeds
from simulate import assert_mean
from vpac import FiniteMDP, oracle
from vpac.envs import ContinuousPuddleWorld, FourRooms, PuddleWorld
from vpac.errors import UserError
from vpac.risk.schedules import Constant
from vpac.tabular import (
    AC,
    VAAC,
    VAACTD,
    VPAC,
    OffPolicyAC,
    OffPolicyVAAC,
    OffPolicyVAACTD,
    OffPolicyVPAC,
    learn_many,
)  # fmt: skip
from vpac.tabular.curves import Snapshots, exact_moments
from vpac.tabular.options import StepSizeOrder

ON_POLICY = (AC, VPAC, VAAC, VAACTD)
OFF_POLICY = (OffPolicyAC, OffPolicyVPAC, OffPolicyVAAC, OffPolicyVAACTD)
EVERY = ON_POLICY + OFF_POLICY


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one.weights, other.weights, strict=True))


@pytest.mark.parametrize("kind", EVERY)
def test_the_result_depends_on_the_seed_only(kind):
    env = PuddleWorld()
    alone = kind(env, seed=3, max_episode_steps=200).learn(30)
    in_pieces = kind(env, seed=3, max_episode_steps=200).learn(30, every=7, callback=lambda learner: None)
    again = kind(env, seed=3, max_episode_steps=200).learn(12).learn(18)
    many = learn_many(kind, env, [5, 3, 4], 30, threads=2, max_episode_steps=200)
    other = kind(env, seed=4, max_episode_steps=200).learn(30)
    assert same(alone, in_pieces)
    assert same(alone, again)
    assert same(alone, many[1])
    assert same(other, many[2])
    assert not same(alone, other)
    assert np.array_equal(alone.returns, many[1].returns)
    assert alone.episodes == 30
    assert np.isfinite(alone.weights.theta).all()


@pytest.mark.parametrize("baseline", [True, False])
@pytest.mark.parametrize("form", ["published", "corrected"])
def test_without_a_price_vpac_is_ac_bit_for_bit(form, baseline):
    env = FourRooms()
    neutral = AC(env, form=form, baseline=baseline, max_episode_steps=100).learn(40)
    priced = VPAC(env, psi=0.0, form=form, baseline=baseline, max_episode_steps=100).learn(40)
    assert np.array_equal(neutral.weights.theta, priced.weights.theta)
    assert np.array_equal(neutral.returns, priced.returns)


@pytest.mark.parametrize("form", ["published", "corrected"])
def test_with_its_own_actions_off_policy_ac_is_ac_bit_for_bit_and_vpac_is_not(form):
    env = FourRooms()
    shared = {"form": form, "baseline": False, "max_episode_steps": 100}
    ratios = {"behaviour": "target", "critics": "importance"}
    on, off = AC(env, **shared).learn(40), OffPolicyAC(env, **shared, **ratios).learn(40)
    assert np.array_equal(on.weights.theta, off.weights.theta)
    assert np.array_equal(on.history.returns, off.history.returns)
    on, off = VPAC(env, psi=0.01, **shared).learn(40), OffPolicyVPAC(env, psi=0.01, **shared, **ratios).learn(40)
    assert not np.array_equal(on.weights.theta, off.weights.theta)


def decaying(power):
    return f"robbins-monro:0.5:{power}:200"


def evaluated(kind, mdp, theta, episodes=200_000, **settings):
    """Both critics of a policy held fixed, [seed, state, action], after many episodes of decaying steps."""
    rates, found = {"alpha_theta": 0.0, "alpha_z": decaying(0.9), "alpha_w": decaying(0.9)}, []
    for seed in seeds():
        learner = kind(mdp, gamma=0.8, max_episode_steps=60, psi=0.0, seed=seed, **rates, **settings)
        learner.weights.theta[:] = theta
        learner.learn(episodes)
        assert np.array_equal(learner.weights.theta, theta)
        found.append((learner.weights.w, learner.weights.z))
    return np.stack(found, axis=1)


@pytest.fixture
def small():
    rng = np.random.default_rng(5)
    return reference.random_mdp(rng, 4, 2, 1, noise=0.3), rng.normal(scale=0.5, size=(4, 2))


def converged(found, exact, mdp):
    """Whether every entry's mean over seeds is exact within its standard errors, which are small, and 3 percent."""
    live, size = ~mdp.terminal, np.abs(exact).max()
    errors = ERRORS * found.std(axis=0, ddof=1)[live] / np.sqrt(len(found))
    assert errors.max() < 0.15 * size
    return bool((np.abs(found.mean(axis=0) - exact)[live] < errors + 0.03 * size).all())


@pytest.mark.parametrize(
    ("kind", "spread"), [(VPAC, "action_variance"), (VAACTD, "action_second_moment"), (VAAC, "action_second_moment")]
)
def test_critics_converge_on_policy(small, kind, spread):
    mdp, theta = small
    exact = oracle.evaluate(mdp, oracle.softmax(theta), 0.8)
    value, second = evaluated(kind, mdp, theta)
    assert converged(value, exact.action_value, mdp)
    assert converged(second, getattr(exact, spread), mdp)


@pytest.mark.parametrize("critics", ["expected", "importance", "clipped"])
def test_off_policy_critics_converge_to_their_own_fixed_points(small, critics):
    mdp, theta = small
    behaviour = 0.5 * oracle.softmax(theta) + 0.25
    exact = oracle.evaluate_off_policy(mdp, oracle.softmax(theta), behaviour, 0.8, critics)
    value, variance = evaluated(OffPolicyVPAC, mdp, theta, critics=critics, behaviour=behaviour)
    assert converged(value, exact.action_value, mdp)
    assert converged(variance, exact.action_variance, mdp)
    _, second = evaluated(OffPolicyVAACTD, mdp, theta, critics=critics, behaviour=behaviour)
    assert converged(second, exact.action_variance + exact.action_value**2, mdp)


@pytest.mark.parametrize("policy", ["greedy", "softmax"])
def test_exact_curves_agree_with_rollouts_and_with_the_oracle(policy):
    keep = Snapshots()
    learner = VPAC(FourRooms(), max_episode_steps=500).learn(300, callback=keep, every=100)
    exact = keep.curve(learner, policy, horizon=300)
    assert exact.episodes.tolist() == [100, 200, 300]
    sampled = keep.curve(learner, policy, evaluate="rollouts", horizon=300, n_rollouts=4000)
    thetas = np.stack(keep.thetas)
    policies = oracle.greedy(thetas) if policy == "greedy" else oracle.softmax(thetas)
    judge = oracle.evaluate(learner.environment.mdp, policies, 0.99, 300)
    assert exact.mean == pytest.approx(judge.mean, rel=1e-10)
    assert exact.variance == pytest.approx(judge.total_variance, rel=1e-9)
    error = np.sqrt(exact.variance / 4000)
    assert np.all(np.abs(sampled.mean - exact.mean) < 5 * error)
    # The standard error of a sample variance needs the fourth moment; twice the normal's is generous here and still tight.
    assert np.all(np.abs(sampled.variance / exact.variance - 1.0) < 5 * 2 * np.sqrt(2 / 4000))


def test_exact_moments_of_worlds_that_pay_on_the_way():
    rng = np.random.default_rng(0)
    mdp = reference.random_mdp(rng, 6, 3, 1, noise=0.5)
    policies = oracle.softmax(rng.normal(size=(11, 6, 3)))
    for horizon in (1, 7, 300):
        mean, variance = exact_moments(mdp, policies, 0.97, horizon)
        judge = oracle.evaluate(mdp, policies, 0.97, horizon)
        assert mean == pytest.approx(judge.mean, rel=1e-10)
        assert variance == pytest.approx(judge.total_variance, rel=1e-9)


@pytest.mark.parametrize("kind", EVERY)
def test_any_gymnasium_environment(kind):
    """The same update functions, stepped from Python: on FrozenLake the critics agree with those of the compiled world."""
    learner = kind("FrozenLake-v1", max_episode_steps=100).learn(30)
    assert learner.environment.world is None
    assert learner.episodes == 30
    assert np.isfinite(learner.weights.theta).all()
    assert learner.history.lengths.max() <= 100


def test_the_gymnasium_path_learns_what_the_compiled_path_learns():
    """One state, two actions, certain rewards: after one episode the weights are known by hand."""
    transition = np.zeros((2, 2, 2))
    transition[0, :, 1] = 1.0
    mdp = FiniteMDP(transition, [[3.0, 3.0], [0.0, 0.0]], 0.0, [1.0, 0.0], [False, True])

    class Hidden(gymnasium.Wrapper):
        """Not one of the wrappers that are looked through."""

    settings = {"form": "published", "baseline": False, "psi": 0.1, "max_episode_steps": 5, "alpha_z": 0.25}
    compiled = VPAC(mdp, **settings).learn(1)
    stepped = VPAC(Hidden(mdp.to_gymnasium()), **settings).learn(1)
    for learner in (compiled, stepped):
        (action,) = np.flatnonzero(learner.weights.w[0])
        # δ = 3, so Q̂ = 1.5 and σ̂ = 9/4; the actor's weight is 1.5 − 0.1 · 2.25, its score ±1/2.
        assert learner.weights.w[0, action] == pytest.approx(1.5)
        assert learner.weights.z[0, action] == pytest.approx(2.25)
        assert learner.weights.theta[0, action] == pytest.approx(0.01 * 0.5 * (1.5 - 0.225))
        assert learner.returns.tolist() == [3.0]


def test_tile_coded_worlds_learn_in_compiled_code_and_elsewhere():
    compiled = OffPolicyVPAC(ContinuousPuddleWorld(), max_episode_steps=300, psi=0.001).learn(20)
    assert compiled.environment.world is not None
    assert compiled.environment.n_active == 10
    stepped = VPAC("MountainCar-v0", alpha_theta=0.1, psi=0.0).learn(3)
    assert stepped.history.lengths.tolist() == [200, 200, 200]
    assert not stepped.history.terminated.any()


def test_predict():
    learner = VPAC("vpac/CatchUp-v0")
    learner.weights.theta[3] = [0.0, 5.0, 5.0]
    assert learner.predict(3) == (1, None)
    drawn = [learner.predict(3, deterministic=False)[0] for _ in range(400)]
    assert_mean(np.eye(3)[drawn], oracle.softmax(learner.weights.theta[3]))
    assert learner.policy()[3] == pytest.approx(oracle.softmax([0.0, 5.0, 5.0]))


def test_a_callback_can_stop_learning():
    assert AC("vpac/CatchUp-v0").learn(100, every=10, callback=lambda learner: learner.episodes < 30).episodes == 30


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"psi": -1.0}, "psi must be a finite number that is not negative"),
        ({"alpha_w": -0.1}, "alpha_w must be"),
        ({"temperature": 0.0}, "temperature must be a positive number"),
        ({"gamma": 1.5}, "gamma must be a number from 0 to 1"),
        ({"form": "corected"}, "did you mean 'corrected'"),
        ({"variance_of": "actions"}, "did you mean 'action'"),
        ({"alpha_thet": 0.1}, "unknown setting 'alpha_thet'; did you mean 'alpha_theta'"),
        ({"max_episode_steps": 0}, "max_episode_steps must be"),
        ({"score": "exakt"}, "did you mean 'exact'"),
    ],
)
def test_wrong_settings_are_named(settings, message):
    with pytest.raises(UserError, match=message):
        VPAC("vpac/CatchUp-v0", **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"behaviour": "unifrm"}, "did you mean 'uniform'"),
        ({"epsilon": 0.0}, "the behaviour must cover the target"),
        ({"critics": "importance", "variance_of": "state"}, "given the first action only"),
        ({"behaviour": np.eye(3)[[0] * 11]}, "does not cover the target"),
        ({"behaviour": np.ones((2, 2)) / 2}, r"must have shape \[11, 3\]"),
    ],
)
def test_wrong_off_policy_settings_are_named(settings, message):
    with pytest.raises(UserError, match=message):
        OffPolicyVPAC("vpac/CatchUp-v0", **settings)


def test_ac_has_no_price():
    with pytest.raises(UserError, match="AC has no price of variance"):
        AC("vpac/CatchUp-v0", psi=0.1)
    for nothing in (0, "0", "constant:0", Constant(0.0)):
        assert AC("vpac/CatchUp-v0", psi=nothing).learn(1).episodes == 1


def test_step_sizes_out_of_order_are_warned_of():
    with pytest.warns(StepSizeOrder, match="α_θ < α_z < α_w"):
        VPAC("vpac/CatchUp-v0", alpha_theta=0.9)
    VPAC("vpac/CatchUp-v0", alpha_theta=0.5, alpha_z=0.5, alpha_w=0.5)  # equal ones pass
    with pytest.warns(StepSizeOrder, match=r"α_w = 0\.00\d+ in episode 9999"):  # they cross
        VPAC("vpac/CatchUp-v0", alpha_theta=0.01, alpha_z="robbins-monro:0.4:1", alpha_w="robbins-monro:0.5:1:10")


class Odd(gymnasium.Env):
    """An environment with whatever spaces and rewards a test wants."""

    def __init__(self, seen, acts, reward=0.0, ends=False):
        self.observation_space, self.action_space, self.reward, self.ends = seen, acts, reward, ends

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), self.reward, self.ends, False, {}


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (Odd(spaces.Discrete(2), spaces.Box(-1, 1, (1,))), "need Discrete actions"),
        (Odd(spaces.Sequence(spaces.Discrete(3)), spaces.Discrete(2)), "use Box, Discrete"),
        (Odd(spaces.Box(0, 255, (64, 64, 3), np.uint8), spaces.Discrete(2)), "is an image"),
        ("vpac/FourRoms-v0", "did you mean 'vpac/FourRooms-v0'"),
        (3, "expected a Gymnasium environment"),
    ],
)
def test_environments_that_do_not_fit_are_named(env, message):
    with pytest.raises(UserError, match=message):
        AC(env)


def test_a_return_that_does_not_vary_has_no_variance_at_all():
    """Not what rounding leaves of a difference of equal numbers: a Sharpe ratio of it would be of the order of 10⁷."""
    from vpac.envs import RiskyShortcut

    mdp = RiskyShortcut().mdp
    found = [oracle.frontier(mdp, [psi], 0.95).policies[0] for psi in (0.0, 5.0)]
    mean, variance = exact_moments(mdp, np.stack(found), 0.95, 200)
    assert variance[0] > 10.0
    assert variance[1] == 0.0
    assert mean[1] > 5.0
