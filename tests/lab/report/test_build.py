"""Every experiment at a tiny scale, from the store to the page."""

from __future__ import annotations

import csv
import os
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from tiny import little, study
from vpac import VPAC
from vpac.lab.experiments.catalogue import EXPERIMENTS
from vpac.lab.experiments.spec import Arm, Claim
from vpac.lab.report import build as building
from vpac.lab.report import draw
from vpac.lab.report.build import build, document_of
from vpac.lab.report.chart import Reference
from vpac.lab.report.explorer import stored_learner
from vpac.lab.report.figures import _merged
from vpac.lab.report.geometry import SERIES_STYLES, styles
from vpac.lab.report.judge import anchor, claims_as_markdown, score, verdict, winner
from vpac.lab.report.results import read_results
from vpac.lab.store.records import note_key, studies
from vpac.lab.store.store import Store
from vpac.lab.workers.pool import Serial
from vpac.lab.workers.study import carry_out_studies, plan
from vpac.risk.intervals import Interval

GROUPS = {
    "rooms": [name for name in EXPERIMENTS if name.startswith("four-rooms") and "step-sizes" not in name],
    "steps": [name for name in EXPERIMENTS if "step-sizes" in name],
    "puddles": [name for name in EXPERIMENTS if name.startswith("puddle")],
    "critics": [name for name in EXPERIMENTS if name.startswith(("critics", "convergence", "theorems"))],
    "forms": [name for name in EXPERIMENTS if name.startswith("forms")],
    "searches": [name for name in EXPERIMENTS if name.startswith("grid")],
    "evidence": [name for name in EXPERIMENTS if name.startswith("evidence")],
}


def test_every_experiment_is_in_a_group():
    """But for those of the PPO family, whose runs test_deep_studies.py makes up."""
    ours = [name for name, experiment in EXPERIMENTS.items() if experiment.kind != "deep"]
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(ours)


def test_a_corrected_experiment_has_the_figures_of_the_published_one():
    corrected = [name for name in EXPERIMENTS if name.endswith("-corrected")]
    assert corrected
    for name in corrected:
        ours, published = EXPERIMENTS[name], EXPERIMENTS[name.removesuffix("-corrected")]
        assert ours.figures == published.figures
        assert [arm.label for arm in ours.arms] == [arm.label for arm in published.arms]


def parts(name):
    """The kinds of figures of an experiment; the quantities of a map are drawn differently, those of others are panels."""
    one = EXPERIMENTS[name]
    return {(one.kind, figure.kind, *(figure.shows if figure.kind == "maps" else ())) for figure in one.figures}


def drawn():
    """Few experiments that have every kind of figure: the charts of others differ in their numbers."""
    names = [name for names in GROUPS.values() for name in names]
    left, found = set().union(*map(parts, names)), []
    while left:
        found.append(max(names, key=lambda name: len(parts(name) & left)))
        left -= parts(found[-1])
    return found


DRAWN = drawn()


@pytest.mark.slow  # runs all experiments and draws their figures as PDF
@pytest.mark.parametrize("group", GROUPS)
def test_every_experiment_runs_and_every_figure_draws(group, tmp_path, monkeypatch):
    """Everything is run and made into charts; each kind of chart is drawn, as SVG and PDF: a PNG is the
    same drawing, and a study's below has one."""
    monkeypatch.setattr(draw, "write", partial(draw.write, kinds=("pdf", "csv")))
    monkeypatch.setattr(draw, "FEW", 1000)  # other processes would write all kinds
    store, plans, tallies = study(tmp_path, *GROUPS[group], runs=1 if group in ("searches", "steps", "evidence") else 2)
    assert [outcome for tally in tallies.values() for outcome in tally.failed] == []
    others = [one for one in studies(store) if one.experiment.name not in DRAWN]
    documents = [document_of(store, others)]
    for one in others:
        store.backend.remove(note_key(one.experiment.name))
    page, shown = build(store, quiet=True)
    documents.append(shown)
    assert [failure for document in documents for failure in document.failures] == []
    charts = {section.name: len(section.charts) for document in documents for section in document.sections}
    text = page.read_text(encoding="utf-8")
    for one in plans:
        experiment = one.experiment
        figures = 1 if experiment.kind in ("theorems", "frontier") else len(experiment.figures)
        assert charts[anchor(experiment.name)] >= figures, experiment.name
        if experiment.name in DRAWN:
            assert experiment.title in text
            stem = experiment.name.replace("/", "-")
            files = [
                name for name in os.listdir(store.root / "figures") if name.startswith(stem) and name.endswith(".pdf")
            ]
            assert len(files) >= charts[anchor(experiment.name)], experiment.name
    for name in os.listdir(store.root / "figures"):
        assert (store.root / "figures" / name).stat().st_size > 0


