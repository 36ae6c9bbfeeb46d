"""Variance of the return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from vpac.risk.measures.base import Law, Measure
from vpac.typing import FloatArray

if TYPE_CHECKING:
    from vpac.envs.finite_mdp import FiniteMDP


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
        """Exact value from the moments."""
        from vpac.oracle.moments import evaluate

        return float(evaluate(mdp, policy, gamma, horizon).total_variance)
