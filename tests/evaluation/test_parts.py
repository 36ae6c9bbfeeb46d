"""Parts of a variance from rows, in a toy model sampled by NumPy: coverage of the intervals.

An episode has ten steps. In each the policy slips with a small chance, which costs 5, and the environment adds noise: to every
step, or a jolt of 4 that is rare, too.
"""

from __future__ import annotations

import numpy as np
import pytest

from vpac.evaluation.sources import VARIANCE_PARTS, estimate
from vpac.risk.intervals import mean_interval, rare_mean_interval

STEPS, DRAWS, COST, JOLT = 10, 4, 5.0, 4.0


def rows(rng, n, slip, jolt, start):
    """What `variance_sources` would have noted: two returns, the policy's term, the environment's, and the steps."""
    actions = rng.random((n, STEPS, DRAWS)) < slip
    first, second = rng.random((2, n, STEPS)) < jolt
    begun = start * rng.normal(size=n)
    one = begun - COST * actions[:, :, 0].sum(axis=1) - JOLT * first.sum(axis=1)
    two = begun - COST * rng.binomial(STEPS, slip, n) - JOLT * second.sum(axis=1)
    slips = actions.sum(axis=2)
    chosen = 0.5 * COST**2 * (slips * (DRAWS - slips)).sum(axis=1) / 6.0
    answers = rng.random((2, n)) < jolt  # to the one step that is picked, twice
    answered = STEPS * 0.5 * JOLT**2 * (answers[0] != answers[1])
    return np.column_stack([one, two, chosen, answered, np.full(n, float(STEPS))])


def truths(slip, jolt, start):
    return {
        "start": start**2, "policy": STEPS * COST**2 * slip * (1 - slip), "environment": STEPS * JOLT**2 * jolt * (1 - jolt)
    }  # fmt: skip


TRIALS = 250


@pytest.mark.parametrize(
    ("n", "slip", "jolt", "start"),
    [(50, 0.0004, 0.01, 1.0), (50, 0.002, 0.002, 0.0), (100, 0.5, 0.5, 1.0)],
)
def test_the_truth_is_in_the_intervals(n, slip, jolt, start):
    """Nominally 95 %; at least that but for three standard errors of 250 trials."""
    rng, truth = np.random.default_rng(1), truths(slip, jolt, start)
    total = sum(truth.values())
    inside = {name: [] for name in (*VARIANCE_PARTS, "total", *(f"share of {name}" for name in VARIANCE_PARTS))}
    for _ in range(TRIALS):
        found = estimate(rows(rng, n, slip, jolt, start), 0.95, frozenset(), DRAWS)
        inside["total"].append(found.total.low <= total <= found.total.high)
        for name in VARIANCE_PARTS:
            part, share = found.parts[name], found.shares[name]
            inside[name].append(part.low <= truth[name] <= part.high)
            if np.isnan(share.estimate):
                inside[f"share of {name}"].append(True)
                continue
            assert 0.0 <= share.low <= share.estimate <= share.high <= 1.0
            inside[f"share of {name}"].append(share.low <= truth[name] / total <= share.high)
    for name, covered in inside.items():
        assert np.mean(covered) >= 0.95 - 3.0 * np.sqrt(0.95 * 0.05 / TRIALS), name


def test_students_interval_would_not_do_for_rare_slips():
    """The reason for another: with five slips to be expected it misses their part too often."""
    rng, truth = np.random.default_rng(2), truths(0.0025, 0.0, 0.0)["policy"]
    terms = [rows(rng, 50, 0.0025, 0.0, 0.0)[:, 2] for _ in range(400)]
    ours, students = (
        np.mean([i.low <= truth <= i.high for i in map(function, terms)])
        for function in (rare_mean_interval, mean_interval)
    )
    assert students < 0.9
    assert ours >= 0.95 - 3.0 * np.sqrt(0.95 * 0.05 / 400)


def test_a_count_has_its_exact_interval():
    """Three events in 1000: 0.6187 … 8.7673 (Garwood) over 1000, nearly: a binomial count varies a little less."""
    found = rare_mean_interval(np.arange(1000) < 3)
    assert found.estimate == pytest.approx(0.003)
    assert 1000.0 * found.high == pytest.approx(8.7673, rel=0.005)
    assert found.low == 0.0  # Student's, which is the wider there
    none = rare_mean_interval(np.zeros(1000), event=2.0)
    assert (none.low, none.high) == (0.0, pytest.approx(-np.log(0.025) * 2.0 / 1000.0))
    assert rare_mean_interval(np.zeros(10)).high == 0.0


def test_too_little_is_said():
    rng = np.random.default_rng(3)
    assert set(estimate(rows(rng, 100, 0.0005, 0.5, 0.0), 0.95, frozenset(), DRAWS).few) == {"policy"}
    some = rows(rng, 100, 0.0, 0.5, 0.0)
    found = estimate(some, 0.95, frozenset(), DRAWS)
    assert found.few == {"policy": 0}
    assert found.parts["policy"].high > found.parts["policy"].low == 0.0
    sure = estimate(some, 0.95, frozenset({"policy"}), DRAWS)
    assert sure.few == {}
    assert (sure.parts["policy"].high, sure.shares["policy"].high) == (0.0, 0.0)


def test_a_ruinous_action_that_never_came_up():
    """Beside the small slips there is a chance of 1 in 10 000 of losing 30 in a step, which noise may bring, too: nearly
    half of the policy's part. Most samples of 200 starts hold none of it."""
    rng, inside = np.random.default_rng(5), []
    truth = truths(0.004, 0.0, 0.0)["policy"] + STEPS * 1e-4 * 30.0**2
    for _ in range(TRIALS):
        some = rows(rng, 200, 0.004, 0.0, 0.0)
        some[:, :2] += 8.0 * rng.normal(size=(200, 2))
        ruins = rng.random((200, STEPS, DRAWS)) < 1e-4
        some[:, 2] += 0.5 * 30.0**2 * (DRAWS - 1) * ruins.sum(axis=(1, 2)) / 6.0
        some[:, 3] = 64.0 * rng.normal(size=200) ** 2
        part = estimate(some, 0.95, frozenset(), DRAWS).parts["policy"]
        inside.append(part.low <= truth <= part.high)
    assert np.mean(inside) >= 0.95 - 3.0 * np.sqrt(0.95 * 0.05 / TRIALS)


def test_parts_add_up():
    found = estimate(rows(np.random.default_rng(4), 200, 0.1, 0.1, 3.0), 0.95, frozenset(), DRAWS)
    assert sum(part.estimate for part in found.parts.values()) == pytest.approx(found.total.estimate)
    assert sum(share.estimate for share in found.shares.values()) == pytest.approx(1.0)
    nothing = estimate(np.zeros((20, 5)), 0.95, frozenset(), DRAWS)
    assert (nothing.total.high, nothing.few) == (0.0, {})
    assert np.isnan(nothing.shares["policy"].estimate)
