"""The arithmetic of the benchmarks; their measurements take long and need more libraries."""

import importlib.util
import json
import math
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from vpac import oracle

FOLDER = Path(__file__).parents[1] / "benchmarks"


def script(name, monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    spec = importlib.util.spec_from_file_location(f"benchmarks_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("gain", "verdict", "status"), [(0.0, "on par", 0), (50.0, "better", 0), (-50.0, "WORSE", 1)], ids=str
)
def test_the_parity_table_is_made_from_stored_results(monkeypatch, capsys, tmp_path, gain, verdict, status):
    parity = script("parity", monkeypatch)
    for env, settings in parity.SETTINGS.items():
        for library in parity.LIBRARIES:
            for seed in range(5):
                scores = [100.0 + seed + gain * (library == "ours")] * parity.EPISODES
                job = parity.Job(env, library, seed, parity.STEPS)
                result = {**job._asdict(), "settings": settings, "scores": scores}
                job.path(tmp_path).write_text(json.dumps(result))
    monkeypatch.setattr(sys, "argv", ["parity.py", "--out", str(tmp_path)])
    assert parity.main() == status
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("| Pendulum", "| Hopper"))]
    assert len(rows) == 2
    assert all(row.endswith(f"| {verdict} |") and f"| {102 + gain:.0f} (" in row for row in rows)


def test_a_result_of_other_settings_does_not_count(monkeypatch, tmp_path):
    parity = script("parity", monkeypatch)
    job = parity.Job("Hopper-v5", "ours", 0, 1000)
    result = {**job._asdict(), "settings": parity.SETTINGS["Hopper-v5"], "scores": [1.0]}
    job.path(tmp_path).write_text(json.dumps(result))
    assert job.found(tmp_path) == result
    assert job._replace(steps=2000).found(tmp_path) is None
    job.path(tmp_path).write_text(json.dumps(result | {"settings": {}}))
    assert job.found(tmp_path) is None


@pytest.mark.parametrize(("name", "extras"), [("parity", "deep,mujoco,bench"), ("deep", "deep,mujoco,envpool,bench")])
def test_a_missing_competitor_is_named_with_the_command_that_installs_it(monkeypatch, capsys, tmp_path, name, extras):
    module = script(name, monkeypatch)
    monkeypatch.setattr(module, "installed", lambda package: package != "stable-baselines3")
    monkeypatch.setattr(sys, "argv", [f"{name}.py"] + ["--out", str(tmp_path)] * (name == "parity"))
    assert module.main() == 1
    assert f"stable-baselines3 not installed: pip install 'vpac[{extras}]'" in capsys.readouterr().out


def test_the_speed_claims_compare_with_their_bars(monkeypatch):
    deep = script("deep", monkeypatch)
    ratio = {"ours": 1.0, "PPO": 1.25, "gymnasium": 2.4, "SB3": 2.5, "SBX": 2.24, "EnvPool": 0.55}
    bars = [True, False, True, False]  # VPAC-PPO 2.5 and 2.5 times, PPO 2 and 1.8 times
    assert [holds for _, holds in deep.claims(64, ratio, 1499.0)] == [*bars, True, True, True]
    eight = ratio | {"gymnasium": 2.6, "SBX": 1.6}  # VPAC-PPO and PPO 1.5 times each
    assert [holds for _, holds in deep.claims(8, eight, 1500.0)] == [True, True, True, False, False, False]


def test_a_store_made_for_the_benchmark_is_one_that_a_study_leaves(monkeypatch, tmp_path):
    from vpac.lab.experiments.catalogue import read_experiment
    from vpac.lab.store.store import Store
    from vpac.lab.workers.pool import Serial
    from vpac.lab.workers.study import carry_out_studies, plan
    from vpac.lab.workers.worker import carry_out

    load, wait = script("load", monkeypatch), os.fsync
    plans = [plan(read_experiment(load.fill(tmp_path, 12)), full=True)]
    assert os.fsync is wait
    tally = carry_out_studies(plans, Store(tmp_path / "store"), Serial())["load"]
    assert (tally.kept, tally.done, tally.damaged) == (20, 0, [])
    first, other = plans[0].all()[0], Store(tmp_path / "other")
    carry_out(other, first)
    for file in ("metrics.parquet", "policy.safetensors"):
        assert Store(tmp_path / "store").read(first.name).file(file) == other.read(first.name).file(file)


