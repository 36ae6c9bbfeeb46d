"""MVPI: an outsider, for comparison. A risk-neutral actor-critic whose rewards pay for the variance of a step's reward.

y ← mean reward of a step of the present policy, (1 − γ) · mean return          (Zhang, Liu, Whiteson 2021)
R ← R − λ R² + 2 λ R y                                                            risk/volatility.py
then AC                                                                          actor_critic.py

y is a running mean over episodes, so that policy and y take turns at every episode instead of after a whole optimisation.
"""

from __future__ import annotations

from typing import Any, ClassVar

from vpac.learners.learner import Learner

__all__ = ["MVPI"]


class MVPI(Learner):
    """Mean-variance policy iteration around AC: `psi` prices the variance of a step's reward, not of the return.

    With psi = 0 it is AC, bit for bit. The variance is that of the normalised discounted occupancy, in which an episode that
    has ended pays 0 for ever (`vpac.oracle.step_reward`).
    """

    volatility = True
    defaults: ClassVar[dict[str, Any]] = {"psi": 0.015}
