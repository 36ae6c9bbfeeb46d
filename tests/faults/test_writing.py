"""Every write, fsync and rename fails once: earlier data stays valid, and the message names the file."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest

from tiny import little
from vpac import files, portable
from vpac.cli import main
from vpac.files import Unwritable, hold
from vpac.lab.store.records import read_study
from vpac.lab.store.run import runs_of
from vpac.lab.store.store import Result, Store, packed
from vpac.lab.workers.pool import Serial
from vpac.lab.workers.study import carry_out_studies, plan
from vpac.risk.sample import ReturnSample
from vpac.tabular import VPAC

CALLS = (
    (os, "fsync"), (os, "replace"), (os, "rename"), (os, "link"), (tempfile, "mkstemp"), (Path, "write_bytes"),
    (Path, "mkdir"), (os, "fdopen"), (os, "open"), (os, "write"), (os, "mkdir"), (files, "sync_folders"),
)  # fmt: skip
ERRORS = (errno.ENOSPC, errno.EIO, errno.EROFS)


class Disk:
    """A disk whose call number `when` fails."""

    def __init__(self, monkeypatch, when: int, error: int) -> None:
        self.left, self.error, self.failed = when, error, False
        self.open, self.fdopen = os.open, os.fdopen
        for home, name in CALLS:
            monkeypatch.setattr(home, name, self.failing(getattr(home, name)))

    def failing(self, call):
        def instead(*given, **named):
            if call is self.open and ("dir_fd" in named or not (given[1] & os.O_CREAT or os.path.isdir(given[0]))):
                return call(*given, **named)  # to read, or to remove
            self.count()
            found = call(*given, **named)
            return Full(found, self) if call is self.fdopen else found

        return instead

    def count(self) -> None:
        """One more call that may fail."""
        self.left -= 1
        if self.left == -1:
            self.failed = True
            raise OSError(self.error, os.strerror(self.error))


class Full:
    """A file whose `write` is a call that may fail, too."""

    def __init__(self, file, disk: Disk) -> None:
        self.file, self.disk = file, disk

    def __enter__(self):
        return self

    def __exit__(self, *reason):
        self.file.close()

    def write(self, content: bytes) -> int:
        self.disk.count()
        return self.file.write(content)


def complaint(write) -> str:
    try:
        write()
    except Unwritable as error:
        return str(error)
    return ""


def every_failure(monkeypatch, write, check):
    """Do `write` with each of its calls failing in turn; `check` looks at what is left."""
    count = 0
    while True:
        with monkeypatch.context() as patch:
            disk = Disk(patch, count, ERRORS[count % 3])
            said = complaint(write)
        if not disk.failed:
            return count
        if said:  # what only tidies up may fail in silence
            assert said.startswith("cannot write /"), said
            assert os.strerror(disk.error) in said
            assert disk.error != errno.ENOSPC or "it needs" in said, said
        check()
        count += 1


def hidden(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob(".*") if path.suffix != ".new"]


def test_a_learner_keeps_its_last_good_generation(tmp_path, monkeypatch):
    folder = tmp_path / "agent"
    learner = VPAC("vpac/CatchUp-v0", seed=1).learn(2)
    learner.save(folder)

    def check():
        assert VPAC.load(folder).episodes in (2, 4)
        assert hidden(folder) == []
        learner_before.save(folder)

    learner_before, learner_after = learner, VPAC.load(folder).learn(2)
    assert every_failure(monkeypatch, lambda: learner_after.save(folder), check) >= 8
    assert VPAC.load(folder).episodes == 4
    assert sorted(os.listdir(folder)) == ["agent.json", "weights.safetensors"]


def test_an_agent_and_its_checkpoints_keep_their_last_good_generation(tmp_path, monkeypatch):
    pytest.importorskip("jax")
    from vpac.deep import PPO, load_policy
    from vpac.deep.checkpoint import latest_checkpoint, write_checkpoint
    from vpac.deep.logs import JsonLines

    small = {"envs": 2, "steps": 8, "epochs": 1, "minibatch": 16, "hidden": (4,), "checkpoint_every": 1}
    agent = PPO("CartPole-v1", **small).learn(16)
    agent.save(tmp_path / "agent")
    write_checkpoint(agent, tmp_path / "kept")
    agent.learn(16)

    def check_agent():
        assert PPO.load(tmp_path / "agent").iteration in (1, 2)
        load_policy(tmp_path / "agent")
        assert hidden(tmp_path / "agent") == []

    def check_kept():
        found, damaged = latest_checkpoint(PPO, tmp_path / "kept")
        assert found.iteration in (1, 2)
        assert damaged == []
        assert hidden(tmp_path / "kept") == []

    assert every_failure(monkeypatch, lambda: agent.save(tmp_path / "agent"), check_agent) >= 16
    assert every_failure(monkeypatch, lambda: write_checkpoint(agent, tmp_path / "kept"), check_kept) >= 16
    lines = JsonLines(tmp_path / "metrics.jsonl", agent)
    lines.close()
    lines._file = open("/dev/full", "ab", buffering=0)  # noqa: SIM115
    with pytest.raises(Unwritable, match=r"cannot write .*metrics\.jsonl: No space left on device; it needs"):
        lines(agent)
    lines.close()
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2


def test_a_store_keeps_what_it_has(tmp_path, monkeypatch):
    store, experiment = Store(tmp_path / "s"), little(runs=2)
    first, second = runs_of(experiment, experiment.arms[0], 2)
    result = Result({"episode": np.arange(3)}, {"theta": np.eye(2)}, {"mean": 1.0})
    store.write(first, result, {})

    def check():
        assert Store(tmp_path / "s").read(first.name).final == {"mean": 1.0}
        assert set(store.names()) <= {first.name, second.name}
        assert hidden(tmp_path / "s" / "runs") == []
        if store.finished(second):  # renamed, but the folder's fsync failed: it is whole
            Store(tmp_path / "s").read(second.name)
            store.set_aside(second.name)

    assert every_failure(monkeypatch, lambda: store.write(second, result, {}), check) >= 16
    assert every_failure(monkeypatch, lambda: store.fail(second, "why", {}), check) >= 4


def test_of_a_group_what_has_its_name_is_whole(tmp_path, monkeypatch):
    store, experiment = Store(tmp_path / "s"), little(runs=4)
    first, *others = runs_of(experiment, experiment.arms[0], 4)
    result = Result({"episode": np.arange(3)}, {"theta": np.eye(2)}, {"mean": 1.0})
    store.write(first, result, {})

    def check():
        assert set(store.names()) <= {first.name, *(run.name for run in others)}
        assert hidden(tmp_path / "s" / "runs") == []
        for name in store.names():
            assert Store(tmp_path / "s").read(name).final == {"mean": 1.0}
        for run in others:
            if store.finished(run):
                store.set_aside(run.name)

    def write():
        store.keep({run.name: packed(run, result, {}) for run in others})

    assert every_failure(monkeypatch, write, check) >= 24
    assert store.finished(others[-1])


def test_an_error_of_the_disk_behind_the_cache_is_an_error(monkeypatch):
    def broken(handle):
        ctypes.set_errno(errno.EIO)
        return -1

    monkeypatch.setattr(portable, "_syncfs", broken)
    with pytest.raises(OSError, match="Input/output error"):
        files.sync_folders(["a", "b"], 3)


@pytest.mark.parametrize("count", [1, 2])
def test_without_a_call_for_the_whole_file_system_each_file_is_synced(tmp_path, monkeypatch, count):
    synced = []
    monkeypatch.setattr(portable, "_syncfs", None)
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.readlink(f"/proc/self/fd/{handle}")))
    folders = [tmp_path / str(number) for number in range(count)]
    for folder in folders:
        folder.mkdir()
        (folder / "x").write_bytes(b"word")
    files.sync_folders(map(str, folders), 3)
    assert synced == [str(path) for folder in folders for path in (folder / "x", folder)]


def test_a_study_and_a_sample_keep_what_they_have(tmp_path, monkeypatch):
    store, small, large = Store(tmp_path / "s"), [plan(little(runs=1))], [plan(little(runs=2))]
    carry_out_studies(large, store, Serial())
    before = read_study(store, "little")

    def write():
        from vpac.lab.workers.study import Tally, _write_study

        _write_study(large[0], store, Tally(seconds=1.0), "")

    def check():
        assert read_study(store, "little").runs == before.runs

    assert every_failure(monkeypatch, write, check) >= 4
    assert small[0].experiment.name == "little"
    sample = ReturnSample(np.ones(3), np.ones(3), np.ones(3, int), np.ones(3, bool), 0.9)
    for ending in ("json", "parquet"):
        path = tmp_path / f"sample.{ending}"
        sample.save(path)
        every_failure(monkeypatch, lambda path=path: sample.save(path), lambda path=path: ReturnSample.load(path))


def test_what_must_not_be_there_yet_is_there_whole_or_not_at_all(tmp_path, monkeypatch):
    store, names = Store(tmp_path / "s"), iter(range(100))

    def check():
        assert [p for p in tmp_path.rglob("*") if p.is_file() and p.read_bytes() != b"word"] == []
        assert hidden(tmp_path) == []

    assert every_failure(monkeypatch, lambda: store.backend.create(f"x/{next(names)}", b"word"), check) >= 6


@pytest.mark.parametrize("name", ["returns", "curves", "training", "agent", "out"])
def test_a_full_disk_is_told_of_with_bytes_whatever_is_written(tmp_path, monkeypatch, capsys, name):
    make, mkdir = tempfile.mkstemp, Path.mkdir
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def mkstemp(*given, **named):
        if named["prefix"].startswith(f".{name}."):
            raise full
        return make(*given, **named)

    def no_folder(self, *given, **named):
        if self.name == name:
            raise full
        return mkdir(self, *given, **named)

    monkeypatch.setattr(tempfile, "mkstemp", mkstemp)
    monkeypatch.setattr(Path, "mkdir", no_folder)
    code = main(["train", "ac", "vpac/CatchUp-v0", "--episodes", "5", "--out", str(tmp_path / "out"), "--json"])
    said = capsys.readouterr().err
    assert code == 1
    assert re.search(
        rf"cannot write \S*{name}\S*: No space left on device; it needs [\d,]+ bytes, [\d,]+ are free", said
    )


@pytest.mark.parametrize("error", ERRORS)
def test_the_command_line_says_what_could_not_be_written_and_exits_with_1(tmp_path, monkeypatch, capsys, error):
    monkeypatch.setattr(os, "fsync", lambda handle: (_ for _ in ()).throw(OSError(error, os.strerror(error))))
    code = main(["train", "ac", "vpac/CatchUp-v0", "--episodes", "5", "--out", str(tmp_path / "out"), "--json"])
    said = capsys.readouterr().err
    assert code == 1
    assert f"vpac: cannot write {tmp_path / 'out'}" in said
    assert os.strerror(error) in said
    spec = tmp_path / "little.toml"
    spec.write_text('env = "vpac/CatchUp-v0"\nalgorithm = "ac"\nepisodes = 5\nruns = 1\n[grid]\ngamma = [0.9]\n')
    code = main(["sweep", str(spec), "--store", str(tmp_path / "s"), "--executor", "serial", "--json"])
    said = capsys.readouterr().err
    assert code == 1
    assert f"vpac: cannot write {tmp_path / 's'}" in said
    assert "Traceback" not in said
    assert not [p for p in tmp_path.rglob(".*") if p.name not in (".locks", ".identity")]


def test_a_checkpoint_that_cannot_be_written_stops_the_study_and_not_the_run(tmp_path, monkeypatch):
    from vpac.lab.workers import worker

    def perform(run, scratch):
        raise Unwritable(errno.ENOSPC, "cannot write /x: No space left on device")

    monkeypatch.setattr(worker, "perform", perform)
    store = Store(tmp_path)
    with pytest.raises(Unwritable, match="No space left"):
        carry_out_studies([plan(little(runs=1))], store, Serial())
    assert store.failures() == []


def test_two_processes_do_not_train_into_one_folder(tmp_path, capsys):
    with hold(tmp_path / "out"):
        code = main(["train", "ac", "vpac/CatchUp-v0", "--episodes", "5", "--out", str(tmp_path / "out")])
    assert code == 2
    assert f"another process is writing into {tmp_path / 'out'}" in capsys.readouterr().err
    assert list((tmp_path / "out").iterdir()) == []
