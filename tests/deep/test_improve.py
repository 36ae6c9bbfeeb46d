"""Updates of PPO, checked by hand: one linear layer over one-hot observations."""

from __future__ import annotations

import math

import numpy as np
import pytest

jnp = pytest.importorskip("jax.numpy")

from vpac.deep.improve import Optimiser, Samples, fit_critic, improve_policy, surrogate  # noqa: E402
from vpac.deep.networks import MLP, Categorical, Critic, Gaussian  # noqa: E402

PLAIN = Optimiser(max_grad_norm=None, weight_decay=0.0, adam_eps=1.0)
"""ε = 1: the first step of Adam is g / (|g| + 1), which shows how long the gradient is."""


def near(numbers):
    """Within what is left of 32 bits."""
    return pytest.approx(numbers, rel=1e-5)


def stepped(optimiser, numbers, gradient, rate=0.5):
    network = jnp.asarray(numbers, jnp.float32)
    after, _ = optimiser.step(network, optimiser.start(network), jnp.asarray(gradient, jnp.float32), jnp.float32(rate))
    return np.asarray(after)


def test_the_first_step_of_adam():
    assert stepped(PLAIN, [1.0, 2.0], [3.0, -1.0]) == near([1.0 - 0.5 * 0.75, 2.0 + 0.5 * 0.5])


def test_weights_decay_apart_from_the_gradient():
    """p − rate · (g / (|g| + 1) + decay · p): without a gradient, too, and in proportion to the rate."""
    decaying = PLAIN._replace(weight_decay=0.1)
    assert stepped(decaying, [4.0, -2.0], [0.0, 0.0]) == near([4.0 * 0.95, -2.0 * 0.95])
    assert stepped(decaying, [4.0, -2.0], [3.0, 0.0], 1.0) == near([4.0 - 0.75 - 0.4, -1.8])


def test_the_gradient_is_clipped_by_its_norm_before_adam():
    """(3, 4) has norm 5; at most 1 leaves (0.6, 0.8). One that is short enough stays as it is."""
    clipped = PLAIN._replace(max_grad_norm=1.0)
    assert stepped(clipped, [0.0, 0.0], [3.0, 4.0], 1.0) == near([-0.6 / 1.6, -0.8 / 1.8])
    assert stepped(clipped, [0.0, 0.0], [0.3, 0.4], 1.0) == near([-0.3 / 1.3, -0.4 / 1.4])


def categorical(logits):
    return Categorical(MLP([jnp.asarray(logits, jnp.float32)], [jnp.zeros(2)], "tanh"))


def samples_of(ratios, weights, valid, policy):
    """A samples whose ratios π/π_old are the given ones: state k in row k, action 0."""
    seen, actions = jnp.eye(len(ratios), dtype=jnp.float32), jnp.zeros(len(ratios), jnp.int32)
    old = policy.log_prob(seen, actions) - jnp.log(jnp.asarray(ratios, jnp.float32))
    return Samples(seen, actions, old, jnp.asarray(weights, jnp.float32), jnp.asarray(valid, jnp.float32))


def test_the_clipped_surrogate():
    """Gains beyond 1 ± 0.2 stop counting where they would be gains: of good actions above, of bad ones below."""
    policy = categorical(np.zeros((5, 2)))
    ratios, weights = [1.5, 0.5, 1.7, 0.6, 9.0], [1.0, 1.0, -1.0, -1.0, 1e3]
    loss, (kl, clipped, spread) = surrogate(policy, samples_of(ratios, weights, [1, 1, 1, 1, 0], policy), 0.2, 0.0)
    assert float(loss) == near(-(1.2 + 0.5 - 1.7 - 0.8) / 4.0)
    assert float(kl) == near(np.mean([r - 1.0 - math.log(r) for r in ratios[:4]]))
    assert float(clipped) == 1.0
    assert float(spread) == near(math.log(2.0))
    policy = categorical(np.zeros((2, 2)))
    inside = surrogate(policy, samples_of([1.1, 0.9], [1.0, -1.0], [1, 1], policy), 0.2, 0.0)
    assert float(inside[0]) == near(-(1.1 - 0.9) / 2.0)
    assert float(inside[1][1]) == 0.0


def test_entropy_is_a_gain():
    policy = categorical([[0.0, 0.0], [math.log(3.0), 0.0]])
    entropy = (math.log(2.0) - 0.75 * math.log(0.75) - 0.25 * math.log(0.25)) / 2.0
    samples = samples_of([1.0, 1.0], [0.0, 0.0], [1, 1], policy)
    assert float(surrogate(policy, samples, 0.2, 0.3)[0]) == near(-0.3 * entropy)


