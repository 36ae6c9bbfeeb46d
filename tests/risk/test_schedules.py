from __future__ import annotations

import numpy as np
import pytest

from vpac.errors import UserError
from vpac.risk import Constant, Exponential, Linear, RobbinsMonro, WarmUp, as_schedule


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (Constant(0.3), [0.3, 0.3, 0.3, 0.3, 0.3]),
        (Linear(1.0, 0.0, 4), [1.0, 0.75, 0.5, 0.25, 0.0]),
        (Linear(0.0, 1.0, 2), [0.0, 0.5, 1.0, 1.0, 1.0]),
        (WarmUp(0.6, 2, 2), [0.0, 0.0, 0.0, 0.3, 0.6]),
        (WarmUp(0.6, 2), [0.0, 0.0, 0.6, 0.6, 0.6]),
        (Exponential(8.0, 0.5), [8.0, 4.0, 2.0, 1.0, 0.5]),
        (RobbinsMonro(1.0, 1.0, 1.0), [1.0, 1 / 2, 1 / 3, 1 / 4, 1 / 5]),
    ],
)
def test_values_by_hand(schedule, expected):
    assert schedule.values(5) == pytest.approx(expected)
    assert schedule.values(2, first=3) == pytest.approx(expected[3:])
    assert as_schedule(schedule.as_text()) == schedule
    assert as_schedule(schedule) is schedule


def test_numbers_and_text_are_read():
    assert as_schedule(0.5) == Constant(0.5)
    assert as_schedule("0.5") == Constant(0.5)
    assert as_schedule("warm-up:0.05:300:500") == WarmUp(0.05, 300, 500)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (-0.1, "psi must be a finite number that is not negative, got -0.1"),
        (float("nan"), "not negative, got nan"),
        ("warmup:0.1:3", "did you mean 'warm-up'"),
        ("linear:1", "expected a number or linear:START:END:EPISODES"),
        ("linear:1:-1:3", "psi: end of the linear schedule must be a finite number that is not negative"),
        ("x", "cannot read psi from 'x': expected a number or constant:VALUE"),
        (True, "psi must be a number or a schedule"),
        ([1], "psi must be a number or a schedule"),
        ("robbins-monro:1:0.5", "must be above 1/2"),
    ],
)
def test_what_cannot_be_read_is_named(value, message):
    with pytest.raises(UserError, match=message):
        as_schedule(value, "psi")


def test_robbins_monro_rates_part_from_each_other():
    slow, fast = RobbinsMonro(0.5, 0.6).values(200_000), RobbinsMonro(0.5, 0.9).values(200_000)
    assert np.all(np.diff(fast / slow) < 0.0)
    assert fast[-1] / slow[-1] < 0.11
