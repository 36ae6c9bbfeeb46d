"""Hostile stores: nothing outside of them is touched, the bad file is named, the rest is shown."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from tiny import SPEC, little
from vpac.cli import main
from vpac.files import sealed
from vpac.lab.store.run import Run, runs_of
from vpac.lab.store.store import Store

TOP = ("runs", "failed", "damaged", "checkpoints", "studies", "report", "figures", ".locks")


def below(folder: Path) -> dict[str, bytes | None]:
    """Everything in a folder, however deep."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in sorted(folder.rglob("*"))}


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A store with a finished study, a failed run and the description of the study."""
    root = tmp_path_factory.mktemp("kept")
    store, experiment = Store(root / "s"), little(runs=1, episodes=5)
    (root / "little.toml").write_text(SPEC.format(episodes=5, runs=1), encoding="utf-8")
    assert main(["sweep", str(root / "little.toml"), "--store", str(root / "s"), "--executor", "serial"]) == 0
    (run,) = runs_of(experiment, experiment.arms[0], 1)
    store.fail(run, "why", {"status": "failed"})
    return root


@pytest.fixture
def copy(kept, tmp_path, monkeypatch):
    """A copy of it, to be spoiled."""
    monkeypatch.setenv("COLUMNS", "400")  # so that tables break no words
    return Path(shutil.copytree(kept, tmp_path / "kept"))


def run_command(capsys, *words: str) -> tuple[int, str]:
    """The exit code and everything that was said; no traceback."""
    capsys.readouterr()
    code = main(list(words))
    said = "".join(capsys.readouterr())
    assert "Traceback" not in said
    return code, said


def sweep(copy: Path) -> list[str]:
    return ["sweep", str(copy / "little.toml"), "--store", str(copy / "s"), "--executor", "serial"]


@pytest.mark.parametrize("name", TOP)
def test_no_part_of_a_store_may_be_a_link(copy, name, capsys):
    """The folder behind the link holds what looks like leftovers, runs and checkpoints of the store."""
    store, victim = copy / "s", copy / "victim"
    victim.mkdir()
    run = next((store / "runs").iterdir()).name
    for inside in ("Documents", run, f".{run}.part"):
        (victim / inside).mkdir()
        (victim / inside / "thesis").write_text("years")
    (store / "runs" / "Documents").mkdir()
    here = store / name
    if here.is_dir():
        shutil.rmtree(here)
    here.unlink(missing_ok=True)
    here.symlink_to(victim)
    before = below(victim)
    for words in (sweep(copy), ["runs", "--store", str(store)], ["report", "--store", str(store)]):
        code, said = run_command(capsys, *words)
        assert code == 2
        assert f"{here}: it is a symbolic link" in said
        assert below(victim) == before


def test_only_what_is_called_like_a_run_is_tidied_up(copy, capsys):
    store = copy / "s"
    run = next((store / "runs").iterdir()).name
    ours = [store / "runs" / f".{run}.part", store / "checkpoints" / run]
    others = [store / "runs" / ".foo.part", store / "checkpoints" / "Documents"]
    for folder in (*ours, *others, store / "runs" / "Documents"):
        folder.mkdir(parents=True)
        (folder / "thesis").write_text("years")
    (victim := copy / "victim").mkdir()
    (victim / "thesis").write_text("years")
    (store / "runs" / f".x{run}.part").symlink_to(victim)
    assert run_command(capsys, *sweep(copy))[0] == 0
    assert not any(folder.exists() for folder in ours)
    assert all((folder / "thesis").exists() for folder in (*others, victim))
    assert not (store / "runs" / f".x{run}.part").is_symlink()


@pytest.mark.parametrize("name", TOP)
def test_a_part_of_a_store_that_is_of_another_kind_is_named(copy, name, capsys):
    store = copy / "s"
    run = next((store / "runs").iterdir()).name
    shutil.rmtree(store / name) if (store / name).is_dir() else (store / name).unlink(missing_ok=True)
    if name == ".locks":
        (store / name).mkdir()
        (store / "runs" / f".{run}.part").mkdir()
    else:
        (store / name).write_text("")
    for words in (sweep(copy), ["runs", "--store", str(store)], ["report", "--store", str(store)]):
        code, said = run_command(capsys, *words)
        assert code == 2
        assert str(store / name) in said


def test_a_folder_in_the_place_of_a_note_is_named(copy, capsys):
    """Of a run that failed and now does not."""
    store = copy / "s"
    run = next((store / "runs").iterdir()).name
    shutil.rmtree(store / "runs" / run)
    (store / "failed" / f"{run}.json").mkdir()
    code, said = run_command(capsys, *sweep(copy))
    assert code == 2
    assert str(store / "failed" / f"{run}.json") in said


def forge(path: Path, change) -> None:
    """Change data in a file and give it a good checksum again."""
    data = json.loads(path.read_text(encoding="utf-8"))
    data.pop("checksum", None)
    change(data)
    path.write_text(sealed(data), encoding="utf-8")


def put(*keys, value):
    """A change: a value at the end of a way of keys."""

    def change(data) -> None:
        for key in keys[:-1]:
            data = data[key]
        data[keys[-1]] = value

    return change


def a_run(store: Path) -> Path:
    return min((store / "runs").iterdir())


def rename(store: Path, change) -> Path:
    """Forge a run so that its name is right again, also in the note of its study."""
    old, note = a_run(store), store / "studies" / "little.json"
    forge(old / "run.json", change)
    forge(old / "run.json", lambda data: data.update(name=Run.read(data).name))
    new = old.with_name(json.loads((old / "run.json").read_text(encoding="utf-8"))["name"])
    old.rename(new)
    forge(note, lambda data: data.update(json.loads(json.dumps(data).replace(old.name, new.name))))
    return new


LISTINGS = (
    ["runs"],
    ["runs", "--json"],
    ["runs", "--env", "x"],
    ["runs", "--where", "psi=0.1"],
    ["runs", "--status", "failed"],
)


def listed(capsys, copy: Path, file: Path) -> None:
    """Every listing says which file is wrong, and shows the rest of the store."""
    other = max((copy / "s" / "runs").iterdir()).name
    for verb, *more in LISTINGS:
        code, said = run_command(capsys, verb, "--store", str(copy / "s"), *more)
        assert code == 0
        if not more or more == ["--json"]:
            assert other in said
    code, said = run_command(capsys, "runs", "--store", str(copy / "s"), "--json")
    assert any(str(file) in row["status"] for row in json.loads(said))


@pytest.mark.parametrize(
    ("change"),
    [
        put("seed", value=2**70), put("number", value=-1), put("number", value=True), put("final", "mean", value=10**400),
        put("final", "mean", value=float("nan")), put("about", "versions", value=[1]), put("about", "machine", value=-1e308),
        put("about", "commit", value=[3]), put("about", "seconds", value=10**400), put("name", value="../../x"),
        put("task", "settings", "psi", value=float("nan")),
    ],
)  # fmt: skip
def test_records_that_no_run_leaves(copy, capsys, change):
    run = a_run(copy / "s")
    forge(run / "run.json", change)
    listed(capsys, copy, run)


@pytest.mark.parametrize(
    "change",
    [put("name", value=3), put("task", value=[]), put("task", "settings", value=[1]), put("task", "env", value=7),
     put("seed", value=2**70), put("about", value=[]), put("about", "status", value=[1]), put("error", value=None)],
)  # fmt: skip
def test_notes_of_failures_that_no_run_leaves(copy, capsys, change):
    (note,) = (copy / "s" / "failed").iterdir()
    forge(note, change)
    listed(capsys, copy, note)


def with_metrics(run: Path, frame: pl.DataFrame) -> None:
    frame.write_parquet(run / "metrics.parquet")
    content = (run / "metrics.parquet").read_bytes()
    found = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    forge(run / "run.json", lambda data: data["files"].update({"metrics.parquet": found}))


def far_away(store: Path) -> str:
    """The column that says where something was measured says 1e308."""
    for run in (store / "runs").iterdir():
        frame = pl.read_parquet(run / "metrics.parquet")
        with_metrics(
            run,
            frame.with_columns(pl.Series(frame.columns[0], [1e308 * (k + 1) / len(frame) for k in range(len(frame))])),
        )
    return "cannot be"


def another_label(store: Path) -> str:
    forge(store / "studies" / "little.json", lambda data: data["experiment"]["arms"][0].update(label="other"))
    return "is damaged"


def same_place(store: Path) -> str:
    """Two studies whose names differ in a slash."""
    note = json.loads((store / "studies" / "little.json").read_text(encoding="utf-8"))
    note.pop("checksum")
    for name in ("a/b", "a-b"):
        note["experiment"]["name"] = name
        (store / "studies" / f"{name.replace('/', '.')}.json").write_text(sealed(note), encoding="utf-8")
    return "but for its slashes"


def endless(store: Path) -> str:
    note = store / "studies" / "little.json"
    note.write_text(note.read_text(encoding="utf-8").replace('"scale": 1.0', '"scale": Infinity'), encoding="utf-8")
    forge(note, lambda data: None)
    return "is damaged"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("spoil", [far_away, another_label, same_place, endless])
def test_a_page_is_made_without_what_cannot_be_shown(copy, capsys, spoil):
    words = spoil(copy / "s")
    code, _ = run_command(capsys, "report", "--store", str(copy / "s"))
    assert code == 0
    assert words in (copy / "s" / "report" / "index.html").read_text(encoding="utf-8")


def test_names_do_not_speak_to_the_terminal(copy, capsys):
    hostile = ["x\033]0;pwned\007\033[31m", "[red]not red", os.fsdecode(b"\xff"), "\x9b31m", ":smile:"]
    for name in hostile:
        (copy / "s" / "runs" / name).mkdir()
    (note,) = (copy / "s" / "failed").iterdir()
    forge(note, put("about", "status", value="[/nothing]"))
    for more in ([], ["--json"]):
        code, said = run_command(capsys, "runs", "--store", str(copy / "s"), *more)
        assert code == 0
        assert not set(said) & {chr(c) for c in (*range(9), *range(11, 32), 127, *range(0x80, 0xA0))}
        assert "[/nothing]" in said
        assert "[red]not red" in said
        assert ":smile:" in said
    assert {row["name"] for row in json.loads(said)} >= {"x\033]0;pwned\007\033[31m", "\x9b31m"}
    code, said = run_command(capsys, "runs", "--store", "a\033[31mb")
    assert (code, said) == (2, "vpac: there is no store a[31mb: `vpac reproduce` makes one, --store names another\n")


@pytest.mark.parametrize("what", ["a run", "a note"])
def test_what_a_newer_version_wrote_is_refused_and_stays(copy, capsys, what):
    store = copy / "s"
    file = a_run(store) / "run.json" if what == "a run" else store / "studies" / "little.json"
    if what == "a run":  # one that is damaged must not be moved, either
        (max((store / "runs").iterdir()) / "metrics.parquet").write_bytes(b"")
    forge(file, put("format", value=6))
    before = below(store)
    code, said = run_command(capsys, *sweep(copy))
    assert code == 2
    assert f"{file} has format 6" in said
    assert {**below(store), ".locks": b""} == {**before, ".locks": b""}
    code, said = run_command(capsys, "report", "--store", str(store))
    assert code == 0
    assert "has format 6" in (store / "report" / "index.html").read_text(encoding="utf-8")
    if what == "a run":
        listed(capsys, copy, file)


@pytest.mark.parametrize("kind", ["/dev/zero", "pipe"])
def test_what_is_no_file_is_not_read(copy, kind):
    """In a process with bounded memory and time: studies, policies, and what a report left in a store."""

    def put_at(path: Path) -> Path:
        path.unlink(missing_ok=True)
        os.mkfifo(path) if kind == "pipe" else path.symlink_to(kind)
        return path

    study, policies = (
        put_at(copy / "study.toml"),
        [put_at(copy / f"policy.{ending}") for ending in ("npy", "csv", "json")],
    )
    put_at(copy / "s" / "figures" / ".drawn.json")
    put_at(next((copy / "s" / "figures").glob("*.svg")))
    script = """
