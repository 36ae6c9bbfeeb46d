"""Whether the check notices that episodes have a fixed length and observations hide the time."""

from __future__ import annotations

import math

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import FlattenObservation, TimeAwareObservation

from vpac.envs import look_over, make_env
from vpac.envs.observations import as_row, tells_time

WEEKS = 12
HIDDEN = "the observation does not show the time: a policy cannot plan for the end"


class Shop(gymnasium.Env):
    """The shop of docs/your-environment.md; `look(week, stock)` is its observation."""

    def __init__(self, space=None, look=lambda week, stock: stock, lengths=(WEEKS,), cut=False):
        self.observation_space = spaces.Discrete(21) if space is None else space
        self.action_space = spaces.Discrete(3)
        self.look, self.lengths, self.cut = look, lengths, cut

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.week, self.stock, self.weeks = 0, 0, int(self.np_random.choice(self.lengths))
        return self.look(self.week, self.stock), {}

    def step(self, action):
        ordered = min([0, 4, 8][action], 20 - self.stock)
        sold = min(self.stock + ordered, int(self.np_random.poisson(5)))
        self.stock += ordered - sold
        self.week += 1
        over = self.week == self.weeks
        return (
            self.look(self.week, self.stock),
            10.0 * sold - 6.0 * ordered,
            over and not self.cut,
            over and self.cut,
            {},
        )


def box(*low_and_high):
    return spaces.Box(*(np.array(bound, np.float64) for bound in zip(*low_and_high, strict=True)), dtype=np.float64)


def one_hot(place, n=WEEKS + 1):
    return np.eye(n, dtype=np.int8)[place]


def circle(week, stock):
    angle = 2.0 * math.pi * week / (WEEKS + 1)
    return np.array([stock, math.sin(angle), math.cos(angle)])


