"""One policy for all prices of variance: ψ is drawn for every episode and shown to all networks beside the observation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vpac.errors import UserError
from vpac.typing import BoolArray, Numbers

if TYPE_CHECKING:
    from vpac.deep.options import Options

__all__ = ["PriceRange", "Prices", "conditions_of"]

STREAM = 9
"""The random stream of prices; those of the agent come before it."""


@dataclass(frozen=True)
class PriceRange:
    """The prices that a policy is learned for. √ψ is what is drawn and shown: small prices matter, and 0 is one of them."""

    low: float
    """The smallest ψ."""
    high: float
    """The largest ψ."""

    def __post_init__(self) -> None:
        numbers = all(isinstance(x, int | float) and not isinstance(x, bool) for x in (self.low, self.high))
        if not (numbers and 0.0 <= self.low < self.high < np.inf):
            raise UserError(
                "psi_range must be the smallest and the largest price of variance, e.g. (0, 0.5), got "
                f"({self.low!r}, {self.high!r})"
            )

    @classmethod
    def read(cls, given: Any) -> PriceRange:
        """From a pair, as users and files write it."""
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise UserError(
                'psi="conditioned" needs psi_range, the smallest and the largest price of variance, e.g. (0, 0.1), on the '
                f"command line --option psi_range=[0,0.1]; got {given!r}"
            )
        return cls(*given)

    def check(self, psi: float) -> float:
        """ψ, if it is in the range."""
        if not (isinstance(psi, int | float) and self.low <= psi <= self.high):
            raise UserError(f"psi must be a number from {self.low:g} to {self.high:g}, as in training, got {psi!r}")
        return float(psi)

    def drawn(self, share: Numbers) -> Numbers:
        """Prices from numbers between 0 and 1: even in √ψ."""
        return np.asarray((self.low**0.5 + share * (self.high**0.5 - self.low**0.5)) ** 2, np.float64)

    def beside(self, rows: Numbers, psi: Any) -> Numbers:
        """Normalised observations with the price as one number more, from −1 for the smallest to 1 for the largest."""
        share = (np.sqrt(psi) - self.low**0.5) / (self.high**0.5 - self.low**0.5)
        column = np.broadcast_to(np.asarray(2.0 * share - 1.0, np.float32), len(rows))
        return np.concatenate([rows, column[:, None]], axis=1, dtype=np.float32)


class Prices:
    """The price of each environment's episode, drawn when the episode begins.

    Args:
        within: the range they are drawn from.
        n: how many environments.
        generator: where the randomness comes from.
    """

    def __init__(self, within: PriceRange, n: int, generator: np.random.Generator) -> None:
        self.within, self.now, self.generator = within, np.zeros(n), generator
        self.draw(np.ones(n, bool))

    def draw(self, which: BoolArray) -> None:
        """New prices for these environments."""
        if which.any():
            self.now = self.now.copy()
            self.now[which] = self.within.drawn(self.generator.random(int(which.sum())))


def conditions_of(options: Options, seed: int, n: int, name: str, spread: bool) -> Prices | None:
    """The prices of `n` environments' episodes, with a random stream of their own; None of a policy for one price.

    Args:
        options: whether there is a range, and which.
        seed: the agent's.
        n: how many environments.
        name: of the algorithm.
        spread: whether it has a critic of the spread, and with it a price of variance.
    """
    if not options.conditioned:
        return None
    if not spread:
        raise UserError(f'{name} has no price of variance to condition on: use VPACPPO for psi="conditioned"')
    generator = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(STREAM,)))
    return Prices(PriceRange.read(options.psi_range), n, generator)
