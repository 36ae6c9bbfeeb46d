"""Hostile files: rejected quickly, within bounded memory, with a message; nothing is run or written."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from forging import forge
from tiny import little
from vpac.cli.trained import Watch
from vpac.envs.make import EnvOverrides
from vpac.errors import UserError
from vpac.evaluation.actors import load_agent
from vpac.files import sealed
from vpac.lab.experiments.catalogue import read_experiment
from vpac.lab.kinds.saved_agents import find_agents
from vpac.lab.report.build import build
from vpac.lab.store.records import Damaged, damaged_notes, index, read_study
from vpac.lab.store.store import Store
from vpac.lab.workers.pool import Serial
from vpac.lab.workers.study import carry_out_studies, plan
from vpac.risk.sample import ReturnSample
from vpac.tabular import VPAC

OLD = Path(__file__).parents[1] / "fixtures" / "format-1"
DEEP = b"[" * 100_000


def tensors(header: dict | bytes, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def one(shape: list, offsets: list, kind: str = "F64") -> dict:
    return {"theta": {"dtype": kind, "shape": shape, "data_offsets": offsets}}


WEIGHTS = {
    "empty": b"",
    "a header of 2^63 bytes": struct.pack("<Q", 2**63) + b"{}",
    "a header of 50 MB that is not there": struct.pack("<Q", 50 * 2**20) + b"{",
    "a header that is not JSON": tensors(b"\xff\xfe{"),
    "deep JSON": tensors(DEEP),
    "a huge shape": tensors(one([2**62, 2**62], [0, 8]), b"\0" * 8),
    "a product that overflows": tensors(one([2**32, 2**32], [0, 0])),
    "a negative shape": tensors(one([-1], [0, 8]), b"\0" * 8),
    "a fractional shape": tensors(one([0.5], [0, 8]), b"\0" * 8),
    "offsets beyond the end": tensors(one([10**9], [0, 8 * 10**9]), b"\0" * 8),
    "offsets backwards": tensors(one([1], [8, 0]), b"\0" * 8),
    "an unknown dtype": tensors(one([1], [0, 8], "PICKLE"), b"\0" * 8),
    "another dtype": tensors(one([1], [0, 1], "BOOL"), b"\1"),
    "half numbers": tensors(one([4], [0, 8], "F16"), b"\0" * 8),
    "NaN in the header": tensors(b'{"theta": {"dtype": "F64", "shape": [NaN], "data_offsets": [0, 8]}}', b"\0" * 8),
    "a zip": b"PK\x03\x04" + b"\0" * 100,
    "a pickle": b"\x80\x04\x95\x1a\0\0\0\0\0\0\0\x8c\x05posix\x8c\x06system\x93\x8c\x02id\x85R.",
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights(tmp_path, name):
    for kind, load in (("learner", VPAC.load), ("agent", load_agent)):
        folder = Path(shutil.copytree(OLD / kind, tmp_path / kind))
        forge(folder, weights=WEIGHTS[name])
        if kind == "agent":
            forge(folder, weights=WEIGHTS[name], what="policy")
        with pytest.raises(UserError):
            load(folder)


@pytest.mark.parametrize("name", ["weights of NaN", "another shape", "another kind"])
def test_weights_that_are_arrays(tmp_path, name):
    from safetensors.numpy import load_file, save

    folder = Path(shutil.copytree(OLD / "learner", tmp_path / "learner"))
    arrays = load_file(folder / "weights.safetensors")
    theta = arrays["theta"]
    changed = {"weights of NaN": theta * np.nan, "another shape": theta[:1], "another kind": theta.astype(np.float32)}
    forge(folder, weights=save(arrays | {"theta": np.ascontiguousarray(changed[name])}))
    with pytest.raises(UserError, match="theta"):
        VPAC.load(folder)


JSONS = {
    "nothing": b"", "deep": DEEP, "deep objects": b'{"a":' * 100_000, "a number": b"3", "bytes": b"\xff\xfe\x00",
    "a long number": b'{"format": ' + b"9" * 100_000 + b"}", "NaN": b'{"format": NaN}', "inf": b'{"format": Infinity}',
    "many keys": json.dumps({str(i): i for i in range(1000)}).encode(), "null bytes": b"\0" * 1000,
}  # fmt: skip


@pytest.mark.parametrize("name", JSONS)
def test_json(tmp_path, name):
    shutil.copytree(OLD, tmp_path / "old")
    for path in (tmp_path / "old").rglob("*.json"):
        path.write_bytes(JSONS[name])
    for folder, load in (
        ("learner", VPAC.load),
        ("agent", load_agent),
        ("agent", lambda folder: find_agents(str(folder), folder)),
    ):
        with pytest.raises(UserError):
            load(tmp_path / "old" / folder)
    from vpac.deep.policy import load_policy

    with pytest.raises(UserError):
        load_policy(tmp_path / "old" / "agent")
    with pytest.raises(UserError):
        ReturnSample.load(tmp_path / "old" / "sample.json")
    store = Store(tmp_path / "old" / "store")
    for run in store.names():
        with pytest.raises(Damaged):
            store.read(run)
    assert read_study(store, "little") is None
    assert len(damaged_notes(store)) == 1
    assert all(row["status"].startswith("damaged") for row in index(store))


@pytest.mark.parametrize("env", ["os:system", "subprocess:run", "builtins:print", "evil:Env", "evil:Env-v0"])
def test_no_file_decides_what_is_imported(tmp_path, env, monkeypatch):
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Env: pass")
    monkeypatch.syspath_prepend(tmp_path)
    arguments = {"command": f"touch {tmp_path / 'ran'}"}
    shutil.copytree(OLD / "learner", tmp_path / "learner")
    shutil.copytree(OLD / "agent", tmp_path / "agent")
    for folder in ("learner", "agent"):
        forge(tmp_path / folder, {"env": env, "arguments": arguments})
        with pytest.raises(UserError, match="import path"):
            find_agents(str(tmp_path / folder), tmp_path)
        with pytest.raises(UserError, match="import path"):
            Watch(run_=str(tmp_path / folder), store=tmp_path).run()
    with pytest.raises(UserError, match="import path"):
        VPAC.load(tmp_path / "learner")
    assert not (tmp_path / "ran").exists()


def forged_store(root: Path, change) -> Store:
    """A store with one run whose record is changed and sealed again, under the name that its content gives it."""
    from vpac.lab.store.run import Run

    store = Store(root)
    carry_out_studies([plan(little(runs=1))], store, Serial())
    note = json.loads((root / "studies" / "little.json").read_text(encoding="utf-8"))
    for label, (name,) in note["runs"].items():
        folder = root / "runs" / name
        record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        change(record, folder)
        record["name"] = new = Run.read(record).name
        record["files"] = {
            f: {"bytes": len(c := (folder / f).read_bytes()), "sha256": hashlib.sha256(c).hexdigest()}
            for f in ("metrics.parquet", "policy.safetensors")
        }
        (folder / "run.json").write_text(sealed({k: v for k, v in record.items() if k != "checksum"}), encoding="utf-8")
        folder.rename(root / "runs" / new)
        note["runs"][label] = [new]
    note.pop("checksum")
    note["experiment"]["figures"].append({"kind": "maps", "title": "m", "shows": ["trajectory"]})
    (root / "studies" / "little.json").write_text(sealed(note), encoding="utf-8")
    return Store(root)


def test_a_report_of_a_forged_store_imports_nothing_and_is_made(tmp_path, monkeypatch):
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Env: pass")
    monkeypatch.syspath_prepend(tmp_path)
    store = forged_store(tmp_path / "s", lambda record, folder: record["task"].update(env="evil:Env"))
    page, document = build(store, quiet=True)
    assert "is an import path" in " ".join(failure.message for failure in document.failures)
    assert page.exists()
    assert not (tmp_path / "ran").exists()
    with pytest.raises(UserError, match="import path"):
        find_agents(store.names()[0], store.root)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("change", [{"env": "evil:Env"}, {"wrappers": [["evil:Env", {}]]}])
@pytest.mark.parametrize("kind", ["training", "deep"])
def test_no_stored_run_decides_what_is_imported(tmp_path, monkeypatch, change, kind):
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Env: pass")
    monkeypatch.syspath_prepend(tmp_path)
    store = forged_store(tmp_path / "s", lambda record, folder: record["task"].update(**change, kind=kind))
    name = store.names()[0]
    with pytest.raises(UserError, match="import path"):
        find_agents(name, store.root)
    with pytest.raises(UserError, match="import path"):
        Watch(run_=name, store=store.root).run()
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "wrapper", ["subprocess:run", "named:called", "named:RecordVideo", "named.evil:Wrapper", "evil:W"]
)
def test_naming_an_environment_names_no_other_code(tmp_path, monkeypatch, wrapper):
    """Of a module that the user named, its own classes of wrappers may be used; functions and what it imports may not."""
    ran = f"open({str(tmp_path / 'ran')!r}, 'w')"
    (tmp_path / "evil.py").write_text(ran)
    (tmp_path / "named.py").write_text(
        "from gymnasium.envs.classic_control import CartPoleEnv\nfrom gymnasium.wrappers import RecordVideo\n"
        f"def called(env, **given): {ran}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("vpac.envs.make.NAMED_BY_USER", set())
    shutil.copytree(OLD / "agent", tmp_path / "agent")
    about = {"env": "named:CartPoleEnv", "arguments": {}, "wrappers": [[wrapper, {}]]}
    forge(tmp_path / "agent", about)
    with pytest.raises(UserError, match=f"names a wrapper of its environment by an import path, '{wrapper}'"):
        find_agents(str(tmp_path / "agent"), tmp_path, EnvOverrides("named:CartPoleEnv"))
    assert not (tmp_path / "ran").exists()


def bomb() -> bytes:
    """A gigabyte of zeros in a few kilobytes."""
    file = io.BytesIO()
    pl.DataFrame({"episode": np.zeros(2**27)}).write_parquet(file, compression="zstd", row_group_size=2**27)
    return file.getvalue()


def test_bombs_are_refused_within_bounded_memory(tmp_path):
    """In a process that may not have the memory that they claim."""
    content = bomb()
    assert len(content) < 2**20
    store = forged_store(tmp_path / "s", lambda record, folder: (folder / "metrics.parquet").write_bytes(content))
    (tmp_path / "sample.parquet").write_bytes(content)
    shutil.copytree(OLD / "learner", tmp_path / "learner")
    forge(tmp_path / "learner", weights=WEIGHTS["a header of 50 MB that is not there"])
    shutil.copytree(OLD / "learner", tmp_path / "large")
    with (tmp_path / "large" / "agent.json").open("ab") as file:
        file.truncate(2**33)  # sparse
    shutil.copytree(OLD / "learner", tmp_path / "pipe")
    (tmp_path / "pipe" / "agent.json").unlink()
    os.mkfifo(tmp_path / "pipe" / "agent.json")
    shutil.copytree(OLD / "learner", tmp_path / "zero")
    (tmp_path / "zero" / "weights.safetensors").unlink()
    (tmp_path / "zero" / "weights.safetensors").symlink_to("/dev/zero")
    (tmp_path / "large.toml").write_text("x = 1\n" * 10)
    with (tmp_path / "large.toml").open("ab") as file:
        file.truncate(2**33)
    script = """
