from __future__ import annotations

import json

import numpy as np
import pytest

import vpac
from cli.test_cli import run
from forging import forge
from vpac.cli.trained import file_name
from vpac.evaluation import load_agent
from vpac.lab.store.run import Run
from vpac.lab.store.store import Result, Store
from vpac.risk import ReturnSample


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    for name, psi in (("calm", 1.0), ("bold", 0.0)):
        vpac.VPAC("vpac/CatchUp-v0", gamma=0.95, psi=psi, seed=1).learn(60).save(folder / name / "run-0")
    vpac.AC("vpac/CatchUp-v0", gamma=0.9, seed=2).learn(5).save(folder / "bold" / "run-1")
    return folder


def test_one_run_writes_sample_summary_and_picture(capsys, trained, tmp_path):
    out = tmp_path / "out"
    code, text, _ = run(capsys, "evaluate", trained / "calm", "--episodes", 200, "--levels", 0.1, 0.2, "--out", out)
    assert code == 0
    assert {p.name for p in out.iterdir()} == {
        "calm.parquet", "summary.json", "returns.png", "returns.pdf", "returns.csv",
    }  # fmt: skip
    sample = ReturnSample.load(out / "calm.parquet")
    assert len(sample) == 200
    assert sample == vpac.evaluate(load_agent(trained / "calm"), "vpac/CatchUp-v0", 200)
    for words in (
        "Gini deviation",
        "CVaR 0.1",
        "CVaR 0.2",
        "episode length",
        "at most 1.5 % of episodes",
        f"{sample.mean:.5g}",
    ):
        assert words in text
    found = json.loads((out / "summary.json").read_text())
    assert found["policies"]["calm"]["discounted"]["mean"]["estimate"] == sample.mean
    assert found["policies"]["calm"]["discounted"]["minimum"]["low"] is None


def test_u_has_the_price_of_training_or_the_one_asked_for(capsys, trained, tmp_path):
    both = ["evaluate", trained / "calm", trained / "bold" / "run-0", "--episodes", 300, "--out", tmp_path / "out"]
    code, text, _ = run(capsys, *both)
    samples = [ReturnSample.load(tmp_path / "out" / f"{name}.parquet").returns for name in ("calm", "bold-run-0")]
    us = [x.mean() - x.var(ddof=1) for x in samples]
    assert code == 0
    assert "U = mean − 1 · variance" in text
    assert all(f"{u:.5g}".replace("-", "−") in text for u in us)
    assert f"{us[0] - us[1]:.4g} (" in text.split("U of A − U of B")[1].replace("−", "-").splitlines()[0]
    assert "U = mean − 0.5 · variance" in run(capsys, *both, "--psi", 0.5)[1]
    neutral = run(capsys, "evaluate", trained / "bold" / "run-1", "--episodes", 50, "--out", tmp_path / "out")
    assert "U = mean" not in neutral[1]
    found = json.loads(run(capsys, *both, "--json")[1])
    assert found["policies"]["calm"]["discounted"]["U"]["estimate"] == pytest.approx(us[0])
    assert found["comparisons"][0]["difference_of_U"]["estimate"] == pytest.approx(us[0] - us[1])
    for wrong in (-1.0, float("nan")):
        assert run(capsys, *both, "--psi", wrong)[0] == 2
    code, _, error = run(capsys, *both, "--psi", 0.5, 0.7)
    assert (code, "was trained for one price of variance" in error) == (2, True)