@pytest.fixture(scope="module")
def little_store(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("little"))
    claims = (
        Claim(text="lower", where="here", quantity="variance", arm="VPAC", against="AC", below=2.0),
        Claim(text="value", where="here", quantity="mean", arm="AC", by="value", above=-100.0),
    )
    carry_out_studies([plan(little(runs=5, claims=claims))], store, Serial())
    return store


def test_the_numbers_in_the_document_are_the_stores(little_store):
    found = document_of(little_store, list(studies(little_store)))
    finals = [little_store.read(name).final for name in little_store.names() if name.startswith("ac-")]
    mean = np.mean([final["mean"] for final in finals])
    assert found.claims[1].ours.value == pytest.approx(mean, rel=1e-12)
    assert found.claims[1].ours.low <= mean <= found.claims[1].ours.high
    assert found.claims[1].verdict == "holds"
    assert f"| A little study (here) | value |  | {found.claims[1].ours.text()} |" in claims_as_markdown(found)
    table = found.sections[0].tables[0]
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert row["arm"] == "AC"
    assert row["mean"] == pytest.approx(mean, rel=1e-12)
    assert row["runs"] == 5
    assert found.sections[0].wall_seconds > 0.0
    assert found.sections[0].provenance["runs"] == 10


def test_less_variance_is_judged_by_what_it_is_worth(little_store):
    """U = mean − ψ · variance of VPAC less that of AC, at VPAC's ψ; claims of other kinds have no such number."""
    found = document_of(little_store, list(studies(little_store)))
    records = [little_store.read(name) for name in little_store.names()]
    psi = next(r.run.task["settings"]["psi"] for r in records if r.run.task["algorithm"] == "vpac")

    def worth(algorithm):
        finals = [r.final for r in records if r.run.task["algorithm"] == algorithm]
        return np.mean([final["mean"] - psi * final["variance"] for final in finals])

    assert found.claims[0].gain.value == pytest.approx(worth("vpac") - worth("ac"))
    assert "U = mean − ψ · variance, VPAC less AC" in found.claims[0].explanation
    assert found.claims[1].gain is None


def test_figures_are_drawn_again_only_when_they_change(little_store):
    build(little_store, quiet=True)
    figures = little_store.root / "figures"
    before = {path.name: path.stat().st_mtime_ns for path in figures.glob("*.p*")}
    assert before
    build(little_store, quiet=True)
    assert {path.name: path.stat().st_mtime_ns for path in figures.glob("*.p*")} == before
    with (figures / "little.csv").open(encoding="utf-8", newline="") as file:
        assert len(list(csv.reader(file))) > 4


def test_figures_drawn_by_other_processes_are_the_same_and_an_error_hides_one_study(tmp_path, monkeypatch):
    store, section_of = Store(tmp_path / "store"), building.section_of
    carry_out_studies([plan(little(name="bad", runs=1)), plan(little(runs=1))], store, Serial())
    monkeypatch.setattr(draw, "FEW", 0)
    found = []
    for cores in (1, 2):
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        folder = tmp_path / str(cores)
        build(store, quiet=True, out=folder)
        files = [path for path in (folder / "figures").iterdir() if path.suffix in (".svg", ".png", ".csv")]
        found.append({path.name: path.read_bytes() for path in files})  # PDFs have other fonts here, see conftest.py

        def section(results):
            good = section_of(results)
            bad = [replace(chart, panels=["no panel"]) for chart in good.charts]
            return replace(good, charts=bad) if good.name.endswith("bad") else good

        with monkeypatch.context() as patch:
            patch.setattr(building, "section_of", section)
            patch.setattr(building, "live", lambda chart: [])
            document = build(store, quiet=True, out=tmp_path / f"bad {cores}")[1]
        assert [section.name for section in document.sections] == ["experiment-little"]
        assert [failure.run for failure in document.failures] == ["bad"]
    assert found[0] == found[1]


def test_a_failed_run_is_shown_on_the_page(tmp_path):
    store = Store(tmp_path)
    arms = (
        Arm(label="good", algorithm="ac"),
        Arm(label="<script>alert(1)</script>", algorithm="vpac", settings={"psi": -1.0}),
    )
    carry_out_studies([plan(little(runs=1, arms=arms))], store, Serial())
    text = build(store, quiet=True)[0].read_text(encoding="utf-8")
    assert "psi must be" in text
    assert "<script>alert" not in text


