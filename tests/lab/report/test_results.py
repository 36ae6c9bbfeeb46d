"""Curves over many runs, read in parts: the same numbers, never all in memory."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from tiny import little
from vpac.errors import UserError
from vpac.lab.kinds.tabular import Training
from vpac.lab.report import results
from vpac.lab.report.results import ArmCurve, Results, moments_over_runs, over_runs
from vpac.lab.report.training import band
from vpac.lab.store.records import Damaged
from vpac.lab.store.store import Store, as_parquet, columns_of
from vpac.lab.workers.pool import Serial
from vpac.lab.workers.study import carry_out_studies, plan


def tables(count: int, points: int = 5):
    rng = np.random.default_rng(count)
    x, values = np.arange(points), 100.0 + rng.normal(size=(count, points))
    contents = [as_parquet({"episode": x, "mean": row, "word": ["a"] * points}) for row in values]
    return contents, values


def runs_with(contents):
    return [SimpleNamespace(file=lambda name, content=content: content) for content in contents]


@pytest.mark.parametrize("at_a_time", [1, 3, 7, 100])
def test_mean_and_deviation_do_not_depend_on_how_many_are_read_at_a_time(monkeypatch, at_a_time):
    contents, values = tables(7)
    asked = []
    monkeypatch.setattr(results, "TABLES_AT_ONCE", at_a_time)
    monkeypatch.setattr(results, "columns_of", lambda some: (asked.append(len(some)), columns_of(some))[1])
    found = moments_over_runs(runs_with(contents), 10)
    assert max(asked) <= at_a_time
    assert sum(asked) == 7
    mean, squares = found["mean"]
    np.testing.assert_allclose(mean, values.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(squares, 7 * values.var(axis=0), rtol=1e-9)
    assert "word" not in found


def test_large_tables_are_read_one_by_one(monkeypatch):
    contents, _ = tables(4)
    asked = []
    monkeypatch.setattr(results, "columns_of", lambda some: (asked.append(len(some)), columns_of(some))[1])
    moments_over_runs(runs_with(contents), results.NUMBERS_AT_ONCE)
    assert asked == [1, 1, 1, 1]


def test_of_a_single_run_there_is_no_deviation():
    contents, values = tables(1)
    made = Results(SimpleNamespace(), {"a": runs_with(contents)}, _first={"a": pl.read_parquet(contents[0])})
    curve = made.curve("a", "mean")
    np.testing.assert_array_equal(curve.mean, values[0])
    assert np.isnan(curve.deviation).all()


def test_tables_that_do_not_fit_together_are_refused():
    with pytest.raises(UserError, match="different lengths"):
        columns_of([as_parquet({"x": np.arange(3)}), as_parquet({"x": np.arange(4)})])
    with pytest.raises(UserError, match="same points"):
        columns_of([as_parquet({"x": np.arange(3)}), as_parquet({"x": np.arange(5)})])
    with pytest.raises(UserError, match="not a table"):
        columns_of([as_parquet({"x": np.arange(3)}), b"nonsense"])


def test_a_damaged_table_is_named(tmp_path):
    store = Store(tmp_path)
    carry_out_studies([plan(little(runs=3))], store, Serial())
    records = [store.read(name) for name in store.names()]
    (store.root / "runs" / records[-1].run.name / "metrics.parquet").unlink()
    with pytest.raises(Damaged, match=r"metrics\.parquet is missing"):
        moments_over_runs(records, 10)


def test_columns_that_not_all_runs_have_are_left_out(monkeypatch):
    """Runs of one study may come from two versions, of which one measured more."""
    old, new = (
        as_parquet({"x": [1.0, 2.0], "y": [1.0, 3.0]}),
        as_parquet({"x": [1.0, 2.0], "z": [0.0, 0.0], "y": [3.0, 5.0]}),
    )
    assert set(columns_of([old, new])) == set(columns_of([new, old])) == {"x", "y"}
    monkeypatch.setattr(results, "TABLES_AT_ONCE", 1)
    found = moments_over_runs(runs_with([old, new, old]), 4)
    assert set(found) == {"x", "y"}
    np.testing.assert_allclose(found["y"][0], [5.0 / 3.0, 11.0 / 3.0])
    assert set(moments_over_runs(runs_with([new, old]), 4)) == {"x", "y"}


APART = np.array([10.0, 12.0, 330.0])
"""Variances of three runs, of which one went astray: Student's interval reaches far below 0."""


def test_what_cannot_be_negative_has_no_interval_below_zero():
    mean, variance = over_runs(APART, "mean"), over_runs(APART, "fixed_variance")
    assert mean.low < 0.0 == variance.low
    assert (variance.estimate, variance.high) == (mean.estimate, mean.high)
    assert over_runs(APART, "predicted_variance").low < 0.0  # a critic's, which may be
    assert np.isnan(over_runs(APART[:1], "variance").low)


def test_bands_of_variances_end_at_zero():
    curve = ArmCurve("variance", np.arange(2.0), np.array([100.0, 0.0]), np.array([150.0, 0.0]), 3, "episode")
    low, high = curve.band()
    other, same = replace(curve, quantity="return").band()
    assert low.tolist() == [0.0, 0.0]
    assert other[0] < 0.0
    assert (high == same).all()
    assert replace(curve, count=1).band() == (None, None)


def test_a_training_shows_no_variance_below_zero():
    results = [(None, SimpleNamespace(final={"mean": v, "variance": v})) for v in APART]
    final = Training([], results, "greedy").final()
    assert final["mean"].low < 0.0 == final["variance"].low
    assert final["variance"].high == final["mean"].high
    drawn = {name: band(np.arange(1), APART[:, None], name) for name in ("mean", "variance")}
    assert drawn["variance"].low == (0.0,)
    assert drawn["mean"].low[0] < 0.0
