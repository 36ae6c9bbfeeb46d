"""Linear features as lists of active indices: one for a state's index, or one for each tiling of a point.

Tile coding: several grids of tiles are laid over the space, each shifted by another fraction of a tile, and a point activates
one tile of each tiling. Every tile has its own feature if there are enough; otherwise tiles are hashed, and distant tiles
may share a feature. Coordinates without bounds are squashed first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vpac.errors import UserError
from vpac.tabular.kernel.jit import shared
from vpac.typing import BoolArray, FloatArray, IntArray

MIXER = 0x9E3779B97F4A7C15
"""2⁶⁴ divided by the golden ratio: multiplying by it scatters consecutive numbers (Knuth)."""
HALF = np.uint64(32)
MOST_FEATURES = 10_000_000
"""Larger numbers of features are rejected: three tables of them would take gigabytes."""
NO_BOUND = float(np.finfo(np.float32).max)
"""A bound this large counts as no bound."""


class Tiles(NamedTuple):
    """A tile coder."""

    size: int
    """Number of features."""
    hashed: bool
    """Whether there are fewer features than tiles."""
    low: FloatArray
    """Lower bound of each coordinate."""
    scale: FloatArray
    """Tiles per unit of each coordinate."""
    counts: IntArray
    """Tiles along each coordinate, one more than requested because tilings are shifted."""
    offset: FloatArray
    """Shift of each tiling along each coordinate, in tiles, [tilings, coordinates]."""

    @classmethod
    def none(cls) -> Tiles:
        """Placeholder for environments that need no tiles."""
        return cls(0, False, np.zeros(0), np.zeros(0), np.zeros(0, np.int64), np.zeros((0, 0)))


def tile_coder(low: FloatArray, high: FloatArray, tilings: int = 10, tiles: int = 5, size: int | None = 1024) -> Tiles:
    """Tiles over the box from `low` to `high`.

    Tiling t is shifted by t/tilings of a tile, times 1, 3, 5, … along the coordinates (Miller and Glanz, 1996), which
    spreads the edges of the tilings evenly. `tiles` lie along each coordinate, hashed into `size` features (None: one each).
    """
    low, high = np.asarray(low, np.float64).ravel(), np.asarray(high, np.float64).ravel()
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (high > low).all()):
        raise UserError("tile coding needs finite bounds, low below high: clip or rescale the observations")
    if tilings < 1 or tiles < 1:
        raise UserError(f"tile coding needs at least one tiling and one tile, got {tilings} tilings of {tiles} tiles")
    count = np.full(len(low), tiles + 1, np.int64)
    every = tilings * (tiles + 1) ** len(low)
    if size is None and every > MOST_FEATURES:
        raise UserError(
            f"{tilings} tilings of {tiles + 1} tiles along each of {len(low)} coordinates are more than {MOST_FEATURES:,} "
            "features: pass hash_size=…, or fewer tiles"
        )
    if size is not None and size < tilings:
        raise UserError(f"cannot hash {tilings} tilings into {size} features: expected at least {tilings}")
    shift = np.arange(tilings)[:, None] / tilings * (2 * np.arange(len(low)) + 1)
    hashed = size is not None and every > size
    return Tiles(size if size is not None and hashed else every, hashed, low, tiles / (high - low), count, shift % 1.0)


def unbounded(low: FloatArray, high: FloatArray) -> BoolArray:
    """Whether each coordinate of a box lacks a bound."""
    return np.asarray((np.abs(low) >= NO_BOUND) | (np.abs(high) >= NO_BOUND), bool).ravel()


def squash(point: FloatArray, which: BoolArray) -> FloatArray:
    """x → 2/π · arctan x, from −1 to 1, along some of the coordinates: tiles are finest near 0 and coarse far away."""
    return np.where(which, 2.0 / np.pi * np.arctan(point), point)


@shared
def fill_tiles(tiles: Tiles, point: FloatArray, active: IntArray) -> None:
    """Write the active tile of each tiling into `active`; a point outside the box activates the last tile on that side."""
    tilings, dimensions = tiles.offset.shape
    for tiling in range(tilings):
        index, mixed = tiling, np.uint64(tiling)
        for axis in range(dimensions):
            along = (point[axis] - tiles.low[axis]) * tiles.scale[axis] + tiles.offset[tiling, axis]
            tile = int(min(max(along, 0.0), tiles.counts[axis] - 1.0))
            if tiles.hashed:
                mixed = ((mixed ^ (mixed >> HALF)) * np.uint64(MIXER)) ^ np.uint64(tile)
            else:
                index = index * tiles.counts[axis] + tile
        if tiles.hashed:
            mixed = (mixed ^ (mixed >> HALF)) * np.uint64(MIXER)
            index = int((mixed >> HALF) % np.uint64(tiles.size))
        active[tiling] = index