def test_runs_that_are_missing_are_counted_not_invented(little_store, tmp_path):
    import shutil

    copy = Store(tmp_path / "copy")
    shutil.copytree(little_store.root, copy.root)
    for name in copy.names()[:3]:
        shutil.rmtree(copy.root / "runs" / name)
    broken = copy.names()[0]
    (copy.root / "runs" / broken / "metrics.parquet").write_bytes(b"rubbish")
    found = document_of(copy, list(studies(copy)))
    messages = " ".join(failure.message for failure in found.failures)
    assert "3 runs are still to be carried out" in messages
    assert "damaged" in messages


def test_a_figure_that_cannot_be_drawn_hides_nothing_else(tmp_path):
    store = Store(tmp_path)
    wrong = little(name="wrong", runs=1, figures=[{"kind": "paths", "title": "Nowhere"}])
    carry_out_studies([plan(wrong), plan(little(runs=1))], store, Serial())
    page, document = build(store, quiet=True)
    assert page.is_file()
    assert [len(section.charts) for section in document.sections] == [1, 0]
    assert "the figure 'Nowhere' cannot be drawn" in " ".join(failure.message for failure in document.failures)


def test_a_figure_that_was_spoilt_is_drawn_again(little_store):
    build(little_store, quiet=True)
    path = little_store.root / "figures" / "little.png"
    good = path.read_bytes()
    path.write_bytes(good[:100])
    build(little_store, quiet=True)
    assert path.read_bytes() == good


def test_every_series_of_a_figure_has_a_look_of_its_own():
    found = styles(["AC", "VPAC ψ = 0.001", "VPAC ψ = 0.005", "VAAC", "x", "y"])
    numbers = [SERIES_STYLES.get(look, look) for look in found.values()]
    assert len(set(numbers)) == len(numbers)


def test_references_that_would_lie_on_one_another_become_one():
    merged = _merged([Reference(43.0, "AC"), Reference(43.2, "VPAC"), Reference(26.0, "VAAC")])
    assert [(round(mark.value, 1), mark.label) for mark in merged] == [(26.0, "paper, VAAC"), (43.1, "paper, AC, VPAC")]


def test_few_runs_decide_nothing():
    assert verdict(claim(below=1.0), Interval(0.5, 0.4, 0.6), runs=4) == "undecided"
    assert verdict(claim(below=1.0), Interval(0.5, 0.4, 0.6), runs=5) == "holds"


def claim(**bounds):
    return Claim(text="t", where="w", quantity="mean", arm="a", by="value", **bounds)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0.5, 0.9, "holds"), (0.9, 1.1, "undecided"), (1.0, 1.2, "does not hold"), (np.nan, np.nan, "undecided")],
)
def test_an_interval_decides(low, high, expected):
    assert verdict(claim(below=1.0), Interval(0.9, low, high)) == expected
    assert verdict(claim(above=-1.0), Interval(-0.9, -high, -low)) == expected


def test_between_two_bounds():
    both = claim(above=0.0, below=1.0)
    assert verdict(both, Interval(0.5, 0.1, 0.9)) == "holds"
    assert verdict(both, Interval(0.5, -0.1, 0.9)) == "undecided"
    assert verdict(both, Interval(1.5, 1.1, 1.9)) == "does not hold"


def test_a_score_is_the_ratio_of_means_with_an_honest_interval():
    rng = np.random.default_rng(1)
    inside = 0
    for trial in range(200):
        a, b = rng.normal(3.0, 1.0, 40), rng.normal(2.0, 1.0, 40)
        found = score(Claim(text=f"t{trial}", where="w", quantity="q", arm="a", against="b", below=9.0), [a, b])
        assert found.estimate == pytest.approx(a.mean() / b.mean())
        inside += found.low <= 1.5 <= found.high
    assert abs(inside - 190) <= 4 * np.sqrt(200 * 0.05 * 0.95)


def test_a_stored_learner_is_the_one_that_was_trained(little_store):
    study_ = next(studies(little_store))
    results = read_results(little_store, study_, {})
    record = results.records["VPAC"][0]
    learner = stored_learner(record)
    fresh = VPAC("vpac/RiskyShortcut-v0", seed=record.run.seed, gamma=0.95, psi=0.1).learn(40)
    np.testing.assert_array_equal(learner.weights.theta, fresh.weights.theta)


def test_the_least_variance_breaks_ties_of_the_mean():
    class Made:
        def final(self, label, quantity):
            mean, variance = {"a": (10.0, 5.0), "b": (9.99, 1.0), "c": (2.0, 0.1)}[label]
            spread = np.array([-0.1, 0.1, 0.0])
            return (mean if quantity == "mean" else variance) + spread

    arms = [Arm(label=label) for label in "abc"]
    assert winner(Made(), arms).label == "b"
