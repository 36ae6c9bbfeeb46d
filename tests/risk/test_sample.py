from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

from vpac.errors import UserError
from vpac.lab.report.measured import Evaluation
from vpac.risk import MEASURES, Interval, ReturnSample, metrics
from vpac.risk import intervals as heavy
from vpac.risk.sample import carriers


def sample_of(x, **more):
    x = np.asarray(x, float)
    return ReturnSample(x, 2.0 * x, np.arange(1, len(x) + 1), np.ones(len(x), bool), 0.9, **more)


SAMPLE = sample_of(np.random.default_rng(0).normal(1.0, 2.0, 200), about={"seed": 3, "env": "x"})


def test_metrics_are_those_of_the_functions():
    x = SAMPLE.returns
    for name in ("mean", "variance", "std", "semivariance", "sharpe", "gini_deviation"):
        assert getattr(SAMPLE, name) == getattr(metrics, name)(x)
    assert SAMPLE.quantile(0.2) == metrics.quantile(x, 0.2)
    assert SAMPLE.value_at_risk(0.1) == metrics.value_at_risk(x, 0.1)
    assert SAMPLE.cvar(0.1) == metrics.cvar(x, 0.1)
    assert (SAMPLE.minimum, SAMPLE.maximum, SAMPLE.length, len(SAMPLE)) == (x.min(), x.max(), 100.5, 200)


def test_views():
    assert SAMPLE.undiscounted.mean == pytest.approx(2.0 * SAMPLE.mean)
    assert SAMPLE.undiscounted.interval("variance").high == pytest.approx(4.0 * SAMPLE.interval("variance").high)
    assert SAMPLE.undiscounted.discounted == SAMPLE != SAMPLE.undiscounted


@pytest.mark.parametrize("ending", ["parquet", "json"])
def test_a_saved_sample_comes_back(tmp_path, ending):
    path = SAMPLE.undiscounted.save(tmp_path / f"x.{ending}")
    found = ReturnSample.load(path)
    assert found == SAMPLE.undiscounted
    assert found.about == {"seed": 3, "env": "x"}


def test_files_that_hold_no_sample(tmp_path):
    (tmp_path / "a.json").write_text("{")
    (tmp_path / "b.parquet").write_bytes(b"PAR1")
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "c.parquet")
    for name in ("a.json", "b.parquet", "c.parquet"):
        with pytest.raises(UserError, match="does not hold a sample"):
            ReturnSample.load(tmp_path / name)
    with pytest.raises(UserError, match="cannot read"):
        ReturnSample.load(tmp_path / "none.json")
    with pytest.raises(UserError, match=r"expected one of .\.parquet., .\.json."):
        SAMPLE.save(tmp_path / "x.pkl")
    data = json.loads(SAMPLE.save(tmp_path / "d.json").read_text())
    (tmp_path / "d.json").write_text(json.dumps(data | {"format": 9}))
    with pytest.raises(UserError, match="format 9: this version reads formats up to 2"):
        ReturnSample.load(tmp_path / "d.json")


def test_what_is_no_sample_is_refused():
    with pytest.raises(UserError, match="at least one episode"):
        sample_of([])
    with pytest.raises(UserError, match="not finite, in episode 1"):
        sample_of([1.0, np.nan])
    with pytest.raises(UserError, match="did you mean 'variance'"):
        SAMPLE.interval("varianc")
    with pytest.raises(UserError, match="level must be"):
        SAMPLE.interval("quantile", 95)
    with pytest.raises(ValueError):
        SAMPLE.returns[0] = 1.0


def test_every_measure_has_an_interval_around_its_estimate():
    for name in MEASURES:
        found = SAMPLE.interval(name)
        assert not found.estimate < found.low
        assert not found.estimate > found.high
        assert np.isnan([found.low, found.high]).sum() == (name in ("minimum", "maximum"))
        wide = SAMPLE.interval(name, 0.99)
        assert not wide.low > found.low
        assert not wide.high < found.high
    assert "CVaR 0.05" in SAMPLE.table()
    rows = {row.name: row.interval for row in sample_of(np.arange(10.0)).rows()}
    assert rows["quantile 0.05"].estimate == rows["VaR 0.05"].estimate == 0.0


def test_what_does_not_vary():
    one = sample_of([0.1] * 10)
    for name in ("mean", "variance", "std", "semivariance", "gini_deviation", "quantile"):
        found = one.interval(name)
        assert found.low == found.estimate == found.high
    assert np.isnan(sample_of([1.0]).variance)
    for name in MEASURES:
        assert sample_of([1.0]).interval(name).estimate == 1.0 or name in (
            "variance",
            "std",
            "semivariance",
            "sharpe",
            "gini_deviation",
        )


