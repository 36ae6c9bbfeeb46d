"""Seeds of tests that learn, and bounds of means over seeds.

What is learned depends on the last digits of a processor's arithmetic, as much as on a seed. So a claim about learning is one
about a mean over several seeds, with a margin of computed standard errors; with VPAC_TEST_SEED=1000 it must hold as well.
"""

from __future__ import annotations

import os

import numpy as np

OFFSET = int(os.environ.get("VPAC_TEST_SEED", "0"))
"""Added to every seed of a test that learns."""
ERRORS = 4.0
"""Standard errors that a claim leaves to chance."""


def seeds(count: int = 5, first: int = 0) -> range:
    """That many seeds, others with another VPAC_TEST_SEED."""
    return range(OFFSET + first, OFFSET + first + count)


def bounds(found) -> tuple[float, float]:
    """The mean over seeds, less and plus `ERRORS` standard errors."""
    found = np.asarray(found, np.float64)
    assert len(found) >= 5, "a claim needs at least five seeds"
    error = found.std(ddof=1) / np.sqrt(len(found))
    return float(found.mean() - ERRORS * error), float(found.mean() + ERRORS * error)
