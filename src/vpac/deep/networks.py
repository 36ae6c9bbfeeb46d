"""Networks: a policy, and a critic for each learned quantity. They share no weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from vpac.deep.options import PPOOptions
from vpac.deep.policy import BOUND, patches
from vpac.deep.spaces import NEVER, Interface, Seen
from vpac.typing import FloatArray

Array = jax.Array

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"tanh": jnp.tanh, "relu": jax.nn.relu, "silu": jax.nn.silu}
ENCODERS: dict[str, tuple[tuple[tuple[int, int, int], ...], int]] = {
    "nature": (((32, 8, 4), (64, 4, 2), (64, 3, 1)), 512),
    "small": (((16, 3, 1), (32, 3, 2)), 128),
}
"""Convolutions of each encoder, as filters, side and stride, and its number of features. "nature" is the network of Mnih et al.
(2015)."""
LARGE_IMAGE = 36
"""Images with at least this many rows and columns get "nature", which cannot read smaller ones, by default."""

Input = Array | Seen
"""Inputs of a network: numbers along the last axis, or numbers with an image or a mask."""


def part(seen: Input, which: Any) -> Input:
    """Index inputs along their first axes."""
    found: Input = jax.tree.map(lambda x: x[which], seen)
    return found


def on_device(rows: Any) -> Any:
    """Rows of `Interface.rows` as inputs on the device."""
    names = rows.dtype.names
    return Seen(**{name: jnp.asarray(rows[name]) for name in names}) if names else jnp.asarray(rows)


def first_numbers(seen: Input, count: int) -> Input:
    """Inputs with the first `count` numbers only."""
    return seen._replace(numbers=seen.numbers[:, :count]) if isinstance(seen, Seen) else seen[:, :count]


class Encoder(eqx.Module):
    """Convolutions without padding, each followed by max(0, ·); the last kernel covers the whole output of the one before."""

    kernels: list[Array]
    """[height, width, input, output]."""
    biases: list[Array]
    strides: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, pixels: Array, levels: Array) -> Array:
        """The features of images [..., height, width, channel], normalised with the `levels` of each channel."""
        if pixels.ndim > 4:  # a rollout: one time step after the other, because layers are larger than images
            each: Array = jax.lax.map(lambda both: self(*both), (pixels, levels))
            return each
        mean, scale = jnp.split(levels[:, None, None], 2, axis=-1)
        x = jnp.clip((pixels - mean) * scale, -BOUND, BOUND)
        for W, b, stride in zip(self.kernels, self.biases, self.strides, strict=True):
            x = jax.nn.relu(patches(x, W, stride) @ W.reshape(-1, W.shape[3]) + b)  # XLA's own is slow within a scan
        return x.reshape(len(x), -1)


class MLP(eqx.Module):
    """Layers x W + b with an activation between them; the features of an image are prepended to the numbers."""

    weights: list[Array]
    biases: list[Array]
    activation: str = eqx.field(static=True)
    encoder: Encoder | None = None

    def __call__(self, seen: Input) -> Array:
        """The outputs for a batch of inputs, along the last axis."""
        f, x = ACTIVATIONS[self.activation], seen.numbers if isinstance(seen, Seen) else seen
        if self.encoder is not None and isinstance(seen, Seen):
            x = jnp.concatenate([self.encoder(seen.pixels, seen.levels), x], axis=-1)
        for W, b in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = f(x @ W + b)
        return x @ self.weights[-1] + self.biases[-1]


def make_mlp(
    rng: np.random.Generator, sizes: tuple[int, ...], activation: str, initialisation: Literal["orthogonal", "uniform"],
    last_gain: float, encoder: Encoder | None = None,
) -> MLP:  # fmt: skip
    """A network with the given layer sizes, behind the encoder of an image.

    "orthogonal": orthogonal weights with gain √2, `last_gain` in the last layer, biases zero. "uniform": weights and
    biases uniform within ±1/√(inputs), as in the paper's framework.
    """
    if encoder is not None:
        sizes = (sizes[0] + encoder.biases[-1].size, *sizes[1:])
    weights, biases = [], []
    for layer, (inputs, outputs) in enumerate(pairwise(sizes)):
        gain = last_gain if layer == len(sizes) - 2 else math.sqrt(2.0)
        W, b = _layer(rng, inputs, outputs, initialisation, gain)
        weights.append(W)
        biases.append(b)
    return MLP(weights, biases, activation, encoder)


def _layer(
    rng: np.random.Generator, inputs: int, outputs: int, initialisation: str, gain: float
) -> tuple[Array, Array]:
    """Weights and biases of one layer, as `make_mlp` describes them."""
    if initialisation == "orthogonal":
        W, b = gain * orthogonal(rng, inputs, outputs), np.zeros(outputs)
    else:
        bound = 1.0 / math.sqrt(inputs)
        W, b = rng.uniform(-bound, bound, (inputs, outputs)), rng.uniform(-bound, bound, outputs)
    return jnp.asarray(W, jnp.float32), jnp.asarray(b, jnp.float32)


def make_encoder(rng: np.random.Generator, interface: Interface, options: PPOOptions) -> Encoder | None:
    """The encoder of the image in observations, if there is one; kernels are at most as large as their input."""
    if not interface.image:
        return None
    height, width, channels = interface.sides
    name = options.encoder
    if name == "auto":
        name = "nature" if min(height, width) >= LARGE_IMAGE else "small"
    layers, features = ENCODERS[name]
    kernels, biases, strides = [], [], []
    for filters, side, stride in (*layers, (features, max(height, width), 1)):
        shape = min(side, height), min(side, width), channels
        W, b = _layer(rng, math.prod(shape), filters, options.initialisation, math.sqrt(2.0))
        kernels.append(W.reshape(*shape, filters))
        biases.append(b)
        strides.append(stride)
        height, width, channels = (height - shape[0]) // stride + 1, (width - shape[1]) // stride + 1, filters
    return Encoder(kernels, biases, tuple(strides))


def orthogonal(rng: np.random.Generator, rows: int, columns: int) -> FloatArray:
    """A random matrix whose rows or columns, whichever are fewer, are orthonormal."""
    Q, R = np.linalg.qr(rng.standard_normal((max(rows, columns), min(rows, columns))))
    Q = Q * np.sign(np.diag(R))
    return Q if rows >= columns else Q.T


class Gaussian(eqx.Module):
    """Independent normal actions with a state-independent standard deviation."""

    net: MLP
    log_std: Array

    def log_prob(self, observation: Input, action: Array) -> Array:
        """log π(a|s)."""
        z = (action - self.net(observation)) * jnp.exp(-self.log_std)
        return -0.5 * (z**2).sum(-1) - self.log_std.sum() - 0.5 * self.log_std.size * math.log(2.0 * math.pi)

    def entropy(self, observation: Input) -> Array:
        """Entropy of the action, at each state."""
        entropy = self.log_std.sum() + 0.5 * self.log_std.size * (1.0 + math.log(2.0 * math.pi))
        numbers = observation.numbers if isinstance(observation, Seen) else observation
        return jnp.broadcast_to(entropy, numbers.shape[:-1])


class Categorical(eqx.Module):
    """A softmax over the allowed actions; for actions with several parts, a product of one for each part."""

    net: MLP
    table: tuple[tuple[int, ...], ...] = eqx.field(static=True, default=())
    """Indices of each part's values among the outputs, see `Interface.table`; empty: an action has no parts."""

    def log_probs(self, observation: Input) -> Array:
        """log π of every action, or of every value of every part, [..., part, value]."""
        logits = self.net(observation)
        if isinstance(observation, Seen) and observation.allowed is not None:
            logits = jnp.where(observation.allowed, logits, NEVER)
        if self.table:
            table = np.array(self.table)
            logits = jnp.where(table < 0, NEVER, logits[..., table])
        return jax.nn.log_softmax(logits)

    def log_prob(self, observation: Input, action: Array) -> Array:
        """log π(a|s)."""
        logits = self.log_probs(observation)
        taken = action[..., None] == jnp.arange(logits.shape[-1])  # an index, and the way back from it, would be slow
        chosen = jnp.where(taken, logits, 0.0).sum(axis=-1)
        return chosen.sum(-1) if self.table else chosen

    def entropy(self, observation: Input) -> Array:
        """Entropy of the action, at each state."""
        logits = self.log_probs(observation)
        entropy = -(jnp.exp(logits) * logits).sum(-1)
        return entropy.sum(-1) if self.table else entropy


