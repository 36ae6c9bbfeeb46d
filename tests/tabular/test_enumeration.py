"""The tabular arithmetic against an enumeration of all trajectories of a small MDP: exact up to rounding.

The functions are those of the compiled loop. They run without Numba, too: NUMBA_DISABLE_JIT=1 makes this file fast to try.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
import pytest

from vpac import FiniteMDP, oracle
from vpac.tabular import arrays as codes
from vpac.tabular.arrays import GOOD, EpisodeBuffer, Settings, Weights
from vpac.tabular.update import (
    Choice,
    StepSizes,
    Transition,
    begin,
    learn_from_episode,
    learn_step,
    ratios,
    record,
    td_errors,
)

GAMMA, PSI, LEVELS = 0.8, 0.7, 3
SIZES = StepSizes(PSI, 0.0, 1.0, 0.0, 0.0)
FORMS = {"published": codes.PUBLISHED, "exact": codes.CORRECTED}
KINDS = {"action": codes.ACTION, "state": codes.STATE, "return": codes.RETURN}
RATIOS = {"importance": codes.IMPORTANCE, "clipped": codes.CLIPPED, "expected": codes.EXPECTED}
CRITICS = [(codes.DIRECT, "vpac"), (codes.INDIRECT, "vaac"), (codes.MONTE_CARLO, "vaac")]
BY_NAME = ["direct", "indirect", "monte-carlo"]
COMBINED = [("published", "action"), *itertools.product(["exact"], KINDS)]


def ladder(rng) -> FiniteMDP:
    """Three levels of two states: every move leads to a state of the next level, or sometimes to the end."""
    n = 2 * LEVELS + 1
    transition = np.zeros((n, 2, n))
    for state in range(n - 1):
        up = 2 * (state // 2 + 1)
        there = [up, up + 1, n - 1] if up < n - 1 else [n - 1]
        transition[state][:, there] = rng.dirichlet(np.ones(len(there)), 2)
    start = np.append([0.4, 0.6], np.zeros(n - 2))
    return FiniteMDP(transition, rng.normal(0.5, 1.0, (n, 2, n)), 0.0, start, np.arange(n) == n - 1)


@pytest.fixture(scope="module")
def world():
    """A process, the target's θ, and a behaviour policy that is something else."""
    rng = np.random.default_rng(11)
    mdp = ladder(rng)
    return mdp, rng.normal(scale=0.7, size=(mdp.n_states, 2)), rng.dirichlet([3.0, 3.0], mdp.n_states)


class Step(NamedTuple):
    state: int
    action: int
    reward: float
    after: int


def trajectories(mdp, acting, limit=LEVELS):
    """(probability, steps, action that would come next) of every episode, cut off after `limit` steps."""

    def goes_on(chance, steps, state):
        for action in range(mdp.n_actions):
            share = chance * acting[state, action]
            if len(steps) == limit:
                yield share, steps, action
                continue
            for after in np.flatnonzero(mdp.transition[state, action]):
                step = Step(state, action, float(mdp.reward_mean[state, action, after]), int(after))
                then = share * mdp.transition[state, action, after]
                if mdp.terminal[after]:
                    yield then, [*steps, step], 0
                else:
                    yield from goes_on(then, [*steps, step], int(after))

    for state in np.flatnonzero(mdp.start):
        yield from goes_on(mdp.start[state], [], int(state))


def settings(**changes) -> Settings:
    plain = {
        "critic": codes.DIRECT, "form": codes.CORRECTED, "variance_of": codes.ACTION, "baseline": True, "gamma": GAMMA,
        "temperature": 1.0, "score": 1.0, "limit": LEVELS, "on_policy": True, "behaviour": codes.TABLE, "epsilon": 0.0,
        "ratios": codes.EXPECTED, "clip_actor": False,
    }  # fmt: skip
    return Settings(**(plain | changes))


def ascent_of(choice, weights, policy, acting, steps):
    """What one episode adds to θ with critics held fixed: the actor's step size is 1, those of the critics are 0."""
    ascent = np.zeros_like(weights.theta)
    chosen = [ratios(choice, policy[s.state], acting[s.state], s.action) for s in steps]
    if choice.critic == codes.MONTE_CARLO:
        buffer, after = recorded(steps, policy, chosen), np.array([steps[-1].after])
        found = learn_from_episode(choice, weights, ascent, SIZES, buffer, len(steps), after, Choice(0), True)
        assert found == (GOOD, len(steps))
        return ascent
    first = steps[0]
    state_value = float(policy[first.state] @ weights.w[first.state])
    trace = begin(choice, float(weights.w[first.state, first.action]), state_value, float(weights.mean[0]), chosen[0])
    for now, then in zip(steps, [*chosen[1:], None], strict=True):
        t = Transition(
            np.array([now.state]), policy[now.state], now.action, now.reward, then is None, np.array([now.after]),
            policy[now.after], then or Choice(0, 1.0, 1.0, 0.0),
        )  # fmt: skip
        found, trace = learn_step(choice, weights, ascent, trace, t, SIZES)
        assert found == GOOD
    return ascent