def test_hall_by_hand():
    """0, 0, 0, 0, 10: h = −2, −2, −2, −2, 8, s² = 20, skewness Σh³/(5 s³); ends by inverting g numerically."""
    x = np.array([0.0, 10.0, 0.0, 0.0, 0.0])
    a = (480.0 / 5.0) / 20.0**1.5 / np.sqrt(5.0)
    found = heavy.skewed_mean_interval(x)
    for end, t in ((found.low, 2.7764451), (found.high, -2.7764451)):
        w = (2.0 - end) / 2.0
        assert w + a * w**2 / 3 + a**2 * w**3 / 27 + a / 6 == pytest.approx(t, abs=1e-6)


def test_influences_are_derivatives():
    """θ(sample in which observation i counts a little more) − θ, over the little: by hand for each metric."""
    x = np.sort(np.random.default_rng(1).exponential(size=400))
    seen = {}

    def keep(estimate, influence, **_):
        seen.setdefault("h", influence - influence.mean())
        return Interval(estimate, np.nan, np.nan)

    def weighted(weights):
        w = weights / weights.sum()
        m = w @ x
        low = np.minimum(x - m, 0.0)
        variance = w @ (x - m) ** 2
        gini = 0.5 * w @ np.abs(x[:, None] - x) @ w
        return {"semivariance": w @ low**2, "sharpe": m / np.sqrt(variance), "gini": gini}

    for name in ("semivariance", "sharpe", "gini"):
        seen.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(heavy, "skewed_interval", keep)
            getattr(heavy, f"{name}_interval")(x)
        for i in (0, 200, 399):
            more = np.ones(400)
            more[i] += 1e-6
            slope = (weighted(more)[name] - weighted(np.ones(400))[name]) / 1e-6 * 400
            assert seen["h"][i] == pytest.approx(slope, abs=0.01 * np.abs(seen["h"]).max())


def test_the_share_that_was_not_seen():
    """Below the smallest of n uniform numbers lies at most 1 − 0.05^(1/n), in 95 % of 4000 trials: 3 standard errors."""
    smallest = np.random.default_rng(2).random((4000, 50)).min(axis=1)
    covered = np.mean(smallest <= heavy.unseen_share(50))
    assert covered == pytest.approx(0.95, abs=3 * np.sqrt(0.95 * 0.05 / 4000))


def lognormal_tail_mean(alpha):
    """−CVaR of −exp(Z): E[exp Z | Z above its 1 − α quantile]."""
    from scipy.special import ndtr, ndtri

    return -np.exp(0.5) * ndtr(1.0 + ndtri(alpha)) / alpha


def losses(size):
    return -np.exp(np.random.default_rng(3).normal(size=size))


def waits(size):
    return -np.random.default_rng(4).exponential(size=size)


def students(size):
    return np.random.default_rng(5).standard_t(5, size=size)


def lognormal_semivariance():
    """E[max(exp Z − e^½, 0)²], by the moments of exp Z above ½."""
    from scipy.special import ndtr

    return np.exp(2.0) * ndtr(1.5) - 2.0 * np.e * ndtr(0.5) + np.e * ndtr(-0.5)


E1, V1, T5 = np.exp(0.5), np.exp(2.0) - np.exp(1.0), -2.0150483733330233
TRUTHS = {
    "waits": {
        "mean": -1.0, "variance": 1.0, "std": 1.0, "semivariance": 2.0 / np.e, "sharpe": -1.0, "quantile": np.log(0.5),
        "value_at_risk": np.log(0.05), "cvar": np.log(0.05) - 1.0, "gini_deviation": 0.5,
    },
    "losses": {
        "mean": -E1, "variance": V1, "std": np.sqrt(V1), "semivariance": lognormal_semivariance(), "sharpe": -E1 / np.sqrt(V1),
        "quantile": -1.0, "value_at_risk": -np.exp(1.6448536269514722), "cvar": lognormal_tail_mean(0.05),
        "gini_deviation": E1 * 0.5204999,
    },
    "students": {
        "mean": 0.0, "variance": 5 / 3, "std": np.sqrt(5 / 3), "semivariance": 5 / 6, "sharpe": 0.0, "quantile": 0.0,
        "value_at_risk": T5, "cvar": -(5.0 + T5**2) / 4.0 * 0.0637980 / 0.05, "gini_deviation": 0.6919914,
    },
}  # fmt: skip
"""The Gini deviation of Student's t is ∫ F(1 − F), and 0.0637980 its density at the 5 % quantile, both computed numerically."""
MEASURED = {
    ("waits", "variance"): 0.97, ("waits", "std"): 0.97, ("waits", "semivariance"): 0.97, ("waits", "sharpe"): 0.98,
    ("students", "variance"): 0.97, ("students", "std"): 0.97, ("students", "semivariance"): 0.98,
    ("losses", "variance"): 0.96, ("losses", "std"): 0.96, ("losses", "semivariance"): 0.96,
}  # fmt: skip
"""Coverage that is not the nominal 95 %, as docs/measuring.md says; of other trials than these."""


