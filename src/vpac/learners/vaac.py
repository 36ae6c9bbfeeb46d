"""VAAC: variance-adjusted actor-critic (Tamar and Mannor, 2013) with the second moment M of the return as its critic.

Algorithm 2 (Monte-Carlo critics, learned when the episode is over: monte_carlo.py) and Algorithm 3, VAAC_TD:

    δ̄ ← R² + 2γ R Q̂(S',A') + γ² M̂(S',A') − M̂(S,A)                                       critics.py
    θ ← θ + α_θ ∇log π(A|S) · (I_Q Q̂ − μ {I_M M̂ + 2γ I_Q Ḡ Q̂ − 2 I_Q V_0 Q̂})              penalty.py, `form="published"`

The paper's slips of the pen, each resolved in favour of its derivation:

- Algorithm 2 sums the rewards to come into Ḡ; the derivation wants those collected, Ḡ_t = Σ_{j<t} γ^{2j} R_{j+1}.
- Algorithm 2 exchanges α_w and α_z: α_w is the value critic's here.
- Algorithm 3's δ̄ lacks − M̂(S,A) and has Q̂(S,A) for Q̂(S',A').
- V(S_0) is the value of this episode's start, not one number for all starts.
- The paper lets VAAC's training episodes run without a limit; here they have the limit of the others.

ψ is called μ in the paper. The corrected form is that of VPAC, with σ̂ = M̂ − Q̂².
"""

from __future__ import annotations

from typing import Any, ClassVar

from vpac.errors import UserError
from vpac.learners import settings as codes
from vpac.learners.learner import Learner, OffPolicyLearner

__all__ = ["VAAC", "VAACTD", "OffPolicyVAAC", "OffPolicyVAACTD"]


class VAAC(Learner):
    """Variance-adjusted actor-critic with Monte-Carlo critics (Algorithm 2)."""

    critic = codes.MONTE_CARLO
    defaults: ClassVar[dict[str, Any]] = {"psi": 0.01, "alpha_theta": 0.001, "alpha_w": 0.05, "alpha_z": 0.005}


class VAACTD(Learner):
    """Variance-adjusted actor-critic with TD critics (Algorithm 3)."""

    critic = codes.INDIRECT
    defaults: ClassVar[dict[str, Any]] = {"psi": 0.01}


class OffPolicyVAAC(OffPolicyLearner):
    """VAAC with importance sampling, Monte-Carlo critics. Whole returns carry ratios: there are no expected critics."""

    critic = codes.MONTE_CARLO
    defaults: ClassVar[dict[str, Any]] = {
        "psi": 0.0015, "alpha_theta": 0.005, "alpha_w": 0.01, "alpha_z": 0.01, "critics": "importance",
    }  # fmt: skip

    def __init__(self, env: Any, *, seed: int = 0, **settings: Any) -> None:
        if settings.get("critics") == "expected":
            raise UserError(
                "OffPolicyVAAC learns from whole returns, which carry ratios: its critics are 'importance' or 'clipped'; "
                "OffPolicyVAACTD has expected ones"
            )
        super().__init__(env, seed=seed, **settings)


class OffPolicyVAACTD(OffPolicyLearner):
    """Off-policy VAAC_TD, which the paper leaves out because its derivation "was not straightforward"."""

    critic = codes.INDIRECT
    defaults: ClassVar[dict[str, Any]] = {"psi": 0.01}
