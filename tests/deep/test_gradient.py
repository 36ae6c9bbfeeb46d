"""Deep actors against the oracle: with exact critics the mean update is the gradient, or provably is not."""

from __future__ import annotations

import numpy as np
import pytest

from simulate import Episodes, assert_mean, score_sums, simulate
from vpac import FiniteMDP, oracle

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

from vpac.deep.estimate import Batch, EpisodeSums, estimate_spread, estimate_value  # noqa: E402
from vpac.deep.estimators import EpisodeTrace  # noqa: E402
from vpac.deep.improve import Samples, surrogate  # noqa: E402
from vpac.deep.networks import MLP, Categorical, Critic  # noqa: E402

GAMMA, PSI, SCALE = 0.8, 0.7, 0.5


def process(rng, ends: bool, noise: float = 0.0) -> FiniteMDP:
    """Four states and two actions; risk comes from the dynamics. If it ends, from each state with some probability."""
    S, A = 5 if ends else 4, 2
    P = rng.dirichlet(np.full(S, 0.5), (S, A))
    if ends:
        P[..., -1] += 0.25
        P /= P.sum(-1, keepdims=True)
    terminal = np.zeros(S, bool)
    terminal[-1] = ends
    start = np.full(S, 1.0) * ~terminal
    return FiniteMDP(P, rng.normal(0.5, 1.0, (S, A, S)), np.full((S, A, S), noise), start / start.sum(), terminal)


def table(numbers, positive: bool = False) -> Critic:
    """A critic that is a table over one-hot observations."""
    numbers = np.asarray(numbers, np.float64)
    if positive:  # the inverse of softplus; a variance of nothing is as good as exp(-30)
        numbers = np.where(numbers > 1e-12, np.log(np.expm1(np.maximum(numbers, 1e-12))), -30.0)
    return Critic(MLP([jnp.asarray(numbers[:, None], jnp.float32)], [jnp.zeros(1)], "tanh"), positive)


def exact_sums(mean) -> EpisodeSums:
    """So many episodes before that those of a test do not count: J and the mean of V(S_0) are exact."""
    return EpisodeSums(*(np.float32(x) for x in (1e9, 1e9 * mean, 0.0, 1e9, 1e9 * mean, 1e9 * mean)))


def weights_of(mdp, theta, episodes, kind, form, weighting, scale=SCALE, pieces=1, lam=0.9):
    """The actor's weights in the units of the raw reward, with exact critics; the rollout may come in pieces."""
    moments = oracle.evaluate(mdp, oracle.softmax(theta), GAMMA)
    spread = moments.variance if kind == "variance" else moments.variance + moments.value**2
    value_critic, spread_critic = table(moments.value * scale), table(spread * scale**2, positive=True)
    T, n = episodes.state.shape
    eye = np.eye(mdp.n_states, dtype=np.float32)
    after = np.vstack([episodes.state[1:], episodes.state[-1:]])  # the last row is cut off and never looked at
    alive = episodes.alive.astype(np.float32)
    ended = mdp.terminal[after] & episodes.alive
    trace, found = EpisodeTrace.first(n), []
    for part in np.array_split(np.arange(T), pieces):
        last = part[-1] + 1
        seen = np.concatenate([eye[episodes.state[part]], eye[after[last - 1 : last]]])
        over = 1.0 - ended[part].astype(np.float32)
        batch = Batch(
            jnp.asarray(seen), None, jnp.asarray(episodes.reward[part] * scale * alive[part], jnp.float32), jnp.asarray(over),
            jnp.asarray(over), jnp.asarray(alive[part]),
        )  # fmt: skip
        how = {"gamma": GAMMA, "lam": lam, "target_lam": lam}
        values = estimate_value(value_critic, batch, **how)
        estimate = estimate_spread(
            spread_critic, batch, values.advantage, values, trace, exact_sums(moments.mean), jnp.float32(PSI / scale),
            jnp.float32(scale), kind=kind, form=form, weighting=weighting, variance_of="state", **how,
        )  # fmt: skip
        trace = estimate.trace
        found.append(np.asarray(estimate.weights, np.float64) / scale)
    return np.concatenate(found) * alive


STEPS, OTHER = 4, 0.95
"""Longest episode of `staircase`; the discount of the variance where it has its own."""


