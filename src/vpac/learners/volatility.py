"""MVPI's hook in the loop: what a step pays, and who pays ψ."""

from __future__ import annotations

from vpac.learners.compiled import inlined
from vpac.learners.settings import Settings
from vpac.risk.volatility import augmented

__all__ = ["augment", "prices"]

augment = inlined(augmented)


@inlined
def prices(settings: Settings, psi: float) -> tuple[float, float]:
    """ψ as (price of the return's variance, price of the reward's variance): one of the two is zero."""
    if settings.volatility:
        return 0.0, psi
    return psi, 0.0
