"""`vpac frontier` from the outside."""

from __future__ import annotations

import json

import pytest

from vpac.cli import main
from vpac.lab import frontier


@pytest.fixture(autouse=True)
def _few_exact_points(monkeypatch):
    """The oracle's search takes most of the time."""
    monkeypatch.setattr(frontier, "EXACT_POINTS", 2)


SMALL = ["vpac/RiskyShortcut-v0", "--algorithm", "vpac", "--seeds", "2", "--episodes", "30", "--executor", "serial"]


def test_it_trains_draws_and_advises(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["frontier", *SMALL, "--psi", "0.05,0.3", "--mvpi"]) == 0
    shown = capsys.readouterr().out
    assert "ψ in 1/reward" in shown
    assert "MVPI: λ prices the variance of a step's reward" in shown
    assert "wrote results/frontier/vpac-RiskyShortcut-v0" in shown
    assert all(len(line) <= 80 for line in shown.splitlines() if line.startswith(("│", "┃", "└")))
    folder = tmp_path / "results" / "frontier" / "vpac-RiskyShortcut-v0"
    assert {path.name for path in folder.iterdir()} == {"frontier.png", "frontier.pdf", "frontier.csv", "summary.json"}
    assert main(["frontier", *SMALL, "--psi", "0.05,0.3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [point["psi"] for point in found["points"]] == [0.0, 0.05, 0.3]
    assert found["points"][1]["risk_aversion"] == pytest.approx(0.05 * found["risk_neutral_std"])
    assert found["exact"]["psis"][0] == 0.0
    assert found["advice"]
    assert len(found["points"][0]["runs"]) == 2


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (["--psi", "0.1", "--points", "5"], "--psi and --points say the same thing twice: choose one"),
        (["--psi", "0.1;0.2"], "cannot read --psi from '0.1;0.2': expected numbers with commas"),
        (["--steps", "100"], "vpac counts episodes: use --episodes"),
        (["--points", "1"], "points must be a whole number from 2 to 1000"),
        (["--points", "1000000000"], "points must be a whole number from 2 to 1000"),
        (["--executor", "procesess"], "did you mean 'processes'"),
        (["--option", "alpha_teta=1"], "vpac has no setting 'alpha_teta'; did you mean 'alpha_theta'?"),
        (["--set", "slipp=1"], "slipp"),
    ],
)
def test_mistakes_are_named(tmp_path, monkeypatch, capsys, wrong, words):
    monkeypatch.chdir(tmp_path)
    given = {word: value for word, value in zip(SMALL[1::2], SMALL[2::2], strict=True) if word not in wrong}
    if "--steps" in wrong:
        del given["--episodes"]
    assert main(["frontier", SMALL[0], *(word for pair in given.items() for word in pair), *wrong]) == 2
    assert words in capsys.readouterr().err


def test_ppo_counts_steps(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["frontier", "CartPole-v1", "--episodes", "10"]) == 2
    assert "vpac-ppo counts steps: use --steps" in capsys.readouterr().err


def test_help_says_the_units(capsys):
    with pytest.raises(SystemExit):
        main(["frontier", "--help"])
    words = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "units of 1/reward" in words
    assert "psi = R / standard deviation of the risk-neutral return" in words