def staircase(rng) -> FiniteMDP:
    """Episodes of one to four steps, from three states onwards or to the end: a state is met at several times."""
    S = 5
    P = np.zeros((S, 2, S))
    for s in range(S - 1):
        P[s, :, s + 1 :] = rng.dirichlet(np.full(S - 1 - s, 0.7), 2)
    P[-1, :, -1] = 1.0
    return FiniteMDP(
        P, rng.normal(0.5, 1.0, (S, 2, S)), np.zeros((S, 2, S)), [0.5, 0.3, 0.2, 0, 0], np.arange(S) == S - 1
    )


def all_episodes(mdp, policy) -> tuple[Episodes, np.ndarray]:
    """Every episode that can happen, and how likely it is."""
    found, P = [], mdp.transition
    paths = [([], s, p) for s, p in enumerate(mdp.start) if p > 0.0]
    while paths:
        steps, s, chance = paths.pop()
        if mdp.terminal[s]:
            found.append((steps, chance))
            continue
        for a in range(mdp.n_actions):
            for after in np.flatnonzero(P[s, a]):
                step = (s, a, mdp.reward_mean[s, a, after], True)
                paths.append(([*steps, step], after, chance * policy[s, a] * P[s, a, after]))
    idle = (mdp.n_states - 1, 0, 0.0, False)
    rows = zip(*([*steps, *[idle] * (STEPS - len(steps))] for steps, _ in found), strict=True)
    columns = (np.array(x) for x in zip(*(zip(*row, strict=True) for row in rows), strict=True))
    return Episodes(*columns), np.array([chance for _, chance in found])


def timed(mdp, states) -> np.ndarray:
    """One-hot observations of state and elapsed time, [time, episode, numbers]."""
    eye = np.eye(mdp.n_states * (STEPS + 1), dtype=np.float32)
    return eye[states + mdp.n_states * np.arange(len(states))[:, None]]


def judged(mdp, theta, kind="variance", weighting="start", variance_of="state", luck=None, gamma=GAMMA, lam=0.9):
    """What estimate_spread says of all episodes, with exact critics in scaled units; `gamma` is that of the variance."""
    policy = oracle.softmax(theta)
    episodes, chance = all_episodes(mdp, policy)
    mean, moments = (oracle.evaluate(mdp, policy, discount) for discount in (GAMMA, gamma))
    spread = moments.variance if kind == "variance" else moments.variance + moments.value**2

    def critic(numbers, positive=False):
        return table(np.tile(numbers, STEPS + 1), positive)

    n, alive = len(chance), episodes.alive.astype(np.float32)
    end = np.full((1, n), mdp.n_states - 1)
    over = 1.0 - (episodes.alive & ~np.vstack([episodes.alive[1:], np.zeros((1, n), bool)])).astype(np.float32)
    batch = Batch(
        jnp.asarray(timed(mdp, np.vstack([episodes.state, end]))), None, jnp.asarray(episodes.reward * SCALE, jnp.float32),
        jnp.asarray(over), jnp.asarray(over), jnp.asarray(alive),
    )  # fmt: skip
    advantage = estimate_value(critic(mean.value * SCALE), batch, gamma=GAMMA, lam=lam, target_lam=lam).advantage
    how = {"gamma": gamma, "lam": lam, "target_lam": lam}
    values = estimate_value(critic(moments.value * SCALE), batch, **how)
    before = exact_sums(moments.mean)  # episodes are not alike: their weights, not their number, make J
    luck_critic = None if luck is None else table(luck)
    estimate = estimate_spread(
        critic(spread * SCALE**2, True), batch, advantage, values, EpisodeTrace.first(n), before, jnp.float32(PSI / SCALE),
        jnp.float32(SCALE), luck_critic, kind=kind, form="corrected", weighting=weighting, variance_of=variance_of, **how,
    )  # fmt: skip
    return episodes, chance, estimate, np.asarray(advantage, np.float64)


def mean_update(episodes, chance, policy, weights) -> np.ndarray:
    """Σ over episodes of their chance times Σ_k weight_k ∇log π(A_k|S_k), [S, A]."""
    return np.einsum("n,nsa->sa", chance, score_sums(episodes, weights, policy))


