from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import vpac
from vpac import FiniteMDP, oracle
from vpac.cli import VERBS, main
from vpac.cli.arguments import key_values
from vpac.envs import FourRooms
from vpac.errors import UserError


def run(capsys, *arguments):
    """Exit code, standard output and standard error of `vpac arguments`."""
    try:
        code = main([str(a) for a in arguments])
    except SystemExit as stop:
        code = stop.code
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_solve_prints_the_oracles_numbers(capsys):
    code, out, _ = run(capsys, "solve", "vpac/FourRooms-v0", "--policy", "greedy", "--horizon", 300, "--json")
    found = json.loads(out)
    mdp = FiniteMDP.from_gymnasium("vpac/FourRooms-v0")
    exact = oracle.evaluate(mdp, oracle.optimal_policy(mdp, 0.99), 0.99, 300)
    assert code == 0
    assert found["mean"] == float(exact.mean)
    assert found["total_variance"] == float(exact.total_variance)
    assert found["goal_probability"] == pytest.approx(1.0)
    assert found["by_state"]["variance"] == exact.variance.tolist()
    code, out, _ = run(capsys, "solve", "vpac/FourRooms-v0", "--policy", "greedy", "--horizon", 300)
    assert code == 0
    assert f"{float(exact.mean):.6g}" in out
    assert f"{float(exact.total_variance):.6g}" in out


def test_solve_finds_the_best_policy_of_a_price_and_states_the_gap(capsys):
    words = ("solve", "vpac/CatchUp-v0", "--psi", 0.083, "--gamma", 0.95)
    found = json.loads(run(capsys, *words, "--json")[1])
    best = oracle.frontier(FiniteMDP.from_gymnasium("vpac/CatchUp-v0"), [0.083], 0.95)
    assert found["objective"] == pytest.approx(float(best.objectives[0]), abs=1e-9)
    assert found["objective"] == pytest.approx(found["mean"] - 0.083 * found["total_variance"], abs=1e-9)
    assert 0.0 <= found["gap"] == found["upper_bound"] - found["objective"] < 1e-6
    assert found["improvement"] < 1e-9
    code, out, _ = run(capsys, *words)
    assert (code, "upper bound" in out, "gap" in out) == (0, True, True)
    assert run(capsys, *words, "--policy", "greedy")[0] == 2


def test_solve_takes_arguments_of_the_environment(capsys):
    default = json.loads(run(capsys, "solve", "CliffWalking-v1", "--policy", "greedy", "--json")[1])
    slippery = json.loads(
        run(capsys, "solve", "CliffWalking-v1", "--policy", "greedy", "--set", "is_slippery=true", "--json")[1]
    )
    assert default["total_variance"] == pytest.approx(0.0, abs=1e-9)
    assert slippery["total_variance"] > 100.0


@pytest.mark.parametrize(
    "given",
    [["--set", "slip=0.1", "goal=5"], ["--set", "slip=0.1", "--set", "goal=5"], ["--set=slip=0.1", "--set=goal=5"]],
)
def test_arguments_of_the_environment_add_up(capsys, given):
    found = json.loads(run(capsys, "solve", "vpac/FourRooms-v0", *given, "--json")[1])
    exact = oracle.evaluate(FourRooms(slip=0.1, goal=5).mdp, np.full((104, 4), 0.25), 0.99)
    assert found["mean"] == pytest.approx(float(exact.mean))


def test_output_that_cannot_be_written_is_said():
    command = f"{sys.executable} -m vpac list > /dev/full"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.returncode == 1
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("kind", ["npy", "json", "csv"])
def test_solve_reads_a_policy_from_a_file(capsys, tmp_path, kind):
    policy = oracle.softmax(np.random.default_rng(0).normal(size=(11, 3)))
    path = tmp_path / f"policy.{kind}"
    if kind == "npy":
        np.save(path, policy)
    elif kind == "json":
        path.write_text(json.dumps(policy.tolist()))
    else:
        np.savetxt(path, policy, delimiter=",")
    found = json.loads(run(capsys, "solve", "vpac/CatchUp-v0", "--policy", path, "--gamma", 0.95, "--json")[1])
    exact = oracle.evaluate(FiniteMDP.from_gymnasium("vpac/CatchUp-v0"), policy, 0.95)
    assert found["mean"] == pytest.approx(float(exact.mean))


