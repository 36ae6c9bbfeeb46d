"""A variant of PPO is what its third network learns, or what its rewards pay."""

from __future__ import annotations

from vpac.deep.agent import PPO

__all__ = ["MVPIPPO", "VAACPPO", "VPACPPO"]


class VPACPPO(PPO):
    """PPO whose actor pays ψ for the variance of the return, with a direct critic of it (Theorem 1 over states)."""

    spread = "variance"


class VAACPPO(PPO):
    """PPO with a variance-adjusted actor: its critic learns the second moment of the return."""

    spread = "moment"


class MVPIPPO(PPO):
    """Mean-variance policy iteration around PPO: `psi` prices the variance of a step's reward, not of the return.

    y, the mean reward of a step of the present policy, is that of the iteration's own steps, all alike, as PPO weighs them.
    """

    volatility = True
