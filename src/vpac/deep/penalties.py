"""The weight of ∇log π(A_k|S_k) in each algorithm and form: the only difference between the actors of PPO, VPAC and VAAC.

Every weight is A_V − ψ · penalty:

PPO                        0
VPAC, published            A_σ
corrected, "start"         γ^k · A_σ + 2 · (D_k + V(S_0) − c) · A_V,   c = J = E[G] of "return", V(S_0) of "state"
corrected, "uniform"       (m_k/n_k) · A_σ + 2 · (E_k/n_k) · A_V
VAAC, published            A_M + 2 · (γ · Ḡ_k − V(S_0)) · A_V
VAAC, corrected            as VPAC's, with A_σ = A_M − 2 · V(S_k) · A_V

A_V, A_σ and the traces in a penalty have the discount of the variance; only the first A_V has the discount of the mean.
"start" times γ^k is the gradient of mean − ψ · variance of the return; PPO omits γ^k. "uniform" times n_k is the gradient of
the sum of mean − ψ · variance over all visited states, with their distribution held fixed.
"""

from __future__ import annotations

import jax

from vpac.deep.estimators import EpisodeTrace

Array = jax.Array


def luck_and_share(trace: EpisodeTrace, weighting: str, reference: Array) -> tuple[Array, Array]:
    """The luck, which multiplies 2 A_V, and the factor of A_σ; `reference` is c."""
    if weighting == "uniform":
        return trace.recent_luck / trace.visits, trace.squared_visits / trace.visits
    return trace.luck + trace.start_value - reference, trace.discount


def corrected(advantage: Array, variance_advantage: Array, luck: Array, share: Array) -> Array:
    """share · A_σ + 2 · luck · A_V."""
    return share * variance_advantage + 2.0 * luck * advantage


def published_vaac(advantage: Array, moment_advantage: Array, trace: EpisodeTrace, gamma: float) -> Array:
    """A_M + 2 (γ Ḡ_k − V(S_0)) A_V, with Ḡ_k accumulated over the episode, as in the formula."""
    return moment_advantage + 2.0 * (gamma * trace.collected - trace.start_value) * advantage


def variance_advantage(moment_advantage: Array, value: Array, advantage: Array) -> Array:
    """A_σ = A_M − 2 V(S_k) A_V: the variance advantage from a second-moment critic."""
    return moment_advantage - 2.0 * value * advantage
