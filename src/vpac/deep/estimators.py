"""Estimators from a rollout: errors, advantages, targets and the traces of an episode; one equation, one function.

Arrays are [time, environment]. Row t belongs to S_t and A_t. `continues` is 0 where the episode terminated, `running` is 0
where it terminated or was truncated, and `valid` is 0 on steps on which an environment only reset.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

Array = jax.Array


def td_error(reward: Array, value: Array, next_value: Array, continues: Array, gamma: float) -> Array:
    """δ_t = R_{t+1} + γ V(S_{t+1}) − V(S_t), without the γ V term after a termination."""
    return reward + gamma * continues * next_value - value


def variance_error(delta: Array, variance: Array, next_variance: Array, continues: Array, gamma: float) -> Array:
    """δ̄_t = δ_t² + γ̄ σ(S_{t+1}) − σ(S_t), with γ̄ = γ² (Theorem 1 over states)."""
    return delta**2 + gamma**2 * continues * next_variance - variance


def moment_error(
    reward: Array, next_value: Array, moment: Array, next_moment: Array, continues: Array, gamma: float
) -> Array:
    """R² + 2γ R V(S') + γ² M(S') − M(S), the TD error of the second moment (VAAC)."""
    return reward**2 + continues * (2.0 * gamma * reward * next_value + gamma**2 * next_moment) - moment


def advantages(error: Array, running: Array, valid: Array, discount: float, lam: float, unroll: int = 1) -> Array:
    """GAE: A_t = Σ_l (discount · λ)^l error_{t+l}, up to the end of the episode or of the rollout.

    `unroll` steps of the scan are unrolled: faster within a large program, with other last digits.
    """

    def back(later: Array, row: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        error, running, valid = row
        here = valid * (error + discount * lam * running * later)
        return here, here

    return jax.lax.scan(back, jnp.zeros_like(error[0]), (error, running, valid), reverse=True, unroll=unroll)[1]


def quantile_targets(reward: Array, quantiles: Array, running: Array, gamma: float, lam: float) -> Array:
    """Samples of the return from each step on, [time, environment, sample]: R + γ Z', where each Z' is a sample of the next
    step with probability λ and otherwise one of the critic's `quantiles` there: the distribution of the λ-return."""
    bootstrap = jax.random.bernoulli(jax.random.key(0), 1.0 - lam, quantiles.shape)

    def back(later: Array, row: tuple[Array, ...]) -> tuple[Array, Array]:
        reward, following, running, bootstrap = row
        here = reward[:, None] + gamma * running[:, None] * jnp.where(bootstrap, following, later)
        return here, here

    return jax.lax.scan(back, quantiles[-1], (reward, quantiles, running, bootstrap), reverse=True)[1]


def collected_returns(
    carried: EpisodeTrace, reward: Array, running: Array, valid: Array, gamma: float
) -> tuple[EpisodeTrace, EpisodeTrace]:
    """Traces whose `collected` is G_{0:k} = Σ_{j<k} γ^j R_{j+1} and whose `discount` is γ^k: at each row, and carried on."""

    def on(trace: EpisodeTrace, row: tuple[Array, ...]) -> tuple[EpisodeTrace, EpisodeTrace]:
        reward, running, valid = row
        after = trace._replace(collected=trace.collected + trace.discount * reward, discount=trace.discount * gamma)
        first = EpisodeTrace.first(len(reward))
        return jax.tree.map(lambda new, old: jnp.where(running * valid > 0.0, new, old), after, first), trace

    last, rows = jax.lax.scan(on, carried, (reward, running, valid))
    return rows, last


class EpisodeTrace(NamedTuple):
    """Traces of an episode from its start to step k, one number for each environment, in units of the raw reward."""

    luck: Array
    """D_k = D_{k−1} + γ^{k−1} δ_{k−1} = G_{0:k} + γ^k V(S_k) − V(S_0): the return so far minus its expectation."""
    discount: Array
    """γ^k."""
    recent_luck: Array
    """E_k = γ (E_{k−1} + m_{k−1} δ_{k−1}): the sum of the luck since each state visited so far."""
    visits: Array
    """n_k = 1 + γ n_{k−1}: weight of step k in the sum of the means from all states visited so far."""
    squared_visits: Array
    """m_k = 1 + γ² m_{k−1}: weight of step k in the sum of their variances."""
    collected: Array
    """Ḡ_k = Σ_{j<k} γ^{2j} R_{j+1}, the collected reward as published VAAC weights it."""
    start_value: Array
    """V(S_0), as estimated when the episode began."""
    begun: Array
    """Whether k > 0."""

    @staticmethod
    def first(n: int) -> EpisodeTrace:
        """Traces of `n` environments at the start of an episode."""
        zero, one = jnp.zeros(n, jnp.float32), jnp.ones(n, jnp.float32)
        return EpisodeTrace(zero, one, zero, one, one, zero, zero, zero)

    def times(self, factor: Array) -> EpisodeTrace:
        """The same in other units of reward."""
        return self._replace(
            luck=self.luck * factor, recent_luck=self.recent_luck * factor, collected=self.collected * factor,
            start_value=self.start_value * factor,
        )  # fmt: skip


def traces(
    carried: EpisodeTrace, delta: Array, reward: Array, value: Array, running: Array, valid: Array, gamma: float,
    unroll: int = 1,
) -> tuple[EpisodeTrace, EpisodeTrace]:  # fmt: skip
    """The traces at each row, and those carried into the next rollout; they restart with each episode."""

    def on(trace: EpisodeTrace, row: tuple[Array, ...]) -> tuple[EpisodeTrace, EpisodeTrace]:
        delta, reward, value, running, valid = row
        here = trace._replace(start_value=jnp.where(trace.begun > 0.0, trace.start_value, value))
        after = EpisodeTrace(
            luck=here.luck + here.discount * delta,
            discount=here.discount * gamma,
            recent_luck=gamma * (here.recent_luck + here.squared_visits * delta),
            visits=1.0 + gamma * here.visits,
            squared_visits=1.0 + gamma**2 * here.squared_visits,
            collected=here.collected + here.discount**2 * reward,
            start_value=here.start_value,
            begun=jnp.ones_like(here.begun),
        )
        keep = running * valid
        first = EpisodeTrace.first(len(delta))
        return jax.tree.map(lambda new, first: jnp.where(keep > 0.0, new, first), after, first), here

    last, rows = jax.lax.scan(on, carried, (delta, reward, value, running, valid), unroll=unroll)
    return rows, last