Policy = Gaussian | Categorical


CRITIC_QUANTILES = 32
"""Number of quantiles of a distribution, at (i + ½) / 32."""


class Critic(eqx.Module):
    """A number for each state, non-negative for a variance or a second moment; or quantiles, [..., 32].

    Softplus makes it non-negative: it is the identity for large numbers, so the scale of the target matters little, and its
    slope never vanishes exactly, so a critic that fell to zero can rise again.
    """

    net: MLP
    positive: bool = eqx.field(static=True)
    quantiles: bool = eqx.field(static=True, default=False)

    def __call__(self, observation: Input) -> Array:
        """Its output for each state."""
        out = self.net(observation)
        out = out if self.quantiles else out[..., 0]
        return jax.nn.softplus(out) if self.positive else out


def _sizes(inputs: int, hidden: tuple[int, ...], outputs: int, d: int, options: PPOOptions) -> tuple[int, ...]:
    closing = (round(math.sqrt(128.0 * d)),) if options.closing_layer else ()
    return (inputs, *hidden, *closing, outputs)


def make_policy(rng: np.random.Generator, interface: Interface, options: PPOOptions) -> Policy:
    """Gaussian for Box actions, categorical for all others."""
    inputs = interface.inputs + options.conditioned
    sizes = _sizes(inputs, options.hidden, interface.actions, interface.actions, options)
    encoder = make_encoder(rng, interface, options)
    net = make_mlp(rng, sizes, options.activation, options.initialisation, 0.01, encoder)
    if interface.discrete_actions:
        return Categorical(net, tuple(map(tuple, interface.table.tolist())) if interface.choices else ())
    return Gaussian(net, jnp.full(interface.actions, options.log_std, jnp.float32))


def make_critic(
    rng: np.random.Generator, interface: Interface, options: PPOOptions, positive: bool, context: int = 0,
    quantiles: bool = False,
) -> Critic:  # fmt: skip
    """A critic of the value, of a non-negative quantity, or of the quantiles of the return; it has `context` more inputs
    than the policy."""
    inputs, outputs = interface.inputs + options.conditioned + context, CRITIC_QUANTILES if quantiles else 1
    sizes = _sizes(inputs, options.critic_hidden or options.hidden, outputs, interface.inputs, options)
    encoder = make_encoder(rng, interface, options)
    net = make_mlp(rng, sizes, options.activation, options.initialisation, 1.0, encoder)
    return Critic(net, positive, quantiles)