import resource, sys, time
from pathlib import Path
from vpac.errors import UserError
from vpac.lab.store.store import Store
from vpac.lab.experiments.catalogue import read_experiment
from vpac.tabular import VPAC
from vpac.risk.sample import ReturnSample
import polars, safetensors.numpy
here = Path(sys.argv[1])
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**29, resource.RLIM_INFINITY))
store = Store(here / "s")
tries = [lambda name=name: store.read(name).metrics() for name in store.names()]
tries += [lambda: ReturnSample.load(here / "sample.parquet"), lambda: read_experiment(here / "large.toml")]
tries += [lambda name=name: VPAC.load(here / name) for name in ("learner", "large", "pipe", "zero")]
for number, attempt in enumerate(tries):
    begun = time.perf_counter()
    try:
        attempt()
    except UserError as error:
        print(number, "refused", round(time.perf_counter() - begun, 1), str(error)[:150])
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(store.names()) + 6, done.stdout
    assert all(float(line.split()[2]) < 10.0 for line in lines), done.stdout


def test_what_is_far_too_large_is_not_read(tmp_path):
    """Sparse files can claim any size; each kind of file has a size limit."""
    store = forged_store(tmp_path / "s", lambda record, folder: None)
    one, other = store.names()
    shutil.copytree(OLD / "agent", tmp_path / "agent")
    large = [store.root / key for key in ("studies/x.json", "failed/x.json", f"runs/{one}/run.json")]
    large += [store.root / "runs" / other / "metrics.parquet", tmp_path / "agent" / "policy.json"]
    for path in large:
        path.parent.mkdir(exist_ok=True)
        with path.open("ab") as file:
            file.truncate(2**31 - 2**13)
    tracemalloc.start()
    try:
        assert read_study(store, "x") is None
        for words, read in {
            f"{one}/run.json": lambda: store.read(one), "failed/x.json": lambda: store.failure("x"),
            f"{other}/metrics.parquet is not what was written: it has": lambda: store.read(other),
            "cannot read a policy": lambda: load_agent(tmp_path / "agent"),
        }.items():  # fmt: skip
            with pytest.raises((Damaged, UserError), match=re.escape(words)):
                read()
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


