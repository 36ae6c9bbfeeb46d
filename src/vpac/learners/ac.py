"""AC: the risk-neutral actor-critic that everything else is a small change to.

δ ← R + γ Q̂(S',A') − Q̂(S,A)
w ← w + α_w δ ∇Q̂(S,A)
θ ← θ + α_θ ∇log π(A|S) · I_Q Q̂(S,A)
I_Q ← γ I_Q
"""

from __future__ import annotations

from typing import Any

from vpac.errors import UserError
from vpac.learners.holding import no_price_for
from vpac.learners.learner import Learner, OffPolicyLearner
from vpac.risk.schedules import Constant, as_schedule

__all__ = ["AC", "OffPolicyAC"]


class AC(Learner):
    """Actor-critic: maximises the mean return. It is VPAC at ψ = 0, bit for bit."""

    def __init__(self, env: Any, *, seed: int = 0, **settings: Any) -> None:
        _no_price(settings, "AC")
        super().__init__(env, seed=seed, **settings)


class OffPolicyAC(OffPolicyLearner):
    """Off-policy actor-critic: the mean return of the target policy, from a behaviour policy's experience."""

    def __init__(self, env: Any, *, seed: int = 0, **settings: Any) -> None:
        _no_price(settings, "OffPolicyAC")
        super().__init__(env, seed=seed, **settings)


def _no_price(settings: dict[str, Any], name: str) -> None:
    no_price_for(settings, name, name.replace("AC", "VPAC"))
    if as_schedule(settings.get("psi", 0.0), "psi") != Constant(0.0):
        raise UserError(f"{name} has no price of variance: use VPAC for psi={settings['psi']!r}")
