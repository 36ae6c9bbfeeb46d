"""What an episode remembers from step to step: a handful of numbers, whatever the algorithm.

q, v: Q̂(S_k,A_k) and Σ_a π Q̂(S_k,a), or zero without a baseline. s, s_mean: the same for the critic of the spread, which is
σ̂ (VPAC) or M̂ (VAAC). `tests/tabular/test_actor.py` shows that their means are the oracle's gradients.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from vpac.risk.volatility import augmented
from vpac.tabular.arrays import (
    ACTION,
    BAD_ACTOR,
    BAD_REWARD,
    BAD_SPREAD,
    BAD_VALUE,
    DIRECT,
    EXPECTED,
    GOOD,
    LARGEST,
    PUBLISHED,
    STATE,
    Settings,
    Weights,
)
from vpac.tabular.kernel.compiled import inlined
from vpac.tabular.kernel.softmax import add_score, mean_value, value
from vpac.typing import FloatArray, IntArray


class Trace(NamedTuple):
    """The numbers at step k. A new one is made for each step: compiled code keeps them in registers."""

    i_q: float
    """I_Q = γ^k."""
    i_sigma: float
    """I_σ = γ^{2k}."""
    collected: float
    """G_{0:k} = Σ_{j<k} γ^j R_{j+1}."""
    collected_bar: float
    """Ḡ_k = Σ_{j<k} γ^{2j} ρ_{0:j} R_{j+1}, which the published VAAC uses."""
    luck: float
    """D_k = Σ_{t<k} γ^t δ^V_t."""
    offset: float
    """V̂(S_0) − c with a baseline, −c without: c is the reference of `variance_of`."""
    value_0: float
    """V̂(S_0)."""
    rho: float
    """ρ_{0:k}, the actor's product of ratios."""
    t_bar: float
    """T̄_k = γ² ρ_k² T̄_{k−1}, T̄_0 = ρ_0."""
    x: float
    """X_k = γ ρ_k (X_{k−1} + T̄_{k−1} δ_{k−1})."""
    first: bool
    """Whether k = 0."""


@inlined
def begin(
    settings: Settings, action_value: float, state_value: float, mean: float, rho: float, actor_rho: float
) -> Trace:
    """k = 0: S_0 and A_0 are known, nothing has happened."""
    if settings.variance_of == ACTION:
        reference = action_value
    elif settings.variance_of == STATE:
        reference = state_value
    else:
        reference = mean
    offset = state_value - reference if settings.baseline else -reference
    return Trace(1.0, 1.0, 0.0, 0.0, 0.0, offset, state_value, actor_rho, rho, 0.0, True)


@inlined
def advance(
    settings: Settings,
    trace: Trace,
    reward: float,
    delta: float,
    delta_v: float,
    rho_next: float,
    actor_rho_next: float,
) -> Trace:
    """From step k to step k + 1."""
    gamma, rho, t_bar, x = settings.gamma, trace.rho, trace.t_bar, trace.x
    collected = trace.collected + trace.i_q * reward
    collected_bar = trace.collected_bar + trace.i_sigma * rho * reward
    luck = trace.luck + trace.i_q * delta_v
    if not settings.on_policy:
        x = gamma * rho_next * (x + t_bar * delta)
        t_bar *= gamma * gamma * rho_next * rho_next
        rho *= actor_rho_next
    i_q, i_sigma = trace.i_q * gamma, trace.i_sigma * (gamma * gamma)
    return Trace(i_q, i_sigma, collected, collected_bar, luck, trace.offset, trace.value_0, rho, t_bar, x, False)


@inlined
def td_errors(
    settings: Settings,
    w: FloatArray,
    z: FloatArray,
    reward: float,
    terminated: bool,
    q: float,
    s: float,
    there: IntArray,
    next_action: int,
    rho_next: float,
    policy_next: FloatArray,
) -> tuple[float, float]:
    """δ and δ̄ of a transition; nothing is bootstrapped after a termination."""
    if terminated:
        return sampled_errors(settings, reward, q, s, 0.0, 0.0, 1.0)
    if settings.on_policy or settings.ratios != EXPECTED:
        q_next, s_next = value(w, there, next_action), value(z, there, next_action)
        return sampled_errors(settings, reward, q, s, q_next, s_next, rho_next)
    return expected_errors(settings, w, z, reward, q, s, there, policy_next)


