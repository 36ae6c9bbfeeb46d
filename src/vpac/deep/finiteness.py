"""Numbers that are not finite: what to call them. One breeds others, so the first of a chain is named, not the last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from vpac.errors import Diverged

__all__ = ["NotFinite", "finite"]

LAST = (
    "kl", "clip_fraction", "entropy", "explained_variance", "predicted_variance", "measured_variance", "penalty_share",
    "weight_share", "reversed_share",
)  # fmt: skip
"""What follows from an update or is for people to look at; its loss, its gradient and the weights come before."""


class NotFinite(Diverged):
    """A number that is not finite has stopped a run; the last good checkpoint is kept."""


def finite(numbers: Mapping[str, Any], sources: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of an update, if all are finite.

    Args:
        numbers: of the update, by name.
        sources: the arrays that it learned from, first causes first.

    Raises:
        NotFinite: with the name of the first array, or else number, that is not.
    """
    told = {name: float(np.asarray(number)) for name, number in numbers.items()}
    if np.isfinite(list(told.values())).all():
        return told
    for name, array in sources.items():
        if not np.isfinite(np.asarray(array)).all():
            raise NotFinite(f"the {name} is not finite")
    bad = [name for name, number in told.items() if not np.isfinite(number)]
    raise NotFinite(f"the {min(bad, key=lambda name: name in LAST).replace('_', ' ')} is not finite")