def update_of(mdp, theta, weighting, variance_of="state", **how):
    """The mean update in raw units, each step multiplied with γ^k or n_k."""
    episodes, chance, estimate, _ = judged(mdp, theta, weighting=weighting, variance_of=variance_of, **how)
    k = np.arange(STEPS)[:, None]
    factor = GAMMA**k if weighting == "start" else (1.0 - GAMMA ** (k + 1)) / (1.0 - GAMMA)
    weights = np.asarray(estimate.weights, np.float64) / SCALE * factor
    return mean_update(episodes, chance, oracle.softmax(theta), weights)


def drawn(rng):
    mdp = staircase(rng)
    return mdp, rng.normal(size=(mdp.n_states, mdp.n_actions))


def test_the_episodes_are_all_there(rng):
    mdp, theta = drawn(rng)
    policy = oracle.softmax(theta)
    episodes, chance = all_episodes(mdp, policy)
    assert chance.sum() == pytest.approx(1.0)
    total = (GAMMA ** np.arange(STEPS) @ episodes.reward) @ chance
    assert total == pytest.approx(oracle.evaluate(mdp, policy, GAMMA).mean)
    assert episodes.alive.all(axis=0).any()


@pytest.mark.parametrize("kind", ["variance", "moment"])
@pytest.mark.parametrize("variance_of", ["state", "return"])
def test_start_weighting_is_the_gradient_to_the_last_digit(kind, variance_of, rng):
    mdp, theta = drawn(rng)
    exact = oracle.gradient(mdp, theta, GAMMA, PSI, form="exact", variance_of=variance_of)
    np.testing.assert_allclose(update_of(mdp, theta, "start", variance_of, kind=kind), exact, atol=1e-5)
    other = oracle.gradient(mdp, theta, GAMMA, PSI, variance_of="state" if variance_of == "return" else "return")
    assert np.abs(other - exact).max() > 1e-2  # the two can be distinguished here


@pytest.mark.parametrize("kind", ["variance", "moment"])
@pytest.mark.parametrize("variance_of", ["state", "return"])
def test_uniform_weighting_is_the_gradient_in_episodes_that_end(kind, variance_of, rng):
    """`variance_of` is a setting of "start" alone."""
    mdp, theta = drawn(rng)
    exact = oracle.state_critic_gradient(mdp, theta, GAMMA, PSI, form="exact", weighting="uniform")
    np.testing.assert_allclose(update_of(mdp, theta, "uniform", variance_of, kind=kind), exact, atol=1e-5)


@pytest.mark.parametrize(("weighting", "variance_of"), [("start", "state"), ("start", "return"), ("uniform", "state")])
def test_the_mean_luck_of_a_state_does_as_well_as_the_luck(weighting, variance_of, rng):
    """E[D_k | S_k, k] in place of D_k: other weights, and the same mean update."""
    mdp, theta = drawn(rng)
    episodes, chance, estimate, _ = judged(mdp, theta, weighting=weighting, variance_of=variance_of)
    seen, luck = timed(mdp, episodes.state), np.asarray(estimate.luck, np.float64)
    weight = chance * episodes.alive
    visited = np.einsum("tn,tnj->j", weight, seen)
    mean_luck = np.einsum("tn,tn,tnj->j", weight, luck, seen) / np.maximum(visited, 1e-12)
    assert np.abs(luck - seen @ mean_luck)[episodes.alive].max() > 0.1
    sampled = update_of(mdp, theta, weighting, variance_of)
    np.testing.assert_allclose(update_of(mdp, theta, weighting, variance_of, luck=mean_luck), sampled, atol=1e-5)
    without = update_of(mdp, theta, weighting, variance_of, luck=np.zeros_like(mean_luck))
    assert np.abs(without - sampled).max() > 1e-2


