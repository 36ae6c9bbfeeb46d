"""The weight of ∇log π(A_k|S_k) in each algorithm and form: all that tells PPO, VPAC and VAAC apart in the actor.

PPO                        A_V
VPAC, published            A_V − ψ · A_σ
corrected, "uniform"       A_V − ψ/(1+γ) · ( A_σ + 2 · E_k · A_V )
corrected, "start"         A_V − ψ · ( γ^k · A_σ + 2 · D_k · A_V )
VAAC, published            A_V − ψ · ( A_M + 2γ · Ḡ_k · A_V − 2 · V(S_0) · A_V )
VAAC, corrected            as VPAC's, with A_σ = A_M − 2 · V(S_k) · A_V
"""

from __future__ import annotations

import jax

from vpac.deep.estimators import Trace

__all__ = ["corrected", "published_vaac", "published_vpac", "variance_advantage"]

Array = jax.Array


def published_vpac(advantage: Array, variance_advantage: Array, psi: Array) -> Array:
    """A_V − ψ A_σ, as the paper adds its penalty to PPO."""
    return advantage - psi * variance_advantage


def corrected(
    advantage: Array, variance_advantage: Array, trace: Trace, psi: Array, gamma: float, weighting: str
) -> Array:
    """The gradient of mean − ψ·variance: from every visited state alike ("uniform"), or from the start ("start")."""
    if weighting == "uniform":
        return advantage - psi / (1.0 + gamma) * (variance_advantage + 2.0 * trace.recent_luck * advantage)
    return advantage - psi * (trace.discount * variance_advantage + 2.0 * trace.luck * advantage)


def published_vaac(advantage: Array, moment_advantage: Array, trace: Trace, psi: Array, gamma: float) -> Array:
    """A_V − ψ (A_M + 2γ Ḡ_k A_V − 2 V(S_0) A_V), Ḡ_k as the formula means it: accumulated."""
    return advantage - psi * (moment_advantage + 2.0 * (gamma * trace.collected - trace.start_value) * advantage)


def variance_advantage(moment_advantage: Array, value: Array, advantage: Array) -> Array:
    """A_σ = A_M − 2 V(S_k) A_V: what a critic of the second moment says of the variance."""
    return moment_advantage - 2.0 * value * advantage
