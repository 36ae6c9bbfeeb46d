"""Running moments, scales, rewards, prices and episodes, checked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from vpac.deep.collect import Episode, EpisodeTracker, Rollout, episode_metrics
from vpac.deep.normaliser import RewardScale, RunningMoments
from vpac.deep.price import EpisodePrices, PriceRange


def test_moments_of_pieces_are_those_of_the_whole(rng):
    """Pieces of different sizes with different means: the spread between their means is part of the variance."""
    pieces = [rng.normal(mean, 1.0 + abs(mean), (size, 3)) for mean, size in ((0.0, 7), (5.0, 40), (-3.0, 1), (2.0, 0))]
    found, whole = RunningMoments.of((3,)), np.concatenate(pieces)
    for piece in pieces:
        found = found.joined(piece)
    assert found.count == 48.0
    np.testing.assert_allclose(found.mean, whole.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.variance, whole.var(axis=0), rtol=1e-12)


def column(*numbers):
    return np.array(numbers, np.float64)[:, None]


def test_the_scale_of_rewards_begins_anew_with_each_episode():
    """γ = 1/2. The first episode sums to 8 and 4 + 2; then an idle step; the second to 2 and 1 + 6, later to 3.5 + 1."""
    scale = RewardScale.of(None, 0.5, 1)
    assert scale.value == 1.0
    scale.add(column(8.0, 2.0, 50.0, 2.0, 6.0), column(1, 0, 1, 1, 1), column(1, 1, 0, 1, 1))
    sums = [8.0, 6.0, 2.0, 7.0]
    assert scale.value == pytest.approx(1.0 / math.sqrt(np.var(sums) + 1e-8))
    scale.add(column(1.0), column(1), column(1))
    assert scale.value == pytest.approx(1.0 / math.sqrt(np.var([*sums, 4.5]) + 1e-8))
    scale.restart()
    scale.add(column(1.0), column(1), column(1))
    assert scale.value == pytest.approx(1.0 / math.sqrt(np.var([*sums, 4.5, 1.0]) + 1e-8))


def test_each_environment_has_its_own_sums():
    scale = RewardScale.of(None, 0.5, 2)
    scale.add(np.array([[4.0, 8.0], [1.0, 1.0]]), np.array([[0.0, 1.0], [1.0, 1.0]]), np.ones((2, 2)))
    assert scale.moments.mean == pytest.approx(np.mean([4.0, 8.0, 1.0, 5.0]))
    assert scale.moments.variance == pytest.approx(np.var([4.0, 8.0, 1.0, 5.0]))


def test_a_fixed_scale_stays():
    scale = RewardScale.of(0.01, 0.5, 1)
    scale.add(column(8.0, 2.0), column(1, 0), column(1, 1))
    assert scale.value == 0.01


def rollout(rewards, valid):
    empty, ones = np.zeros((len(rewards), 1)), np.ones((len(rewards), 1))
    return Rollout(empty, None, empty, column(*rewards), ones, ones, column(*valid), empty)


def test_rewards_below_the_floor_are_raised_and_others_stay():
    found = rollout((-2000.0, -999.0, 5.0, 2000.0), (1, 1, 1, 1)).training_rewards(-1000.0, 0.0)
    assert found[:, 0].tolist() == [-1000.0, -999.0, 5.0, 2000.0]
    assert rollout((-2000.0, 5.0), (1, 1)).training_rewards(None, 0.0)[:, 0].tolist() == [-2000.0, 5.0]


def test_a_price_of_the_reward_of_a_step():
    """R − λR² + 2λRy with λ = 1/2 and y = (1 + 3 − 1) / 3 = 1: idle steps, of which 90 is one, do not count for the mean.

    The floor comes first: −9 counts as −1.
    """
    found = rollout((1.0, 3.0, 90.0, -9.0), (1, 1, 0, 1)).training_rewards(-1.0, 0.5)
    assert found[[0, 1, 3], 0].tolist() == [1.0 - 0.5 + 1.0, 3.0 - 4.5 + 3.0, -1.0 - 0.5 - 1.0]


def test_episodes_are_summed_with_and_without_discount():
    """γ = 1/2: 1 + 2/2 + 4/4 = 3 discounted, 7 in all; steps that only begin an episode count for nothing."""
    episodes, other = EpisodeTracker.of(2, 0.5), EpisodeTracker.of(2, 0.5, 1.0)
    steps = [
        ([1.0, 10.0], [False, True], [1, 1]),
        ([2.0, 99.0], [False, False], [1, 0]),
        ([4.0, 20.0], [True, False], [1, 1]),
        ([99.0, 40.0], [False, True], [0, 1]),
        ([8.0, 99.0], [True, False], [1, 0]),
    ]
    for rewards, over, valid in steps:
        episodes.add(np.array(rewards), np.array(over), np.array(valid, bool))
        other.add(np.array(rewards), np.array(over), np.array(valid, bool))
    ended = episodes.take()
    assert ended == [(10.0, 10.0, 1.0, 10.0), (7.0, 3.0, 3.0, 3.0), (60.0, 40.0, 2.0, 40.0), (8.0, 8.0, 1.0, 8.0)]
    assert other.take() == [
        (10.0, 10.0, 1.0, 10.0),
        (7.0, 3.0, 3.0, 7.0),
        (60.0, 40.0, 2.0, 60.0),
        (8.0, 8.0, 1.0, 8.0),
    ]
    assert episodes.take() == []
    assert episode_metrics(ended) == pytest.approx(
        {
            "score_mean": 21.25, "score_variance": np.var([10.0, 7.0, 60.0, 8.0]), "return_mean": 15.25,
            "return_variance": np.var([10.0, 3.0, 40.0, 8.0]), "length_mean": 1.75,
            "priced_variance": np.var([10.0, 3.0, 40.0, 8.0]),
        }
    )  # fmt: skip
    assert episode_metrics([Episode(0.0, 1.0, 2.0, 3.0), Episode(0.0, 1.0, 2.0, 7.0)])["priced_variance"] == 4.0
    assert all(math.isnan(number) for number in episode_metrics([]).values())


def test_prices_are_even_in_their_square_root():
    """From 1 to 9 the roots go from 1 to 3: half the way is 2, a price of 4, and it is shown as 0."""
    within = PriceRange(1.0, 9.0)
    assert within.drawn(np.array([0.0, 0.5, 0.75, 1.0])).tolist() == [1.0, 4.0, 6.25, 9.0]
    rows = np.array([[7.0], [8.0], [9.0]], np.float32)
    shown = within.beside(rows, np.array([1.0, 4.0, 9.0]))
    assert shown.tolist() == [[7.0, -1.0], [8.0, 0.0], [9.0, 1.0]]
    assert within.beside(rows, 6.25)[:, 1].tolist() == [0.5, 0.5, 0.5]


def test_only_the_episodes_that_begin_draw_a_price():
    prices = EpisodePrices(PriceRange(1.0, 9.0), 3, np.random.default_rng(0))
    before = prices.now
    prices.draw(np.array([False, True, False]))
    assert (prices.now == before).tolist() == [True, False, True]
    prices.draw(np.zeros(3, bool))
    roots = np.sqrt(
        np.concatenate([EpisodePrices(PriceRange(1.0, 9.0), 500, np.random.default_rng(s)).now for s in range(8)])
    )
    assert abs(roots.mean() - 2.0) < 4.0 * math.sqrt(4.0 / 12.0 / len(roots))  # uniform from 1 to 3
