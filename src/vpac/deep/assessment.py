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

__all__ = ["Ledger", "Scene", "Spread", "Values", "assess_spread", "assess_value"]

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
    """A_V − ψ · penalty, for the actor."""
    target: Array
    """Of the critic of the spread."""
    luck: Array
    """The luck so far as it was sampled; the target of its critic."""
    walk: tuple[Array, Array]
    """D_k before each step and after it, in units of the raw reward."""
    trace: Trace
    """Carried into the next rollout."""
    ledger: Ledger
    """Of the episodes that began or ended here."""
    numbers: dict[str, Array]
    """For people to look at."""


class Ledger(NamedTuple):
    """Episodes that began and that ended, and sums over them in units of the raw reward."""

    begun: Array
    value: Array
    """V(S_0) of those that began."""
    variance: Array
    """σ(S_0) of those that began."""
    ended: Array
    total: Array
    """G of those that ended; what lies behind a cut is taken from V."""
    expected: Array
    """V(S_0) of those that ended."""

    def means(self) -> tuple[Array, Array]:
        """J = E[G], and the mean of V(S_0) of the same episodes; of none that ended, V(S_0) of those that began."""
        first = self.value / jnp.maximum(self.begun, 1e-6)
        count = jnp.maximum(self.ended, 1e-6)
        some = self.ended > 1e-3
        return jnp.where(some, self.total / count, first), jnp.where(some, self.expected / count, first)


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


@partial(jax.jit, static_argnames=("kind", "form", "weighting", "variance_of", "gamma", "lam", "target_lam"))
def assess_spread(
    critic: Critic,
    scene: Scene,
    advantage: Array,
    values: Values,
    trace: Trace,
    before: Ledger,
    psi: Array,
    scale: Array,
    luck_critic: Critic | None = None,
    *,
    kind: Literal["variance", "moment"],
    form: str,
    weighting: str,
    variance_of: str,
    gamma: float,
    lam: float,
    target_lam: float,
) -> Spread:
    """The advantages of the spread, the actor's weights and the critic's targets.

    Args:
        critic: of the spread.
        scene: the rollout, as the variance sees it.
        advantage: A_V with the discount of the mean.
        values: of the value critic with the discount of the variance, which is `gamma`.
        trace: carried from the rollout before.
        before: episodes of earlier rollouts, fewer and fewer of older ones; with those of this one they say what J is.
        psi: price of variance per unit of the scaled reward.
        scale: of the reward.
        luck_critic: E[luck | state], to be used in place of the luck that was sampled.
        kind: what the critic of the spread learns.
        form: "corrected" or "published".
        weighting: "uniform" or "start".
        variance_of: with "start": "return" counts the start state as luck, "state" does not.
        gamma: discount of the variance.
        lam: λ of advantages.
        target_lam: λ of targets.
    """
    spread, next_spread = now_and_next(critic, scene)
    value, running, valid = values.value, scene.running, scene.valid

    def gae(error: Array, discount: float, lam: float) -> Array:
        return estimators.advantages(error, running, valid, discount, lam)

    rows, carried = estimators.traces(trace.times(scale), values.delta, scene.rewards, value, running, valid, gamma)
    predicted = spread if kind == "variance" else spread - value**2
    after = rows.luck + rows.discount * values.delta
    ledger = _ledger(scene, value, predicted, rows, after, scale)
    mean, expected = Ledger(*(old + new for old, new in zip(before, ledger, strict=True))).means()
    stale = 0.0 if variance_of == "return" else rows.start_value - scale * expected
    luck, share = penalties.luck_and_share(rows, weighting, scale * mean + stale)
    if kind == "variance":
        error = estimators.variance_error(values.delta, spread, next_spread, scene.continues, gamma)
        spread_advantage = variance_advantage = gae(error, gamma**2, lam)
    else:
        error = estimators.moment_error(scene.rewards, values.next_value, spread, next_spread, scene.continues, gamma)
        spread_advantage = gae(error, gamma**2, lam)
        variance_advantage = penalties.variance_advantage(spread_advantage, value, values.advantage)
    target = gae(error, gamma**2, target_lam) + spread
    used = luck if luck_critic is None else luck_critic(scene.observations[:-1])
    if form == "corrected":
        penalty = penalties.corrected(values.advantage, variance_advantage, used, share)
    elif kind == "variance":
        penalty = spread_advantage
    else:
        penalty = penalties.published_vaac(values.advantage, spread_advantage, rows, gamma)
        target = (gae(values.delta, gamma, 1.0) + value) ** 2
    weights = advantage - psi * penalty
    next_predicted = next_spread if kind == "variance" else next_spread - values.next_value**2
    numbers = _calibration(scene, values, predicted, next_predicted, scale, gamma)
    numbers |= _sizes(advantage, psi * penalty, weights, psi * used * (form == "corrected"), valid)
    walk = rows.luck / scale, after / scale
    return Spread(weights, target, luck, walk, carried.times(1.0 / scale), ledger, numbers)


def _ledger(scene: Scene, value: Array, predicted: Array, rows: Trace, after: Array, scale: Array) -> Ledger:
    """The episodes that began or ended in a rollout."""
    first, last = scene.valid * (1.0 - rows.begun), scene.valid * (1.0 - scene.running)
    return Ledger(
        first.sum(), (first * value).sum() / scale, (first * predicted).sum() / scale**2, last.sum(),
        (last * (rows.start_value + after)).sum() / scale, (last * rows.start_value).sum() / scale,
    )  # fmt: skip


def _sizes(advantage: Array, penalty: Array, weights: Array, luck: Array, valid: Array) -> dict[str, Array]:
    """How large the penalty and the weights are against A_V, and on which share of steps luck turns A_V around."""
    count = jnp.maximum(valid.sum(), 1.0)

    def std(rows: Array) -> Array:
        mean = (valid * rows).sum() / count
        return jnp.sqrt((valid * (rows - mean) ** 2).sum() / count)

    size = jnp.maximum(std(advantage), 1e-12)
    return {
        "penalty_share": std(penalty) / size,
        "weight_share": std(weights) / size,
        "reversed_share": (valid * (2.0 * luck > 1.0)).sum() / count,
    }


def _calibration(
    scene: Scene, values: Values, predicted: Array, next_predicted: Array, scale: Array, gamma: float
) -> dict[str, Array]:
    """Mean predicted variance, and the mean of (G − V)²; what lies behind a cut is taken from the prediction."""
    cut = (1.0 - scene.running).at[-1].set(1.0)
    behind = estimators.advantages(
        gamma**2 * cut * scene.continues * next_predicted, scene.running, scene.valid, gamma**2, 1.0
    )
    ahead = estimators.advantages(values.delta, scene.running, scene.valid, gamma, 1.0)
    count = jnp.maximum(scene.valid.sum(), 1.0) * scale**2
    return {
        "predicted_variance": (scene.valid * predicted).sum() / count,
        "measured_variance": (scene.valid * (ahead**2 + behind)).sum() / count,
    }