def test_drift_is_from_the_second_quarter_to_the_last(monkeypatch):
    load = script("load", monkeypatch)
    assert load.drift([5.0, 9.0, 1.0, 1.0, 7.0, 7.0, 2.0, 4.0]) == pytest.approx(2.0)
    assert load.drift([1.0] * 20) == 0.0


def test_exponents_and_where_growth_is_linear(monkeypatch):
    scaling = script("scaling", monkeypatch)
    sizes = [1.0, 10.0, 100.0, 1000.0]
    overall, between = scaling.exponents(sizes, [3.0 * size**1.5 for size in sizes])
    assert [overall, *between] == pytest.approx([1.5] * 4)
    for costs, words in (
        ([1.0, 10.0, 100.0, 1000.0], "linear throughout"),
        ([1.0, 1.1, 11.0, 110.0], "linear from 10 to 1000"),
        ([1.0, 10.0, 1000.0, 1e5], "linear from 1 to 10"),
        ([1.0, 1.0, 1.0, 1.0], "nowhere linear"),
    ):
        assert scaling.where(scaling.Growth("x", sizes, costs, "")) == words
    assert scaling.where(scaling.Growth("x", sizes, [1.0, 0.1, 0.01, 0.001], "", -1.0)) == "linear throughout"


def test_every_mutant_still_changes_the_source(monkeypatch):
    """The table cannot rot: each text occurs exactly once in its file, each name and change is there once, each test exists."""
    mutants = script("mutants", monkeypatch)
    rows = mutants.MUTANTS
    assert len(rows) >= 60
    assert len({row.name for row in rows}) == len({row[1:4] for row in rows}) == len(rows)
    sources = {row.file: (mutants.SOURCE / "vpac" / row.file).read_text(encoding="utf-8") for row in rows}
    stale = [row.name for row in rows if row.applied(sources[row.file]) in (None, sources[row.file])]
    assert not stale
    for row in rows:
        compile(row.applied(sources[row.file]), row.file, "exec")
        assert all((mutants.ROOT / path).exists() for path in row.tests.arguments if path.endswith(".py"))


def test_what_became_of_a_mutant(monkeypatch, tmp_path):
    mutants = script("mutants", monkeypatch)
    assert mutants.judged(0, "1 passed") == ("survived", "")
    assert mutants.judged(1, "x\nFAILED tests/deep/test_ppo.py::test_a - y") == ("killed", "test_ppo.py::test_a")
    assert mutants.judged(4, "no such file") == ("broken", "pytest ended with 4")
    assert mutants.judged(None, "") == ("broken", "took too long")
    row = mutants.MUTANTS[0]
    assert row.applied(f"{row.text} {row.text}") is None
    assert row.applied(f"a {row.text} b") == f"a {row.replacement} b"
    found = mutants.tried(row._replace(text="not in the file"), 1.0)
    assert found.verdict == "stale"


@pytest.mark.parametrize("verdicts", [["killed"], ["killed", "survived"], ["stale"], ["broken"]], ids=str)
def test_only_killed_mutants_are_a_success(monkeypatch, capsys, verdicts):
    mutants = script("mutants", monkeypatch)
    rows, fate = mutants.MUTANTS[: len(verdicts)], dict(zip(mutants.MUTANTS, verdicts, strict=False))
    monkeypatch.setattr(mutants, "baseline", lambda chosen, _: dict.fromkeys((row.tests for row in chosen), 1.0))
    monkeypatch.setattr(mutants, "tried", lambda row, _: mutants.Result(row, fate[row], 1.0, ""))
    monkeypatch.setattr(sys, "argv", ["mutants.py", "--jobs", "2", "--only", *(row.name for row in rows)])
    assert mutants.main() == (verdicts != ["killed"])
    assert f"{verdicts.count('killed')} of {len(rows)} killed" in capsys.readouterr().out


