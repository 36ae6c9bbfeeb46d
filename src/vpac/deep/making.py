"""Networks of the sizes that the settings ask for."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from vpac.deep.conditioning import PriceRange
from vpac.deep.networks import Categorical, Critic, Gaussian, Policy, make_mlp
from vpac.deep.normaliser import RunningMoments
from vpac.deep.options import Options
from vpac.deep.policy import NumpyPolicy
from vpac.deep.spaces import Interface

__all__ = ["make_critic", "make_policy", "numpy_policy"]


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


def numpy_policy(
    policy: Policy,
    interface: Interface,
    seen: RunningMoments,
    options: Options,
    within: PriceRange | None,
    memory: dict[str, Any] | None = None,
) -> NumpyPolicy:
    """A policy in plain arrays."""
    scale = 1.0 / np.sqrt(seen.variance + 1e-8)
    return NumpyPolicy(
        interface, [np.asarray(W) for W in policy.net.weights], [np.asarray(b) for b in policy.net.biases],
        policy.net.activation, np.asarray(policy.log_std) if isinstance(policy, Gaussian) else None,
        seen.mean.astype(np.float32), scale.astype(np.float32), options.normalise_observations, options.gamma, within,
        memory=memory,
    )  # fmt: skip
