from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from buckets import KEYS, s3_server
from tiny import contents, little
from vpac.cli import main
from vpac.errors import UserError
from vpac.lab.kinds import task
from vpac.lab.report.build import build
from vpac.lab.store.records import Damaged, index
from vpac.lab.store.run import Run
from vpac.lab.store.store import Result, Store
from vpac.lab.workers.pool import Serial
from vpac.lab.workers.study import carry_out_studies, plan
from vpac.lab.workers.worker import carry_out

RESULT = Result({"episode": np.arange(3)}, {"theta": np.eye(2)}, {"mean": 1.0})
RUN = Run({"kind": "counting", "settings": {}}, 0, 1)


@pytest.fixture(scope="module")
def server():
    with pytest.MonkeyPatch.context() as patch, s3_server() as url:
        for name, value in KEYS.items():
            patch.setenv(name, value)
        yield url


@pytest.fixture
def bucket(server, request):
    return f"s3://vpac/{request.node.name}?endpoint={server}"


def test_a_study_in_a_bucket_is_that_of_a_folder(bucket, tmp_path):
    plans = [plan(little(runs=2))]
    store, folder = Store(bucket), Store(tmp_path / "folder")
    tally = carry_out_studies(plans, store, Serial())["little"]
    carry_out_studies(plans, folder, Serial())
    assert (tally.done, tally.failed) == (4, [])
    assert contents(store) == contents(folder)
    assert [row["mean"] for row in index(store)] == [row["mean"] for row in index(folder)]
    assert carry_out_studies(plans, Store(bucket), Serial())["little"].kept == 4
    page, document = build(Store(bucket), quiet=True, out=tmp_path / "out")
    assert page == tmp_path / "out" / "report" / "index.html"
    assert document.failures == []
    assert document.sections[0].charts


def test_damage_in_a_bucket_is_found_set_aside_and_mended(bucket):
    plans = [plan(little(runs=1))]
    carry_out_studies(plans, Store(bucket), Serial())
    good, name = contents(Store(bucket)), Store(bucket).names()[0]
    key = f"runs/{name}/metrics.parquet"
    flipped = bytearray(good[f"{name}/metrics.parquet"])
    flipped[7] ^= 1
    record = Store(bucket).read(name)
    Store(bucket).backend.write(key, bytes(flipped))
    with pytest.raises(Damaged, match=r"metrics\.parquet is not what was written"):
        record.metrics()
    tally = carry_out_studies(plans, Store(bucket), Serial())["little"]
    assert (tally.kept, tally.done, len(tally.damaged)) == (1, 1, 1)
    assert Store(bucket).backend.read(f"damaged/{name}.1/metrics.parquet") == bytes(flipped)
    assert contents(Store(bucket)) == good


def test_a_run_without_its_record_is_not_finished_and_the_first_record_wins(bucket):
    store = Store(bucket)
    store.backend.write(f"runs/{RUN.name}/metrics.parquet", b"half")
    assert not store.finished(RUN)
    assert store.names() == []
    store.write(RUN, RESULT, {"seconds": 1.0})
    store.write(RUN, RESULT, {"seconds": 2.0})
    assert Store(bucket).read(RUN.name).about == {"seconds": 1.0}


@pytest.mark.parametrize("where", ["folder", "bucket"])
def test_a_run_goes_on_from_its_last_checkpoint(where, bucket, tmp_path, monkeypatch):
    begun, dies_at = [], [3, None]

    def count(run, scratch):
        """Ten steps with a checkpoint after each."""
        file = scratch.folder / "step.txt"
        first = int(file.read_text()) if file.exists() else 0
        begun.append(first)
        for step in range(first, 10):
            if step == dies_at[0]:
                raise RuntimeError("died")
            file.write_text(str(step + 1))
            scratch.keep()
        return RESULT

    monkeypatch.setitem(task.TASK_KINDS, "counting", "counting.perform")
    monkeypatch.setitem(sys.modules, "vpac.lab.kinds.counting", SimpleNamespace(perform=count))
    address = tmp_path if where == "folder" else bucket
    assert carry_out(Store(address), RUN).status == "failed"
    dies_at.pop(0)
    assert Store(address).backend.files(f"checkpoints/{RUN.name}") == ["step.txt"]
    Store(address).tidy()
    assert carry_out(Store(address), RUN).status == "finished"
    assert begun == [0, 3]
    assert Store(address).backend.files(f"checkpoints/{RUN.name}") == []
    Store(address).backend.write(f"checkpoints/{RUN.name}/late.txt", b"left by a process that was killed")
    Store(address).tidy()
    assert Store(address).backend.files(f"checkpoints/{RUN.name}") == []
    assert [entry for entry in os.listdir(tmp_path) if entry.startswith("vpac-")] == []


SMALL = {"envs": 2, "steps": 8, "epochs": 1, "minibatch": 16, "hidden": [4], "checkpoint_every": 2}
DEEP = {
    "kind": "deep", "env": "CartPole-v1", "env_settings": {}, "algorithm": "ppo", "settings": SMALL, "steps": 16 * 12,
    "episodes": 4, "fixed_start": {},
}  # fmt: skip