def test_measurements_of_other_kinds_have_other_folders(capsys, trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for more in ([], ["--deterministic"], ["--undiscounted"]):
        assert run(capsys, "evaluate", trained / "calm", "--episodes", 20, *more)[0] == 0
    names = {path.name for path in (tmp_path / "results" / "evaluate").iterdir()}
    assert names == {"calm", "calm-deterministic", "calm-undiscounted"}


def test_several_runs_are_compared(capsys, trained, tmp_path):
    arguments = ["evaluate", trained / "calm", trained / "bold", "--episodes", 100, "--out", tmp_path / "out"]
    code, text, _ = run(capsys, *arguments)
    assert code == 0
    assert "variance of A / variance of B" in text
    assert {p.name for p in (tmp_path / "out").glob("*.parquet")} == {
        "calm.parquet", "bold-run-0.parquet", "bold-run-1.parquet",
    }  # fmt: skip
    code, text, _ = run(capsys, *arguments, "--json", "--seed", 3, "--deterministic", "--undiscounted")
    found = json.loads(text)
    assert [(c["a"], c["b"]) for c in found["comparisons"]] == [
        ("calm", "bold/run-0"), ("calm", "bold/run-1"), ("bold/run-0", "bold/run-1"),
    ]  # fmt: skip
    policies = found["policies"].values()
    assert {p["gamma"] for p in policies} == {0.95}
    assert {p["about"]["deterministic"] for p in policies} == {True}
    assert len({p["about"]["seed"] for p in policies}) == 3  # independent samples


def test_policies_of_different_environments_are_remarked_upon(capsys, trained, tmp_path):
    vpac.AC(vpac.envs.make_env("vpac/CatchUp-v0", lucky=3), gamma=0.95).learn(5).save(tmp_path / "other")
    for other, differ in ((trained / "bold" / "run-0", False), (tmp_path / "other", True)):
        code, text, err = run(
            capsys, "evaluate", trained / "calm", other, "--episodes", 20, "--out", tmp_path / "out", "--json"
        )
        assert code == 0
        assert ("these policies act in different environments" in err) is differ
        worlds = json.loads(text)["environments"]
        assert [place["arguments"].get("lucky") for place in worlds.values()] == [None, 3 if differ else None]


def test_sources(capsys, trained, tmp_path):
    arguments = ["evaluate", trained / "calm", "--episodes", 40, "--sources", "--out", tmp_path / "x"]
    code, text, _ = run(capsys, *arguments)
    assert code == 0
    assert "where the variance comes from, 20 starts" in text
    found = json.loads(run(capsys, *arguments, "--json")[1])["sources"]["calm"]
    assert set(found["exact"]) == set(found["shares"]) == {"start", "policy", "environment"}


def test_another_environment(capsys, trained, tmp_path):
    arguments = ["evaluate", trained / "calm", "--episodes", 50, "--out", tmp_path / "x", "--json"]
    code, text, error = run(capsys, *arguments, "--env", "vpac/CatchUp-v0", "--set", "luck=1.0")
    assert code == 0, error
    always = json.loads(text)
    usual = json.loads(run(capsys, *arguments)[1])
    first, second = (x["policies"]["calm"]["discounted"]["variance"]["estimate"] for x in (always, usual))
    assert first < second


def test_a_run_of_the_store(capsys, tmp_path):
    from vpac.lab.experiments.catalogue import EXPERIMENTS
    from vpac.lab.workers.pool import make_executor
    from vpac.lab.workers.study import carry_out_studies, plan

    store = Store(tmp_path / "results")
    plans = [plan(EXPERIMENTS["four-rooms/performance"], full=False, runs=1, scale=0.01)]
    hands = make_executor("serial", None)
    carry_out_studies(plans, store, hands, lambda outcome: None, "again")
    hands.close()
    name = next(n for n in store.names() if n.startswith("vpac"))
    arguments = ["--episodes", 8, "--store", store.root, "--out", tmp_path / "x", "--json"]
    code, text, _ = run(capsys, "evaluate", name, *arguments)
    assert code == 0
    assert json.loads(text)["policies"][name]["about"]["env"] == "vpac/FourRooms-v0"
    code, _, error = run(capsys, "evaluate", name[:-3], *arguments)
    assert code == 2
    assert f"did you mean '{name}'" in error


def test_a_stored_run_with_a_wrapper_by_name_and_by_folder(capsys, tmp_path, monkeypatch):
    task = {
        "kind": "training", "env": "vpac.envs:CatchUp", "env_settings": {"luck": 1.0}, "algorithm": "vpac",
        "settings": {"gamma": 0.9}, "wrappers": [["gymnasium.wrappers:ClipReward", {"max_reward": 0.0}]],
    }  # fmt: skip
    learner = vpac.VPAC("vpac/CatchUp-v0")
    arrays = dict(zip(("theta", "w", "z", "mean"), map(np.array, learner.weights), strict=True))
    store, stored = Store(tmp_path / "results"), Run(task, 0, 1)
    store.write(stored, Result({"episode": [1.0]}, arrays, {}), {})
    monkeypatch.setattr("vpac.envs.make.NAMED_BY_USER", set())
    common = ["--store", store.root, "--episodes", 4, "--out", tmp_path / "x", "--json"]
    named = ["--env", "vpac.envs:CatchUp"]
    wrap = ["--wrap", "gymnasium.wrappers:ClipReward", "max_reward=0.0"]
    code, _, error = run(capsys, "evaluate", stored.name, *common)
    assert code == 2
    assert f"vpac evaluate {stored.name} {' '.join(named + wrap)}" in error
    assert "does not hold a learner" not in error
    code, _, error = run(capsys, "evaluate", stored.name, *common, *named)
    assert code == 2
    assert f"vpac evaluate {stored.name} {' '.join(named + wrap)}" in error
    for run_ in (stored.name, store.root / "runs" / stored.name):
        code, out, error = run(capsys, "evaluate", run_, *common, *named, *wrap)
        assert code == 0, error
        assert json.loads(out)["policies"][stored.name]["undiscounted"]["maximum"]["estimate"] <= 0.0


def test_a_comparison_does_not_write_over_an_evaluation(capsys, trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for runs in (["calm"], ["calm", "bold"], ["bold/run-1"]):
        assert run(capsys, "evaluate", *(trained / name for name in runs), "--episodes", 4, "--json")[0] == 0
    assert {p.name for p in (tmp_path / "results" / "evaluate").iterdir()} == {"calm", "calm-vs-bold", "bold-run-1"}


def test_names_of_files_are_tidy():
    assert file_name("cond, ψ = 0.5") == "cond-psi-0.5"
    assert file_name("bold/run-0 (2)") == "bold-run-0-2"
    assert file_name("..") == "sample"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "there is no agent 'nowhere'"),
        ([], "expected at least one RUN"),
        (["RUN", "--episodes", 0], "episodes must be a whole number from 1 up"),
        (["RUN", "--levels", 2], "--levels must be above 0"),
        (["RUN", "--set", "luk=1"], "has no argument 'luk'; did you mean 'luck'"),
        (["RUN", "--env", "vpac/CatchUpp-v0"], "did you mean 'vpac/CatchUp-v0'"),
        (["RUN", "--env", "vpac/FourRooms-v0"], "theta has shape"),
        (["RUN", "--gamma", 2], "gamma must be"),
        (["RUN", "--seed", -1], "seed must be"),
    ],
)
def test_mistakes_are_named(capsys, trained, tmp_path, arguments, message):
    given = [trained / "calm" if a == "RUN" else a for a in arguments]
    code, _, error = run(capsys, "evaluate", *given, "--out", tmp_path / "x")
    assert code == 2
    assert message in error