def test_a_normal_policy():
    """Mean 1 and 2, spread 1/2 and 2: log-densities add up over the action's numbers, and so do entropies."""
    net = MLP([jnp.zeros((1, 2))], [jnp.asarray([1.0, 2.0])], "tanh")
    policy = Gaussian(net, jnp.log(jnp.asarray([0.5, 2.0])))
    found = float(policy.log_prob(jnp.ones((1, 1)), jnp.asarray([[2.0, 0.0]]))[0])
    assert found == near(-0.5 * (2.0**2 + 1.0**2) - math.log(0.5 * 2.0) - math.log(2.0 * math.pi))
    assert float(policy.entropy(jnp.ones((1, 1)))[0]) == near(1.0 + math.log(2.0 * math.pi))


def improved(weights, valid, rounds=1, rate=0.1, **changes):
    """Logits of action 0 after some rounds over all rows, from equal probabilities."""
    policy = categorical(np.zeros((len(weights), 2)))
    samples = samples_of([1.0] * len(weights), weights, valid, policy)
    rows = jnp.tile(jnp.arange(len(weights)), (rounds, 1))
    how = {"optimiser": PLAIN, "clip": 0.2, "entropy": 0.0, "target_kl": None, "normalise": False} | changes
    after, _, metrics = improve_policy(policy, PLAIN.start(policy), samples, rows, jnp.float32(rate), **how)
    return np.asarray(after.net.weights[0])[:, 0], metrics


def test_a_step_up_the_surrogate():
    """∂/∂θ(s, 0) = w/2 · 1/3 at π = 1/2, averaged over three rows of which the idle one has no share."""
    found, metrics = improved([6.0, -12.0, 99.0, 3.0], [1, 1, 0, 1])
    slope = np.array([1.0, -2.0, 0.0, 0.5])
    np.testing.assert_allclose(found, 0.1 * slope / (np.abs(slope) + 1.0), rtol=1e-5)
    assert float(metrics["updates"]) == 1.0
    length = math.sqrt(2.0 * ((slope**2).sum() + slope.sum() ** 2))  # of both actions, and of the biases
    assert float(metrics["policy_gradient"]) == near(length)


def test_normalised_weights_have_mean_zero_and_deviation_one():
    """2, 4 and 9 have mean 5 and variance (9 + 1 + 16) / 3; the idle 99 is not one of them."""
    found, _ = improved([2.0, 4.0, 99.0, 9.0], [1, 1, 0, 1], normalise=True)
    slope = np.array([-3.0, -1.0, 0.0, 4.0]) / math.sqrt(26.0 / 3.0) / 6.0
    np.testing.assert_allclose(found, 0.1 * slope / (np.abs(slope) + 1.0), rtol=1e-5)


@pytest.mark.parametrize(("room", "steps"), [(1.01, 2), (0.99, 1)])
def test_the_divergence_ends_an_iteration_at_one_and_a_half_times_the_target(room, steps):
    """The first step is at no divergence; the second is taken if what the first has left is at most 1.5 · target."""
    _, first = improved([6.0], [1], rounds=2)
    kl = float(first["kl"])
    assert kl > 0.0
    _, metrics = improved([6.0], [1], rounds=3, target_kl=room * kl / 1.5)
    assert float(metrics["updates"]) == steps


def test_regression_on_the_steps_that_count():
    """(V − y)² averaged over two of three rows has the slope V − y there: 1 − 4 and 1 − 0."""
    critic = Critic(MLP([jnp.ones((3, 1))], [jnp.zeros(1)], "tanh"), False)
    targets, valid = jnp.asarray([4.0, 99.0, 0.0]), jnp.asarray([1.0, 0.0, 1.0])
    after, _, metrics = fit_critic(
        critic, PLAIN.start(critic), jnp.eye(3), targets, valid, jnp.arange(3)[None], jnp.float32(0.5), optimiser=PLAIN
    )
    assert np.asarray(after.net.weights[0])[:, 0] == near([1.0 + 0.5 * 0.75, 1.0, 1.0 - 0.5 * 0.5])
    assert np.asarray(after.net.biases[0]) == near([0.5 * 2.0 / 3.0])
    assert float(metrics["loss"]) == near((9.0 + 1.0) / 2.0)
