"""Reads that fail once, as on a network file system, or always: an unreadable run is not a damaged run."""

from __future__ import annotations

import errno
import os

import pytest

from tiny import contents, little
from vpac.cli import main
from vpac.lab.store import backend
from vpac.lab.store.backend import Unreadable
from vpac.lab.store.bucket import BucketBackend
from vpac.lab.store.records import index, read_study
from vpac.lab.store.store import Store
from vpac.lab.workers.pool import Serial
from vpac.lab.workers.study import carry_out_studies, plan

FILES = ("run.json", "metrics.parquet", "policy.safetensors")


class Flaky:
    """Lets opening or reading files of a name fail so many times."""

    def __init__(self, monkeypatch, call, name, number, times):
        self.left, self.name, self.number = times, name, number
        self.real = {"open": os.open, "read": os.read}
        self.handles = set()
        monkeypatch.setattr(backend, "DELAYS", (0.0, 0.001, 0.001))
        monkeypatch.setattr(os, "open", self.open)
        if call == "read":
            monkeypatch.setattr(os, "read", self.read)
        self.call = call

    def fails(self):
        self.left -= 1
        return self.left >= 0

    def open(self, path, *how, **more):
        ours = str(path).endswith(self.name)
        if ours and self.call == "open" and self.fails():
            raise OSError(self.number, os.strerror(self.number), str(path))
        handle = self.real["open"](path, *how, **more)
        self.handles = self.handles | {handle} if ours else self.handles - {handle}
        return handle

    def read(self, handle, size):
        if handle in self.handles and self.fails():
            raise OSError(self.number, os.strerror(self.number))
        return self.real["read"](handle, size)


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path)
    carry_out_studies([plan(little(runs=1))], store, Serial())
    return store


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize(("call", "number"), [("open", errno.ESTALE), ("read", errno.EIO), ("open", errno.EMFILE)])
def test_an_error_that_passes_is_no_damage(store, monkeypatch, file, call, number):
    flaky = Flaky(monkeypatch, call, file, number, 2)
    tally = carry_out_studies([plan(little(runs=1))], Store(store.root), Serial())["little"]
    assert flaky.left < 0
    assert (tally.kept, tally.done, tally.damaged) == (2, 0, [])


@pytest.mark.parametrize("file", FILES)
def test_an_error_that_stays_is_told_and_nothing_is_done_again(store, monkeypatch, capsys, file):
    before = {path: path.stat().st_mtime_ns for path in store.root.rglob("*") if path.is_file()}
    Flaky(monkeypatch, "open", file, errno.EIO, 10**9)
    with pytest.raises(Unreadable, match=rf"cannot read {store.root}/runs/.*/{file}: Input/output error"):
        carry_out_studies([plan(little(runs=1))], Store(store.root), Serial())
    assert main(["report", "--store", str(store.root), "--json"]) == 1
    said = capsys.readouterr().err
    assert f"vpac: cannot read {store.root}/runs/" in said
    assert "Input/output error" in said
    assert {path: path.stat().st_mtime_ns for path in store.root.rglob("*") if path.is_file()} == before


def test_notes_of_studies_and_failures_and_the_listing_say_so_too(store, monkeypatch):
    (store.root / "failed").mkdir()
    (store.root / "failed" / "x.json").write_text("{}")
    for name, read in (
        ("little.json", lambda: read_study(store, "little")), ("x.json", lambda: store.failure("x")),
        ("run.json", lambda: index(store)),
    ):  # fmt: skip
        with monkeypatch.context() as patch:
            Flaky(patch, "open", name, errno.ESTALE, 10**9)
            with pytest.raises(Unreadable, match=f"{name}: Stale file handle"):
                read()


def test_a_folder_that_cannot_be_looked_at_is_not_taken_for_none(store, monkeypatch):
    name, real, left = store.names()[0], os.stat, [2]

    def stale(path, **how):
        if str(path).endswith(name) and left[0]:
            left[0] -= 1
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return real(path, **how)

    monkeypatch.setattr(backend, "DELAYS", (0.0, 0.0))
    monkeypatch.setattr(os, "stat", stale)
    assert store.has(name)
    left[0] = 10**9
    with pytest.raises(Unreadable, match="Stale file handle"):
        store.has(name)


def test_a_bucket_that_does_not_answer_is_no_damage(store, monkeypatch):
    """What is in it may be as good as ever."""
    pytest.importorskip("obstore")
    from obstore.exceptions import GenericError

    good, bucket = contents(store), Store("s3://vpac/x?endpoint=http://127.0.0.1:1&region=nowhere")

    class Silent:
        def get(self, key):
            if key.endswith("metrics.parquet"):
                raise GenericError("connection reset by peer")
            return self.Answer(store.backend.read(key))

        def list(self, folder):
            return [[{"path": f"{folder}/{name}/run.json", "last_modified": self} for name in store.names()]]

        def timestamp(self):
            return 1.0

        class Answer:
            def __init__(self, content):
                self.meta, self.stream = {"size": len(content)}, lambda: iter([content])

    assert isinstance(bucket.backend, BucketBackend)
    monkeypatch.setattr(bucket.backend, "_store", Silent())
    with pytest.raises(Unreadable, match=r"cannot read s3://vpac/x.*: connection reset by peer"):
        carry_out_studies([plan(little(runs=1))], bucket, Serial())
    assert contents(store) == good
