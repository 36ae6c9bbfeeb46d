"""CVaR deviation: from the mean to the worst episodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from vpac.errors import UserError
from vpac.risk.measures.base import Law, Measure
from vpac.typing import namespace


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