@pytest.mark.parametrize("kind", ["variance", "moment"])
@pytest.mark.parametrize("variance_of", ["state", "return"])
def test_the_variance_may_have_a_discount_of_its_own(kind, variance_of, rng):
    """A_V − ψ · penalty: γ^k times the first is the gradient of the mean with γ, γ'^k times the second that of the variance
    with γ', here by finite differences."""
    mdp, theta = drawn(rng)
    episodes, chance, estimate, advantage = judged(mdp, theta, kind, variance_of=variance_of, gamma=OTHER)
    k = np.arange(STEPS)[:, None]
    penalty = (advantage - np.asarray(estimate.weights, np.float64)) / SCALE
    weights = GAMMA**k * advantage / SCALE - OTHER**k * penalty

    def objective(theta):
        policy = oracle.softmax(theta)
        found = oracle.evaluate(mdp, policy, OTHER)
        variance = found.total_variance if variance_of == "return" else mdp.start @ found.variance
        return oracle.evaluate(mdp, policy, GAMMA).mean - PSI * variance

    slope, h = np.zeros_like(theta), 1e-5
    for place in np.ndindex(*theta.shape):
        up, down = theta.copy(), theta.copy()
        up[place] += h
        down[place] -= h
        slope[place] = (objective(up) - objective(down)) / (2.0 * h)
    np.testing.assert_allclose(mean_update(episodes, chance, oracle.softmax(theta), weights), slope, atol=1e-5)


@pytest.mark.parametrize("kind", ["variance", "moment"])
@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_start_weighting_is_the_exact_gradient(kind, noise, rng):
    mdp = process(rng, ends=True, noise=noise)
    theta = rng.normal(size=(mdp.n_states, mdp.n_actions))
    policy = oracle.softmax(theta)
    exact = oracle.gradient(mdp, theta, GAMMA, PSI, form="exact", variance_of="state")
    episodes = simulate(mdp, policy, 60_000, 60, rng)
    weights = weights_of(mdp, theta, episodes, kind, "corrected", "start")
    weights *= GAMMA ** np.arange(len(weights))[:, None]
    assert_mean(score_sums(episodes, weights, policy), exact, k=4.0)


@pytest.mark.parametrize("kind", ["variance", "moment"])
@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_uniform_weighting_is_the_exact_gradient_of_the_visited_states(kind, noise, rng):
    mdp = process(rng, ends=False, noise=noise)
    theta = rng.normal(size=(mdp.n_states, mdp.n_actions))
    policy = oracle.softmax(theta)
    stationary = mdp.with_start(oracle.stationary_distribution(mdp, policy))
    exact = (1.0 - GAMMA) * oracle.gradient(stationary, theta, GAMMA, PSI, form="exact", variance_of="state")
    samples = chains(stationary, policy, theta, kind, "corrected", rng)
    assert_mean(samples, exact, k=4.0)


def chains(mdp, policy, theta, kind, form, rng, n=4000, length=160, settled=60):
    """Mean weighted score of each of n long chains, once the trace has forgotten its start."""
    episodes = simulate(mdp, policy, n, length, rng)
    weights = weights_of(mdp, theta, episodes, kind, form, "uniform")
    weights[:settled] = 0.0
    weights[-20:] = 0.0  # whose advantages look into the cut's made-up successor
    return score_sums(episodes, weights, policy) / (length - settled - 20)


@pytest.mark.parametrize("kind", ["variance", "moment"])
def test_published_forms_are_not_the_gradient(kind, rng):
    mdp = process(rng, ends=False)
    theta = rng.normal(size=(mdp.n_states, mdp.n_actions))
    policy = oracle.softmax(theta)
    stationary = mdp.with_start(oracle.stationary_distribution(mdp, policy))
    exact = (1.0 - GAMMA) * oracle.gradient(stationary, theta, GAMMA, PSI, form="exact", variance_of="state")
    samples = chains(stationary, policy, theta, kind, "published", rng)
    with pytest.raises(AssertionError, match="off by"):
        assert_mean(samples, exact, k=10.0)
    if kind == "variance":
        published = oracle.state_critic_gradient(mdp, theta, GAMMA, PSI, form="published", weighting="uniform")
        assert_mean(samples, published, k=4.0)


