"""Linear features as lists of active indices: one for a state's number, one for each tiling for a point.

Tile coding: a grid of tiles is laid over the space several times, each time shifted by another fraction of a tile, and a
point activates the one tile of each tiling that it lies in. Tile k of tiling t has a place of its own while there is room;
with fewer places than tiles they are hashed, and distant tiles may share one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vpac.errors import UserError
from vpac.learners.compiled import shared
from vpac.typing import FloatArray, IntArray

__all__ = ["Tiles", "fill_tiles", "tile_coder"]

MIXER = 0x9E3779B97F4A7C15
"""2⁶⁴ divided by the golden ratio: multiplying by it scatters consecutive numbers (Knuth)."""


class Tiles(NamedTuple):
    """A tile coder."""

    size: int
    """How many features there are."""
    low: FloatArray
    """Lower bound of each coordinate."""
    scale: FloatArray
    """Tiles per unit of each coordinate."""
    counts: IntArray
    """Tiles along each coordinate, one more than asked for because shifted tilings stick out."""
    offset: FloatArray
    """Shift of each tiling along each coordinate, in tiles, [tilings, coordinates]."""

    @classmethod
    def none(cls) -> Tiles:
        """For worlds that need no tiles."""
        return cls(0, np.zeros(0), np.zeros(0), np.zeros(0, np.int64), np.zeros((0, 0)))


def tile_coder(low: FloatArray, high: FloatArray, tilings: int = 10, tiles: int = 5, size: int | None = 1024) -> Tiles:
    """Tiles over the box from `low` to `high`.

    Tiling t is shifted by t/tilings of a tile, times 1, 3, 5, … along the coordinates (Miller and Glanz, 1996), which
    spreads the edges of the tilings evenly.

    Args:
        low: lower bounds of the coordinates; finite.
        high: upper bounds; finite.
        tilings: how many tilings.
        tiles: how many tiles along each coordinate.
        size: hash the tiles into this many features; None: one feature for each tile.
    """
    low, high = np.asarray(low, np.float64).ravel(), np.asarray(high, np.float64).ravel()
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (high > low).all()):
        raise UserError("tile coding needs finite bounds, low below high: clip or rescale the observations")
    if tilings < 1 or tiles < 1:
        raise UserError(f"tile coding needs at least one tiling and one tile, got {tilings} tilings of {tiles} tiles")
    count = np.full(len(low), tiles + 1)
    every = tilings * int(np.prod(count.astype(np.float64)))
    if size is not None and size < tilings:
        raise UserError(f"cannot hash {tilings} tilings into {size} features: expected at least {tilings}")
    shift = np.arange(tilings)[:, None] / tilings * (2 * np.arange(len(low)) + 1)
    return Tiles(every if size is None or every <= size else size, low, tiles / (high - low), count, shift % 1.0)


@shared
def fill_tiles(tiles: Tiles, point: FloatArray, active: IntArray) -> None:
    """The active tile of each tiling into `active`."""
    tilings, dimensions = tiles.offset.shape
    every = tilings
    for axis in range(dimensions):
        every *= tiles.counts[axis]
    for tiling in range(tilings):
        index = tiling
        for axis in range(dimensions):
            along = int((point[axis] - tiles.low[axis]) * tiles.scale[axis] + tiles.offset[tiling, axis])
            index = index * tiles.counts[axis] + min(max(along, 0), tiles.counts[axis] - 1)
        if every > tiles.size:
            mixed = np.uint64(index) * np.uint64(MIXER)
            index = int((mixed >> np.uint64(32)) % np.uint64(tiles.size))
        active[tiling] = index
