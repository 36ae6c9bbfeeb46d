"""Networks: a policy and a critic for each number that is learned. They share no weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from vpac.deep.options import Options
from vpac.deep.spaces import Interface
from vpac.typing import FloatArray

Array = jax.Array

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"tanh": jnp.tanh, "relu": jax.nn.relu, "silu": jax.nn.silu}


class MLP(eqx.Module):
    """Layers x W + b with an activation between them."""

    weights: list[Array]
    biases: list[Array]
    activation: str = eqx.field(static=True)

    def __call__(self, x: Array) -> Array:
        """The outputs for a batch of inputs, along the last axis."""
        f = ACTIVATIONS[self.activation]
        for W, b in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = f(x @ W + b)
        return x @ self.weights[-1] + self.biases[-1]


def make_mlp(
    rng: np.random.Generator,
    sizes: tuple[int, ...],
    activation: str,
    initialisation: Literal["orthogonal", "uniform"],
    last_gain: float,
) -> MLP:
    """A network with the given layer sizes.

    "orthogonal": orthogonal weights with gain √2, `last_gain` in the last layer, biases zero. "uniform": weights and
    biases uniform within ±1/√(inputs), as the paper's framework makes them.
    """
    weights, biases = [], []
    for layer, (inputs, outputs) in enumerate(pairwise(sizes)):
        if initialisation == "orthogonal":
            gain = last_gain if layer == len(sizes) - 2 else math.sqrt(2.0)
            W, b = gain * orthogonal(rng, inputs, outputs), np.zeros(outputs)
        else:
            bound = 1.0 / math.sqrt(inputs)
            W, b = rng.uniform(-bound, bound, (inputs, outputs)), rng.uniform(-bound, bound, outputs)
        weights.append(jnp.asarray(W, jnp.float32))
        biases.append(jnp.asarray(b, jnp.float32))
    return MLP(weights, biases, activation)


def orthogonal(rng: np.random.Generator, rows: int, columns: int) -> FloatArray:
    """A random matrix whose rows or columns, whichever are fewer, are orthonormal."""
    Q, R = np.linalg.qr(rng.standard_normal((max(rows, columns), min(rows, columns))))
    Q = Q * np.sign(np.diag(R))
    return Q if rows >= columns else Q.T


class Gaussian(eqx.Module):
    """Independent normal actions; their spread is a parameter and does not depend on the state."""

    net: MLP
    log_std: Array

    def log_prob(self, observation: Array, action: Array) -> Array:
        """log π(a|s)."""
        z = (action - self.net(observation)) * jnp.exp(-self.log_std)
        return -0.5 * (z**2).sum(-1) - self.log_std.sum() - 0.5 * self.log_std.size * math.log(2.0 * math.pi)

    def entropy(self, observation: Array) -> Array:
        """Of the action, at each state."""
        entropy = self.log_std.sum() + 0.5 * self.log_std.size * (1.0 + math.log(2.0 * math.pi))
        return jnp.broadcast_to(entropy, observation.shape[:-1])


class Categorical(eqx.Module):
    """A softmax over actions."""

    net: MLP

    def log_prob(self, observation: Array, action: Array) -> Array:
        """log π(a|s)."""
        logits = jax.nn.log_softmax(self.net(observation))
        return jnp.take_along_axis(logits, action[..., None], axis=-1)[..., 0]

    def entropy(self, observation: Array) -> Array:
        """Of the action, at each state."""
        logits = jax.nn.log_softmax(self.net(observation))
        return -(jnp.exp(logits) * logits).sum(-1)


Policy = Gaussian | Categorical


class Critic(eqx.Module):
    """A number for each state; one that cannot be negative if it is a variance or a second moment.

    Softplus keeps it so: it is the identity for large numbers, so the scale of the target does not matter much, and its
    slope never vanishes exactly, so a critic that has fallen to nothing can rise again.
    """

    net: MLP
    positive: bool = eqx.field(static=True)

    def __call__(self, observation: Array) -> Array:
        """Its number for each state."""
        out = self.net(observation)[..., 0]
        return jax.nn.softplus(out) if self.positive else out


def _sizes(inputs: int, hidden: tuple[int, ...], outputs: int, d: int, options: Options) -> tuple[int, ...]:
    closing = (round(math.sqrt(128.0 * d)),) if options.closing_layer else ()
    return (inputs, *hidden, *closing, outputs)


def make_policy(rng: np.random.Generator, interface: Interface, options: Options) -> Policy:
    """Gaussian for Box actions, categorical for Discrete ones."""
    inputs = interface.inputs + options.conditioned
    sizes = _sizes(inputs, options.hidden, interface.actions, interface.actions, options)
    net = make_mlp(rng, sizes, options.activation, options.initialisation, last_gain=0.01)
    if interface.discrete_actions:
        return Categorical(net)
    return Gaussian(net, jnp.full(interface.actions, options.log_std, jnp.float32))


def make_critic(
    rng: np.random.Generator, interface: Interface, options: Options, positive: bool, context: int = 0
) -> Critic:
    """A critic of the value, or of something that cannot be negative; it sees `context` numbers more than the policy."""
    inputs = interface.inputs + options.conditioned + context
    sizes = _sizes(inputs, options.critic_hidden or options.hidden, 1, interface.inputs, options)
    return Critic(make_mlp(rng, sizes, options.activation, options.initialisation, last_gain=1.0), positive)
