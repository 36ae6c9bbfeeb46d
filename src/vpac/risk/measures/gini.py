"""Gini deviation: the distance of two returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from vpac.risk.measures.base import Law, Measure


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