@pytest.mark.parametrize(("name", "metric"), [(name, metric) for name, truths in TRUTHS.items() for metric in truths])
def test_coverage_of_1000_episodes(name, metric):
    """400 trials: within 3.5 standard errors of what is documented; exact intervals may cover more."""
    draw, trials = {"waits": waits, "losses": losses, "students": students}[name], 400
    truth, expected = TRUTHS[name][metric], MEASURED.get((name, metric), 0.95)
    found = [sample_of(row).interval(metric) for row in draw((trials, 1000))]
    covered = np.mean([i.low <= truth <= i.high for i in found])
    error = np.sqrt(expected * (1 - expected) / trials)
    assert covered >= expected - 3.5 * error - 0.005
    assert covered <= expected + 3.5 * error + 0.02


@pytest.mark.parametrize(("metric", "share", "truth"), [("quantile", 0.95, -np.log(1 / 0.95)), ("length", 0.5, 8.0)])
def test_coverage_of_upper_quantiles_and_of_lengths(metric, share, truth):
    """Of 400 samples, as above; lengths are geometric, so that a few episodes are long."""
    rng, trials = np.random.default_rng(7), 400
    lengths, ones = rng.geometric(1 / 8, size=(trials, 1000)), np.ones(1000, bool)
    found = [
        ReturnSample(x, x, length, ones, 1.0).interval(metric, share=share)
        for x, length in zip(waits((trials, 1000)), lengths, strict=True)
    ]
    covered = np.mean([i.low <= truth <= i.high for i in found])
    assert 0.95 - 3.5 * np.sqrt(0.95 * 0.05 / trials) <= covered <= 0.99


def test_the_event_that_was_not_seen():
    """Of sixteen terms the four largest tell how the tail goes on: ξ is the mean logarithm of their ratios to the fifth."""
    terms = np.array([1.0] * 12 + [2.0, 4.0, 8.0, 16.0])
    assert heavy.unseen_event(terms) == pytest.approx(16.0 * 2.5 ** min(2.5 * np.log(2.0), 1.0))
    mild = np.array([1.0] * 12 + [1.1, 1.2, 1.3, 1.4])
    assert heavy.unseen_event(mild) == pytest.approx(1.4 * 2.5 ** np.mean(np.log([1.1, 1.2, 1.3, 1.4])))
    assert heavy.unseen_event(np.array([0.0] * 15 + [3.0])) == 3.0  # nothing to go by


def test_bonetts_interval_would_not_do_for_losses():
    """The reason for Hall's: the older interval misses the variance of lognormal losses more often."""
    from vpac.risk import variance_interval

    rows = losses((600, 1000))
    hall, bonett = (
        np.mean([i.low <= V1 <= i.high for i in map(function, rows)])
        for function in (heavy.skewed_variance_interval, variance_interval)
    )
    assert hall - bonett > 0.03


def test_halls_interval_alone_would_not_do_for_the_sharpe_ratio():
    """The reason for the wider of two: of 100 lognormal losses Hall's alone misses it more than every fourth time."""
    rows, truth = losses((300, 100)), TRUTHS["losses"]["sharpe"]

    def hall(x):
        sharpe = metrics.sharpe(x)
        d = (x - x.mean()) / x.std(ddof=1)
        return heavy.skewed_interval(sharpe, d - 0.5 * sharpe * d**2, level=0.95)

    alone, ours = (
        np.mean([i.low <= truth <= i.high for i in map(function, rows)]) for function in (hall, heavy.sharpe_interval)
    )
    assert alone < 0.76
    assert ours > 0.8


def test_on_how_many_episodes_a_variance_rests():
    """n / kurtosis: all of a fair coin's; of a hundred of which two are unlike the others about two, each half of the error."""
    assert carriers([0.0, 1.0] * 50) == pytest.approx((100.0, 0.01))
    few = np.zeros(100)
    few[:2] = 1.0
    number = 100 * (0.02 * 0.98) / (0.02**3 + 0.98**3)
    assert carriers(few) == pytest.approx((number, 0.98**4 / (2 * 0.98**4 + 98 * 0.02**4)), rel=1e-9)
    assert np.isnan(carriers([2.0] * 5)).all()
    assert sample_of([2.0] * 5).notes() == ()


def test_a_note_where_the_tail_is_too_heavy_and_only_there():
    """Of 200 samples of 1000: hardly any of normal and exponential returns, most of Pareto losses (infinite fourth moment)."""
    rng = np.random.default_rng(6)

    def noted(rows):
        return np.mean([bool(sample_of(row).notes()) for row in rows])

    assert noted(rng.normal(size=(200, 1000))) == noted(rng.normal(size=(200, 100))) == 0.0
    assert noted(rng.exponential(size=(200, 1000))) < 0.05
    assert noted(-10.0 * (rng.random((200, 1000)) < 0.02)) < 0.05
    assert noted(rng.pareto(3.0, size=(200, 1000))) > 0.6
    heavy_one = sample_of(np.append(np.zeros(99), -50.0))
    assert "rests on about 1 of 100 episodes" in heavy_one.table()
    data = Evaluation({"a": heavy_one}).as_dict()
    assert data["policies"]["a"]["notes"] == list(heavy_one.notes()) != []
    assert Evaluation({"a": heavy_one, "b": SAMPLE}).notes() == [f"a: {heavy_one.notes()[0]}"]
