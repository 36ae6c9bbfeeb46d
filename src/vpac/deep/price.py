"""ψ where it is not one number: a conditioned policy for a range of ψ, or a budget that adjusts ψ.

A conditioned policy draws ψ for every episode and gives it to all networks as an input. With a budget, ψ is adjusted after
each iteration from the returns of recent episodes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vpac.deep.spaces import beside
from vpac.errors import UserError
from vpac.risk.budget import Budget, Multiplier, PricePath, measured
from vpac.typing import BoolArray, FloatArray, namespace

if TYPE_CHECKING:
    from vpac.deep.collect import Episode

FEWEST_EPISODES = 20
"""Fewest episodes from which a variance is measured."""
BUDGET_AIM = 0.9
"""Share of the budget that the controller aims at. The policy stops changing as the learning rate falls to 0, and a variance
from some hundred episodes is off by a tenth: with the budget itself as target, every third policy ended above it."""

NEUTRAL = 0.4
"""Share of `learn` with ψ = 0 before `keep_mean` applies."""
MEASURED_FROM = 0.75
"""Share of that time after which the mean is measured, when the policy has nearly converged."""


@dataclass(frozen=True)
class PriceRange:
    """The range of ψ of a conditioned policy. √ψ is drawn uniformly and given to the networks, so small ψ are well covered."""

    low: float
    high: float

    def __post_init__(self) -> None:
        numbers = all(isinstance(x, int | float) and not isinstance(x, bool) for x in (self.low, self.high))
        if not (numbers and 0.0 <= self.low < self.high < np.inf):
            raise UserError(
                "psi_range must be the smallest and the largest price of variance, e.g. (0, 0.5), got "
                f"({self.low!r}, {self.high!r})"
            )

    @classmethod
    def read(cls, given: Any) -> PriceRange:
        """Range from a pair, as users and files write it."""
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise UserError(
                'psi="conditioned" needs psi_range, the smallest and the largest price of variance, e.g. (0, 0.1), on the '
                f"command line --option psi_range=[0,0.1]; got {given!r}"
            )
        return cls(*given)

    def check(self, psi: float) -> float:
        """ψ, if it is in the range; otherwise an error."""
        if not (isinstance(psi, int | float) and self.low <= psi <= self.high):
            raise UserError(f"psi must be a number from {self.low:g} to {self.high:g}, as in training, got {psi!r}")
        return float(psi)

    def drawn(self, share: Any) -> Any:
        """ψ from uniform numbers in [0, 1]; uniform in √ψ."""
        return (self.low**0.5 + share * (self.high**0.5 - self.low**0.5)) ** 2

    def beside(self, rows: Any, psi: Any) -> Any:
        """Normalised observations with ψ as one more column, scaled to −1 … 1."""
        xp = namespace(rows)
        share = (xp.sqrt(psi) - self.low**0.5) / (self.high**0.5 - self.low**0.5)
        column = xp.broadcast_to(xp.asarray(2.0 * share - 1.0, np.float32), (len(rows),))
        return beside(rows, column[:, None])


class EpisodePrices:
    """The ψ of each environment's episode, drawn when the episode begins."""

    def __init__(self, within: PriceRange, n: int, generator: np.random.Generator) -> None:
        self.within, self.now, self.generator = within, np.zeros(n), generator
        self.draw(np.ones(n, bool))

    def draw(self, which: BoolArray) -> None:
        """Draw new ψ for these environments."""
        if which.any():
            self.now = self.now.copy()
            self.now[which] = self.within.drawn(self.generator.random(int(which.sum())))


class PriceController:
    """Adjusts ψ so that returns meet a budget, in units of the environment's own reward."""

    def __init__(self, budget: Budget) -> None:
        self.budget, self.state = budget, Multiplier()

    def plan(self, span: tuple[int, int]) -> None:
        """Set the first and last step of training: with `keep_mean` the first part is risk-neutral."""
        if self.budget.keep_mean is not None and not self.state.begin:
            begin, end = span
            if self.budget.wait and not begin < self.budget.wait < end:
                raise UserError(
                    f"wait={self.budget.wait:g} is not within the training, steps {begin:,} to {end:,}: the mean to be kept is "
                    "measured before `wait` and kept after it"
                )
            self.state = self.state._replace(begin=self.budget.wait or begin + NEUTRAL * (end - begin))

    def part(self, span: tuple[int, int], timesteps: int) -> tuple[float, float]:
        """First and last step of the part that step `timesteps` of a training is in.

        With `keep_mean` there are two parts, and learning rates fall in each: while they are high the mean is lower than that
        of a risk-neutral policy that has been learned to the end, and keeping 95 % of it would be keeping less.
        """
        (begin, end), neutral = span, self.state.begin
        if self.budget.keep_mean is None or not begin < neutral < end:
            return span
        return (begin, neutral) if timesteps < neutral else (neutral, end)

    def update(self, timesteps: int, ended: Sequence[Episode], recent: Sequence[Episode]) -> dict[str, float]:
        """Adjust ψ after an iteration in which some episodes `ended`; returns the measured variance and ψ, for the history.

        The variance is that of the `recent` episodes, or of all that ended if they are more; if none ended, ψ stays.
        """
        found = [np.array([episode.priced for episode in episodes]) for episodes in (ended, recent)]
        self.state, *measured = moved_price(self.budget, self.state, timesteps, *found)
        return dict(zip(look_names(self.budget), measured, strict=True)) | {"budget_psi": self.state.psi}


def look_names(budget: Budget) -> tuple[str, ...]:
    """Names in the history of the results of `moved_price` after the state."""
    return ("budget_variance", "budget_error", *(f"budget_{limit.name}" for limit in budget.limits))


def moved_price(
    budget: Budget, state: Multiplier, timesteps: int, ended: FloatArray, recent: FloatArray
) -> tuple[Any, ...]:
    """The controller's state after an iteration, the measured variance, its error, and the estimates of the other limits; see
    `PriceController.update`."""
    sample = ended if len(ended) > len(recent) else recent
    variance, error = measured(sample, FEWEST_EPISODES)
    known, share = len(sample) >= FEWEST_EPISODES, min(1.0, len(ended) / max(len(sample), 1))
    if budget.keep_mean is not None and (timesteps < state.begin or state.seen < FEWEST_EPISODES):
        if timesteps >= MEASURED_FROM * state.begin:
            state = state.with_neutral(ended)
    elif len(ended) and timesteps >= budget.wait and budget.limits and known:
        state = budget.look(state, sample, share, BUDGET_AIM)
    elif len(ended) and timesteps >= budget.wait and not budget.limits:
        state = budget.step(state, variance / BUDGET_AIM, share)
    return state, variance, error, *(limit.of(sample) if known else math.nan for limit in budget.limits)


def price_path(history: Sequence[dict[str, float]]) -> PricePath:
    """ψ and the measured variance over time, from an agent's history."""
    rows = [row for row in history if "budget_psi" in row]
    names = "timesteps", "budget_psi", "budget_variance", "budget_error"
    return PricePath.of([[row.get(name, math.nan) for name in names] for row in rows])


def looks_of(history: Sequence[dict[str, float]], budget: Budget) -> dict[str, FloatArray]:
    """Measurements of a budget during training, from an agent's history, by the names of `check_limits`."""
    rows = [row for row in history if "budget_psi" in row]
    names = {"at": "timesteps", "variance": "budget_variance"} | {x.name: f"budget_{x.name}" for x in budget.limits}
    return {name: np.array([row[column] for row in rows]) for name, column in names.items()}
