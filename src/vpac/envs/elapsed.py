"""Whether observations tell how many steps of an episode have passed."""

from __future__ import annotations

from typing import Any

import numpy as np

from vpac.typing import FloatArray

__all__ = ["as_row", "tells_time"]

SAME = 1e-6
"""Differences below this share of a number's range are rounding errors."""


def as_row(observation: Any) -> FloatArray:
    """A copy of an observation as one row of numbers; a Discrete part is one number, not zeros and a one."""
    if isinstance(observation, dict):
        observation = tuple(part for _, part in sorted(observation.items()))
    if isinstance(observation, tuple):
        return np.concatenate([as_row(part) for part in observation])
    return np.array(observation, np.float64).ravel()


def tells_time(seen: FloatArray) -> bool:
    """Whether the time can be read off observations [episodes, steps, numbers] of episodes of the same length.

    It can in three ways; where the third is undecided, because nothing ever recurs, the answer is yes, too.

    1. Numbers that depend on the step alone together differ at every step: a countdown, sine and cosine, one-hot.
    2. A number has disjoint ranges at different steps: 21 · week + stock.
    3. A whole number, or all zeros and ones together, never recurs at another step: 12 · stock + week, one-hot or not.
    """
    episodes, steps, _ = seen.shape
    size = np.ptp(seen, axis=(0, 1))
    scaled = seen[..., size > 0.0] / size[size > 0.0]
    low, high = scaled.min(axis=0), scaled.max(axis=0)
    clock = low[:, (high - low < SAME).all(axis=0)]
    if len(np.unique(np.round(clock / SAME), axis=0)) == steps:
        return True
    order = np.argsort(low, axis=0)
    low, high = (np.take_along_axis(bound, order, axis=0) for bound in (low, high))
    if (low[1:] > high[:-1] + SAME).all(axis=0).any():
        return True
    whole = seen[..., (seen % 1.0 == 0.0).all(axis=(0, 1))].reshape(episodes * steps, -1)
    bits = ((whole == 0.0) | (whole == 1.0)).all(axis=0)
    together = np.unique(whole[:, bits], axis=0, return_inverse=True)[1].ravel()
    step = np.tile(np.arange(steps), episodes)
    return any(
        len(np.unique(column)) == np.unique([column, step], axis=1).shape[1]
        for column in (*whole[:, ~bits].T, together)
    )
