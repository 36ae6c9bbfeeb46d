"""A distribution of returns, and what every measure of risk has: a value and an influence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from vpac.typing import FloatArray, namespace

if TYPE_CHECKING:
    from vpac.envs.finite_mdp import FiniteMDP
    from vpac.oracle.distribution import ReturnDistribution
    from vpac.risk.intervals import Interval

TINY = 1e-30
NOISE_REACH, NOISE_POINTS = 6.0, 241
"""Standard deviations covered by the grid for normal noise, and its number of points."""


class Law(NamedTuple):
    """A distribution of returns: values, ascending, and their probabilities, of which some may be 0."""

    value: Any
    probability: Any

    @classmethod
    def of(cls, returns: Any, weights: Any = None) -> Law:
        """The law of a sample, with equal or given `weights`."""
        xp = namespace(returns)
        weights, order = xp.ones_like(returns) if weights is None else weights, xp.argsort(returns)
        return cls(returns[order], weights[order] / xp.maximum(weights.sum(), TINY))

    @classmethod
    def exact(cls, found: ReturnDistribution) -> Law:
        """The law of the oracle's distribution; normal noise is discretised to a twentieth of its standard deviation."""
        if not found.deviation.any():
            return cls.of(found.value, found.probability)
        z = np.linspace(-NOISE_REACH, NOISE_REACH, NOISE_POINTS)
        chance = np.exp(-0.5 * z**2) / np.exp(-0.5 * z**2).sum()
        value, weight = found.value[:, None] + found.deviation[:, None] * z, found.probability[:, None] * chance
        return cls.of(value.ravel(), weight.ravel())

    def mean_of(self, terms: Any) -> Any:
        """The expectation of `terms`, one for each value."""
        return (self.probability * terms).sum()

    @property
    def mean(self) -> Any:
        """E[G]."""
        return self.mean_of(self.value)

    def quantile(self, share: float) -> Any:
        """min {x : P(G ≤ x) ≥ share}."""
        xp = namespace(self.value)
        return self.value[xp.argmax(xp.cumsum(self.probability) >= share * (1.0 - 1e-6))]

    def distance(self, g: Any) -> Any:
        """E|g − G| for each g."""
        xp = namespace(self.value)
        mean = self.mean
        centred, zero = self.value - mean, xp.zeros(1, self.value.dtype)
        chance = xp.concatenate([zero, xp.cumsum(self.probability)])
        partial = xp.concatenate([zero, xp.cumsum(self.probability * centred)])
        below = xp.searchsorted(self.value, g, side="right")
        return (g - mean) * (2.0 * chance[below] - chance[-1]) + partial[-1] - 2.0 * partial[below]


@dataclass(frozen=True)
class Measure:
    """A measure of the spread or the risk of returns that can be penalised: learners maximise mean − ψ · measure."""

    name: ClassVar[str]
    """Name as in `penalty="name"`."""
    words: ClassVar[str]
    """Its name in sentences and on axes."""
    symbol: ClassVar[str]
    """Its definition."""
    degree: ClassVar[int] = 1
    """The power of the reward's unit: 2 for a variance. ψ is in units of 1/reward to the power of this − 1."""
    parameter: ClassVar[str] = ""
    """The meaning of the number after the name; empty: there is none."""

    def value(self, law: Law) -> Any:
        """ρ."""
        raise NotImplementedError

    def influence(self, g: Any, law: Law) -> Any:
        """IF(g) for each g; its mean under the law is 0."""
        raise NotImplementedError

    def of_sample(self, returns: Any) -> float:
        """ρ of a sample's own distribution."""
        return float(self.value(Law.of(np.asarray(returns, np.float64))))

    def interval(self, returns: Any, level: float = 0.95) -> Interval:
        """ρ of a sample, with Hall's interval from its influence function."""
        from vpac.risk.intervals import not_negative, skewed_interval

        returns = np.asarray(returns, np.float64)
        influence = np.asarray(self.influence(returns, Law.of(returns)), np.float64)
        return not_negative(skewed_interval(self.of_sample(returns), influence, level=level))

    def exact(self, mdp: FiniteMDP, policy: FloatArray, gamma: float, horizon: int | None = None) -> float:
        """ρ of the return of a policy, from the oracle's distribution."""
        from vpac.oracle.distribution import distribution

        return float(self.value(Law.exact(distribution(mdp, policy, gamma, horizon))))
