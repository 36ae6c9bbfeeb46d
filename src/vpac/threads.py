"""Number of threads that linear algebra may use."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from functools import cache
from typing import Any


def one_blas_thread() -> AbstractContextManager[Any]:
    """Use one thread for linear algebra within this context.

    For thousands of solutions of small systems more threads gain nothing, and on a busy machine they wait for each other many
    times longer than they compute.
    """
    limits: AbstractContextManager[Any] = _libraries("scipy.linalg" in sys.modules).limit(limits=1, user_api="blas")
    return limits


@cache
def _libraries(with_scipy: bool) -> Any:
    """NumPy's library and, once it is loaded, SciPy's: to look for them takes two milliseconds, so it is done once."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
