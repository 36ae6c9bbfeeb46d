"""Comparison of forms by frontiers with known answers, and the coverage of its intervals."""

import numpy as np
import pytest

from vpac import FiniteMDP
from vpac.lab.experiments.catalogue import EXPERIMENTS
from vpac.lab.report.trade_off import Swept, scores
from vpac.oracle import frontier
from vpac.risk.frontier import hypervolume

PSIS = np.array([0.0, 0.1, 0.5])
ORACLE = np.array([[0.0, 10.0, 16.0], [0.1, 9.5, 9.0], [0.5, 8.0, 1.0]])
BEST = ORACLE[:, 1] - ORACLE[:, 0] * ORACLE[:, 2]


def form(means, variances, runs=8, noise=0.0, rng=None):
    rng = rng or np.random.default_rng(0)
    return Swept(PSIS, [m + noise * rng.normal(size=runs) for m in means], [np.full(runs, float(v)) for v in variances])


def test_the_oracle_itself_loses_nothing():
    found = scores({"best": form(*ORACLE[:, 1:].T)}, ORACLE)["best"]
    for values, expected in ((found.volume, 1.0), (found.tuned, 0.0), (found.plain, 0.0)):
        np.testing.assert_allclose(values, expected, atol=1e-12)


def test_the_same_points_at_other_prices_lose_by_the_price_alone():
    """A form that calls the price by another name has the same frontier: tuned it loses nothing, at equal ψ it does."""
    same, shifted = form(*ORACLE[:, 1:].T), form(*ORACLE[[1, 2, 2], 1:].T)
    shifted = Swept(PSIS, [same.means[0], same.means[2], same.means[1]], [same.variances[k] for k in (0, 2, 1)])
    found = scores({"same": same, "shifted": shifted}, ORACLE)
    assert found["shifted"].volume[0] == pytest.approx(1.0)
    assert found["shifted"].tuned[0] == pytest.approx(0.0)
    at_equal = np.array([10.0, 8.0 - 0.1 * 1.0, 9.5 - 0.5 * 9.0])
    assert found["shifted"].plain[0] == pytest.approx((BEST - at_equal).mean())


def test_scores_by_hand():
    """Worse points: at ψ = 0.5 the best is 9.4 − 4.5; without a price the variance is 25, the ceiling; the floor is 6."""
    found = scores({"poor": form([9.9, 9.4, 8.9], [25.0, 9.0, 9.0])}, ORACLE)["poor"]
    whole = 8 * (2.0 + 3.5) / 2 + 7 * (3.5 + 4.0) / 2 + 9 * 4.0
    assert hypervolume(ORACLE[:, 1], ORACLE[:, 2], 6.0, 25.0) == pytest.approx(whole)
    assert found.volume[0] == pytest.approx(16 * (3.4 + 3.9) / 2 / whole)
    tuned = BEST - np.array([9.9, 9.4 - 0.9, 9.4 - 4.5])
    assert found.tuned[0] == pytest.approx(tuned.mean())


def test_without_an_oracle_the_best_points_of_all_are_the_measure():
    found = scores({"a": form([10, 9, 8], [16, 9, 1]), "b": form([9, 8, 7], [16, 9, 1])}, np.zeros((0, 3)))
    assert found["a"].tuned[0] == pytest.approx(0.0)
    assert found["b"].tuned[0] == pytest.approx(1.0)


def test_intervals_of_the_loss_cover_it():
    """Of 200 sweeps with 20 noisy runs a price; the best price is clear, so the truth is that of the means."""
    rng, inside = np.random.default_rng(1), 0
    truth = (BEST - np.array([9.0, 8.1, 7.0])).mean()
    for seed in range(200):
        one = scores({"x": form([9.0, 9.0, 7.5], [16.0, 9.0, 1.0], 20, 0.5, rng)}, ORACLE, seed, 300)["x"].tuned
        low, high = np.quantile(one[1:], [0.025, 0.975])
        inside += low <= truth <= high
    assert inside >= 190 - 4 * np.sqrt(200 * 0.05 * 0.95)


def test_every_sweep_has_all_prices_of_its_oracle():
    for name, experiment in EXPERIMENTS.items():
        for figure in experiment.figures:
            if figure.oracle:
                psis = {arm.at["ψ"] for arm in experiment.arms}
                assert [row[0] for row in figure.oracle] == sorted(psis), name


@pytest.mark.parametrize("name", ["catch-up", "risky-shortcut"])
def test_the_points_of_the_oracle_are_the_oracles(name):
    experiment = EXPERIMENTS[f"evidence/forms-{name}"]
    psis, means, variances = np.array(experiment.figures[0].oracle)[[0, -1]].T
    found = frontier(FiniteMDP.from_gymnasium(experiment.env), psis, experiment.settings["gamma"], restarts=0)
    np.testing.assert_allclose(means - psis * variances, found.objectives, atol=2e-3)
