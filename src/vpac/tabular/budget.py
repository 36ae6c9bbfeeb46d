"""The budget controller of a learner: every few episodes it measures the variance of the return and adjusts ψ.

The variance is that of the current policy: exact if the MDP is finite and small, otherwise that of the last returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vpac.errors import UserError
from vpac.risk.budget import Budget, Multiplier, PricePath, measured
from vpac.risk.schedules import Constant, as_schedule
from vpac.tabular import arrays as codes
from vpac.typing import FloatArray

if TYPE_CHECKING:
    from vpac.tabular.agents import Learner

LOOK_EVERY = 20
"""Episodes between two measurements, which are at multiples of it, so that a pause in learning changes nothing."""
LOOK_RETURNS = 200
"""Returns in a measured variance."""
LEAST_RETURNS = 20
"""The smallest sample that is measured."""
MOST_EXACT_TRANSITIONS = 20_000
"""MDPs with more transitions are not evaluated exactly."""


def with_budget(defaults: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Settings on top of an algorithm's defaults. With a budget ψ starts at 0, and the penalised variance is the limited one,
    that of the whole return, unless the critics estimate only the variance given the first action."""
    if given.get("budget") is None:
        return {**defaults, **given}
    if as_schedule(given.get("psi", 0.0), "psi") != Constant(0.0):
        raise UserError(f"a budget finds the price of variance itself: leave out psi={given['psi']!r}")
    found = {**defaults, **given, "psi": 0.0}
    if "variance_of" not in given and found.get("critics", "expected") == "expected":
        found["variance_of"] = "return"
    return found


def is_exact(learner: Learner) -> bool:
    """Whether its policies are evaluated exactly."""
    return learner.environment.mdp is not None and len(learner.environment.mdp.row) <= MOST_EXACT_TRANSITIONS


def exact_now(learner: Learner) -> tuple[float, float]:
    """Exact mean and variance of the return of the current policy, in a finite MDP."""
    from vpac.tabular.curves import exact_moments

    mdp, limit = learner.environment.mdp, learner.environment.limit
    assert mdp is not None
    mean, variance = exact_moments(mdp, learner.policy()[None], learner.options.gamma, limit)
    return float(mean[0]), float(variance[0])


class BudgetController:
    """The multiplier ψ of a learner, and its path."""

    def __init__(self, learner: Learner, budget: Budget) -> None:
        if budget.limits:
            name = type(learner).__name__
            raise UserError(f"{name} holds max_std or max_variance only; for {budget.in_words} use VPACPPO")
        if learner.environment.world is None and learner.settings.behaviour != codes.TARGET:
            raise UserError(
                f"{learner.environment.name} is not compiled, so its returns are the behaviour policy's and say nothing of the "
                "target policy's variance: hold a budget with an on-policy learner or with behaviour='target'"
            )
        self.learner, self.budget, self.state = learner, budget, Multiplier()
        self.rows: list[tuple[float, float, float, float]] = []

    @property
    def path(self) -> PricePath:
        """ψ and the variance at each measurement."""
        return PricePath.of(self.rows)

    @property
    def step_scale(self) -> float:
        """Factor of the policy's step size, 1 / (1 + ψ √V), so that a high ψ does not make large steps."""
        return 1.0 / (1.0 + self.state.psi * self.budget.std)

    def update(self, recent: Sequence[FloatArray]) -> None:
        """Measure the variance and adjust ψ; `recent` are the last pieces of the learning curve, `LOOK_RETURNS` or more."""
        episodes = self.learner.episodes
        if is_exact(self.learner):
            variance, error, share = exact_now(self.learner)[1], 0.0, 1.0
        else:
            sample = np.concatenate(recent)[-LOOK_RETURNS:]
            share = min(1.0, LOOK_EVERY / max(len(sample), 1))
            variance, error = measured(sample, LEAST_RETURNS)
        if episodes >= self.budget.wait:
            self.state = self.budget.step(self.state, variance, share)
        self.rows.append((float(episodes), self.state.psi, variance, error))
