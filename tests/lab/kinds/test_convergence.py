from __future__ import annotations

import numpy as np
import pytest

from vpac.errors import UserError
from vpac.lab.kinds.convergence import Convergence
from vpac.lab.kinds.theorems import random_process
from vpac.oracle import evaluate, gradient, softmax
from vpac.risk.schedules import as_schedule

SEEDS = range(6)
EARLY, LATE = 2000, 200_000


@pytest.fixture(scope="module")
def mdp():
    return random_process(np.random.default_rng(35), n_states=4, n_actions=2, noise=0.0)


def averaged(mdp, **settings):
    """Geometric means over runs, at the two times."""
    runs = [Convergence(episodes=LATE, points=11, **settings).run(mdp, seed) for seed in SEEDS]
    early = int(np.argmin(np.abs(np.log(runs[0]["episodes"] / EARLY))))
    names = ("value_error", "variance_error", "direction_norm", "gradient_norm")
    found = {name: np.exp(np.mean([np.log(run[name][[early, -1]]) for run in runs], axis=0)) for name in names}
    found["objective"] = np.mean([run["objective"][[early, -1]] for run in runs], axis=0)
    return found, runs[0]["episodes"][[early, -1]]


@pytest.mark.parametrize("settings", [{"algorithm": "ac"}, {"psi": 0.5}], ids=["ac", "corrected"])
def test_all_three_shrink_as_the_step_sizes_say(mdp, settings):
    """Critics like √α, the gradient of a policy that becomes deterministic like 1/Σα_θ; within a factor of two."""
    found, times = averaged(mdp, **settings)
    shrunk = {name: late / early for name, (early, late) in found.items()}
    rates = Convergence(**settings)
    for name, alpha in (("value_error", rates.alpha_w), ("variance_error", rates.alpha_z)):
        early, late = as_schedule(alpha).at(times)
        assert 0.5 < shrunk[name] / np.sqrt(late / early) < 2.0
    early, late = (as_schedule(rates.alpha_theta).values(int(time)).sum() for time in times)
    assert 0.4 < shrunk["gradient_norm"] / (early / late) < 2.0
    assert np.array_equal(found["direction_norm"], found["gradient_norm"])
    assert found["objective"][1] > found["objective"][0]


def test_the_published_form_settles_where_the_gradient_is_not_zero(mdp):
    published, _ = averaged(mdp, psi=0.5, form="published")
    corrected, _ = averaged(mdp, psi=0.5)
    assert published["direction_norm"][1] < 0.2 * published["direction_norm"][0]
    assert published["gradient_norm"][1] > 0.1
    assert published["gradient_norm"][1] > 20.0 * corrected["gradient_norm"][1]
    assert published["objective"][1] < published["objective"][0]
    assert corrected["objective"][1] > published["objective"][1] + 0.2


def test_columns_by_hand(mdp):
    """A learner that does not move: its critics are wrong by all there is, and its policy is uniform."""
    still = {"alpha_w": 0.0, "alpha_z": 0.0, "alpha_theta": 0.0}
    found = Convergence(psi=0.3, variance_of="return", form="published", episodes=20, points=3, **still).run(mdp, 1)
    theta = np.zeros((4, 2))
    moments = evaluate(mdp, softmax(theta), 0.9)
    assert found["episodes"].tolist() == [10, 14, 20]
    assert found["value_error"] == pytest.approx(1.0)
    assert found["variance_error"] == pytest.approx(1.0)
    assert found["direction_norm"] == pytest.approx(np.linalg.norm(gradient(mdp, theta, 0.9, 0.3, "published")))
    assert found["gradient_norm"] == pytest.approx(np.linalg.norm(gradient(mdp, theta, 0.9, 0.3, "exact", "return")))
    assert found["objective"] == pytest.approx(moments.mean - 0.3 * moments.total_variance)


def test_a_run_depends_on_its_seed_only(mdp):
    settings = Convergence(psi=0.5, episodes=300, points=5)
    first, again, other = (settings.run(mdp, seed) for seed in (0, 0, 1))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["value_error"], other["value_error"])


def test_mistakes_are_named():
    with pytest.raises(UserError, match="AC has no price"):
        Convergence(algorithm="ac", psi=0.1)
    with pytest.raises(UserError, match="algorithm"):
        Convergence(algorithm="vaac")
    with pytest.raises(UserError, match="points"):
        Convergence(points=0)
