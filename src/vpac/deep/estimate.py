"""Estimates from a rollout: advantages, the targets of every critic, and the weights of the policy's update.

`estimators` has the error, the advantage and the trace of one step, `penalties` the penalties. Here they are combined for a
whole rollout in compiled functions: `estimate_value` for PPO, `estimate_spread` and `estimate_measure` for its variants.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vpac.deep import estimators, penalties
from vpac.deep.collect import Rollout
from vpac.deep.estimators import EpisodeTrace
from vpac.deep.networks import Critic, Input, on_device, part
from vpac.deep.options import PPOOptions
from vpac.risk.measures import Law, Measure
from vpac.typing import Numbers

Array = jax.Array
UNROLL = 4
"""Unrolled steps of a scan over time within one large program."""


class Batch(NamedTuple):
    """A rollout on the device, [time, environment, …], with scaled rewards; see `collect.Rollout`."""

    observations: Input
    successors: Input | None
    rewards: Array
    continues: Array
    running: Array
    valid: Array

    @property
    def unroll(self) -> int:
        """Unrolled steps of a scan over time."""
        return 1

    @classmethod
    def of(cls, rollout: Rollout, rewards: Numbers) -> Batch:
        """A rollout with these rewards in place of its own."""
        with np.errstate(over="ignore"):  # numbers too large for 32 bits become infinite, which is reported later
            rewards = (rewards * rollout.valid).astype(np.float32)
        return cls(
            on_device(rollout.observations),
            None if rollout.successors is None else on_device(rollout.successors),
            *(jnp.asarray(x) for x in (rewards, rollout.continues, rollout.running, rollout.valid)),
        )

    def values(self, critic: Critic) -> tuple[Array, Array]:
        """The critic's values before and after each step."""
        if self.successors is None:
            both = critic(self.observations)
            return both[:-1], both[1:]
        return critic(self.begun), critic(self.successors)

    @property
    def begun(self) -> Input:
        """The observations before each step."""
        return part(self.observations, slice(None, -1))

    def advantages(self, error: Array, discount: float, lam: float) -> Array:
        """GAE of these errors."""
        return estimators.advantages(error, self.running, self.valid, discount, lam, self.unroll)

    def mean(self, rows: Array) -> Array:
        """Mean over the valid steps."""
        return (self.valid * rows).sum() / jnp.maximum(self.valid.sum(), 1.0)

    def variance(self, rows: Array) -> Array:
        """Variance over the valid steps."""
        return self.mean((rows - self.mean(rows)) ** 2)


class UnrolledBatch(Batch):
    """A batch within one large program, where the overhead of a step exceeds its arithmetic."""

    @property
    def unroll(self) -> int:
        """More steps, which changes the last digits."""
        return UNROLL


class ValueEstimate(NamedTuple):
    """Estimates of a value critic for a batch."""

    value: Array
    next_value: Array
    delta: Array
    advantage: Array
    target: Array
    explained: Array
    """Explained variance: the critic's share of the variance of the targets."""


class EpisodeSums(NamedTuple):
    """Numbers of episodes that began and ended, and sums over them in units of the raw reward."""

    begun: Array
    value: Array
    """Σ V(S_0) over episodes that began."""
    variance: Array
    """Σ σ(S_0) over episodes that began."""
    ended: Array
    total: Array
    """Σ G over episodes that ended, with V as bootstrap after a truncation."""
    expected: Array
    """Σ V(S_0) over episodes that ended."""

    def means(self) -> tuple[Array, Array]:
        """J = E[G] and the mean V(S_0) of the same episodes; while none has ended, the mean V(S_0) of begun ones for both."""
        first = self.value / jnp.maximum(self.begun, 1e-6)
        count = jnp.maximum(self.ended, 1e-6)
        some = self.ended > 1e-3
        return jnp.where(some, self.total / count, first), jnp.where(some, self.expected / count, first)


