"""A rollout as both critics see it: advantages and targets, and the weights that the actor learns with."""

from __future__ import annotations

from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vpac.deep import estimators, penalties
from vpac.deep.estimators import Trace
from vpac.deep.networks import Critic
from vpac.deep.rollout import Rollout
from vpac.typing import Numbers

__all__ = ["Scene", "Spread", "Values", "assess_spread", "assess_value"]

Array = jax.Array


class Scene(NamedTuple):
    """An iteration's steps on the device; see `rollout.Rollout`. Rewards are scaled."""

    observations: Array
    successors: Array | None
    rewards: Array
    continues: Array
    running: Array
    valid: Array

    @staticmethod
    def of(rollout: Rollout, rewards: Numbers) -> Scene:
        """A rollout with these rewards."""
        with np.errstate(over="ignore"):  # what is too large for 32 bits is infinite, and found later
            rewards = (rewards * rollout.valid).astype(np.float32)
        return Scene(
            jnp.asarray(rollout.observations),
            None if rollout.successors is None else jnp.asarray(rollout.successors),
            jnp.asarray(rewards),
            *(jnp.asarray(x) for x in (rollout.continues, rollout.running, rollout.valid)),
        )


class Values(NamedTuple):
    """What the value critic says of a scene."""

    value: Array
    next_value: Array
    delta: Array
    advantage: Array
    target: Array
    explained: Array
    """Share of the targets' variance that the critic explains."""


class Spread(NamedTuple):
    """What the critic of the spread makes of it."""

    weights: Array
    target: Array
    trace: Trace
    """Carried into the next rollout."""
    predicted: Array
    """Mean predicted variance of the return, of the visited states."""
    measured: Array
    """Mean square of G − V, what it should be."""


def now_and_next(critic: Critic, scene: Scene) -> tuple[Array, Array]:
    """The critic's numbers where each step began and where it led."""
    if scene.successors is None:
        both = critic(scene.observations)
        return both[:-1], both[1:]
    return critic(scene.observations[:-1]), critic(scene.successors)


@partial(jax.jit, static_argnames=("gamma", "lam", "target_lam"))
def assess_value(critic: Critic, scene: Scene, *, gamma: float, lam: float, target_lam: float) -> Values:
    """A_V = GAE(γ, λ), and V's targets."""
    value, next_value = now_and_next(critic, scene)
    delta = scene.valid * estimators.td_error(scene.rewards, value, next_value, scene.continues, gamma)
    advantage = estimators.advantages(delta, scene.running, scene.valid, gamma, lam)
    ahead = (
        advantage if lam == target_lam else estimators.advantages(delta, scene.running, scene.valid, gamma, target_lam)
    )
    return Values(value, next_value, delta, advantage, ahead + value, _explained(ahead, ahead + value, scene.valid))


def _explained(error: Array, target: Array, valid: Array) -> Array:
    """1 − Var(error) / Var(target)."""
    count = jnp.maximum(valid.sum(), 1.0)

    def variance(rows: Array) -> Array:
        mean = (valid * rows).sum() / count
        return (valid * (rows - mean) ** 2).sum() / count

    return 1.0 - variance(error) / jnp.maximum(variance(target), 1e-12)


@partial(jax.jit, static_argnames=("kind", "form", "weighting", "gamma", "lam", "target_lam"))
def assess_spread(
    critic: Critic,
    scene: Scene,
    values: Values,
    trace: Trace,
    psi: Array,
    scale: Array,
    *,
    kind: Literal["variance", "moment"],
    form: str,
    weighting: str,
    gamma: float,
    lam: float,
    target_lam: float,
) -> Spread:
    """The advantages of the spread, the actor's weights and the critic's targets."""
    spread, next_spread = now_and_next(critic, scene)
    value, advantage = values.value, values.advantage

    def gae(error: Array, discount: float, lam: float) -> Array:
        return estimators.advantages(error, scene.running, scene.valid, discount, lam)

    rows, carried = _traces(trace, scene, values, scale, gamma)
    if kind == "variance":
        error = estimators.variance_error(values.delta, spread, next_spread, scene.continues, gamma)
        spread_advantage = variance_advantage = gae(error, gamma**2, lam)
    else:
        error = estimators.moment_error(scene.rewards, values.next_value, spread, next_spread, scene.continues, gamma)
        spread_advantage = gae(error, gamma**2, lam)
        variance_advantage = penalties.variance_advantage(spread_advantage, value, advantage)
    target = gae(error, gamma**2, target_lam) + spread
    if form == "corrected":
        weights = penalties.corrected(advantage, variance_advantage, rows, psi, gamma, weighting)
    elif kind == "variance":
        weights = penalties.published_vpac(advantage, spread_advantage, psi)
    else:
        weights = penalties.published_vaac(advantage, spread_advantage, rows, psi, gamma)
        target = (gae(values.delta, gamma, 1.0) + value) ** 2
    predicted = spread if kind == "variance" else spread - value**2
    next_predicted = next_spread if kind == "variance" else next_spread - values.next_value**2
    return Spread(weights, target, carried, *_calibration(scene, values, predicted, next_predicted, scale, gamma))


def _traces(trace: Trace, scene: Scene, values: Values, scale: Array, gamma: float) -> tuple[Trace, Trace]:
    """Traces in units of the scaled reward for these rows; carried ones in units of the raw reward, whose scale moves."""

    def times(trace: Trace, factor: Array) -> Trace:
        return Trace(*(x * factor for x in trace))._replace(discount=trace.discount, begun=trace.begun)

    rows, last = estimators.traces(
        times(trace, scale), values.delta, scene.rewards, values.value, scene.running, scene.valid, gamma
    )
    return rows, times(last, 1.0 / scale)


def _calibration(
    scene: Scene, values: Values, predicted: Array, next_predicted: Array, scale: Array, gamma: float
) -> tuple[Array, Array]:
    """Mean predicted variance, and the mean of (G − V)²; what lies behind a cut is taken from the prediction."""
    cut = (1.0 - scene.running).at[-1].set(1.0)
    behind = estimators.advantages(
        gamma**2 * cut * scene.continues * next_predicted, scene.running, scene.valid, gamma**2, 1.0
    )
    ahead = estimators.advantages(values.delta, scene.running, scene.valid, gamma, 1.0)
    count = jnp.maximum(scene.valid.sum(), 1.0) * scale**2
    return (scene.valid * predicted).sum() / count, (scene.valid * (ahead**2 + behind)).sum() / count
