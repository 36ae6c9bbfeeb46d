"""Mean absolute deviation of the return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from vpac.risk.measures.base import Law, Measure
from vpac.typing import namespace


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
