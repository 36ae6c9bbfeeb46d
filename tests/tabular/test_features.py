from __future__ import annotations

import numpy as np
import pytest

from vpac.errors import UserError
from vpac.tabular.environment import _fill_tiles
from vpac.tabular.features import squash, tile_coder, unbounded


def active(tiles, point):
    found = np.zeros(len(tiles.offset), np.int64)
    _fill_tiles(tiles, np.asarray(point, np.float64), found)
    return found.tolist()


def test_one_tiling_by_hand():
    """2 × 2 tiles over the unit square have 3 × 3 cells, because other tilings would stick out."""
    tiles = tile_coder([0, 0], [1, 1], tilings=1, tiles=2, size=None)
    assert tiles.size == 9
    corners = {(0.1, 0.1): 0, (0.1, 0.6): 1, (0.6, 0.1): 3, (0.6, 0.6): 4, (1.0, 1.0): 8, (0.5, 0.49): 3}
    for point, expected in corners.items():
        assert active(tiles, point) == [expected]


def test_two_tilings_by_hand():
    """The second tiling is shifted by 1/2 tile along x and by 3/2, that is 1/2, along y: edges at 1/4 and 3/4."""
    tiles = tile_coder([0, 0], [1, 1], tilings=2, tiles=2, size=None)
    assert active(tiles, (0.1, 0.1)) == [0, 9]
    assert active(tiles, (0.3, 0.1)) == [0, 9 + 3]
    assert active(tiles, (0.1, 0.3)) == [0, 9 + 1]
    assert active(tiles, (0.8, 0.8)) == [4, 9 + 8]


def test_bounds_are_those_of_the_box_and_points_outside_go_to_the_edge():
    tiles = tile_coder([-2.0], [2.0], tilings=1, tiles=4, size=None)
    assert [active(tiles, [x])[0] for x in (-2.0, -1.1, -0.9, 0.1, 1.9)] == [0, 0, 1, 2, 3]
    assert active(tiles, [-9.0]) == [0]
    assert active(tiles, [9.0]) == [4]


def test_near_points_share_features_and_far_ones_do_not():
    tiles = tile_coder([0, 0], [1, 1], tilings=10, tiles=5, size=None)
    here = set(active(tiles, (0.5, 0.5)))
    assert len(here & set(active(tiles, (0.51, 0.5)))) >= 8
    assert not here & set(active(tiles, (0.8, 0.8)))


@pytest.mark.parametrize("size", [None, 1024, 128])
def test_coverage_is_uniform(size):
    """Every tiling's tiles are equally likely away from the border, and hashing spreads tiles evenly."""
    tiles = tile_coder([0, 0], [1, 1], tilings=10, tiles=5, size=size)
    rng = np.random.default_rng(0)
    found = np.array([active(tiles, point) for point in rng.random((20_000, 2))])
    assert found.min() >= 0
    assert found.max() < tiles.size
    if size != 128:
        assert tiles.size == 360
        for tiling in range(10):
            cells = found[:, tiling] - 36 * tiling
            assert cells.min() >= 0
            assert cells.max() < 36
        inner = np.bincount(found[:, 0], minlength=36).reshape(6, 6)[:5, :5] / 20_000
        error = np.sqrt(0.04 * 0.96 / 20_000)
        assert np.abs(inner - 0.04).max() < 5 * error
    else:
        # 360 tiles in 128 cells: about 2.8 a place; no place takes more than a few times its share.
        share = np.bincount(found.ravel(), minlength=128) / found.size
        assert (share > 0).mean() > 0.8
        assert share.max() < 5 / 128


@pytest.mark.parametrize("dimensions", [3, 24, 33, 64, 128, 1000])
def test_hashing_spreads_tiles_of_any_dimension(dimensions):
    tiles = tile_coder(np.zeros(dimensions), np.ones(dimensions), tilings=10, tiles=5, size=512)
    assert tiles.hashed
    rng = np.random.default_rng(0)
    found = np.array([active(tiles, point) for point in rng.random((2000, dimensions))])
    assert found.min() >= 0
    assert found.max() < 512
    share = np.bincount(found.ravel(), minlength=512) / found.size
    assert (share > 0.0).mean() > 0.9
    assert share.max() < 6 / 512
    # Every coordinate counts, the first and the last: moving along one by a tile changes nearly every tiling's feature.
    for axis in (0, dimensions - 1):
        one, other = np.full(dimensions, 0.5), np.full(dimensions, 0.5)
        other[axis] = 0.75
        assert np.mean(np.array(active(tiles, one)) != np.array(active(tiles, other))) > 0.8


@pytest.mark.parametrize("far", [1e3, 1e19, 1e300, 1.7e308])
def test_points_far_outside_the_box_lie_in_the_last_tile(far):
    tiles = tile_coder([-2.0, -2.0], [2.0, 2.0], tilings=3, tiles=4, size=None)
    assert active(tiles, [far, far]) == active(tiles, [3.0, 3.0]) == [24, 49, 74]
    assert active(tiles, [-far, -far]) == active(tiles, [-3.0, -3.0]) == [0, 25, 50]


def test_coordinates_without_bounds():
    low, high = np.array([-1.0, -np.inf, 0.0, -3.4028235e38]), np.array([1.0, np.inf, np.inf, 3.4028235e38])
    which = unbounded(low, high)
    assert which.tolist() == [False, True, True, True]
    assert squash(low, which) == pytest.approx([-1.0, -1.0, 0.0, -1.0])
    assert squash(high, which) == pytest.approx([1.0, 1.0, 1.0, 1.0])
    assert squash(np.array([0.5, 1.0, -1.0, 0.0]), which) == pytest.approx([0.5, 0.5, -0.5, 0.0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.0], [np.inf]), "finite bounds"),
        (([1.0], [0.0]), "low below high"),
        (([0.0], [1.0], 0), "at least one tiling"),
        ((np.zeros(12), np.ones(12), 10, 5, None), "more than 10,000,000 features: pass hash_size"),
        (([0.0], [1.0], 8, 5, 4), "cannot hash 8 tilings into 4 features"),
    ],
)
def test_what_cannot_be_tiled_is_named(arguments, message):
    with pytest.raises(UserError, match=message):
        tile_coder(*arguments)