@pytest.mark.parametrize(
    "world", ["vpac/FourRooms-v0", "vpac/CatchUp-v0", "FrozenLake-v1", "CliffWalking-v1", "Taxi-v4"]
)
@pytest.mark.parametrize("kind", ["png", "svg"])
def test_solve_draws(capsys, tmp_path, world, kind):
    path = tmp_path / f"deep/er/picture.{kind}"
    code, out, _ = run(capsys, "solve", world, "--policy", "greedy", "--plot", path)
    assert code == 0
    assert str(path) in out
    start = path.read_bytes()[:5]
    assert start == (b"\x89PNG\r" if kind == "png" else b"<?xml")
    assert sorted(p.name for p in path.parent.iterdir()) == [path.name]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["solv"],
            "expected one of list, check, solve, train, evaluate, offline, certify, stress, frontier, tune, watch, export, "
            "reproduce, sweep, runs, report, doctor; did you mean 'solve'?",
        ),
        (["solve", "vpac/FourRoms-v0"], "did you mean 'vpac/FourRooms-v0'?"),
        (["solve", "FourRooms"], "did you mean 'vpac/FourRooms-v0'?"),
        (["solve", "vpac/ContinuousPuddleWorld-v0"], "has no transition table"),
        (["solve", "vpac/FourRooms-v0", "--policy", "gredy"], "did you mean 'greedy'?"),
        (["solve", "vpac/FourRooms-v0", "--policy", "nowhere.npy"], "cannot read nowhere.npy: No such file"),
        (["solve", "vpac/FourRooms-v0", "--policy", "policy.pkl"], "expected a .npy, .json or .csv file"),
        (["solve", "vpac/FourRooms-v0", "--gamma", "1.5"], "gamma must be a number from 0 to 1, got 1.5"),
        (["solve", "vpac/FourRooms-v0", "--horizon", "0"], "horizon must be a whole number from 1 to 100,000, got 0"),
        (
            ["solve", "vpac/FourRooms-v0", "--horizon", "9" * 20],
            "horizon must be a whole number from 1 to 100,000, got 9",
        ),
        (["runs", "--limit", "-1"], "limit must be a whole number from 0 up, got -1"),
        (["solve", "vpac/FourRooms-v0", "--set", "slp=1"], "no argument 'slp'; did you mean 'slip'?"),
        (["solve", "vpac/FourRooms-v0", "--set", "slip"], "expected KEY=VALUE"),
        (["solve", "vpac/FourRooms-v0", "--set", "slip=2"], "slip must be a probability from 0 to 1, got 2"),
        (["solve", "vpac/FourRooms-v0", "--plot", "picture.bmp"], "unknown kind of figure 'bmp'"),
        (
            ["solve", "vpac/CatchUp-v0", "--policy", "greedy", "--plot", "/dev/null/x.png"],
            "cannot write /dev/null/x.png",
        ),
        (["solve", "vpac/FourRooms-v0", "--set", "map=5"], "a map is drawn as text, got 5"),
        (["solve", "vpac/FourRooms-v0", "--set", "slip=abc"], "slip must be a probability from 0 to 1, got 'abc'"),
        (["solve", "vpac/FourRooms-v0", "--set", "max_episode_steps=5"], "use --horizon"),
        (["solve", "FrozenLake-v1", "--set", "desc=foo"], "FrozenLake-v1 does not take these arguments"),
        (["reproduce", "theorems", "--store", "/dev/null/x"], "cannot write /dev/null/x"),
        (["reproduce", "theorem"], "did you mean 'theorems'?"),
        (["reproduce", "theorems", "--scale", "2"], "scale must be above 0 and at most 1, got 2.0"),
        (["reproduce", "theorems", "--runs", "0"], "runs must be a whole number from 1 to 1,000,000, got 0"),
        (["reproduce", "theorems", "--jobs", "0"], "jobs must be a whole number from 1 up, got 0"),
        (["reproduce", "theorems", "--executor", "proceses"], "did you mean 'processes'?"),
        (["sweep", "nowhere.toml"], "cannot read nowhere.toml: No such file"),
        (["runs", "--store", "nowhere"], "there is no store nowhere"),
        (["report", "--store", "nowhere"], "there is nothing to report in nowhere"),
        (["list", "environment"], "did you mean 'environments'?"),
    ],
)
def test_a_users_mistake_is_named_and_exits_with_2(capsys, arguments, message):
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert message in err
    assert "Traceback" not in out + err