def test_the_tasks_of_budgets_are_what_they_say(monkeypatch):
    """Ten bets of a constant stake a: mean 10a, variance 40a², within four standard errors of 4000 episodes; the best stake
    spends the budget. A shelf shows the stock alone, a market the time and the mood."""
    budgets = script("budgets", monkeypatch)
    bets, gains = budgets.Bets(4000), np.zeros(4000)
    bets.reset(seed=0)
    for count in range(10):
        seen, reward, over, _, _ = bets.step(np.full((4000, 1), 0.5))
        gains += reward
        assert over.all() == (count == 9)
    assert (seen == 0.0).all()
    assert abs(gains.mean() - 5.0) < 4.0 * math.sqrt(10.0 / 4000)
    assert abs(gains.var() / 10.0 - 1.0) < 4.0 * math.sqrt(2.0 / 4000)
    assert 40.0 * (budgets.best("bets") / 10.0) ** 2 == pytest.approx(budgets.get_task("bets").std ** 2)
    for name, shape in (("shop", (3,)), ("portfolio", (3, 2))):
        assert budgets.get_task(name).make(3).reset(seed=0)[0].shape == shape


@pytest.mark.parametrize(("met", "status"), [(15, 0), (13, 0), (12, 1)], ids=str)
def test_thirteen_of_fifteen_budgets_are_enough(monkeypatch, capsys, met, status):
    budgets = script("budgets", monkeypatch)
    row = {"task": "bets", "seed": 0, "budget": 4.0, "std": (4.1, 3.9, 4.3), "mean": 6.0, "of_best": 0.95, "psi": 0.2}
    assert budgets.verdict([row | {"met": place < met} for place in range(15)]) == status
    shown = capsys.readouterr().out
    assert "| bets | 0 | 4 | 4.10 (3.90 … 4.30) | 6.0 | 95% | 0.2 | met |" in shown
    assert f"{met} of 15 met; at least 13 are asked for" in shown


def test_limits_are_measured_as_the_oracle_would(monkeypatch):
    """Mean and variance of the uniform policy, within four standard errors; limits that too few meet are a failure."""
    limits = script("limits", monkeypatch)
    for name in ("arms", "portfolio", "inventory", "battery"):
        mdp, features, _ = limits.world(name)
        rng = np.random.default_rng(0)
        returns = limits.play(
            mdp, lambda seen, rng, n=mdp.n_actions: rng.integers(n, size=len(seen)), features, 4000, rng
        )
        uniform = np.full((mdp.n_states, mdp.n_actions), 1.0 / mdp.n_actions)
        exact = oracle.evaluate(mdp, uniform, 1.0)
        assert abs(returns.mean() - exact.mean) < 4.0 * returns.std() / np.sqrt(len(returns))
        squares = (returns - returns.mean()) ** 2
        assert abs(squares.mean() - exact.total_variance) < 4.0 * squares.std() / np.sqrt(len(returns))
    assert limits.verdict([{"met": place < 22} for place in range(25)]) == 0
    assert limits.verdict([{"met": place < 21} for place in range(25)]) == 1


@pytest.mark.parametrize("name", ["maze", "car following", "server allocation"])
def test_rivals_are_measured_as_the_oracle_would(monkeypatch, name):
    rivals = script("rivals", monkeypatch)
    where = rivals.get_task(name)
    uniform = oracle.uniform(where.mdp)
    exact = oracle.evaluate(where.mdp, uniform, where.task.gamma, where.task.limit)
    returns, careful, paid = where.sample(uniform, np.random.default_rng(0))
    assert abs(returns.mean() - exact.mean) < 4.0 * returns.std() / np.sqrt(len(returns))
    squares = (returns - exact.mean) ** 2
    assert abs(squares.mean() - exact.total_variance) < 4.0 * squares.std() / np.sqrt(len(returns))
    assert 0.0 < careful.mean() < 1.0
    assert len(paid) > len(returns)


def test_careful_episodes_of_the_maze_are_those_past_no_guard(monkeypatch):
    where = script("rivals", monkeypatch).get_task("maze")
    for psi, careful in ((0.0, 0.0), (0.05, 1.0)):
        policy = oracle.frontier(where.mdp, [psi], 0.999, restarts=0).policies[0]
        assert where.sample(policy, np.random.default_rng(1))[1].mean() == careful


