"""MVPI on processes whose step rewards are known exactly."""

import numpy as np
import pytest

from seeds import bounds, seeds
from vpac import AC, MVPI, FiniteMDP, UserError
from vpac.oracle import evaluate, optimal_policy, step_reward, uniform
from vpac.tabular import learn_many

GAMMA = 0.9


@pytest.fixture(scope="module")
def waves():
    """Action 0 pays nothing now and 2.2 in the next step, action 1 pays 0.9 at once. Nothing is random.

    Waves pay more on average; steps vary, returns do not.
    """
    return FiniteMDP.from_transitions(
        2, 2, [0, 0, 1, 1], [0, 1, 0, 1], [1, 0, 0, 0], np.ones(4), [0.0, 0.9, 2.2, 2.2], start=[1.0, 0.0]
    )


def test_the_reward_of_a_step_by_hand(waves):
    found = step_reward(waves, np.array([[1.0, 0.0], [1.0, 0.0]]), GAMMA)
    mean = 0.1 * 0.9 * 2.2 / (1.0 - 0.81)
    assert found.mean == pytest.approx(mean)
    assert found.variance == pytest.approx(0.1 * 0.9 * 2.2**2 / (1.0 - 0.81) - mean**2)
    flat = step_reward(waves, np.array([[0.0, 1.0], [0.0, 1.0]]), GAMMA)
    assert flat.mean == pytest.approx(0.9)
    assert flat.variance == pytest.approx(0.0, abs=1e-15)


def test_the_reward_of_a_step_step_by_step():
    """Random process with an end: the k-th step has probability (1 − γ) γ^k, and after the end rewards are 0."""
    rng = np.random.default_rng(3)
    S, A = 5, 3
    P = rng.dirichlet(np.ones(S), (S, A))
    r, v = rng.normal(size=(S, A, S)), rng.random((S, A, S))
    mdp = FiniteMDP(P, r, v, terminal=np.arange(S) == S - 1)
    policy = rng.dirichlet(np.ones(A), S)
    here, first, second = mdp.start.copy(), 0.0, 0.0
    for k in range(2000):
        here[-1] = 0.0
        flow = here[:, None, None] * policy[:, :, None] * P * (1.0 - GAMMA) * GAMMA**k
        first, second = first + (flow * r).sum(), second + (flow * (r**2 + v)).sum()
        here = np.einsum("s,sa,sat->t", here, policy, P)
    found = step_reward(mdp, policy, GAMMA)
    assert found.mean == pytest.approx(first)
    assert found.mean == pytest.approx((1.0 - GAMMA) * float(evaluate(mdp, policy, GAMMA).mean))
    assert found.variance == pytest.approx(second - first**2)


def test_without_discount_there_is_no_step_to_speak_of(waves):
    with pytest.raises(UserError, match="gamma below 1"):
        step_reward(waves, uniform(waves), 1.0)


def exactly(mdp, price):
    """Mean-variance policy iteration with exact steps: y, then the optimal policy of the augmented reward, until it settles."""
    policy = optimal_policy(mdp, GAMMA)
    for _ in range(20):
        y = step_reward(mdp, policy, GAMMA).mean
        mean = mdp.reward_mean - price * (mdp.reward_mean**2 + mdp.reward_variance) + 2.0 * price * y * mdp.reward_mean
        policy = optimal_policy(FiniteMDP(mdp.transition, mean, 0.0 * mean, mdp.start, mdp.terminal), GAMMA)
    return policy


@pytest.mark.parametrize("price", [0.02, 0.5])
def test_it_finds_what_exact_iteration_finds(waves, price):
    """Waves are better if E[R] − λ Var(R) says so: below λ = 0.118 they are."""
    best = exactly(waves, price)
    assert best[0, 0] == (price < 0.118)
    settings = {"alpha_theta": 0.05, "alpha_w": 0.1, "alpha_z": 0.1, "max_episode_steps": 80}
    learners = learn_many(MVPI, waves, seeds(), 3000, psi=price, gamma=GAMMA, **settings)
    exact, of_best, gaps, lost = step_reward(waves, best, GAMMA), [], [], []
    for learner in learners:
        policy = learner.policy()
        chosen = step_reward(waves, policy, GAMMA)
        of_best.append(policy[0, np.argmax(best[0])])
        gaps.append(learner.weights.mean[0] / chosen.mean - 1.0)
        lost.append(exact.mean - price * exact.variance - (chosen.mean - price * chosen.variance))
    assert bounds(of_best)[0] > 0.8
    assert bounds(gaps)[0] < 0.02
    assert bounds(gaps)[1] > -0.02
    assert bounds(lost)[1] < 0.02 * exact.mean


def test_without_a_price_it_is_ac(waves):
    both = [kind(waves, psi=0.0, gamma=GAMMA, seed=5, max_episode_steps=50).learn(50) for kind in (AC, MVPI)]
    assert np.array_equal(both[0].weights.theta, both[1].weights.theta)
    assert np.array_equal(both[0].returns, both[1].returns)


def test_compiled_and_stepped_agree(waves):
    """The loop for Gymnasium has the hook too; both learn the flat policy."""
    import gymnasium

    class Seen(gymnasium.Wrapper):
        """Any wrapper keeps an environment from being compiled."""

    env = gymnasium.wrappers.TimeLimit(Seen(waves.to_gymnasium()), 80)
    flat = []
    for seed in seeds():
        learner = MVPI(env, psi=0.5, gamma=GAMMA, seed=seed, alpha_theta=0.05, alpha_w=0.1, alpha_z=0.1).learn(100)
        flat.append(learner.policy()[0, 1])
        assert learner.environment.world is None
        assert 0.0 < learner.weights.mean[0] < 1.1  # no step pays more on average
    assert bounds(flat)[0] > 0.5


def test_it_goes_on_exactly_from_a_file(waves, tmp_path):
    settings = {"psi": 0.5, "gamma": GAMMA, "seed": 2, "max_episode_steps": 40}
    whole = MVPI(waves, **settings).learn(60)
    half = MVPI(waves, **settings).learn(30)
    half.save(tmp_path)
    rest = MVPI.load(tmp_path, waves).learn(30)
    assert np.array_equal(whole.weights.theta, rest.weights.theta)
    assert whole.weights.mean[0] == rest.weights.mean[0]