@pytest.mark.parametrize("arguments", [["solve"], ["solve", "x", "--gama", "1"], ["solve", "x", "--gamma", "a"], []])
def test_a_command_line_that_cannot_be_read_exits_with_2(capsys, arguments):
    assert run(capsys, *arguments)[0] == 2


def test_without_discount_a_policy_that_never_ends_is_a_clear_error(capsys, tmp_path):
    path = tmp_path / "wait.json"
    path.write_text(json.dumps([[0, 0, 1]] * 11))
    code, _, err = run(capsys, "solve", "vpac/CatchUp-v0", "--policy", path, "--gamma", 1)
    assert code == 2
    assert "never ends" in err


@pytest.mark.parametrize("text", ["[[1, 2], [3]]", "{", '"words"', "[" * 100_000])
def test_a_policy_file_that_holds_something_else_is_a_clear_error(capsys, tmp_path, text):
    path = tmp_path / "policy.json"
    path.write_text(text)
    code, _, err = run(capsys, "solve", "vpac/CatchUp-v0", "--policy", path)
    assert code == 2
    assert "does not hold an array of numbers" in err or "must have shape" in err


@pytest.mark.parametrize(
    "array",
    [np.ones((2, 11, 3)) / 3, np.full((11, 3), "x"), np.full((11, 3), 1j), np.ones(3)],
    ids=["batch", "text", "complex", "vector"],
)
def test_an_array_that_is_no_policy_is_a_clear_error(capsys, tmp_path, array):
    np.save(tmp_path / "policy.npy", array)
    code, _, err = run(capsys, "solve", "vpac/CatchUp-v0", "--policy", tmp_path / "policy.npy")
    assert code == 2
    assert "must hold one policy" in err or "array of real numbers" in err


@pytest.mark.parametrize(
    ("name", "content"),
    [("p.npy", b"PK\3\4xxx"), ("p.npy", b""), ("p.csv", b""), ("p.csv", b"a,b"), ("p.json", b"\xff")],
)
def test_a_file_that_is_something_else_is_a_clear_error(capsys, tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    code, out, err = run(capsys, "solve", "vpac/CatchUp-v0", "--policy", tmp_path / name)
    assert code == 2
    assert "Traceback" not in out + err


def test_a_reader_that_stops_reading_is_no_error():
    command = f"{sys.executable} -m vpac list | true; exit ${{PIPESTATUS[0]}}"
    assert subprocess.run(["bash", "-c", command], capture_output=True).returncode == 0


def test_a_pickled_array_is_refused(capsys, tmp_path):
    path = tmp_path / "policy.npy"
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    code, _, err = run(capsys, "solve", "vpac/CatchUp-v0", "--policy", path)
    assert code == 2
    assert "does not hold an array of numbers" in err


def test_key_values_are_read_and_never_run():
    assert key_values(["a=1", "b=0.5", "c=true", "d=text", "e=[1, 2]", "f=None", "g="]) == {
        "a": 1, "b": 0.5, "c": True, "d": "text", "e": (1, 2), "f": None, "g": "",
    }  # fmt: skip
    assert key_values(["shape=(84, 84)", "one=(3,)", "none=()", "text=(a)"]) == {
        "shape": (84, 84), "one": (3,), "none": (), "text": "(a)",
    }  # fmt: skip
    assert key_values(["a=__import__('os')"]) == {"a": "__import__('os')"}
    with pytest.raises(UserError, match="expected KEY=VALUE"):
        key_values(["=1"])


def test_list_shows_environments_and_experiments(capsys):
    code, out, _ = run(capsys, "list")
    assert code == 0
    for name in ("vpac/FourRooms-v0", "vpac/ContinuousPuddleWorld-v0", "Taxi-v4", "theorems"):
        assert name in out
    found = json.loads(run(capsys, "list", "environments", "--json")[1])
    assert set(found) == {"environments"}
    solvable = [row["name"] for row in found["environments"] if row["exact"]]
    for name in solvable:
        FiniteMDP.from_gymnasium(name)
    assert len(solvable) == 12


def test_doctor_names_versions_that_are_out_of_bounds(capsys, monkeypatch):
    import importlib.metadata

    lines = ["numpy>=99", "rich>=1", 'jax>=99; extra == "deep"', 'optax>=0.1; extra == "deep"']
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: lines)
    code, out, error = run(capsys, "doctor", "--json")
    assert json.loads(out)["unfit"] == {"numpy": ">=99", "jax": ">=99"}
    assert code == 1
    assert "pip install --upgrade vpac" in error
    monkeypatch.setenv("COLUMNS", "200")
    out = run(capsys, "doctor")[1]
    assert "(needs >=99)" in out
    assert "other versions" in out
    assert 'pip install --upgrade "vpac[deep]"' in out