class SpreadEstimate(NamedTuple):
    """Estimates of the spread critic (variance or second moment) for a batch."""

    weights: Array
    """A_V − ψ · penalty, for the policy."""
    target: Array
    """Targets of the spread critic."""
    luck: Array
    """The sampled luck, target of the luck critic."""
    luck_before: Array
    """D_k before each step, in units of the raw reward."""
    luck_after: Array
    """D_{k+1}, after it."""
    trace: EpisodeTrace
    """Trace to carry into the next rollout."""
    episodes: EpisodeSums
    """Sums over the episodes that began or ended in the batch."""
    metrics: dict[str, Array]


FEWEST_RETURNS = 20
"""Fewest finished episodes from which the measure is estimated; with fewer ψ is 0."""
SMALLEST_DISCOUNT = 1e-3
"""Smaller γ^k are raised to this: such steps hardly change the return, and 1/γ^k would amplify rounding errors."""


class MeasureEstimate(NamedTuple):
    """Estimates by a measure's influence function for a batch."""

    weights: Array
    """A_V − ψ · penalty, for the policy."""
    target: Array | None
    """Samples of the return, for the quantile critic."""
    trace: EpisodeTrace
    """Carried into the next rollout."""
    metrics: dict[str, Array]


def estimate_update(
    networks: Any, batch: Batch, trace: EpisodeTrace, earlier: EpisodeSums, psi: Array, scale: Array, *,
    kind: Literal["variance", "moment", "measure"] | None, options: PPOOptions, law: tuple[Array, Array] | None = None,
) -> tuple[Array, dict[str, Array], dict[str, Array], SpreadEstimate | MeasureEstimate | None]:  # fmt: skip
    """The policy's weights w = A_V − ψ · penalty, the targets of each critic, metrics, and the spread estimate.

    `trace` and `earlier` come from earlier rollouts, ψ is per unit of the scaled reward, `kind` is what the spread critic
    learns, if there is one; `law` (for a measure) has the returns of recent episodes and a mask of valid ones.
    """
    o = options
    how = {"lam": o.gae_lambda, "target_lam": o.gae_lambda if o.target_lambda is None else o.target_lambda}
    values = estimate_value(networks.value, batch, gamma=o.gamma, **how)
    targets, metrics = {"value": values.target}, {"explained_variance": values.explained}
    if kind is None:
        return values.advantage, targets, metrics, None
    how["gamma"], priced, priced_batch = o.priced_gamma, values, batch
    if kind == "measure":
        assert o.measure is not None
        assert law is not None
        given = networks.spread, batch, values.advantage, trace, *law, psi, scale
        measured = estimate_measure(*given, measure=o.measure, **how)
        targets |= {} if measured.target is None else {"spread": measured.target}
        return measured.weights, targets, metrics | measured.metrics, measured
    if networks.score is not None:  # the score ends at a time limit
        priced_batch = batch._replace(continues=batch.running)
        priced = estimate_value(networks.score, priced_batch, **how)
        targets["score"] = priced.target
    if o.form == "corrected" and o.weighting == "uniform":
        priced = recentred(priced, priced_batch, gamma=o.priced_gamma, lam=o.gae_lambda)
    spread = estimate_spread(
        networks.spread, priced_batch, values.advantage, priced, trace, earlier, psi, scale, networks.luck, kind=kind,
        form=o.form, weighting=o.weighting, variance_of=o.variance_of, **how,
    )  # fmt: skip
    targets["spread"] = spread.target
    if networks.luck is not None:
        targets["luck"] = spread.luck
    return spread.weights, targets, metrics | spread.metrics, spread


@partial(jax.jit, static_argnames=("gamma", "lam", "target_lam"))
def estimate_value(critic: Critic, batch: Batch, *, gamma: float, lam: float, target_lam: float) -> ValueEstimate:
    """A_V = GAE(γ, λ) of δ_t, and the λ-targets of V."""
    value, next_value = batch.values(critic)
    delta = batch.valid * estimators.td_error(batch.rewards, value, next_value, batch.continues, gamma)
    advantage = batch.advantages(delta, gamma, lam)
    error = advantage if lam == target_lam else batch.advantages(delta, gamma, target_lam)
    target = error + value
    explained = 1.0 - batch.variance(error) / jnp.maximum(batch.variance(target), 1e-12)
    return ValueEstimate(value, next_value, delta, advantage, target, explained)


