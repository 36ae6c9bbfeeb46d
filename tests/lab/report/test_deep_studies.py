from __future__ import annotations

import numpy as np
import pytest

from vpac.lab.experiments.catalogue import EXPERIMENTS
from vpac.lab.experiments.spec import FINAL
from vpac.lab.report.build import document_of, section_of
from vpac.lab.report.chart import Lines, Points
from vpac.lab.report.draw import static_svg
from vpac.lab.report.figures import chart_of
from vpac.lab.report.page import render
from vpac.lab.report.results import read_results
from vpac.lab.store.records import studies
from vpac.lab.store.store import Result, Store
from vpac.lab.workers.pool import Serial
from vpac.lab.workers.study import carry_out_studies, plan

SPREAD = {"PPO": 4.0e5, "VAAC": 4.0e5, "VPAC": 1.0e5, "VPAC corrected": 9.0e5}


def invented(root, *names, runs=None, scale=0.05):
    """A store whose runs were made up: VPAC varies less than PPO, corrected VPAC more."""
    store = Store(root)
    plans = [plan(EXPERIMENTS[name], runs=runs, scale=scale) for name in names]
    for each in plans:
        for label, its in each.runs.items():
            for run in its:
                rng = np.random.default_rng(run.seed)
                final = {q: float(1000.0 + rng.normal()) for q in FINAL["deep"]}
                final |= {q: SPREAD[label] * float(rng.uniform(0.9, 1.1)) for q in final if "variance" in q}
                metrics = {"timesteps": np.arange(400) * 2048.0}
                metrics |= {c: rng.random(400) for c in ("score_mean", "score_variance", "return_variance")}
                store.write(run, Result(metrics, {"weight.0": np.zeros((1, 1))}, final), {})
    carry_out_studies(plans, store, Serial())
    return store


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return invented(tmp_path_factory.mktemp("deep"), "mujoco/hopper", "mujoco/hopper-today")


@pytest.fixture(scope="module")
def results(store):
    return {study.experiment.name: read_results(store, study, {}) for study in studies(store)}


def test_a_scale_shrinks_steps_and_seeds_of_the_ppo_family():
    hopper = EXPERIMENTS["mujoco/hopper"]
    sizes = {scale: len(plan(hopper, scale=scale).runs["PPO"]) for scale in (1.0, 0.5, 0.25, 0.01)}
    assert sizes == {1.0: 20, 0.5: 10, 0.25: 5, 0.01: 5}
    assert len(plan(hopper, scale=0.5, runs=3).runs["PPO"]) == 3
    assert len(plan(hopper.model_copy(update={"runs": 2}), scale=0.5).runs["PPO"]) == 2
    assert plan(hopper, scale=0.5).all()[0].task["steps"] == hopper.steps // 2
    rooms = EXPERIMENTS["four-rooms/performance"]
    assert len(plan(rooms, scale=0.01).runs["AC"]) == rooms.runs


def test_every_figure_says_that_it_is_smaller(results):
    for number in range(3):
        chart = chart_of(results["mujoco/hopper"], number)
        assert (
            "Scaled down: 1,228,800 of 24,576,000 steps a run and 5 of 20 seeds of the full experiment." in chart.notes
        )
        today = chart_of(results["mujoco/hopper-today"], number)
        assert "Scaled down: 50,000 of 1,000,000 steps a run of the full experiment." in today.notes
        assert (chart.foot, today.foot) == (chart.notes[-1], today.notes[-1])  # drawn in the files


def test_curves_run_over_steps_and_stay_small(results):
    chart = chart_of(results["mujoco/hopper"], 0)
    assert {panel.x_label for panel in chart.panels if isinstance(panel, Lines)} == {"steps"}
    assert all(len(line.x) == 60 for panel in chart.panels for line in panel.series)
    assert all(line.x[-1] == 399 * 2048.0 for panel in chart.panels for line in panel.series)
    assert len(static_svg(chart)) < 90_000


def test_boxes_show_every_run_and_the_quartiles(results):
    found = results["mujoco/hopper"]
    chart = chart_of(found, 1)
    fixed, drawn, discounted = chart.panels
    assert isinstance(fixed, Points)
    for panel, quantity in ((fixed, "fixed_variance"), (drawn, "variance"), (discounted, "discounted_variance")):
        middle, runs = panel.series
        values = found.final("VPAC", quantity)
        place = middle.x.index("VPAC")
        assert (middle.low[place], middle.y[place], middle.high[place]) == tuple(np.quantile(values, (0.25, 0.5, 0.75)))
        assert [y for x, y in zip(runs.x, runs.y, strict=True) if x == "VPAC"] == list(values)
        assert len(runs.y) == 20
        assert panel.y_log
    assert sorted(mark.value for mark in fixed.references) == [4.0e5, 6.55e5]
    assert not drawn.references


def test_of_very_many_runs_some_are_drawn(results, monkeypatch):
    found = results["mujoco/hopper"]
    values = np.random.default_rng(1).permutation(5000) + 1.0
    monkeypatch.setattr(type(found), "final", lambda self, label, name: values)
    chart = chart_of(found, 1)
    for panel in chart.panels:
        middle, runs = panel.series
        assert middle.y[0] == 2500.5
        assert len(runs.y) == 4 * 200
        assert {min(runs.y), max(runs.y)} == {1.0, 5000.0}
    assert any("200 are drawn" in note for note in chart.notes)


def test_tables_have_both_protocols_and_the_papers_numbers(results):
    papers, scores, discounted = section_of(results["mujoco/hopper"]).tables
    assert "fixed start" in papers.title
    rows = [dict(zip(papers.columns, row, strict=True)) for row in papers.rows]
    assert [row["paper's variance, one start"] for row in rows] == [6.6e5, 6.5e5, 4.0e5, None]
    assert rows[2]["P(lower variance than PPO)"] == 1.0
    assert {"mean", "variance", "Sharpe ratio", "CVaR (mean of the worst tenth)"} < set(scores.columns)
    assert {"mean, discounted", "variance, discounted", "CVaR, discounted"} < set(discounted.columns)


def test_the_page_holds_the_studies_and_judges_their_claims(store):
    document = document_of(store, list(studies(store)))
    assert not document.failures
    verdicts = {(claim.group[:9], claim.sentence): claim for claim in document.claims}
    assert verdicts["The paper", "VPAC's scores vary less than PPO's"].verdict == "holds"
    assert verdicts["The paper", "VPAC's scores vary less than PPO's"].paper_number == "0.61"
    assert verdicts["The same ", "corrected VPAC's scores vary less than PPO's"].verdict == "does not hold"
    assert verdicts["Claims of", "published VPAC's discounted returns vary less than PPO's"].verdict == "holds"
    assert "5 of 20 seeds" in verdicts["The paper", "VPAC's scores vary less than PPO's"].explanation
    text = render(document, paint=lambda chart: "<svg/>")
    assert "1,228,800 of 24,576,000 steps" in text
    assert "First as the paper measures it" in text
