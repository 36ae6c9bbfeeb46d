from __future__ import annotations

import json

import pytest

from tiny import SPEC
from vpac.cli import main


def run(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def spec(tmp_path):
    path = tmp_path / "little.toml"
    path.write_text(SPEC.format(runs=2, episodes=40), encoding="utf-8")
    return path


def test_a_sweep_is_run_listed_and_reported(capsys, spec, tmp_path):
    store = tmp_path / "results"
    code, out, _ = run(capsys, "sweep", spec, "--store", store, "--executor", "serial")
    assert code == 0
    assert "little" in out
    assert (store / "report" / "index.html").is_file()
    assert (store / "figures" / "little.pdf").is_file()

    code, out, _ = run(capsys, "runs", "--store", store, "--json")
    rows = json.loads(out)
    assert code == 0
    assert len(rows) == 4
    assert {row["settings"]["psi"] for row in rows} == {0.0, 0.1}
    _, out, _ = run(capsys, "runs", "--store", store, "--where", "psi=0.1", "--json")
    assert [row["settings"]["psi"] for row in json.loads(out)] == [0.1, 0.1]
    _, out, _ = run(capsys, "runs", "--store", store, "--env", "fourrooms", "--json")
    assert json.loads(out) == []
    _, out, _ = run(capsys, "runs", "--store", store, "--limit", 1)
    assert "4 runs" in out
    assert "3 more" in out

    code, out, _ = run(capsys, "sweep", spec, "--store", store, "--executor", "serial", "--json")
    again = json.loads(out)["experiments"]["little"]
    assert (code, again["kept"], again["done"]) == (0, 4, 0)
    code, out, _ = run(capsys, "report", "--store", store, "--json")
    assert (code, json.loads(out)) == (0, {"page": str(store / "report" / "index.html"), "failed": []})


def test_a_failing_run_makes_the_exit_code_1(capsys, tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text(SPEC.format(runs=1, episodes=40).replace("0.1]", "1e308]"), encoding="utf-8")
    store = tmp_path / "results"
    code, out, err = run(capsys, "sweep", path, "--store", store, "--executor", "serial", "--json")
    assert code == 1
    (failed,) = json.loads(out)["experiments"]["little"]["failed"]
    assert "is not finite in episode" in failed["error"]
    assert "is not finite in episode" in err
    assert "1 run failed (1 of them diverged); the page shows how." in err
    assert f"To try again: vpac sweep {path} --executor serial --store {store}" in err
    assert "is not finite in episode" in (store / "report" / "index.html").read_text(encoding="utf-8")
    _, out, _ = run(capsys, "runs", "--store", store, "--status", "failed", "--json")
    assert [row["status"] for row in json.loads(out)] == ["diverged"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("psi = [0.0, 0.1]", "psi = [0.0, -0.1]", "arm 'psi=-0.1': psi must be"),
        ("psi = [0.0, 0.1]", "psii = [0.0, 0.1]", "did you mean 'psi'?"),
        ("RiskyShortcut", "RiskyShortcat", "did you mean 'vpac/RiskyShortcut-v0'?"),
        ('"vpac"', '"vpacc"', "did you mean 'vpac'?"),
        ('"little"', '"theorems"', "the name 'theorems' is taken"),
    ],
)
def test_a_study_is_checked_before_anything_is_run(capsys, spec, tmp_path, old, new, message):
    spec.write_text(spec.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    code, _, err = run(capsys, "sweep", spec, "--store", tmp_path / "results")
    assert code == 2
    assert message in err
    assert not (tmp_path / "results").exists()


FAR_AWAY = """
env = "{env}"
algorithm = "ac"
episodes = 60
every = 20
runs = 2
{more}
[grid]
alpha_theta = [0.001, 0.01]
"""


def test_an_environment_that_is_not_compiled_is_measured_by_its_returns(capsys, tmp_path):
    path, store = tmp_path / "cart.toml", tmp_path / "results"
    path.write_text(FAR_AWAY.format(env="CartPole-v1", more=""), encoding="utf-8")
    code, _, err = run(capsys, "sweep", path, "--store", store)
    assert code == 2
    assert 'policies of CartPole-v1 cannot be measured: write evaluate = "returns"' in err
    path.write_text(FAR_AWAY.format(env="CartPole-v1", more='evaluate = "returns"'), encoding="utf-8")
    code, _, _ = run(capsys, "sweep", path, "--store", store, "--executor", "serial", "--json")
    assert code == 0
    _, out, _ = run(capsys, "runs", "--store", store, "--json")
    rows = json.loads(out)
    assert len(rows) == 4
    assert all(row["mean"] > 1.0 and row["variance"] > 0.0 for row in rows)
    assert "mean, training episodes" in (store / "figures" / "cart.csv").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("kind", "env", "message"),
    [
        ("paths", "vpac/RiskyShortcut-v0", "paths are drawn of the continuous puddle world only"),
        ("maps", "vpac/ContinuousPuddleWorld-v0", "cannot be drawn as a map"),
    ],
)
def test_a_figure_of_the_wrong_world_is_refused(capsys, tmp_path, kind, env, message):
    path = tmp_path / "wrong.toml"
    figure = f'[[figures]]\nkind = "{kind}"\ntitle = "It"\n'
    path.write_text(FAR_AWAY.format(env=env, more="") + figure, encoding="utf-8")
    code, _, err = run(capsys, "sweep", path, "--store", tmp_path / "results")
    assert code == 2
    assert message in err


def test_a_quick_look_does_not_replace_the_result(capsys, spec, tmp_path):
    store = tmp_path / "a store"
    arguments = ("sweep", spec, "--store", store, "--executor", "serial", "--json")
    run(capsys, *arguments)
    note = (store / "studies" / "little.json").read_text(encoding="utf-8")
    assert json.loads(note)["command"] == f"vpac sweep {spec} --executor serial --store '{store}'"
    code, out, _ = run(capsys, *arguments, "--runs", 1, "--scale", 0.5)
    assert (code, json.loads(out)["experiments"]["little"]["done"]) == (0, 2)
    assert (store / "studies" / "little.json").read_text(encoding="utf-8") == note


def test_a_scaled_experiment_says_so(capsys, tmp_path):
    store = tmp_path / "results"
    arguments = (
        "reproduce",
        "forms/risky-shortcut",
        "--scale",
        0.002,
        "--runs",
        2,
        "--store",
        store,
        "--executor",
        "serial",
    )
    code, out, _ = run(capsys, *arguments, "--json")
    assert code == 0
    found = json.loads(out)
    assert [claim["verdict"] for claim in found["claims"]]
    assert "Scaled down: 0.002 times the episodes" in (store / "report" / "index.html").read_text(encoding="utf-8")
    drawn = list((store / "figures").glob("*.svg"))
    assert drawn
    for path in drawn:  # a file that travels alone says it, too
        assert "Scaled down: 0.002 times the episodes" in path.read_text(encoding="utf-8")
    code, out, _ = run(capsys, *arguments)
    assert "verdict" in out
    assert "scaled down: no number here is one of the full experiment" in out


def test_experiments_are_listed(capsys):
    code, out, _ = run(capsys, "list", "experiments", "--json")
    rows = {row["name"]: row for row in json.loads(out)["experiments"]}
    assert code == 0
    assert rows["four-rooms/performance"]["runs"] == 400
    assert rows["four-rooms/performance"]["paper"] == "Figure 2"
    assert rows["convergence"]["paper"] == "Appendix C"


def test_report_names_what_is_damaged_on_the_terminal_too(capsys, tmp_path):
    spec, store = tmp_path / "little.toml", tmp_path / "s"
    spec.write_text(SPEC.format(runs=2, episodes=20), encoding="utf-8")
    assert run(capsys, "sweep", spec, "--store", store, "--executor", "serial", "--json")[0] == 0
    code, out, err = run(capsys, "report", "--store", store, "--json")
    assert (code, json.loads(out)["failed"], "damaged" in err) == (0, [], False)
    hit = next((store / "runs").glob("*/metrics.parquet"))
    hit.write_bytes(hit.read_bytes()[:-1] + b"!")
    code, out, err = run(capsys, "report", "--store", store, "--json")
    assert code == 0
    (failed,) = json.loads(out)["failed"]
    assert failed["run"] == hit.parent.name
    assert hit.parent.name in err
    assert "1 run failed or damaged, and not in the figures" in err
