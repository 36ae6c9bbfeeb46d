from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # tests run side by side; threads of their own would fight

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "vpac", deadline=None, derandomize=True, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("vpac")


@pytest.fixture
def rng():
    return np.random.default_rng(20211)
