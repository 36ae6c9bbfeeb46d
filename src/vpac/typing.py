"""Array types of the package."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
Numbers = NDArray[np.floating[Any]]


def namespace(array: Any) -> Any:
    """NumPy or jax.numpy, by the type of the array, for formulas that both share."""
    return np if isinstance(array, np.ndarray | np.generic | float | int) else array.__array_namespace__()
