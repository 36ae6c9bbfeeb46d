"""What an episode remembers from step to step: a handful of numbers, whatever the algorithm."""

from __future__ import annotations

from typing import NamedTuple

from vpac.learners.compiled import inlined
from vpac.learners.settings import ACTION, STATE, Settings

__all__ = ["Trace", "advance", "begin"]


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