@partial(jax.jit, static_argnames=("gamma", "lam"))
def recentred(values: ValueEstimate, batch: Batch, *, gamma: float, lam: float) -> ValueEstimate:
    """The estimates with V + b, b the mean of G − V over the batch: δ² would count an error that all states share as risk.

    "start" needs no such correction: it measures the deviation from the mean return of finished episodes.
    """
    bias = batch.mean(batch.advantages(values.delta, gamma, 1.0))
    delta = values.delta + batch.valid * (gamma * batch.continues - 1.0) * bias
    return values._replace(
        value=values.value + bias, next_value=values.next_value + bias, delta=delta,
        advantage=batch.advantages(delta, gamma, lam),
    )  # fmt: skip


@partial(jax.jit, static_argnames=("kind", "form", "weighting", "variance_of", "gamma", "lam", "target_lam"))
def estimate_spread(
    critic: Critic, batch: Batch, advantage: Array, values: ValueEstimate, trace: EpisodeTrace, earlier: EpisodeSums,
    psi: Array, scale: Array, luck_critic: Critic | None = None, *, kind: Literal["variance", "moment"], form: str,
    weighting: str, variance_of: str, gamma: float, lam: float, target_lam: float,
) -> SpreadEstimate:  # fmt: skip
    """The policy's weights A_V − ψ · penalty, and the targets of the spread critic and the luck critic.

    Args that are not fields of `PPOOptions`:
        batch: the rollout; its episodes end where the penalised return ends.
        advantage: A_V with the discount of the mean.
        values: of the value critic with the discount of the variance, `gamma`.
        earlier: sums over episodes of earlier rollouts, older ones with less weight; together with this rollout's they give J.
        psi: ψ per unit of the scaled reward.
        luck_critic: E[luck | state], used in place of the sampled luck.
    """
    spread, next_spread = batch.values(critic)
    value, direct = values.value, kind == "variance"
    rows, carried = estimators.traces(
        trace.times(scale), values.delta, batch.rewards, value, batch.running, batch.valid, gamma, batch.unroll
    )
    indirect = spread - value**2, next_spread - values.next_value**2
    predicted, next_predicted = (spread, next_spread) if direct else indirect
    luck_after = rows.luck + rows.discount * values.delta

    episodes = _episode_sums(batch, value, predicted, rows, luck_after, scale)
    mean, expected = EpisodeSums(*(old + new for old, new in zip(earlier, episodes, strict=True))).means()
    stale = 0.0 if variance_of == "return" else rows.start_value - scale * expected
    luck, share = penalties.luck_and_share(rows, weighting, scale * mean + stale)

    if direct:
        error = estimators.variance_error(values.delta, spread, next_spread, batch.continues, gamma)
        spread_advantage = variance_advantage = batch.advantages(error, gamma**2, lam)
    else:
        error = estimators.moment_error(batch.rewards, values.next_value, spread, next_spread, batch.continues, gamma)
        spread_advantage = batch.advantages(error, gamma**2, lam)
        variance_advantage = penalties.variance_advantage(spread_advantage, value, values.advantage)
    target = batch.advantages(error, gamma**2, target_lam) + spread

    used = luck if luck_critic is None else luck_critic(batch.begun)
    if form == "corrected":
        penalty = penalties.corrected(values.advantage, variance_advantage, used, share)
    elif direct:
        penalty = spread_advantage
    else:
        penalty = penalties.published_vaac(values.advantage, spread_advantage, rows, gamma)
        target = (batch.advantages(values.delta, gamma, 1.0) + value) ** 2
    weights = advantage - psi * penalty

    metrics = _calibration(batch, values, predicted, next_predicted, scale, gamma)
    metrics |= _shares(batch, advantage, psi * penalty, weights, psi * used * (form == "corrected"))
    return SpreadEstimate(
        weights, target, luck, rows.luck / scale, luck_after / scale, carried.times(1.0 / scale), episodes, metrics
    )


