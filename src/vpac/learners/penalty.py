"""The actor's weights: what ∇log π(A_k|S_k) is multiplied by at step k. Every algorithm of the paper is one of these.

q, v: Q̂(S_k,A_k) and Σ_a π Q̂(S_k,a), or zero without a baseline. s, s_mean: the same for the critic of the spread, which is
σ̂ (VPAC) or M̂ (VAAC). `tests/learners/test_actor.py` shows that their means are the oracle's gradients.
"""

from __future__ import annotations

from vpac.learners.compiled import inlined
from vpac.learners.settings import ACTION, DIRECT, EXPECTED, PUBLISHED, Settings
from vpac.learners.trace import Trace

__all__ = ["actor_weight"]


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
