"""Test whether a sample agrees with given moments."""

from __future__ import annotations

import numpy as np

ERRORS = 4.0
"""How many standard errors a sample of a fixed seed may be off: one in 16 000 would be by chance."""


class Scripted:
    """A stand-in for a random generator whose next numbers are known."""

    def __init__(self, uniform=(), normal=()):
        self.uniform, self.normal = list(uniform), list(normal)

    def random(self):
        return self.uniform.pop(0)

    def standard_normal(self):
        return self.normal.pop(0)


def assert_frequency(hits, tries, probability):
    error = np.sqrt(probability * (1.0 - probability) / tries)
    assert abs(hits / tries - probability) <= ERRORS * error, f"{hits} of {tries}, expected a share of {probability}"


def assert_mean(sample, mean, variance):
    error = np.sqrt(variance / len(sample))
    assert abs(np.mean(sample) - mean) <= ERRORS * error, f"mean {np.mean(sample)}, expected {mean} ± {error}"


def assert_variance(sample, variance, kurtosis=3.0):
    """`kurtosis` is E[(x − μ)⁴]/σ⁴: 3 for the normal, 9/5 for the uniform distribution."""
    error = variance * np.sqrt((kurtosis - 1.0) / len(sample))
    found = np.var(sample, ddof=1)
    assert abs(found - variance) <= ERRORS * error, f"variance {found}, expected {variance} ± {error}"