def recorded(steps, policy, chosen) -> EpisodeBuffer:
    buffer = EpisodeBuffer.make(len(steps), 1, policy.shape[1])
    for k, now in enumerate(steps):
        record(buffer, k, np.array([now.state]), policy[now.state], chosen[k], now.reward)
    return buffer


def mean_ascent(mdp, theta, choice, critics, mean, acting):
    """E[Σ_k weight_k ∇log π(A_k|S_k)] under the policy that acts."""
    policy = oracle.softmax(theta)
    weights = Weights(theta.copy(), critics[0].copy(), critics[1].copy(), np.array([mean]))
    everything = [(chance, steps) for chance, steps, _ in trajectories(mdp, acting)]
    assert sum(chance for chance, _ in everything) == pytest.approx(1.0)
    found = sum(chance * ascent_of(choice, weights, policy, acting, steps) for chance, steps in everything)
    assert np.array_equal(weights.w, critics[0])
    assert np.array_equal(weights.z, critics[1])
    return found


def own_critics(mdp, theta, critic):
    exact = oracle.evaluate(mdp, oracle.softmax(theta), GAMMA)
    spread = exact.action_variance if critic == codes.DIRECT else exact.action_second_moment
    return (exact.action_value, spread), float(exact.mean)


def importance_critics(mdp, theta, acting, critic, critics="importance"):
    exact = oracle.evaluate_off_policy(mdp, oracle.softmax(theta), acting, GAMMA, critics)
    q, sigma = exact.action_value, exact.action_variance
    return q, sigma if critic == codes.DIRECT else sigma + q**2


def assert_direction(found, expected):
    np.testing.assert_allclose(found, expected, atol=1e-10)
    assert np.abs(expected).max() > 0.01


@pytest.mark.parametrize(("critic", "algorithm"), CRITICS, ids=BY_NAME)
@pytest.mark.parametrize("baseline", [True, False], ids=["baseline", "plain"])
@pytest.mark.parametrize(("form", "variance_of"), COMBINED)
def test_on_policy(world, critic, algorithm, form, variance_of, baseline):
    mdp, theta, _ = world
    critics, mean = own_critics(mdp, theta, critic)
    choice = settings(critic=critic, form=FORMS[form], variance_of=KINDS[variance_of], baseline=baseline)
    found = mean_ascent(mdp, theta, choice, critics, mean, oracle.softmax(theta))
    assert_direction(found, oracle.gradient(mdp, theta, GAMMA, PSI, form, variance_of, algorithm=algorithm))


@pytest.mark.parametrize("baseline", [True, False], ids=["baseline", "plain"])
@pytest.mark.parametrize(
    ("critic", "form"), [(codes.DIRECT, "published"), *((critic, "exact") for critic, _ in CRITICS)], ids=str
)
def test_off_policy_with_ratios_in_the_critics(world, critic, form, baseline):
    """X_k holds δ_{k−1}, and with it ρ_k Q_k: it multiplies Q_k itself, a state's baseline would leave a bias."""
    mdp, theta, acting = world
    choice = settings(critic=critic, form=FORMS[form], baseline=baseline, on_policy=False, ratios=codes.IMPORTANCE)
    found = mean_ascent(mdp, theta, choice, importance_critics(mdp, theta, acting, critic), 0.0, acting)
    assert_direction(found, oracle.gradient(mdp, theta, GAMMA, PSI, form, behaviour=acting, critics="importance"))


@pytest.mark.parametrize("critic", [codes.DIRECT, codes.INDIRECT, codes.MONTE_CARLO], ids=BY_NAME)
def test_off_policy_with_clipped_ratios(world, critic):
    mdp, theta, acting = world
    choice = settings(critic=critic, baseline=False, on_policy=False, ratios=codes.CLIPPED, clip_actor=True)
    critics = importance_critics(mdp, theta, acting, critic, "clipped")
    found = mean_ascent(mdp, theta, choice, critics, 0.0, acting)
    assert_direction(found, oracle.gradient(mdp, theta, GAMMA, PSI, "exact", behaviour=acting, critics="clipped"))