def test_folders_that_hold_no_agent(trained, tmp_path):
    from vpac import UserError

    assert isinstance(load_agent(trained / "bold" / "run-1"), vpac.AC)
    with pytest.raises(UserError, match="it holds 2 runs"):
        load_agent(trained / "bold")
    with pytest.raises(UserError, match=r"it has no agent\.json"):
        load_agent(tmp_path)
    for text, message in (
        ("{", "does not hold an agent"),
        ("3", "is not an object"),
    ):
        (tmp_path / "agent.json").write_text(text)
        with pytest.raises(UserError, match=message):
            load_agent(tmp_path)
    with pytest.raises(UserError, match=r"unknown algorithm 'VPCA'.*did you mean 'VPAC'"):
        load_agent(forge(vpac.VPAC("vpac/CatchUp-v0").save(tmp_path / "other"), {"algorithm": "VPCA"}))


def test_the_picture_of_policies_that_hardly_vary(tmp_path):
    from vpac.lab.report import draw
    from vpac.lab.report.measured import Evaluation

    flat = ReturnSample(np.ones(20), np.ones(20), np.ones(20, int), np.ones(20, bool), 0.9)
    chart = Evaluation({"flat": flat, "_other $": flat}).charts()[0]
    (path,) = draw.write(chart, tmp_path, ("png",))
    assert path.stat().st_size > 5000
    density = chart.panels[0].series[0]
    assert np.trapezoid(density.y, density.x) == pytest.approx(1.0, abs=0.01)
    assert (chart.panels[1].series[0].y[0], chart.panels[1].series[0].y[-1]) == (0.0, 100.0)


