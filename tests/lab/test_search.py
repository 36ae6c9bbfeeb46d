"""A search finds the best of its trials, resumes where it stopped, and writes settings for `vpac train`."""

from __future__ import annotations

import json
import tomllib

import numpy as np
import pytest

pytest.importorskip("jax")
optuna = pytest.importorskip("optuna")

from cli.test_cli import run  # noqa: E402
from vpac.deep.diagnostics import NotFinite  # noqa: E402
from vpac.errors import UserError  # noqa: E402
from vpac.lab import search as module  # noqa: E402
from vpac.lab.search import Search, search, write_search  # noqa: E402


class Sample:
    def __init__(self, mean, variance):
        self.mean, self.variance, self.std = mean, variance, variance**0.5
        self.returns = mean + self.std * np.array([-1.0, 1.0])


@pytest.fixture
def trained(monkeypatch):
    """A training whose outcome is known: the best learning rate is 1e-3, and γ = 0.998 varies most."""
    calls = []

    def outcome(what, env, number, *, psi, learning_rate=1e-3, gamma=0.99, **settings):
        calls.append({"psi": psi, "learning_rate": learning_rate, "gamma": gamma, **settings})
        if learning_rate > 4e-3:
            raise NotFinite("the policy's loss is not finite")
        return Sample(10.0 - abs(learning_rate - 1e-3) * 1e3, 4.0 + 100.0 * (gamma == 0.998))

    monkeypatch.setattr(module, "_trained", outcome)
    return calls


def spec(**given):
    usual = {"algorithm": "vpac-ppo", "psi": None, "risk_aversion": None, "steps": 100_000, "seeds": 1, "measure": 500}
    return Search("x", **{**usual, "gamma": 0.99, "seed": 0, "settings": {}, **given})


def storage(folder):
    return f"sqlite:///{folder / 'search.db'}"


def test_u_decides(trained, tmp_path):
    study = search(spec(psi=0.5), None, 15, storage(tmp_path))
    assert len(study.trials) == 15
    for trial in study.trials:
        if trial.value is not None:
            assert trial.value == pytest.approx(trial.user_attrs["mean"] - 0.5 * trial.user_attrs["variance"])
    assert study.best_value == max(trial.value for trial in study.trials if trial.value is not None)
    assert study.best_params["gamma"] != 0.998
    assert study.best_value > study.trials[0].value, "better than the usual settings"
    assert {call["psi"] for call in trained} == {0.5}


def test_another_measure_decides(trained, tmp_path):
    study = search(spec(risk_aversion=2.0, settings={"penalty": "mad"}), None, 3, storage(tmp_path))
    assert study.user_attrs["psi"] == 2.0, "the measure has the unit of the reward"
    for trial in study.trials:
        assert trial.value == pytest.approx(trial.user_attrs["mean"] - 2.0 * trial.user_attrs["measure"])
        assert trial.user_attrs["measure"] == pytest.approx(trial.user_attrs["variance"] ** 0.5)
    assert write_search(study, spec(psi=2.0, settings={"penalty": "mad"}), tmp_path)["penalty"] == "mad"
    for algorithm, penalty, words in (
        ("vpac-ppo", "volatility", "of single rewards"),
        ("vaac-ppo", "mad", "no choice"),
    ):
        with pytest.raises(UserError, match=words):
            spec(algorithm=algorithm, psi=1.0, settings={"penalty": penalty}).check()


def test_it_goes_on_where_it_was_stopped(trained, tmp_path):
    what = spec(risk_aversion=0.6)
    first = search(what, None, 4, storage(tmp_path))
    assert first.user_attrs["psi"] == pytest.approx(0.6 / 2.0)
    assert trained[0]["psi"] == 0.0, "the risk-neutral policy says what the unit is"
    before = [trial.params for trial in first.trials]
    again = search(what, None, 6, storage(tmp_path))
    assert len(trained) == 7
    assert [trial.params for trial in again.trials[:4]] == before
    again.ask()  # as a trial that is killed leaves it
    assert len(search(what, None, 6, storage(tmp_path)).trials) == 7
    write_search(again, what, tmp_path)
    assert "the best of 6 trials" in (tmp_path / "best.toml").read_text()
    with pytest.raises(UserError, match=r"started with steps = 100000, not 5"):
        search(spec(risk_aversion=0.6, steps=5), None, 6, storage(tmp_path))


def test_what_is_given_is_not_searched(trained, tmp_path):
    study = search(spec(psi=0.1, settings={"gamma": 0.98, "envs": 4}), None, 3, storage(tmp_path))
    assert all("gamma" not in trial.params for trial in study.trials)
    best = write_search(study, spec(psi=0.1, settings={"gamma": 0.98, "envs": 4}), tmp_path)
    read = tomllib.loads((tmp_path / "best.toml").read_text())
    assert read == best
    assert (read["gamma"], read["envs"], read["psi"]) == (0.98, 4, 0.1)
    page = (tmp_path / "plots.html").read_text()
    assert page.count("plotly-graph-div") >= 3
    assert "<script src" not in page


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (spec(), "either --psi PSI"),
        (spec(psi=1.0, risk_aversion=1.0), "either --psi PSI"),
        (spec(algorithm="ppo", psi=1.0), "ppo has no price of variance"),
        (spec(algorithm="vpac", psi=1.0), "unknown algorithm 'vpac'"),
        (spec(psi=1.0, steps=0), "steps"),
    ],
)
def test_mistakes_are_named(wrong, words, tmp_path):
    with pytest.raises(UserError, match=words):
        search(wrong, None, 1, storage(tmp_path))


def test_the_command_line_from_search_to_training(capsys, tmp_path):
    short = ("--steps", "64", "--measure", "20", "--option", "envs=2", "steps=16", "hidden=[4]")
    tune = ("tune", "vpac/CatchUp-v0", "--psi", "0.1", *short, "--out", tmp_path, "--json")
    code, out, error = run(capsys, *tune, "--trials", "2")
    assert code == 0, error
    found = json.loads(out)
    assert found["trials"] == 2
    assert error.count("U ") == 2
    code, out, error = run(capsys, *tune, "--trials", "3")
    assert (code, error.count("U ")) == (0, 1)
    train = (
        "train",
        "vpac-ppo",
        "vpac/CatchUp-v0",
        "--settings",
        found["file"],
        "--steps",
        "64",
        "--out",
        tmp_path / "t",
    )
    code, _, error = run(capsys, *train)
    assert code == 0, error
    options = json.loads((tmp_path / "t" / "agent.json").read_text())["options"]
    best = json.loads(out)["best"]
    assert (options["learning_rate"], options["hidden"]) == (best["learning_rate"], [4])
    code, _, error = run(capsys, "tune", "vpac/CatchUp-v0", "--trials", "2")
    assert (code, "either --psi PSI" in error) == (2, True)
