"""Random numbers in compiled code: xoshiro256++ (Blackman and Vigna, 2021), one stream for each run.

A stream's four words come from `numpy.random.SeedSequence`, so the runs of one seed are independent of each other and of
their number.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from vpac.tabular.kernel.jit import inlined
from vpac.typing import FloatArray

RngState = NDArray[np.uint64]
STATE_WORDS = 4


def generator(seed: np.random.SeedSequence) -> RngState:
    """The four words of a stream."""
    rng: RngState = np.asarray(seed.generate_state(STATE_WORDS, np.uint64), np.uint64)
    return rng


@inlined
def _rotate(word: np.uint64, by: int) -> np.uint64:
    return (word << np.uint64(by)) | (word >> np.uint64(64 - by))


@inlined
def uniform(rng: RngState) -> float:
    """A number from [0, 1), a multiple of 2⁻⁵³."""
    s0, s1, s2, s3 = rng[0], rng[1], rng[2], rng[3]
    result = _rotate(s0 + s3, 23) + s0
    shifted = s1 << np.uint64(17)
    s2 ^= s0
    s3 ^= s1
    s1 ^= s2
    s0 ^= s3
    s2 ^= shifted
    rng[0], rng[1], rng[2], rng[3] = s0, s1, s2, _rotate(s3, 45)
    return np.float64(np.int64(result >> np.uint64(11))) * 1.1102230246251565e-16


@inlined
def normal(rng: RngState) -> float:
    """A standard normal number (Box and Muller, 1958)."""
    radius = math.sqrt(-2.0 * math.log(1.0 - uniform(rng)))
    return radius * math.cos(2.0 * math.pi * uniform(rng))


@inlined
def pick(probabilities: FloatArray, rng: RngState) -> int:
    """An index drawn with the given probabilities, which add up to one."""
    drawn = uniform(rng)
    index, up_to = 0, 0.0
    for before in range(len(probabilities) - 1):  # no early exit: its branch would be unpredictable
        up_to += probabilities[before]
        index += drawn >= up_to
    return index
