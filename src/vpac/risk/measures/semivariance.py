"""Semi-variance: squared shortfall from a target."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from vpac.errors import UserError
from vpac.risk.measures.base import Law, Measure
from vpac.typing import namespace


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