def whole_checkpoints(place, run):
    """Numbers of the checkpoints in a bucket that have all their files."""
    keys = [key.split("/")[2:] for key in place.keys(f"checkpoints/{run.name}")]
    wanted = {"agent.json", "weights.safetensors", "policy.json", "policy.safetensors"}
    return sorted({number for number, _ in keys if {file for n, file in keys if n == number} == wanted})


def test_a_ppo_run_in_a_bucket_goes_on_from_its_last_whole_checkpoint(bucket, tmp_path, monkeypatch):
    pytest.importorskip("jax")
    from vpac.lab.kinds import deep

    run, begun, asked, make = Run(DEEP, 0, 5), [], [], deep._agent

    def dies():
        asked.append(None)
        if len(asked) in (4, 5):
            raise RuntimeError("died")

    def noted(*arguments):
        agent, damaged = make(*arguments)
        begun.append((agent.timesteps, damaged))
        return agent, damaged

    monkeypatch.setattr(deep, "stop_if_asked", dies)
    monkeypatch.setattr(deep, "_agent", noted)
    place = Store(bucket).backend
    assert carry_out(Store(bucket), run).status == "failed"
    assert whole_checkpoints(place, run) == ["00000006", "00000008"]
    place.remove(f"checkpoints/{run.name}/00000008/agent.json")  # as if the worker had died while it was copied
    assert carry_out(Store(bucket), run).status == "failed"
    assert whole_checkpoints(place, run) == ["00000006", "00000008"]
    assert carry_out(Store(bucket), run).status == "finished"
    assert begun == [(0, ()), (16 * 6, ()), (16 * 8, ())]
    assert place.keys(f"checkpoints/{run.name}") == []
    assert carry_out(Store(tmp_path), run).status == "finished"
    assert contents(Store(bucket)) == contents(Store(tmp_path))


def test_what_makes_a_checkpoint_whole_is_copied_last_and_deleted_first(bucket, monkeypatch):
    place, done = Store(bucket).backend, []
    for name in ("write", "remove"):
        real = getattr(type(place), name)
        monkeypatch.setattr(
            type(place),
            name,
            lambda self, key, *more, name=name, real=real: (done.append((name, key)), real(self, key, *more)),
        )
    with place.scratch("checkpoints/x") as scratch:
        for file in ("agent.json", "weights", ".half"):  # not the order in which they are written
            (scratch.folder / "1").mkdir(exist_ok=True)
            (scratch.folder / "1" / file).write_text(file)
        scratch.keep()
        (scratch.folder / "1").rename(scratch.folder / "2")
        scratch.keep()
    keys = [(verb, key.removeprefix("checkpoints/x/")) for verb, key in done]
    assert keys == [
        ("write", "1/weights"), ("write", "1/agent.json"),
        ("write", "2/weights"), ("write", "2/agent.json"), ("remove", "1/agent.json"), ("remove", "1/weights"),
    ]  # fmt: skip


def test_the_endpoint_may_come_from_the_environment(server, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    store = Store("s3://vpac/from-environment")
    store.backend.prepare()
    store.backend.write("studies/a.json", b"{}")
    assert store.backend.files("studies") == ["a.json"]
    assert store.identity() == Store("s3://vpac/from-environment").identity()


def test_what_cannot_be_a_store_is_named(server, tmp_path):
    for address, words in {
        "ftp://host/x": "expected a folder or s3://BUCKET/PREFIX",
        "s3://vpac/x?endpont=http://127.0.0.1": "did you mean 'endpoint'",
        "s3://key:word@vpac/x": "credentials come from the environment",
        "s3:///x": "expected s3://BUCKET/PREFIX",
        **{
            f"s3://vpac/x?endpoint={text}": "is no endpoint; expected http://HOST:PORT"
            for text in (
                "nonsense",
                "ftp://h",
                "http://",
                "http://a%20b",
                "http://h:99999",
                "http://h:x",
                "http://[::1",
                "//h",
            )
        },
    }.items():
        with pytest.raises(UserError, match=words):
            Store(address)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file: a store is a folder, which this is not"):
        Store(tmp_path / "file")
    with pytest.raises(UserError, match=r"cannot use s3://nowhere/x.*bucket does not exist"):
        Store(f"s3://nowhere/x?endpoint={server}").backend.prepare()


@pytest.mark.parametrize("verb", ["runs", "report"])
def test_a_bucket_that_cannot_be_read_is_not_said_to_be_written(server, verb, monkeypatch, capsys):
    assert main([verb, "--store", f"s3://nowhere/x?endpoint={server}"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"vpac: cannot read s3://nowhere/x?endpoint={server}: The specified bucket does not exist" in said
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"{server}/nothing")  # where the client asks for some
    assert main([verb, "--store", f"s3://vpac/x?endpoint={server}"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"vpac: cannot read s3://vpac/x?endpoint={server}: " in said
    assert "Credentials come from the environment, and it has no AWS_ACCESS_KEY_ID" in said
    assert "write" not in said


def test_no_more_is_read_from_a_bucket_than_a_file_may_have(bucket):
    place, content = Store(bucket).backend, os.urandom(3_000_000)
    place.write("runs/x", content)
    place.write("runs/empty", b"")
    assert place.read("runs/x") == place.read("runs/x", len(content)) == content
    assert place.read("runs/empty", 0) == b""
    with pytest.raises(OSError, match="it has 3,000,000 bytes or more, more than 2,999,999"):
        place.read("runs/x", len(content) - 1)
