from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # tests run side by side; threads of their own would fight
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:  # compiled once by all workers and by the processes that tests start
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(Path(__file__).parents[1] / ".cache" / "jax")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
if not {"XLA_FLAGS", "JAX_DISABLE_MOST_OPTIMIZATIONS"} & os.environ.keys():  # to compile takes longer than to run
    os.environ["XLA_FLAGS"] = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
if "NUMBA_OPT" not in os.environ:
    folder = os.environ.get("NUMBA_CACHE_DIR", Path(__file__).parents[1] / ".cache" / "numba")
    os.environ["NUMBA_CACHE_DIR"] = os.path.join(folder, "tests")  # what users have compiled is optimised more
    os.environ["NUMBA_OPT"] = "1"

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

gc.set_threshold(100_000, 50, 100)  # by default a tenth of the time goes into walks over what JAX and matplotlib keep

settings.register_profile(
    "vpac", deadline=None, derandomize=True, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("vpac")

MAPS = Path("/proc/self/maps")
MOST_MAPS = 20_000
"""Of 65 530 that Linux allows a process: beyond them XLA crashes. A compiled program needs about ten."""


@pytest.fixture
def rng():
    return np.random.default_rng(20211)


@pytest.fixture(autouse=True, scope="module")
def compiled_programs():
    """Forget compiled programs when there are very many."""
    yield
    jax = sys.modules.get("jax")
    if jax is not None and MAPS.exists() and MAPS.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()