def expected_vaac(mdp, theta, steps):
    """The mean of published VAAC's direction, A_V − ψ (A_M + 2γ Ḡ A_V − 2 V(S_0) A_V), step by step: chance of each state,
    and in it the means of Ḡ and of V(S_0)."""
    policy = oracle.softmax(theta)
    moments = oracle.evaluate(mdp, policy, GAMMA)
    value = moments.value
    p, r = mdp.transition * ~mdp.terminal[:, None, None], mdp.reward_mean
    square = moments.variance + value**2
    later = (p * (r**2 + mdp.reward_variance + 2.0 * GAMMA * r * value + GAMMA**2 * square)).sum(axis=-1)
    advantage, moment_advantage = moments.action_value - value[:, None], later - square[:, None]
    on, paid = np.einsum("sa,sat->st", policy, p), np.einsum("sa,sat,sat->st", policy, p, r)
    here, collected, started = mdp.start, np.zeros(mdp.n_states), mdp.start * value
    total = np.zeros(theta.shape)
    for k in range(steps):
        total += here[:, None] * (advantage - PSI * moment_advantage)
        total -= 2.0 * PSI * (GAMMA * collected - started)[:, None] * advantage
        here, collected, started = here @ on, collected @ on + GAMMA ** (2 * k) * here @ paid, started @ on
    total = np.where(mdp.terminal[:, None], 0.0, policy * total)
    return total - policy * total.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_published_vaac_is_what_its_formula_says(noise, rng):
    mdp = process(rng, ends=True, noise=noise)
    theta = rng.normal(size=(mdp.n_states, mdp.n_actions))
    policy = oracle.softmax(theta)
    episodes = simulate(mdp, policy, 40_000, 60, rng)
    weights = weights_of(mdp, theta, episodes, "moment", "published", "uniform")
    samples = score_sums(episodes, weights, policy)
    assert_mean(samples, expected_vaac(mdp, theta, 60), k=4.0)


def test_the_scale_of_rewards_does_not_matter(rng):
    """ψ and the carried traces are in raw units: another scale of rewards gives the same weights."""
    mdp = process(rng, ends=True)
    theta = rng.normal(size=(mdp.n_states, mdp.n_actions))
    episodes = simulate(mdp, oracle.softmax(theta), 50, 12, rng)
    for kind, form, weighting in (
        ("variance", "corrected", "uniform"), ("variance", "corrected", "start"), ("moment", "published", "uniform"),
    ):  # fmt: skip
        one, other = (weights_of(mdp, theta, episodes, kind, form, weighting, scale, pieces=4) for scale in (0.5, 1.5))
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("weighting", ["uniform", "start"])
def test_the_traces_are_carried_from_piece_to_piece(weighting, rng):
    """Without a λ that looks ahead, the weights are the same whether the steps come at once or in four rollouts."""
    mdp = process(rng, ends=True)
    theta = rng.normal(size=(mdp.n_states, mdp.n_actions))
    episodes = simulate(mdp, oracle.softmax(theta), 50, 12, rng)
    for kind, form in (("variance", "corrected"), ("moment", "corrected"), ("moment", "published")):
        whole, parts = (
            weights_of(mdp, theta, episodes, kind, form, weighting, pieces=pieces, lam=0.0) for pieces in (1, 4)
        )
        np.testing.assert_allclose(whole[:-1], parts[:-1], rtol=1e-4, atol=1e-4)


def test_the_policy_that_learns_climbs_that_weight(rng):
    """The gradient of the surrogate, by automatic differentiation, is the mean weighted score."""
    mdp = process(rng, ends=True)
    theta = rng.normal(size=(mdp.n_states, mdp.n_actions))
    policy = oracle.softmax(theta)
    episodes = simulate(mdp, policy, 200, 10, rng)
    weights = weights_of(mdp, theta, episodes, "variance", "corrected", "start")
    net = Categorical(MLP([np.float32(theta)], [np.zeros(mdp.n_actions, np.float32)], "tanh"))
    seen, actions = np.eye(mdp.n_states, dtype=np.float32)[episodes.state.ravel()], episodes.action.ravel()
    old = jax.jit(Categorical.log_prob)(net, seen, actions)
    samples = Samples(seen, actions, old, np.float32(weights.ravel()), np.float32(episodes.alive.ravel()))
    found = -jax.jit(jax.grad(lambda policy: surrogate(policy, samples, jnp.inf, 0.0)[0]))(net).net.weights[0]
    expected = score_sums(episodes, weights, policy).sum(axis=0) / episodes.alive.sum()
    np.testing.assert_allclose(found, expected, atol=2e-5)