def test_doctor_compares_each_extra_with_its_own_bounds(capsys, monkeypatch):
    import importlib.metadata

    version = importlib.metadata.version
    lines = ['jax>=99; extra == "bench"', 'jax>=0.1; extra == "deep"']
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: lines)
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2.6" if "pygame" in name else version(name))
    monkeypatch.setenv("COLUMNS", "200")
    code, out, error = run(capsys, "doctor")
    states = {line.split("│")[1].strip(): line.split("│")[2].strip() for line in out.splitlines() if "jax" in line}
    assert (code, states) == (0, {"bench": "other versions", "deep": "present"})
    assert "pygame and pygame-ce are both installed" in error


def test_doctor_tells_what_is_there(capsys):
    code, out, _ = run(capsys, "doctor")
    assert code == 0
    assert np.__version__ in out
    found = json.loads(run(capsys, "doctor", "--json")[1])
    assert found["cores"] >= 1
    assert found["memory_gib"] > 0.1
    extras = {extra["name"]: extra["packages"] for extra in found["extras"]}
    assert extras["dev"]["pytest"] == pytest.__version__


@pytest.mark.parametrize("arguments", [["--help"], *([verb, "--help"] for verb in VERBS)], ids=" ".join)
def test_help_fits_80_columns_and_shows_an_example(capsys, monkeypatch, arguments):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = run(capsys, *arguments)
    assert code == 0
    assert out.count("Example: vpac") == (1 if len(arguments) == 2 else len(VERBS))
    assert max(map(len, out.splitlines())) <= 80


def test_the_verbs_are_named_like_their_classes(capsys):
    for verb in VERBS:
        assert f"usage: vpac {verb} " in run(capsys, verb, "--help")[1]
    assert f"{verb}  " in run(capsys)[1]


def test_the_version_is_shown(capsys):
    assert run(capsys, "--version")[:2] == (0, f"vpac {vpac.__version__}\n")


@pytest.mark.parametrize(
    ("arguments", "next_command"),
    [
        (["train", "CartPole-v1", "vpac-ppo"], "the algorithm comes first: vpac train vpac-ppo CartPole-v1"),
        (["train", "vpac", "Pendulum-v1"], "needs Discrete ones: vpac train vpac-ppo Pendulum-v1"),
        (["train", "ppo", "CartPole-v1", "--psi", "0.1"], "vpac train vpac-ppo CartPole-v1 --psi 0.1"),
        (["train", "vpac-ppo", "CartPole-v1", "--episodes", "9"], "not of vpac-ppo: use --steps N"),
        (["train", "vpac-ppo", "CartPole-v1", "--runs", "9"], "with another --seed and --out"),
        (["train", "vpac", "vpac/CatchUp-v0", "--steps", "9"], "not of vpac: use --episodes N"),
        (["train", "vpac-ppo", "CartPole-v1", "--resume", "nowhere"], "without --resume it starts from the beginning"),
        (["solve", "CartPole-v1"], "`vpac train` and `vpac evaluate` need none"),
        (["sweep", "nowhere.toml"], "docs/experiments.md has a study to copy"),
        (["runs", "--store", "nowhere"], "`vpac reproduce` makes one"),
        (["reproduce", "xyz"], "`vpac list experiments` shows them all"),
        (["xyz"], "vpac --help says what each does"),
    ],
)
def test_an_error_says_what_to_type_next(capsys, tmp_path, monkeypatch, arguments, next_command):
    monkeypatch.chdir(tmp_path)
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert next_command in err
    assert not list(tmp_path.iterdir())


def test_an_empty_store_says_what_fills_it(capsys, tmp_path):
    code, out, _ = run(capsys, "runs", "--store", tmp_path)
    assert code == 0
    assert "vpac reproduce, vpac sweep and vpac frontier put runs here" in out