@partial(jax.jit, static_argnames=("measure", "gamma", "lam", "target_lam"))
def estimate_measure(
    critic: Critic | None, batch: Batch, advantage: Array, trace: EpisodeTrace, returns: Array, counts: Array, psi: Array,
    scale: Array, *, measure: Measure, gamma: float, lam: float, target_lam: float,
) -> MeasureEstimate:  # fmt: skip
    """The policy's weights A_V − ψ · A_u / γ^k, with u = E[IF(G)] given the past, and the targets of the quantile critic.

        u_k = mean_i IF(G_{0:k} + γ^k q_i(S_k)),     u at the end = IF(G),     A_u = Σ_l λ^l (u_{k+l+1} − u_{k+l})

    Time limits end episodes. Without a critic u is 0 before the end, and A_u = IF(G) for episodes that end in the batch.

    `returns` are those of recent episodes, `counts` the mask of valid ones, in units of the raw reward: IF is taken at their
    distribution. ψ is per unit of the scaled reward, `trace` that of `collected_returns`.
    """
    enough = counts.sum() >= FEWEST_RETURNS
    law = Law.of(returns, jnp.where(enough, counts, 1.0))
    paid = batch.rewards / scale
    rows, carried = estimators.collected_returns(trace, paid, batch.running, batch.valid, gamma)
    after, discount = rows.collected + rows.discount * paid, rows.discount
    ended = measure.influence(after, law)
    if critic is None:
        before, then, lam, target = jnp.zeros_like(after), 0.0, 1.0, None
    else:
        here, following = batch.values(critic)
        before = measure.influence(rows.collected[..., None] + discount[..., None] * here / scale, law).mean(-1)
        there = measure.influence(after[..., None] + gamma * discount[..., None] * following / scale, law)
        then = there.mean(-1)
        target = estimators.quantile_targets(batch.rewards, following, batch.running, gamma, target_lam)
    error = batch.valid * (jnp.where(batch.running > 0.0, then, ended) - before)
    unit = enough * scale**measure.degree
    penalty = unit * batch.advantages(error, 1.0, lam) / jnp.maximum(discount, SMALLEST_DISCOUNT)
    weights = advantage - psi * penalty
    metrics = _shares(batch, advantage, psi * penalty, weights, jnp.zeros_like(weights))
    del metrics["reversed_share"]
    metrics = {"penalty_value": measure.value(law), **metrics}
    return MeasureEstimate(weights, target, carried, metrics)


def _episode_sums(
    batch: Batch, value: Array, predicted: Array, rows: EpisodeTrace, luck: Array, scale: Array
) -> EpisodeSums:
    """Sums over the episodes that began or ended in a batch; `luck` is that after each step."""
    first, last = batch.valid * (1.0 - rows.begun), batch.valid * (1.0 - batch.running)
    return EpisodeSums(
        first.sum(), (first * value).sum() / scale, (first * predicted).sum() / scale**2, last.sum(),
        (last * (rows.start_value + luck)).sum() / scale, (last * rows.start_value).sum() / scale,
    )  # fmt: skip


def _shares(batch: Batch, advantage: Array, penalty: Array, weights: Array, luck: Array) -> dict[str, Array]:
    """Size of the penalty and of the weights relative to A_V, and the share of steps where luck changes the sign of A_V."""
    size = jnp.maximum(jnp.sqrt(batch.variance(advantage)), 1e-12)
    return {
        "penalty_share": jnp.sqrt(batch.variance(penalty)) / size,
        "weight_share": jnp.sqrt(batch.variance(weights)) / size,
        "reversed_share": batch.mean(2.0 * luck > 1.0),
    }


def _calibration(
    batch: Batch, values: ValueEstimate, predicted: Array, next_predicted: Array, scale: Array, gamma: float
) -> dict[str, Array]:
    """Mean predicted variance and mean (G − V)², with the prediction as bootstrap after a cut."""
    cut = (1.0 - batch.running).at[-1].set(1.0)
    behind = batch.advantages(gamma**2 * cut * batch.continues * next_predicted, gamma**2, 1.0)
    error = batch.advantages(values.delta, gamma, 1.0)
    count = jnp.maximum(batch.valid.sum(), 1.0) * scale**2
    return {
        "predicted_variance": (batch.valid * predicted).sum() / count,
        "measured_variance": (batch.valid * (error**2 + behind)).sum() / count,
    }
