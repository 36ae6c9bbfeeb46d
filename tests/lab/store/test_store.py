from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from tiny import contents, little
from vpac.errors import Newer
from vpac.files import sealed
from vpac.lab.store.records import Damaged, index, read_study
from vpac.lab.store.run import Run, canonical, runs_of, seeds
from vpac.lab.store.store import Result, Store
from vpac.lab.workers.pool import Serial
from vpac.lab.workers.study import carry_out_studies, plan
from vpac.lab.workers.worker import carry_out

RESULT = Result({"episode": np.arange(3), "mean": np.ones(3)}, {"theta": np.eye(2)}, {"mean": 1.0, "sharpe": None})


def a_run(number: int = 0) -> Run:
    experiment = little()
    return list(runs_of(experiment, experiment.arms[1], 6))[number]


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results")


def test_a_run_is_its_content():
    run, again = a_run(), a_run()
    assert run.name == again.name
    assert run.name.startswith("vpac-RiskyShortcut-v0-psi0.1-run0-")
    changed = little(settings={"gamma": 0.94})
    others = {run.name for run in runs_of(changed, changed.arms[1], 6)}
    assert run.name not in others
    assert a_run(1).name not in {run.name} | others


def test_seeds_do_not_depend_on_how_many_there_are():
    assert seeds(7, 3) == seeds(7, 10)[:3]
    assert len(set(seeds(7, 1000))) == 1000
    assert seeds(7, 3) != seeds(8, 3)


def test_a_name_is_safe_whatever_the_environment_is_called():
    run = Run({"kind": "training", "env": "../../<script>/é w", "algorithm": "x", "settings": {"psi": "a/b"}}, 0, 1)
    assert "/" not in run.name
    assert "<" not in run.name
    assert not run.name.startswith(".")


def test_a_name_ends_with_the_hash_of_the_whole_content():
    task = {"kind": "training", "algorithm": "ac", "settings": {"psi": 0.1, "é": True}}
    for number in range(3):
        run = Run(task, number, number + 2**62)
        content = hashlib.sha256(canonical(run.content).encode()).hexdigest()
        assert run.name == f"ac-psi0.1-run{number}-{content[:16]}"
    assert Run(task | {"settings": {"psi": 0.1, "é": 1}}, 0, 2**62).name != Run(task, 0, 2**62).name


def test_what_is_written_is_read_back(store):
    run = a_run()
    assert not store.finished(run)
    store.write(run, RESULT, {"seconds": 1.5})
    assert store.finished(run)
    record = store.read(run.name)
    assert record.run == run
    assert record.final == RESULT.final
    assert record.about == {"seconds": 1.5}
    assert record.metrics()["mean"].to_list() == [1.0, 1.0, 1.0]
    np.testing.assert_array_equal(record.policy()["theta"], np.eye(2))
    assert [entry for entry in os.listdir(store.root / "runs") if entry.startswith(".")] == []


