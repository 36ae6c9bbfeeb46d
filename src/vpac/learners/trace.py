"""What an episode remembers from step to step: a handful of numbers, whatever the algorithm.

| name | meaning at step k |
|---|---|
| I_Q, I_SIGMA | γ^k and γ^{2k} |
| COLLECTED | G_{0:k} = Σ_{j<k} γ^j R_{j+1} |
| COLLECTED_BAR | Ḡ_k = Σ_{j<k} γ^{2j} ρ_{0:j} R_{j+1}, which the published VAAC uses |
| LUCK | D_k = Σ_{t<k} γ^t δ^V_t |
| OFFSET | V̂(S_0) − c with a baseline, −c without: c is the reference of `variance_of` |
| VALUE_0 | V̂(S_0) |
| RHO | ρ_{0:k}, the actor's product of ratios |
| T_BAR | T̄_k = γ² ρ_k² T̄_{k−1}, T̄_0 = ρ_0 |
| X | X_k = γ ρ_k (X_{k−1} + T̄_{k−1} δ_{k−1}) |
| STEP | k |
"""

from __future__ import annotations

from vpac.learners.compiled import inlined
from vpac.learners.settings import ACTION, DIRECT, PUBLISHED, STATE, Settings
from vpac.typing import FloatArray

__all__ = ["LENGTH", "advance", "begin"]

I_Q, I_SIGMA, COLLECTED, COLLECTED_BAR, LUCK, OFFSET, VALUE_0, RHO, T_BAR, X, STEP = range(11)
LENGTH = 11


@inlined
def begin(
    settings: Settings,
    trace: FloatArray,
    action_value: float,
    state_value: float,
    mean: float,
    rho: float,
    actor_rho: float,
) -> None:
    """k = 0: S_0 and A_0 are known, nothing has happened."""
    for index in range(LENGTH):
        trace[index] = 0.0
    trace[I_Q] = trace[I_SIGMA] = 1.0
    trace[VALUE_0] = state_value
    if settings.variance_of == ACTION:
        reference = action_value
    elif settings.variance_of == STATE:
        reference = state_value
    else:
        reference = mean
    trace[OFFSET] = state_value - reference if settings.baseline else -reference
    trace[RHO] = actor_rho
    trace[T_BAR] = rho


@inlined
def advance(
    settings: Settings,
    trace: FloatArray,
    reward: float,
    delta: float,
    delta_v: float,
    rho_next: float,
    actor_rho_next: float,
) -> None:
    """From step k to step k + 1."""
    gamma = settings.gamma
    if settings.form != PUBLISHED or settings.critic != DIRECT:  # VPAC as published does not read them
        trace[COLLECTED] += trace[I_Q] * reward
        trace[COLLECTED_BAR] += trace[I_SIGMA] * trace[RHO] * reward
        trace[LUCK] += trace[I_Q] * delta_v
    if not settings.on_policy:
        trace[X] = gamma * rho_next * (trace[X] + trace[T_BAR] * delta)
        trace[T_BAR] *= gamma * gamma * rho_next * rho_next
        trace[RHO] *= actor_rho_next
    trace[I_Q] *= gamma
    trace[I_SIGMA] *= gamma * gamma
    trace[STEP] += 1.0
