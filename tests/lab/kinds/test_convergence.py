from __future__ import annotations

import numpy as np
import pytest

from seeds import bounds, seeds
from vpac.errors import UserError
from vpac.lab.kinds.convergence import Convergence
from vpac.lab.kinds.theorems import random_process
from vpac.oracle import evaluate, gradient, softmax
from vpac.risk.schedules import as_schedule

EPISODES, EARLY = 200_000, 1400
"""How long a run is, and from when on its errors are compared with its step sizes."""


@pytest.fixture(scope="module")
def mdp():
    return random_process(np.random.default_rng(35), n_states=4, n_actions=2, noise=0.0)


@pytest.fixture(scope="module")
def runs(mdp):
    """Each kind of run, with 16 seeds: column → [seed, time]."""
    found = {}
    for name, settings in (("ac", {"algorithm": "ac"}), ("corrected", {"psi": 0.5}), ("published", PUBLISHED)):
        each = [Convergence(episodes=EPISODES, points=40, **settings).run(mdp, seed) for seed in seeds(16)]
        late = each[0]["episodes"] > EARLY
        found[name] = {column: np.stack([run[column][late] for run in each]) for column in each[0]}
    return found


PUBLISHED = {"psi": 0.5, "form": "published"}


def exponents(found, size):
    """Slope of the logarithm of what was found on that of a size, by least squares, for each seed."""
    x = np.log(size) - np.log(size).mean()
    return np.log(found) @ x / (x @ x)


@pytest.mark.parametrize("name", ["ac", "corrected"])
def test_all_three_shrink_as_the_step_sizes_say(runs, name):
    """Critics like √α, the gradient of a policy that becomes deterministic like 1/Σα_θ."""
    found, rates = runs[name], Convergence()
    times = found["episodes"][0].astype(np.int64)
    for column, alpha in (("value_error", rates.alpha_w), ("variance_error", rates.alpha_z)):
        low, high = bounds(exponents(found[column], as_schedule(alpha).at(times)))
        assert 0.25 < low < high < 0.8
    steps = np.cumsum(as_schedule(rates.alpha_theta).values(EPISODES))[times - 1]
    low, high = bounds(exponents(found["gradient_norm"], steps))
    assert -1.5 < low < high < -0.5
    assert np.array_equal(found["direction_norm"], found["gradient_norm"])
    assert bounds(found["objective"][:, -1] - found["objective"][:, 0])[0] > 0.0


def test_the_published_form_settles_where_the_gradient_is_not_zero(runs):
    """Its own direction shrinks to a tenth, while the gradient stays and the objective falls below the corrected form's."""
    published, corrected = runs["published"], runs["corrected"]
    assert bounds(np.log(published["direction_norm"][:, -1] / published["direction_norm"][:, 0]))[1] < np.log(0.2)
    assert bounds(published["gradient_norm"][:, -1])[0] > 0.1
    assert bounds(np.log(published["gradient_norm"][:, -1] / corrected["gradient_norm"][:, -1]))[0] > np.log(20.0)
    assert bounds(published["objective"][:, -1] - published["objective"][:, 0])[1] < 0.0
    assert bounds(corrected["objective"][:, -1] - published["objective"][:, -1])[0] > 0.2


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