def test_the_rival_that_has_the_oracles_points_wins(monkeypatch, capsys):
    rivals = script("rivals", monkeypatch)
    ideal, rng, found = rivals.best("maze"), np.random.default_rng(2), {}
    for seed in range(5):
        row = {"cvar": 0.0, "careful": 1.0, "seconds": 0.0}
        found["maze", "PPO", 0.0, seed] = row | {"mean": ideal[0, 1], "variance": ideal[0, 2] + rng.random()}
        for place, r in enumerate(rivals.AVERSIONS):
            best = {"mean": ideal[place + 1, 1], "variance": ideal[place + 1, 2]}
            found["maze", "VPAC", r, seed] = row | best
            found["maze", "VAAC", r, seed] = row | best | {"mean": best["mean"] - 1.0 - rng.random()}
    rivals.show(found)
    shown = capsys.readouterr().out
    assert "| maze | VPAC | yes |" in shown
    assert "| VPAC |" in shown
    assert "1 (1 … 1) |" in next(line for line in shown.splitlines() if line.startswith("| VPAC |"))


DATA = FOLDER.parent / "docs" / "data"


def page(name):
    return (FOLDER.parent / "docs" / name).read_text(encoding="utf-8")


def test_the_page_of_logs_quotes_its_data():
    text = page("offline.md")
    tables = json.loads((DATA / "offline.json").read_text(encoding="utf-8"))
    assert {table["episodes"] for table in tables} == {20, 40, 80, 300}
    for table in tables:
        rows = {(row["method"], row["metric"]): row for row in table["rows"]}
        for (method, metric), row in rows.items():
            share = f"{100 * row['coverage']:.1f} %"
            if table["episodes"] == 300:
                assert row["logs"] == 500
                assert 0.92 <= row["coverage"] <= (1.0 if table["world"] == "catch-up" else 0.98)
                first = [f"{100 * rows[method, name]['coverage']:.1f} %" for name in ("mean", "variance")]
                assert f"| `{method}` | {first[0]} | {first[1]} | " in text
                assert share in text
            elif metric != "cvar":
                line = next(line for line in text.splitlines() if line.startswith(f"| `{method}`, {metric} |"))
                assert f"{share} of {row['logs']}" in line


def test_the_pages_of_the_monitor_and_of_measures_quote_their_data():
    found, text = json.loads((DATA / "monitor.json").read_text(encoding="utf-8")), page("monitor.md")
    for name, share in found["false_alarms"].items():
        assert f"| {name} | {100 * share:.1f} % |".replace(" 0.0 %", " 0 %") in text
    for row in found["delays"]:
        line = next(line for line in text.splitlines() if line.startswith(f"| {row['shift']} |"))
        assert f"| {row['median']:g} | {row['most']:g} |" in line
    text = page("measures.md")
    for noises in json.loads((DATA / "critic_noise.json").read_text(encoding="utf-8"))["noise"].values():
        assert f"{np.mean(noises):.2f} ± {np.std(noises, ddof=1) / len(noises) ** 0.5:.2f}" in text


def test_weights_of_over_sampled_episodes_give_the_true_mean(monkeypatch):
    """Over seeds: the mean weight is 1 and the weighted mean return the exact one, although rushes come more often."""
    pytest.importorskip("jax")
    oversampling = script("oversampling", monkeypatch)
    task = oversampling.rivals.get_task("server allocation").task
    still = {**oversampling.COMMON, "hidden": (8,), "epochs": 1, "learning_rate": 1e-30}
    weights, errors, dangers = [], [], []
    for seed in range(12):
        envs = oversampling.Episodes(task.mdp, still["envs"], task.limit)
        case = oversampling.Case(*oversampling.ENVS["server allocation"])
        agent = oversampling.EpisodeCVaR(envs, case, seed=seed, gamma=task.gamma, psi=0.0, **still).learn(20_000)
        value, weight, _ = np.array(agent.returns).T
        policy = agent.policy()
        table = oracle.softmax(policy.outputs(policy.normalise(np.eye(task.mdp.n_states, dtype=np.float32))))
        exact = oracle.evaluate(task.mdp, table.astype(float), task.gamma, task.limit).mean
        weights.append(weight.mean() - 1.0)
        errors.append((weight * value).sum() / weight.sum() - exact)
        dangers.append(agent.danger)
    for found in (weights, errors):
        assert abs(np.mean(found)) < 4.0 * np.std(found, ddof=1) / math.sqrt(12)
    assert 0.04 < min(dangers) < max(dangers) < 0.5  # the true probability is 0.03
