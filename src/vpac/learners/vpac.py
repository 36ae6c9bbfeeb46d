"""VPAC: variance-penalized actor-critic with a direct critic of the variance.

Algorithm 1 (on-policy); what it adds to AC:

    δ̄ ← δ² + γ² σ̂(S',A') − σ̂(S,A)                                       line 11   critics.py
    z ← z + α_z δ̄ ∇σ̂(S,A)                                               line 13   step.py
    θ ← θ + α_θ ∇log π(A|S) · (I_Q Q̂ − ψ I_σ σ̂)                         line 15   penalty.py, `form="published"`
    I_σ ← γ² I_σ                                                         line 16   trace.py

The corrected form has σ̂ + A² for σ̂ and adds 2 I_Q (D + V̂(S_0) − c) A; docs/corrections.md proves it.

Appendix D (off-policy) puts ρ = π/b where the next action is used, and its products into the actor.
"""

from __future__ import annotations

from typing import Any, ClassVar

from vpac.learners.learner import Learner, OffPolicyLearner

__all__ = ["VPAC", "OffPolicyVPAC"]


class VPAC(Learner):
    """Variance-penalized actor-critic (Algorithm 1): maximises mean − ψ · variance of the return."""

    defaults: ClassVar[dict[str, Any]] = {"psi": 0.015}


class OffPolicyVPAC(OffPolicyLearner):
    """Off-policy VPAC (Appendix D)."""

    defaults: ClassVar[dict[str, Any]] = {"psi": 0.015}