import resource, sys
from vpac.cli import main
study, store, *policies = sys.argv[1:]
import vpac.lab.report.build, vpac.lab.report.page, matplotlib.pyplot, polars
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**31, resource.RLIM_INFINITY))
codes = [main(["sweep", study])]
codes += [main(["solve", "vpac/RiskyShortcut-v0", "--policy", policy]) for policy in policies]
codes += [main(["report", "--store", store])]
print(*codes)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(study), str(copy / "s"), *map(str, policies)],
        capture_output=True, text=True, timeout=200, check=False, cwd=copy,
    )  # fmt: skip
    assert done.stdout.split()[-5:] == ["2", "2", "2", "2", "0"], done.stdout + done.stderr
    for path in (study, *policies):
        assert f"cannot read {path}: it is not a file" in done.stderr


@pytest.mark.parametrize("words", [["--episodes", "9" * 20], ["--runs", "9" * 20]])
def test_numbers_that_nothing_can_hold_are_refused(tmp_path, capsys, words):
    code, said = run_command(capsys, "train", "ac", "vpac/CatchUp-v0", *words, "--out", str(tmp_path / "zz"))
    assert code == 2
    assert f"{words[0][2:]} must be a whole number from" in said
    (tmp_path / "little.toml").write_text(SPEC.format(episodes=5, runs=1), encoding="utf-8")
    code, said = run_command(
        capsys, "sweep", str(tmp_path / "little.toml"), "--runs", "9" * 20, "--store", str(tmp_path / "s")
    )
    assert code == 2
    assert "runs must be a whole number from 1 to 1,000,000" in said
