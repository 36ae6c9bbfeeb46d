"""The benchmarks' own arithmetic; what they measure takes long and needs libraries that tests do not."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

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
    ratio = {"ours": 1.0, "gymnasium": 2.4, "SB3": 2.5, "SBX": 2.49, "EnvPool": 0.55}
    assert [holds for _, holds in deep.claims(64, ratio, 1499.0)] == [True, False, True, True, True]
    assert [holds for _, holds in deep.claims(8, ratio | {"gymnasium": 2.6}, 1500.0)] == [True, True, False, False]