@inlined
def sampled_errors(
    settings: Settings, reward: float, q: float, s: float, q_next: float, s_next: float, rho: float
) -> tuple[float, float]:
    """δ = R + γ ρ' Q' − Q, and

    direct    δ̄ = δ² + γ² ρ'² σ' − σ                        (Algorithm 1, line 11; Appendix D, line 14)
    indirect  δ̄ = R² + 2 γ R ρ' Q' + γ² ρ'² M' − M          (Algorithm 3, line 13, its slip of the pen mended)
    """
    ahead = settings.gamma * rho
    delta = reward + ahead * q_next - q
    if settings.critic == DIRECT:
        return delta, delta * delta + ahead * ahead * s_next - s
    return delta, reward * reward + 2.0 * reward * ahead * q_next + ahead * ahead * s_next - s


@inlined
def expected_errors(
    settings: Settings,
    w: FloatArray,
    z: FloatArray,
    reward: float,
    q: float,
    s: float,
    there: IntArray,
    policy_next: FloatArray,
) -> tuple[float, float]:
    """The same averaged over the target policy's next action: no ratio is needed, whatever the behaviour policy."""
    delta = delta_bar = 0.0
    for action in range(len(policy_next)):
        q_next, s_next = value(w, there, action), value(z, there, action)
        one, one_bar = sampled_errors(settings, reward, q, s, q_next, s_next, 1.0)
        delta += policy_next[action] * one
        delta_bar += policy_next[action] * one_bar
    return delta, delta_bar


@inlined
def actor_weight(settings: Settings, trace: Trace, psi: float, q: float, v: float, s: float, s_mean: float) -> float:
    """The weight of step k."""
    own_critics = settings.on_policy or settings.ratios == EXPECTED
    if settings.form == PUBLISHED:
        if settings.critic != DIRECT:
            return _vaac_published(settings, trace, psi, q - v, s - s_mean)
        if settings.on_policy:
            return _vpac_published(trace, psi, q - v, s - s_mean)
        return _off_policy_vpac_published(trace, psi, q - v, s)
    sigma = s if settings.critic == DIRECT else s - q * q
    if own_critics:
        return _corrected(settings, trace, psi, q - v, sigma)
    return _off_policy_vpac_published(trace, psi, q - v, sigma) - psi * 2.0 * trace.x * q


@inlined
def _vpac_published(trace: Trace, psi: float, q: float, sigma: float) -> float:
    """Algorithm 1, line 15: I_Q Q̂ − ψ I_σ σ̂."""
    return trace.i_q * q - psi * trace.i_sigma * sigma


@inlined
def _corrected(settings: Settings, trace: Trace, psi: float, a: float, sigma: float) -> float:
    """ρ_{0:k} (I_Q A − ψ [I_σ (σ̂ + A²) + 2 I_Q (D_k + V̂(S_0) − c) A]); without a baseline Q for A and G_{0:k} − c.

    For the paper's own objective, the variance given the first action, the penalty at k = 0 is σ̂ alone.
    """
    if settings.variance_of == ACTION and trace.first:
        penalty = sigma
    else:
        luck = (trace.luck if settings.baseline else trace.collected) + trace.offset
        penalty = trace.i_sigma * (sigma + a * a) + 2.0 * trace.i_q * luck * a
    return trace.rho * (trace.i_q * a - psi * penalty)


