"""Entropic deviation: what an exponential utility would pay for certainty."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from vpac.errors import UserError
from vpac.risk.measures.base import Law, Measure
from vpac.typing import namespace

LARGEST_EXPONENT = 30.0
"""Larger exponents are clipped: one such episode would outweigh 10¹³ others."""


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