def test_a_store_does_not_follow_links_out_of_itself(tmp_path):
    store, outside = Store(tmp_path / "s"), tmp_path / "outside"
    plans = [plan(little(runs=1))]
    carry_out_studies(plans, store, Serial())
    outside.mkdir()
    (outside / "00000001").mkdir()
    name = store.names()[0]
    (store.root / "checkpoints").mkdir(exist_ok=True)
    (store.root / "checkpoints" / name).symlink_to(outside)
    run = store.read(name).run
    with pytest.raises(OSError, match="symbolic link"):
        store.scratch(run)
    store.tidy()
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (store.root / "runs" / name / "metrics.parquet").unlink()
    (store.root / "runs" / name / "metrics.parquet").symlink_to(secret)
    with pytest.raises(Damaged, match="symbolic link") as caught:
        Store(store.root).read(name)
    assert "secret" not in str(caught.value).replace(str(tmp_path), "")
    shutil.rmtree(store.root / "studies")
    (store.root / "studies").symlink_to(outside)
    with pytest.raises(OSError, match="symbolic link"):
        carry_out_studies(plans, Store(store.root), Serial())
    assert [p.name for p in outside.iterdir()] == ["00000001"]


@pytest.mark.parametrize("name", ["../outside", "/etc", "..", "a/../../b", "", ".", "a\0b", "runs/../../x"])
def test_names_do_not_lead_out_of_a_store(tmp_path, name):
    (tmp_path / "outside").mkdir()
    store = Store(tmp_path / "s")
    assert not store.has(name)
    with pytest.raises((Damaged, OSError)):
        store.read(name)
    with pytest.raises(OSError, match="no name of something in a store"):
        store.backend.write(f"runs/{name}/x", b"")
    assert [p.name for p in tmp_path.iterdir()] == ["outside"]


def test_a_note_that_names_runs_elsewhere_finds_none(tmp_path):
    store = Store(tmp_path / "s")
    carry_out_studies([plan(little(runs=1))], store, Serial())
    note = json.loads((store.root / "studies" / "little.json").read_text(encoding="utf-8"))
    note["runs"] = {label: ["../../etc", "/etc/passwd"] for label in note["runs"]}
    note.pop("checksum")
    (store.root / "studies" / "little.json").write_text(sealed(note), encoding="utf-8")
    _, document = build(Store(store.root), quiet=True)
    assert "no name of something in a store" in " ".join(f.message for f in document.failures)


@pytest.mark.parametrize(
    "text",
    ["x = " + "[" * 5000, 'name = "../../x"\nenv = "e"\n', "[[arms]]\n" * 3000, '"\\ud800" = 1', "a.b.c = 1\na = 2",
     "[grid]\npsi = [nan]\n", "episodes = 99999999999999999999999999\n", "[grid]\n" + "x = [1]\n" * 2],
)  # fmt: skip
def test_studies(tmp_path, text):
    path = tmp_path / "x.toml"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    with pytest.raises(UserError):
        read_experiment(path)


def test_what_is_good_is_still_read():
    assert VPAC.load(OLD / "learner").episodes == 5