def test_the_picture_says_whose_returns_it_shows(tmp_path):
    """It travels alone: title, how many episodes, mean and spread are in it, and no name of the legend leaves it."""
    from vpac.lab.report import draw
    from vpac.lab.report.draw import figure_style
    from vpac.lab.report.measured import Evaluation

    x = np.array([-1.0, 0.0, 1.0, 2.0] * 250)
    about = {"env": "Shop-v0", "deterministic": True}
    one = ReturnSample(x, 2.0 * x, np.ones(1000, int), np.ones(1000, bool), 0.9, about)
    chart = Evaluation({"careful": one.undiscounted}).charts()[0]
    assert chart.title == "Returns of careful: 1,000 episodes, mean 1, std 2.24"
    assert chart.foot.startswith(
        "In Shop-v0. Rewards added up without discount, the most preferred actions. A narrow peak"
    )
    assert all(panel.x_label and panel.y_label for panel in chart.panels)
    several = Evaluation({f"a policy with quite a long name, number {n}": one for n in range(5)}).charts()[0]
    assert several.title == "Returns of 5 policies, 1,000 episodes each"
    assert Evaluation({"a": one, "b": one}).charts()[0].title == "Returns of a and b, 1,000 episodes each"
    with figure_style() as plt:
        figure = draw.draw(plt, several, alone=True)
        assert several.title in figure.get_suptitle()
        figure.draw_without_rendering()
        box = figure.legends[0].get_window_extent()
        assert figure.bbox.x0 <= box.x0
        assert box.x1 <= figure.bbox.x1


def test_no_density_where_no_episode_ended():
    """Exponential returns begin at 0 with their highest density: it is not smeared out, and all of it is there."""
    from vpac.lab.report.measured import Evaluation

    x = np.sort(np.random.default_rng(0).exponential(size=2000))
    sample = ReturnSample(x, x, np.ones(2000, int), np.ones(2000, bool), 0.9)
    density = Evaluation({"a": sample}).charts()[0].panels[0].series[0]
    assert density.x[0] == x[0]
    assert density.x[-1] <= x[-1]
    assert np.trapezoid(density.y, density.x) == pytest.approx(1.0, abs=0.01)
    assert density.y[1] == pytest.approx(1.0, abs=0.15)  # half of it without what is thrown back
    assert (density.y[0], density.y[-1]) == (0.0, 0.0)


def test_words_of_a_comparison():
    """Said of whom it is likelier, and never surer than the numbers are."""
    from vpac.lab.report.measured import comparison_table
    from vpac.risk import compare_samples

    rng = np.random.default_rng(0)
    calm, wild = (
        ReturnSample(x, x, np.ones(60, int), np.ones(60, bool), 0.9)
        for x in (rng.normal(size=60), rng.normal(size=60) * 9)
    )
    rows = dict(comparison_table("wild", "calm", compare_samples(wild, calm)).rows)
    assert rows["B varies less than A"] == "> 99.9 % sure"
    assert "A varies less than B" not in rows
    better = ReturnSample(calm.returns + 50.0, calm.returns, calm.lengths, calm.terminated, 0.9)
    rows = dict(comparison_table("a", "b", compare_samples(better, calm)).rows)
    assert rows["an episode of A beats one of B"].startswith("1 (0.93")
    assert rows["preference (first-order dominance)"].startswith("A (so in resamples: A 100")
    same = dict(comparison_table("a", "b", compare_samples(calm, calm)).rows)
    assert same["A varies less than B"] == "50.0 % sure"
