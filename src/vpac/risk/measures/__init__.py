"""Measures of risk that can be penalised (`penalty=` of the learners): value and influence of a distribution.

The gradient of a functional ρ of the distribution F of the return G follows from its influence function,

    IF(g; F) = d/dε ρ((1 − ε) F + ε δ_g) at ε = 0,          ∇ρ(F_θ) = E[IF(G; F_θ) · Σ_k ∇log π(A_k|S_k)]

so IF(G) is the weight that an episode's score has in the gradient of ρ. Formulas take NumPy and JAX arrays alike.
A measure is one file of this folder: its value on a sample, its influence and, where the oracle knows it by a shorter way
than the whole distribution, its exact value. A new one is added to `PENALTIES`; learners, command line and docs follow.
"""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Any

from vpac.errors import UserError, one_of
from vpac.risk.measures.absolute import MeanAbsoluteDeviation
from vpac.risk.measures.base import Law, Measure
from vpac.risk.measures.cvar import CVaRDeviation
from vpac.risk.measures.deviation import StandardDeviation
from vpac.risk.measures.entropic import EntropicDeviation
from vpac.risk.measures.gini import GiniDeviation
from vpac.risk.measures.semivariance import Semivariance
from vpac.risk.measures.variance import Variance
from vpac.risk.measures.volatility import RewardVolatility

__all__ = ["PENALTIES", "Law", "Measure", "measure_of", "penalty_rows"]

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
