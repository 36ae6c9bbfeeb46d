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
    assert (code, json.loads(out)) == (0, {"page": str(store / "report" / "index.html")})


def test_a_failing_run_makes_the_exit_code_1(capsys, tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text(SPEC.format(runs=1, episodes=40).replace("0.1]", "-0.1]"), encoding="utf-8")
    store = tmp_path / "results"
    code, out, err = run(capsys, "sweep", path, "--store", store, "--executor", "serial", "--json")
    assert code == 1
    (failed,) = json.loads(out)["experiments"]["little"]["failed"]
    assert "psi must be" in failed["error"]
    assert f"To try them again: vpac sweep {path}" in err
    assert "psi must be" in (store / "report" / "index.html").read_text(encoding="utf-8")
    _, out, _ = run(capsys, "runs", "--store", store, "--status", "failed", "--json")
    assert [row["status"] for row in json.loads(out)] == ["failed"]


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
    code, out, _ = run(capsys, *arguments)
    assert "verdict" in out


def test_experiments_are_listed(capsys):
    code, out, _ = run(capsys, "list", "experiments", "--json")
    rows = {row["name"]: row for row in json.loads(out)["experiments"]}
    assert code == 0
    assert rows["four-rooms/performance"]["runs"] == 400
    assert rows["four-rooms/performance"]["paper"] == "Figure 2"
    assert rows["convergence"]["paper"] == "Appendix C"
