"""Linear algebra on one thread; the number of threads is restored afterwards."""

from __future__ import annotations

import scipy.linalg  # noqa: F401  (its own library of linear algebra, beside NumPy's)
from threadpoolctl import threadpool_info

from vpac.threads import one_blas_thread


def blas_threads() -> list[int]:
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_every_library_is_limited_and_let_go_of_again():
    before = blas_threads()
    for _ in range(2):
        with one_blas_thread():
            assert blas_threads() == [1] * len(before)
        assert blas_threads() == before
    assert len(before) >= 2
