"""Networks of the sizes that the settings ask for."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np

from vpac.deep.networks import Categorical, Critic, Gaussian, Policy, make_mlp
from vpac.deep.options import Options
from vpac.deep.spaces import Interface

__all__ = ["make_critic", "make_policy"]


def _sizes(inputs: int, outputs: int, d: int, options: Options) -> tuple[int, ...]:
    closing = (round(math.sqrt(128.0 * d)),) if options.closing_layer else ()
    return (inputs, *options.hidden, *closing, outputs)


def make_policy(rng: np.random.Generator, interface: Interface, options: Options) -> Policy:
    """Gaussian for Box actions, categorical for Discrete ones."""
    sizes = _sizes(interface.inputs + options.conditioned, interface.actions, interface.actions, options)
    net = make_mlp(rng, sizes, options.activation, options.initialisation, last_gain=0.01)
    if interface.discrete_actions:
        return Categorical(net)
    return Gaussian(net, jnp.full(interface.actions, options.log_std, jnp.float32))


def make_critic(rng: np.random.Generator, interface: Interface, options: Options, positive: bool) -> Critic:
    """A critic of the value, or of something that cannot be negative."""
    sizes = _sizes(interface.inputs + options.conditioned, 1, interface.inputs, options)
    return Critic(make_mlp(rng, sizes, options.activation, options.initialisation, last_gain=1.0), positive)
