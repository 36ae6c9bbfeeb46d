"""Standard deviation of the return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from vpac.risk.measures.base import TINY, Law, Measure
from vpac.risk.measures.variance import Variance
from vpac.typing import FloatArray, namespace

if TYPE_CHECKING:
    from vpac.envs.finite_mdp import FiniteMDP


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
        """Exact value from the moments."""
        return float(Variance().exact(mdp, policy, gamma, horizon) ** 0.5)
