"""An agent of the PPO family holds a budget: after each iteration it looks at the returns of recent episodes and moves ψ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from vpac.deep.rollout import Episode
from vpac.errors import UserError
from vpac.risk.budget import Budget, Multiplier, PricePath, as_budget, measured

__all__ = ["Holder", "holder_of", "price_path"]

LEAST = 20
"""Fewer episodes say nothing."""
AIM = 0.9
"""Share of the budget that is aimed at. As the learning rate falls to 0 a policy stays where it is, and a variance measured in
some hundred episodes is off by a tenth: aimed at the budget itself, about every third policy would end above it."""


class Holder:
    """The multiplier of an agent.

    Args:
        budget: that is held, in units of the environment's own reward.
    """

    def __init__(self, budget: Budget) -> None:
        self.budget, self.state = budget, Multiplier()

    def look(self, timesteps: int, ended: Sequence[Episode], recent: Sequence[Episode]) -> dict[str, float]:
        """Move ψ after an iteration; returns what was seen and what ψ is now, for the history.

        Args:
            timesteps: steps so far.
            ended: episodes that ended in the iteration.
            recent: the last ones; where more than that have ended, all of those are looked at. Without a new one ψ stays.
        """
        sample = np.array([episode.priced for episode in (ended if len(ended) > len(recent) else recent)])
        variance, error = measured(sample, LEAST)
        if ended and timesteps >= self.budget.wait:
            self.state = self.budget.step(self.state, variance / AIM, min(1.0, len(ended) / len(sample)))
        return {"budget_variance": variance, "budget_error": error, "budget_psi": self.state.psi}


def holder_of(given: Any, penalises: bool, name: str) -> Holder | None:
    """The holder of an agent's budget, if it has one."""
    budget = as_budget(given)
    if budget is None:
        return None
    if not penalises:
        raise UserError(f"{name} has no price of variance and cannot hold a budget: use VPACPPO")
    return Holder(budget)


def price_path(history: Sequence[dict[str, float]]) -> PricePath:
    """The way of the multiplier, from an agent's history."""
    return PricePath.of(
        [
            (row["timesteps"], row["budget_psi"], row["budget_variance"], row.get("budget_error", math.nan))
            for row in history
            if "budget_psi" in row
        ]
    )