@pytest.mark.parametrize(("critic", "algorithm"), CRITICS, ids=BY_NAME)
@pytest.mark.parametrize("baseline", [True, False], ids=["baseline", "plain"])
@pytest.mark.parametrize(("form", "variance_of"), COMBINED)
def test_off_policy_with_the_target_policys_own_critics(world, critic, algorithm, form, variance_of, baseline):
    """Plain ratios. The published VPAC carries T̄, made of the critics' ratios, which must then be ratios."""
    mdp, theta, acting = world
    critics, mean = own_critics(mdp, theta, critic)
    published_vpac = form == "published" and algorithm == "vpac"
    choice = settings(
        critic=critic, form=FORMS[form], variance_of=KINDS[variance_of], baseline=baseline, on_policy=False,
        ratios=codes.IMPORTANCE if published_vpac else codes.EXPECTED,
    )  # fmt: skip
    expected = oracle.gradient(
        mdp, theta, GAMMA, PSI, form, variance_of, algorithm=algorithm, behaviour=acting, critics="expected",
        ratios="plain",
    )  # fmt: skip
    assert_direction(mean_ascent(mdp, theta, choice, critics, mean, acting), expected)


def own_or_importance(world, critics, critic):
    """Settings of the critics, their fixed point, and who acts."""
    mdp, theta, acting = world
    if critics == "on-policy":
        return settings(critic=critic), own_critics(mdp, theta, critic)[0], oracle.softmax(theta)
    choice = settings(critic=critic, on_policy=False, ratios=RATIOS[critics])
    return choice, importance_critics(mdp, theta, acting, critic, critics), acting


@pytest.mark.parametrize("critic", [codes.DIRECT, codes.INDIRECT], ids=BY_NAME[:2])
@pytest.mark.parametrize("critics", ["on-policy", "importance", "clipped", "expected"])
def test_td_errors_vanish_on_average_at_the_fixed_point(world, critics, critic):
    mdp, theta, _ = world
    choice, (w, z), acting = own_or_importance(world, critics, critic)
    policy = oracle.softmax(theta)
    mean, size = np.zeros((2, mdp.n_states, 2)), 0.0
    for state, action, after in zip(*np.nonzero(mdp.transition), strict=True):
        if mdp.terminal[state]:
            continue
        for then in range(2):
            chance = mdp.transition[state, action, after] * acting[after, then]
            t = Transition(
                np.array([state]), policy[state], int(action), float(mdp.reward_mean[state, action, after]),
                bool(mdp.terminal[after]), np.array([after]), policy[after],
                ratios(choice, policy[after], acting[after], then),
            )  # fmt: skip
            errors = td_errors(choice, w, z, float(w[state, action]), float(z[state, action]), t)
            mean[:, state, action] += chance * np.array(errors)
            size = max(size, *np.abs(errors))
    assert size > 0.5
    np.testing.assert_allclose(mean, 0.0, atol=1e-12)


@pytest.mark.parametrize("limit", [1, 2, LEVELS])
@pytest.mark.parametrize("critics", ["on-policy", "importance", "clipped"])
def test_errors_of_whole_returns_vanish_on_average_wherever_episodes_are_cut(world, critics, limit):
    """After a cut the return goes on with ρ Q̂ of the next state and action, its square with ρ² M̂."""
    mdp, theta, _ = world
    choice, (w, z), acting = own_or_importance(world, critics, codes.MONTE_CARLO)
    policy = oracle.softmax(theta)
    weights, mean = Weights(theta.copy(), w.copy(), z.copy(), np.zeros(1)), np.zeros((2, limit, mdp.n_states, 2))
    cut, size = 0.0, 0.0
    for chance, steps, then in trajectories(mdp, acting, limit):
        after, next_choice, over = steps[-1].after, Choice(then, 1.0, 1.0, 0.0), bool(mdp.terminal[steps[-1].after])
        if not over:
            next_choice, cut = ratios(choice, policy[after], acting[after], then), cut + chance
        chosen = [ratios(choice, policy[s.state], acting[s.state], s.action) for s in steps]
        buffer, ascent, still = recorded(steps, policy, chosen), np.zeros_like(theta), StepSizes(*[0.0] * 5)
        learn_from_episode(choice, weights, ascent, still, buffer, len(steps), np.array([after]), next_choice, over)
        for k, now in enumerate(steps):
            errors = np.array([buffer.value_error[k], buffer.moment_error[k]])
            mean[:, k, now.state, now.action] += chance * errors
            size = max(size, *np.abs(errors))
    assert (cut > 0.1) == (limit < LEVELS)
    assert size > 0.5
    np.testing.assert_allclose(mean, 0.0, atol=1e-12)
