from __future__ import annotations

import numpy as np
import pytest

from vpac.lab.experiments.theorems import FORMULAS, TRIAL_WORLDS, TrialWorld
from vpac.lab.kinds.theorems import (
    GradientVerdict,
    cosine,
    nearer_target,
    random_process,
    relative_error,
    seed_of,
    try_world,
)
from vpac.oracle import evaluate_off_policy, softmax, uniform

SMALL = [world for world in TRIAL_WORLDS if world.env not in ("vpac/FourRooms-v0", "vpac/PuddleWorld-v0")]


def verdicts(world):
    return {(v.formula, v.form): v for v in try_world(world, np.random.SeedSequence(7))}


@pytest.mark.parametrize("world", SMALL, ids=lambda world: world.name)
def test_identities_and_corrections_hold_and_published_gradients_do_not(world):
    found = verdicts(world)
    assert set(found) == {(f.key, "published") for f in FORMULAS} | {
        (f.key, "corrected") for f in FORMULAS if f.key not in ("theorem-1", "theorem-3")
    }
    for (formula, form), verdict in found.items():
        if form == "corrected" or formula in ("theorem-1", "theorem-3"):
            assert verdict.holds, (formula, form, verdict.relative_errors)
            assert min(verdict.cosines) == pytest.approx(1.0)
        elif not (formula == "vaac" and world.name == "frozen lake"):
            assert not verdict.holds, (formula, form)


def test_every_world_has_a_seed_of_its_own():
    assert [seed_of(world).spawn_key for world in TRIAL_WORLDS] == [(number,) for number in range(len(TRIAL_WORLDS))]


def test_the_same_seed_gives_the_same_verdicts():
    world = TrialWorld("random", None, 0.9, policies=2)
    first, again = verdicts(world), verdicts(world)
    assert first == again


def test_relative_error_and_cosine_by_hand():
    assert relative_error(np.array([3.0, 4.0]), np.array([0.0, 4.0])) == pytest.approx(0.75)
    assert cosine(np.array([1.0, 1.0]), np.array([0.0, 2.0])) == pytest.approx(np.sqrt(0.5))
    assert cosine(np.zeros(2), np.ones(2)) == 0.0
    assert not GradientVerdict("w", "f", "published", (1e-9, 1e-7), (1.0, 1.0)).holds
    assert GradientVerdict("w", "f", "published", (1e-9,), (1.0,)).holds


def test_the_target_is_drawn_nearer_until_the_variance_exists():
    rng = np.random.default_rng(0)
    mdp = random_process(rng, ends=False)
    theta = rng.normal(scale=3.0, size=(6, 3))
    near = nearer_target(mdp, theta, 0.9)
    ratio = theta[0, 0] / near[0, 0]
    assert ratio > 1.0
    assert np.log2(ratio) == pytest.approx(round(np.log2(ratio)))
    assert evaluate_off_policy(mdp, softmax(near), uniform(mdp), 0.9).spectral_radius < 1.0
