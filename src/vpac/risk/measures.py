"""Measures of risk that can be penalised (`penalty=` of the learners): value and influence of a distribution.

The gradient of a functional ρ of the distribution F of the return G follows from its influence function,

    IF(g; F) = d/dε ρ((1 − ε) F + ε δ_g) at ε = 0,          ∇ρ(F_θ) = E[IF(G; F_θ) · Σ_k ∇log π(A_k|S_k)]

so IF(G) is the weight that an episode's score has in the gradient of ρ. Formulas take NumPy and JAX arrays alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from vpac.errors import UserError, one_of
from vpac.typing import FloatArray, Numbers, namespace

if TYPE_CHECKING:
    from vpac.envs.finite_mdp import FiniteMDP
    from vpac.oracle.distribution import ReturnDistribution
    from vpac.risk.intervals import Interval

__all__ = ["PENALTIES", "Law", "Measure", "measure_of", "penalty_rows"]

Reward = TypeVar("Reward", float, Numbers)
TINY = 1e-30
NOISE_REACH, NOISE_POINTS = 6.0, 241
"""Standard deviations covered by the grid for normal noise, and its number of points."""
LARGEST_EXPONENT = 30.0
"""Larger exponents of the entropic deviation are clipped: one such episode would outweigh 10¹³ others."""


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
    """As in `penalty="name"`."""
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


@dataclass(frozen=True)
class Variance(Measure):
    """The variance of the return, as in the paper. By default a direct critic learns it from squared TD errors."""

    name: ClassVar[str] = "variance"
    words: ClassVar[str] = "variance"
    symbol: ClassVar[str] = "E[(G − μ)²]"
    degree: ClassVar[int] = 2

    def value(self, law: Law) -> Any:
        """E[(G − μ)²]."""
        return law.mean_of((law.value - law.mean) ** 2)

    def influence(self, g: Any, law: Law) -> Any:
        """(g − μ)² − ρ."""
        return (g - law.mean) ** 2 - self.value(law)

    def exact(self, mdp: FiniteMDP, policy: FloatArray, gamma: float, horizon: int | None = None) -> float:
        """From the moments."""
        from vpac.oracle.moments import evaluate

        return float(evaluate(mdp, policy, gamma, horizon).total_variance)


@dataclass(frozen=True)
class StandardDeviation(Measure):
    """The standard deviation of the return, in units of the reward."""

    name: ClassVar[str] = "std"
    words: ClassVar[str] = "standard deviation"
    symbol: ClassVar[str] = "√E[(G − μ)²]"

    def value(self, law: Law) -> Any:
        """√variance."""
        return namespace(law.value).sqrt(Variance().value(law))

    def influence(self, g: Any, law: Law) -> Any:
        """IF of the variance / 2ρ; 0 if the return does not vary."""
        twice = 2.0 * self.value(law)
        return Variance().influence(g, law) * (twice > TINY) / namespace(law.value).maximum(twice, TINY)

    def exact(self, mdp: FiniteMDP, policy: FloatArray, gamma: float, horizon: int | None = None) -> float:
        """From the moments."""
        return float(Variance().exact(mdp, policy, gamma, horizon) ** 0.5)


@dataclass(frozen=True)
class Semivariance(Measure):
    """The mean squared shortfall from a target, or from the mean if no target is given. Returns above it are not penalised."""

    target: float | None = None
    name: ClassVar[str] = "semivariance"
    words: ClassVar[str] = "semi-variance"
    symbol: ClassVar[str] = "E[min(G − c, 0)²]"
    degree: ClassVar[int] = 2
    parameter: ClassVar[str] = "target c, default: the mean"

    def __post_init__(self) -> None:
        if self.target is not None and not math.isfinite(self.target):
            raise UserError(f"the target of penalty 'semivariance' must be finite, got {self.target!r}")

    def _shortfall(self, g: Any, law: Law) -> Any:
        level = law.mean if self.target is None else self.target
        return namespace(law.value).minimum(g - level, 0.0)

    def value(self, law: Law) -> Any:
        """E[min(G − c, 0)²]."""
        return law.mean_of(self._shortfall(law.value, law) ** 2)

    def influence(self, g: Any, law: Law) -> Any:
        """min(g − c, 0)² − ρ; with c = μ also − 2 E[min(G − μ, 0)] (g − μ), because μ changes too."""
        found = self._shortfall(g, law) ** 2 - self.value(law)
        if self.target is None:
            found = found - 2.0 * law.mean_of(self._shortfall(law.value, law)) * (g - law.mean)
        return found


@dataclass(frozen=True)
class CVaRDeviation(Measure):
    """Mean − CVaR_α, the distance between the mean and the mean of the worst α. With ψ = 1 the objective is CVaR_α itself."""

    alpha: float = 0.1
    name: ClassVar[str] = "cvar"
    words: ClassVar[str] = "CVaR deviation"
    symbol: ClassVar[str] = "μ − CVaR_α(G)"
    parameter: ClassVar[str] = "share α of worst episodes, default 0.1"

    def __post_init__(self) -> None:
        if not 0.0 < self.alpha < 1.0:
            raise UserError(f"the share of penalty 'cvar' must be above 0 and below 1, got {self.alpha!r}")

    def _tail(self, g: Any, edge: Any) -> Any:
        """v − max(v − g, 0) / α, whose mean is CVaR_α at v = the α-quantile."""
        return edge - namespace(edge).maximum(edge - g, 0.0) / self.alpha

    def value(self, law: Law) -> Any:
        """μ − E[v − max(v − G, 0) / α]."""
        return law.mean - law.mean_of(self._tail(law.value, law.quantile(self.alpha)))

    def influence(self, g: Any, law: Law) -> Any:
        """g − (v − max(v − g, 0) / α) − ρ; the derivative with respect to v, a maximum, is 0."""
        return g - self._tail(g, law.quantile(self.alpha)) - self.value(law)


@dataclass(frozen=True)
class GiniDeviation(Measure):
    """Half the mean difference of two independent returns (Luo et al. 2023): no squares, so rare returns count less."""

    name: ClassVar[str] = "gini"
    words: ClassVar[str] = "Gini deviation"
    symbol: ClassVar[str] = "½ E|G − G′|"

    def value(self, law: Law) -> Any:
        """½ E|G − G′|."""
        return 0.5 * law.mean_of(law.distance(law.value))

    def influence(self, g: Any, law: Law) -> Any:
        """E|g − G| − 2ρ."""
        return law.distance(g) - 2.0 * self.value(law)


@dataclass(frozen=True)
class MeanAbsoluteDeviation(Measure):
    """The mean distance of the return from its mean."""

    name: ClassVar[str] = "mad"
    words: ClassVar[str] = "mean absolute deviation"
    symbol: ClassVar[str] = "E|G − μ|"

    def value(self, law: Law) -> Any:
        """E|G − μ|."""
        return law.mean_of(abs(law.value - law.mean))

    def influence(self, g: Any, law: Law) -> Any:
        """|g − μ| − ρ + (P(G < μ) − P(G > μ)) (g − μ), because μ changes too."""
        mean = law.mean
        side = law.mean_of(namespace(law.value).sign(mean - law.value))
        return abs(g - mean) - self.value(law) + side * (g - mean)


def augmented(reward: Reward, price: float, mean: float) -> Reward:
    """R − λ R² + 2 λ R y, with λ = `price` and y = `mean`; R itself, to the last bit, if λ is 0.

    It is the reward of MVPI's risk-neutral learner, which penalises the variance of the reward per step:

        Var(R) = min_y E[(R − y)²],   so   E[R] − λ Var(R) = max_y E[R − λ R² + 2 λ R y] − λ y²

    For a fixed y this is an ordinary reward, and for a fixed policy the best y is its mean reward per step, E[R]; MVPI
    alternates between the two (Zhang, Liu, Whiteson 2021, Mean-variance policy iteration). λ has the unit 1/reward, as ψ has;
    but Var(R) is the variance of the reward of a *step*, not of the return: a sequence of different but certain rewards has
    volatility and no risk.
    """
    return reward + price * reward * (2.0 * mean - reward)


@dataclass(frozen=True)
class RewardVolatility(Variance):
    """The variance of the reward per step (MVPI). The rewards are changed, so no spread critic is needed."""

    name: ClassVar[str] = "volatility"
    words: ClassVar[str] = "variance of a step's reward"
    symbol: ClassVar[str] = "E[(R − E[R])²], R the reward of a step"

    def exact(self, mdp: FiniteMDP, policy: FloatArray, gamma: float, horizon: int | None = None) -> float:
        """ρ over the normalised discounted occupancy."""
        from vpac.oracle.moments import step_reward

        if horizon is not None:
            raise UserError("the volatility of the reward is known exactly without a horizon only")
        return float(step_reward(mdp, policy, gamma).variance)


@dataclass(frozen=True)
class EntropicDeviation(Measure):
    """Mean − certainty equivalent of the utility −exp(−βG). With ψ = 1 the objective is the certainty equivalent."""

    beta: float = math.nan
    name: ClassVar[str] = "entropic"
    words: ClassVar[str] = "entropic deviation"
    symbol: ClassVar[str] = "μ + log E[exp(−βG)] / β"
    parameter: ClassVar[str] = "aversion β > 0 in units of 1/reward, required; about β/2 · variance for small β"

    def __post_init__(self) -> None:
        if not 0.0 < self.beta < math.inf:
            given = "" if math.isnan(self.beta) else f", got {self.beta!r}"
            raise UserError(f"penalty 'entropic' needs a positive β in units of 1/reward, e.g. 'entropic:0.1'{given}")

    def _power(self, g: Any, law: Law) -> Any:
        xp = namespace(law.value)
        return xp.exp(xp.minimum(-self.beta * (g - law.mean), LARGEST_EXPONENT))

    def value(self, law: Law) -> Any:
        """log E[exp(−β (G − μ))] / β."""
        return namespace(law.value).log(law.mean_of(self._power(law.value, law))) / self.beta

    def influence(self, g: Any, law: Law) -> Any:
        """g − μ + (exp(−βg) / E[exp(−βG)] − 1) / β."""
        share = self._power(g, law) / law.mean_of(self._power(law.value, law))
        return g - law.mean + (share - 1.0) / self.beta


PENALTIES: dict[str, type[Measure]] = {
    kind.name: kind
    for kind in (
        Variance, StandardDeviation, Semivariance, CVaRDeviation, GiniDeviation, MeanAbsoluteDeviation, RewardVolatility,
        EntropicDeviation,
    )
}  # fmt: skip
"""The measures by name. Learners, the command line and the documentation read this."""


@cache
def measure_of(penalty: str) -> Measure:
    """The measure of a text such as "gini" or "cvar:0.05": a name and, where it has one, its parameter."""
    if not isinstance(penalty, str):
        raise UserError(f"penalty must be the name of a measure, e.g. 'cvar:0.1', got {penalty!r}")
    name, colon, given = penalty.partition(":")
    kind = PENALTIES[one_of(name, PENALTIES, "penalty")]
    if not colon:
        return kind()
    if not kind.parameter:
        raise UserError(f"penalty {name!r} has no parameter, got {penalty!r}")
    try:
        number = float(given)
    except ValueError:
        raise UserError(f"penalty {penalty!r}: expected a number after the colon, the {kind.parameter}") from None
    return kind(**{fields(kind)[0].name: number})


def penalty_rows() -> list[dict[str, Any]]:
    """Name, definition, parameter, unit of ψ and description of each measure, for lists and the documentation."""
    return [
        {
            "name": kind.name, "definition": kind.symbol, "parameter": kind.parameter,
            "unit": "1/reward" if kind.degree == 2 else "none", "about": str(kind.__doc__).strip(),
        }
        for kind in PENALTIES.values()
    ]  # fmt: skip