@inlined
def _vaac_published(settings: Settings, trace: Trace, psi: float, q: float, m: float) -> float:
    """Algorithms 2 and 3: ρ_{0:k} (γ^k Q̂ − μ {γ^{2k} M̂ + 2 γ^{k+1} Ḡ_k Q̂ − 2 γ^k V̂(S_0) Q̂})."""
    collected = 2.0 * trace.i_q * (settings.gamma * trace.collected_bar - trace.value_0)
    return trace.rho * (trace.i_q * q - psi * (trace.i_sigma * m + collected * q))


@inlined
def _off_policy_vpac_published(trace: Trace, psi: float, q: float, sigma: float) -> float:
    """Appendix D, line 17: I_Q ρ_Q Q̂ − ψ̄ I_σ ρ_σ σ̂, with ψ̄ = 2ψ from the second step on."""
    price = psi if trace.first else 2.0 * psi
    return trace.i_q * trace.rho * q - price * trace.t_bar * sigma


augment = inlined(augmented)


@inlined
def prices(settings: Settings, psi: float) -> tuple[float, float]:
    """ψ as (price of the return's variance, price of the reward's variance): one of the two is zero."""
    if settings.volatility:
        return 0.0, psi
    return psi, 0.0


@inlined
def learn_step(
    settings: Settings,
    weights: Weights,
    ascent: FloatArray,
    trace: Trace,
    psi: float,
    alpha_theta: float,
    alpha_w: float,
    alpha_z: float,
    here: IntArray,
    action: int,
    policy: FloatArray,
    reward: float,
    terminated: bool,
    there: IntArray,
    next_action: int,
    policy_next: FloatArray,
    rho_next: float,
    actor_rho_next: float,
) -> tuple[int, Trace]:
    """Critics, actor, trace. Returns what it found, and the next trace; a number that is not finite is not learned."""
    w, z = weights.w, weights.z
    q, s = value(w, here, action), value(z, here, action)
    delta, delta_bar = td_errors(settings, w, z, reward, terminated, q, s, there, next_action, rho_next, policy_next)
    q_after, s_after = (
        q + len(here) * alpha_w * delta,
        s + len(here) * alpha_z * delta_bar,
    )  # what they are about to become
    good = abs(q_after) + abs(s_after) < LARGEST
    if len(here) > 1:  # a sum may hide large parts that cancel
        good = good and abs(alpha_w * delta) + abs(alpha_z * delta_bar) < LARGEST
    if not good:
        if not math.isfinite(reward):
            return BAD_REWARD, trace
        return (BAD_SPREAD if abs(q_after) + abs(alpha_w * delta) < LARGEST else BAD_VALUE), trace
    delta_v = 0.0
    if settings.baseline and settings.form != PUBLISHED:
        ahead = 0.0 if terminated else settings.gamma * mean_value(w, there, policy_next)
        delta_v = reward + ahead - mean_value(w, here, policy)
    for index in range(len(here)):
        feature, column = np.uint64(here[index]), np.uint64(action)
        w[feature, column] += alpha_w * delta
        z[feature, column] += alpha_z * delta_bar
    found = move_actor(settings, weights, ascent, trace, psi, alpha_theta, here, action, policy, q_after, s_after)
    return found, advance(settings, trace, reward, delta, delta_v, rho_next, actor_rho_next)


@inlined
def move_actor(
    settings: Settings,
    weights: Weights,
    ascent: FloatArray,
    trace: Trace,
    psi: float,
    alpha_theta: float,
    here: IntArray,
    action: int,
    policy: FloatArray,
    q: float,
    s: float,
) -> int:
    """θ ← θ + α_θ ∇log π(A|S) · weight, with Q̂(S,A) and the spread's estimate as they are now."""
    v = s_mean = 0.0
    if settings.baseline:
        v = mean_value(weights.w, here, policy)
        if settings.form == PUBLISHED:
            s_mean = mean_value(weights.z, here, policy)
    weight = actor_weight(settings, trace, psi, q, v, s, s_mean)
    amount = alpha_theta * settings.score * weight
    if not abs(amount) < LARGEST:
        return BAD_ACTOR
    add_score(ascent, here, policy, action, amount)
    return GOOD