ANY = (-1e6, 1e6)
SHOWN = {
    "week": Shop(box(ANY, ANY), lambda week, stock: np.array([stock, week], float)),
    "countdown": Shop(box(ANY, ANY), lambda week, stock: np.array([WEEKS - week, stock], float)),
    "scaled": Shop(box(ANY, (0, 1)), lambda week, stock: np.array([stock, week / WEEKS])),
    "squared": Shop(box(ANY, ANY), lambda week, stock: np.array([stock, -1e-3 * week**2])),
    "single precision": Shop(
        spaces.Box(-30, 30, (2,), np.float32), lambda week, stock: np.array([stock, week / 7 - 1], np.float32)
    ),
    "with noise": Shop(box(ANY, ANY), lambda week, stock: np.array([stock, 0.7 * week + 1e-3 * stock])),
    "sine and cosine": Shop(box(ANY, ANY, ANY), circle),
    "one-hot": Shop(spaces.MultiBinary(WEEKS + 1), lambda week, stock: one_hot(week)),
    "one-hot among numbers": Shop(
        box(ANY, *[(0, 1)] * (WEEKS + 1)), lambda week, stock: np.array([stock, *one_hot(week)], float)
    ),
    "binary digits": Shop(spaces.MultiBinary(4), lambda week, stock: np.array([week >> k & 1 for k in range(4)], np.int8)),
    "MultiDiscrete": Shop(spaces.MultiDiscrete([21, WEEKS + 1]), lambda week, stock: np.array([stock, week])),
    "Tuple": Shop(spaces.Tuple((spaces.Discrete(21), spaces.Discrete(13))), lambda week, stock: (stock, week)),
    "Dict": Shop(
        spaces.Dict(stock=box(ANY), week=spaces.Discrete(13)),
        lambda week, stock: {"week": week, "stock": np.array([stock / 3])},
    ),
    "numbered by week": Shop(spaces.Discrete(21 * 13), lambda week, stock: 21 * week + stock),
    "numbered by stock": Shop(spaces.Discrete(21 * 13), lambda week, stock: 13 * stock + week),
    "shuffled numbers": Shop(spaces.Discrete(277), lambda week, stock: 101 * (21 * week + stock) % 277),
    "numbered and one-hot": FlattenObservation(Shop(spaces.Discrete(21 * 13), lambda week, stock: 13 * stock + week)),
    "numbered, beside a number": Shop(
        spaces.Dict(state=spaces.Discrete(21 * 13), price=box(ANY)),
        lambda week, stock: {"state": 13 * stock + week, "price": np.array([math.sqrt(stock)])},
    ),
    "TimeAwareObservation": TimeAwareObservation(gymnasium.wrappers.TimeLimit(Shop(), WEEKS)),
}  # fmt: skip
KEPT_BACK = {
    "stock": Shop(),
    "stock in a Box": Shop(box(ANY), lambda week, stock: np.array([stock / 7])),
    "one-hot stock": FlattenObservation(Shop()),
    "constant": Shop(box(ANY, ANY), lambda week, stock: np.array([stock, 3.0])),
    "nothing": Shop(spaces.Discrete(1), lambda week, stock: 0),
    "no number": Shop(spaces.Box(0, 1, (0,), np.float64), lambda week, stock: np.zeros(0)),
    "month": Shop(spaces.MultiDiscrete([21, 4]), lambda week, stock: np.array([stock, week // 4])),
    "season": Shop(box(ANY, ANY), lambda week, stock: np.array([stock, math.sin(2.0 * math.pi * week / 4)])),
    "several counts": Shop(
        spaces.MultiDiscrete([21, 21, 41]), lambda week, stock: np.array([stock, 20 - stock, 7 * stock % 41])
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SHOWN)
def test_time_that_is_shown_is_seen(name):
    for seed in range(5):
        found = look_over(SHOWN[name], seed=seed)
        assert (found.errors, found.remarks, found.lengths) == ([], [], [WEEKS] * 20)


@pytest.mark.parametrize("name", KEPT_BACK)
def test_time_that_is_hidden_is_remarked_upon(name):
    """Whatever the seed: 240 observations of 21 stocks, of which most episodes show 0 at the start and again later."""
    for seed in range(5):
        found = look_over(KEPT_BACK[name], seed=seed)
        (remark,) = found.remarks
        assert found.errors == []
        assert remark.startswith(f"all 20 random episodes ended after {WEEKS} steps, and {HIDDEN}. ")
        assert f"(--set max_episode_steps={WEEKS} --wrap gymnasium.wrappers:TimeAwareObservation; if a" in remark


def test_a_clock_that_starts_anywhere_does_not_tell_the_time():
    class Day(Shop):
        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.first = int(self.np_random.integers(24))
            self.look = lambda week, stock: np.array([(self.first + week) % 24 / 24])
            return self.look(0, 0), {}

    (remark,) = look_over(Day(box((0, 1)))).remarks
    assert HIDDEN in remark


@pytest.mark.parametrize("lengths", [(11, 12), range(3, 20), (1,)])
def test_other_lengths_are_none_of_its_business(lengths):
    """That 20 episodes of one of two lengths are equal has a chance of 2e-6; episodes of one step have no later."""
    assert look_over(Shop(lengths=lengths)).remarks == []


def test_two_episodes_prove_nothing():
    found = look_over(Shop(), steps=35)
    assert (found.lengths, found.remarks) == ([12, 12], [])


def test_what_others_observe_is_not_looked_at():
    assert look_over(Shop(spaces.Text(3), lambda week, stock: "abc"), learning=False).errors == []


def test_a_time_limit_is_called_one():
    for seed in range(3):
        (remark,) = look_over(make_env("Pendulum-v1"), seed=seed).remarks
        assert remark.startswith(f"all 10 random episodes reached the time limit of 200 steps, and {HIDDEN}")
        assert remark.endswith("(--wrap gymnasium.wrappers:TimeAwareObservation)")  # there is a limit already
        assert look_over(make_env("CartPole-v1"), seed=seed).remarks == []
    wrapped = make_env("Pendulum-v1", ["gymnasium.wrappers:TimeAwareObservation"])
    assert look_over(wrapped).remarks == []
    (remark,) = look_over(Shop(cut=True)).remarks
    assert "reached the time limit of 12 steps" in remark
    assert "--set max_episode_steps=12" in remark


def test_it_is_the_same_for_every_unit():
    """Multiplied by anything, shifted by anything: a clock and a stock stay what they are."""
    random = np.random.default_rng(0)
    for scale in 10.0 ** np.arange(-8, 9, 4):
        clock = np.tile(np.arange(12.0)[:, None], (5, 1, 1)) * scale
        stock = random.normal(size=(5, 12, 3)) * scale
        for shift in (0.0, 5.0 * scale):
            assert tells_time(np.concatenate([stock, clock + shift], axis=2))
            assert not tells_time(stock + shift)


def test_rounding_errors_tell_no_time():
    """0.1 k modulo 1 comes back to the same numbers up to its last digits."""
    assert not tells_time(np.tile((np.arange(40) * 0.1 % 1.0 - 0.5)[:, None] ** 2, (3, 1, 1)))


def test_rows_are_copies_in_the_order_of_keys():
    array = np.array([[1, 2], [3, 4]])
    row = as_row({"b": (np.int64(7), np.array(8.5)), "a": array})
    array[:] = 0
    assert row.tolist() == [1.0, 2.0, 3.0, 4.0, 7.0, 8.5]