@pytest.mark.parametrize("file", ["run.json", "metrics.parquet", "policy.safetensors"])
def test_any_flipped_byte_is_found(store, file):
    run = a_run()
    store.write(run, RESULT, {})
    path = store.root / "runs" / run.name / file
    good = path.read_bytes()
    rng = np.random.default_rng(3)
    for place in {0, len(good) - 1, *rng.integers(len(good), size=60).tolist()}:
        bad = bytearray(good)
        bad[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(bad))
        with pytest.raises(Damaged, match=file):
            store.read(run.name)
    for length in (0, 1, len(good) // 2, len(good) - 1):
        path.write_bytes(good[:length])
        with pytest.raises(Damaged):
            store.read(run.name)
    path.unlink()
    with pytest.raises(Damaged, match=r"missing|cannot be read"):
        store.read(run.name)
    path.write_bytes(good)
    store.read(run.name)


def test_another_format_is_named(store):
    store.write(a_run(), RESULT, {})
    path = store.root / "runs" / a_run().name / "run.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    data.pop("checksum")
    for number, kind, words in (
        (99, Newer, "99, and this version .* up to 1"),
        (0, Damaged, "0; this version of vpac reads"),
    ):
        path.write_text(sealed(data | {"format": number}), encoding="utf-8")
        with pytest.raises(kind, match=f"format {words}"):
            store.read(a_run().name)


def test_a_folder_under_another_name_is_found(store):
    store.write(a_run(), RESULT, {})
    (store.root / "runs" / a_run().name).rename(store.root / "runs" / a_run(1).name)
    with pytest.raises(Damaged, match="name"):
        store.read(a_run(1).name)


def test_a_damaged_run_is_set_aside_and_run_again(store):
    plans = [plan(little(runs=2))]
    carry_out_studies(plans, store, Serial())
    good = contents(store)
    names = store.names()
    (store.root / "runs" / names[0] / "metrics.parquet").write_bytes(b"rubbish")
    (store.root / "runs" / names[1] / "policy.safetensors").unlink()
    tally = carry_out_studies(plans, store, Serial())["little"]
    assert (tally.kept, tally.done) == (2, 2)
    assert len(tally.damaged) == 2
    assert "metrics.parquet" in " ".join(tally.damaged)
    assert sorted(os.listdir(store.root / "damaged")) == [f"{names[0]}.1", f"{names[1]}.1"]
    assert contents(store) == good


def test_a_run_is_held_by_one_process(store):
    run = a_run()
    with store.lock(run.name) as mine:
        assert mine
        script = (
            f"import sys; from vpac.lab.store.store import Store\n"
            f"with Store({str(store.root)!r}).lock({run.name!r}) as free: sys.exit(3 if free else 4)"
        )
        assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 4
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 3


def test_what_a_killed_process_left_is_tidied_away(store):
    run, other = a_run(), a_run(1)
    store.write(run, RESULT, {})
    for name in (run.name, other.name):
        (store.root / "runs" / f".{name}.part").mkdir()
        (store.root / "runs" / f".{name}.part" / "metrics.parquet").write_bytes(b"half")
    store.tidy()
    assert os.listdir(store.root / "runs") == [run.name]


def test_a_finished_run_is_not_run_again(store):
    run = a_run()
    first = carry_out(store, run)
    assert (first.status, first.seconds > 0.0) == ("finished", True)
    stamp = (store.root / "runs" / run.name / "run.json").stat().st_mtime_ns
    second = carry_out(store, run)
    assert (second.status, second.seconds) == ("found", 0.0)
    assert (store.root / "runs" / run.name / "run.json").stat().st_mtime_ns == stamp


def test_a_run_says_where_it_comes_from(store):
    run = a_run()
    carry_out(store, run)
    about = store.read(run.name).about
    assert about["versions"]["vpac"]
    assert about["machine"]["cores"] >= 1
    assert about["seconds"] > 0.0
    assert about["time"].startswith("20")
    assert "commit" in about


def test_a_full_disk_leaves_what_was_good(store, tmp_path):
    """Files may not grow beyond a few hundred bytes: writing fails as it does on a full disk."""
    carry_out(store, a_run())
    good = contents(store)
    script = (
        "import resource, signal, sys; sys.path.insert(0, 'tests')\n"
        "from vpac.lab.store.store import Store; from vpac.lab.workers.worker import carry_out\n"
        "from lab.store.test_store import a_run\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "carry_out(Store(sys.argv[2]), a_run(1))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))\n"
        "print(carry_out(Store(sys.argv[1]), a_run(1)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(store.root), str(tmp_path / "warm")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "status='unwritable'" in done.stdout, done.stderr
    assert f"cannot write {store.root}/runs/" in done.stdout
    assert contents(store) == good
    assert [entry for entry in os.listdir(store.root / "runs") if entry.startswith(".")] == []


def test_the_index_lists_all_runs(store):
    carry_out_studies([plan(little(runs=2))], store, Serial())
    rows = index(store)
    assert [row["name"] for row in rows] == store.names()
    assert {row["algorithm"] for row in rows} == {"ac", "vpac"}
    assert all(row["mean"] is not None and row["status"] == "finished" for row in rows)
    (store.root / "index.parquet").write_bytes(b"rubbish")  # of an earlier version
    assert index(store) == rows


def test_a_study_is_noted_and_a_spoilt_note_is_no_obstacle(store):
    plans = [plan(little(runs=2), scale=0.5)]
    carry_out_studies(plans, store, Serial())
    path = store.root / "studies" / "little.json"
    noted = read_study(store, "little")
    assert noted.experiment == little(runs=2)
    assert noted.scale == 0.5
    assert [len(names) for names in noted.runs.values()] == [2, 2]
    assert noted.seconds > 0.0
    carry_out_studies(plans, store, Serial())
    assert read_study(store, "little") == noted
    for text in ("", "{}", "[1]", json.dumps({"experiment": {}, "runs": 3})):
        path.write_text(text, encoding="utf-8")
        assert read_study(store, "little") is None
    carry_out_studies(plans, store, Serial())
    assert read_study(store, "little").runs == noted.runs
