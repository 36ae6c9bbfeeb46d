"""How many threads linear algebra may use."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

__all__ = ["one_blas_thread"]


def one_blas_thread() -> AbstractContextManager[Any]:
    """Within this context linear algebra runs on one thread.

    For thousands of solutions of small systems more threads gain nothing, and when the machine is busy they wait for
    each other, many times longer than they compute.
    """
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[Any] = threadpool_limits(limits=1, user_api="blas")
    return limits
