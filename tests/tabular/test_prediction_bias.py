"""The bias of constant step sizes: its exact value, and that runs have it.

While Q̂ shakes, δ² counts the shaking as risk, and M̂ − Q̂² loses Var(Q̂): the direct critic says too much, the indirect one too
little. The means of both follow from the second moments of Q̂, jointly with the pair that the walk is at; those obey linear
recursions, one for each pair (a Markov jump linear system).
"""

from __future__ import annotations

import numpy as np
import pytest

import reference
from seeds import bounds, seeds
from vpac import oracle
from vpac.tabular.prediction import Prediction


def settled_means(mdp, policy, gamma, alpha_w, alpha_z, steps=8000):
    """E[σ̂] and E[M̂ − Q̂²] after many steps of constant size, without traces, on-policy, for a process that never ends.

    x is the pair that the walk is at, y the next one, `one` the place of the constant in (Q̂, 1).
    """
    pairs = one = policy.size
    each = np.arange(pairs)
    chance = (mdp.transition[..., None] * policy).reshape(pairs, pairs)
    r, v = (np.repeat(m.reshape(pairs, -1), policy.shape[1], 1) for m in (mdp.reward_mean, mdp.reward_variance))
    error = np.zeros((pairs, pairs, pairs + 1))  # [x, y]: δ is this times (Q̂, 1)
    error[:, each, each] += gamma
    error[each, :, each] -= 1.0
    error[:, :, one] = r
    update = np.tile(np.eye(pairs + 1), (pairs, pairs, 1, 1))
    update[each, :, each] += alpha_w * error
    at = np.eye(pairs)
    square = np.zeros((pairs, pairs + 1, pairs + 1))  # [x]: E[(Q̂, 1)(Q̂, 1)ᵀ, the walk is at x]
    square[:, one, one] = 1.0 / pairs
    sigma, moment = np.zeros((pairs, pairs)), np.zeros((pairs, pairs))
    for _ in range(steps):
        here = square[:, one, one][:, None]
        surprise = np.einsum("xyi,xij,xyj->xy", error, square, error) + v * here
        surprise += gamma**2 * sigma - np.diag(sigma)[:, None]
        shift = (
            (r**2 + v) * here + 2.0 * gamma * r * square[:, :one, one] + gamma**2 * moment - np.diag(moment)[:, None]
        )
        new_sigma = chance.T @ sigma + alpha_z * (chance * surprise).T @ at
        new_moment = chance.T @ moment + alpha_z * (chance * shift).T @ at
        after = update @ square[:, None] @ update.swapaxes(-1, -2)
        after[each, :, each, each] += alpha_w**2 * v * here
        square = np.einsum("xy,xyij->yij", chance, after)
        change = np.abs(new_sigma - sigma).max() + np.abs(new_moment - moment).max()
        sigma, moment = new_sigma, new_moment
    assert change < 1e-9
    indirect = moment.sum(0) - np.diag(square.sum(0))[:pairs]
    return sigma.sum(0).reshape(policy.shape), indirect.reshape(policy.shape)


@pytest.fixture(scope="module")
def endless():
    rng = np.random.default_rng(3)
    mdp = reference.random_mdp(rng, 3, 2, 0, noise=0.3)
    return mdp, oracle.softmax(rng.normal(scale=0.5, size=(3, 2)))


@pytest.mark.parametrize(("alpha_w", "alpha_z"), [(0.5, 0.5), (0.2, 0.1)])
def test_the_biases_are_those_of_the_recursion(endless, alpha_w, alpha_z):
    mdp, policy = endless
    settings = Prediction(gamma=0.8, alpha_w=alpha_w, alpha_z=alpha_z, steps=1500, points=1)
    truth = settings.truth(mdp, policy)
    exact = [
        (truth.shares * (x - truth.action_variance)).sum() for x in settled_means(mdp, policy, 0.8, alpha_w, alpha_z)
    ]
    runs = [settings.run(mdp, policy, seed) for seed in seeds(1500)]
    assert exact[0] > 0.0 > exact[1]
    for name, expected in zip(("direct_bias", "indirect_bias"), exact, strict=True):
        found = np.array([run[name][-1] for run in runs])
        error = found.std(ddof=1) / np.sqrt(len(found))
        assert found.mean() == pytest.approx(expected, abs=4.5 * error)
        assert abs(expected) > 4.0 * error


def test_with_equal_steps_and_no_traces_the_indirect_estimate_is_not_negative(endless):
    """(1 − α) M + α T² ≥ ((1 − α) Q + α T)²: the second moment stays above the square if both move alike."""
    mdp, policy = endless
    alike, apart = (
        [Prediction(gamma=0.8, alpha_w=0.5, alpha_z=z, steps=20_000).run(mdp, policy, seed) for seed in seeds()]
        for z in (0.5, 0.1)
    )
    assert max(run["indirect_negative"].max() for run in alike) == 0.0
    assert bounds([run["indirect_negative"].max() for run in apart])[0] > 0.1
