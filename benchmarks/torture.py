"""Kills, stops and damages a study and a PPO run many times, and prints what was lost; `make torture` runs it.

    python benchmarks/torture.py                    everything, hours
    python benchmarks/torture.py --times 3          the same, three times each
    python benchmarks/torture.py --only PPO flipped rows whose names hold one of these words

Each row is a fault, how often it was caused, how many of the endings were not byte for byte those of an undisturbed run, and
how much of what was finished when the fault came was gone or written once more afterwards.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

SPEC = """
name = "tortured"
env = "vpac/RiskyShortcut-v0"
algorithm = "vpac"
episodes = 2000
every = 20
runs = 60
settings = { gamma = 0.95, max_episode_steps = 100 }
[grid]
psi = [0.0, 0.1]
"""
DEEP = [
    "train", "vpac-ppo", "CartPole-v1", "--psi", "0.01", "--steps", "40000", "--envs", "4", "--json",
    "--option", "steps=32", "hidden=[8]", "checkpoint_every=4", "epochs=2",
]  # fmt: skip
ENDED = {signal.SIGKILL: {-9, 0}, signal.SIGTERM: {143, 0}, signal.SIGINT: {130, 0}}


class Row(NamedTuple):
    """Of the table."""

    fault: str
    sent: int
    """How often it was caused."""
    ends: int
    """How often what was disturbed came to its end."""
    wrong: list[str]
    """Complaints."""
    again: int
    """Records of finished work that were gone afterwards, or written once more."""


def vpac(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "vpac", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_until_it_listens(process: subprocess.Popen[str]) -> None:
    """vpac takes over the signals before its imports; before that Python starts, some 30 ms, and ends in its own way."""
    while process.poll() is None:
        status = Path(f"/proc/{process.pid}/status").read_text()
        caught = int(next(line for line in status.splitlines() if line.startswith("SigCgt")).split()[1], 16)
        if caught >> (signal.SIGTERM - 1) & 1:
            return
        time.sleep(0.01)


def digests(folder: Path, names: Callable[[Path], bool]) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and names(path))
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def stamps(folder: Path, pattern: str) -> dict[str, tuple[int, int]]:
    """Files that are finished, each with what changes when it is written once more."""
    found = {}
    for path in folder.glob(pattern):
        state = path.stat()
        found[str(path)] = (state.st_ino, state.st_mtime_ns)
    return found


class Subject:
    """Something long that can be stopped and gone on with.

    Args:
        name: what it is.
        home: a folder for it.
        command: that carries it out into a folder.
        names: which files are compared.
        finished: where the records of what is finished are; they are never written again.
        stays: whether they also stay for ever; else later ones replace them.
    """

    def __init__(
        self, name: str, home: Path, command: Callable[[Path], list[str]], names: Callable[[Path], bool], finished: str,
        stays: bool,
    ) -> None:  # fmt: skip
        self.name, self.home, self.command, self.names = name, home, command, names
        self.finished, self.stays = finished, stays
        for folder in (home / f"{name}-first", home / f"{name}-whole"):  # the first one may have to compile
            begun = time.monotonic()
            process = vpac(*command(folder))
            _, said = process.communicate()
            if process.returncode:
                raise SystemExit(f"the undisturbed {name} failed: {said}")
            self.whole, self.seconds = digests(folder, names), time.monotonic() - begun

    def disturb(
        self, number: int, times: int, rng: np.random.Generator, group: bool
    ) -> tuple[int, int, list[str], int]:
        """Stop it `times` times at random moments, going on after each; when it ends, begin again. What happened: signals
        that arrived in time, endings, complaints, and records of finished work that are gone or were written again."""
        folder, sent, ends, again = self.home / f"{self.name}-{number}", 0, 0, 0
        wrong: list[str] = []
        while sent < times or ends == 0:
            print(
                f"\r{signal.Signals(number).name}, {self.name}: {sent} of {times}  ",
                end="",
                file=sys.stderr,
                flush=True,
            )
            before = stamps(folder, self.finished)
            process = vpac(*self.command(folder))
            if number != signal.SIGKILL:
                wait_until_it_listens(process)
            try:
                process.wait(timeout=float(rng.uniform(0.1, 1.2 * self.seconds)) if sent < times else None)
            except subprocess.TimeoutExpired:
                (os.killpg if group else os.kill)(process.pid, number)
                sent += 1
            _, said = process.communicate()
            if process.returncode not in ENDED[signal.Signals(number)]:
                wrong.append(f"exit code {process.returncode}: {said[-300:]}")
            if "Traceback" in said:
                wrong.append(said[-300:])
            after = stamps(folder, self.finished)
            again += sum(after.get(path, None if self.stays else stamp) != stamp for path, stamp in before.items())
            if process.returncode == 0:
                ends += 1
                if digests(folder, self.names) != self.whole:
                    wrong.append("the result differs")
                shutil.rmtree(folder)
        return sent, ends, wrong, again


def study(home: Path) -> Subject:
    (home / "spec.toml").write_text(SPEC)
    command = lambda folder: ["sweep", str(home / "spec.toml"), "--store", str(folder), "--jobs", "2", "--json"]  # noqa: E731
    return Subject(
        "study", home, command, lambda path: path.suffix in (".safetensors", ".parquet") and "runs" in path.parts,
        "runs/[a-z]*/run.json", stays=True,
    )  # fmt: skip


def run(home: Path) -> Subject:
    def command(folder: Path) -> list[str]:
        again = ["--resume", str(folder)] if any((folder / "checkpoints").glob("[0-9]*")) else []
        return [*DEEP, "--out", str(folder), *again]

    wanted = ("weights.safetensors", "agent.json", "metrics.jsonl", "policy.safetensors")
    return Subject(
        "PPO run", home, command, lambda path: path.name in wanted and "checkpoints" not in path.parts,
        "checkpoints/[0-9]*/agent.json", stays=False,
    )  # fmt: skip


def flips(home: Path, times: int, rng: np.random.Generator) -> Row:
    """A byte of any file of the study's store; then the study is carried out again."""
    whole, wrong, again = home / "study-whole", [], 0
    names = lambda path: path.suffix in (".safetensors", ".parquet") and "runs" in path.parts  # noqa: E731
    before = digests(whole, names)
    files = [path for path in whole.rglob("*") if path.is_file() and "runs" in path.parts]
    for _ in range(times):
        path = files[int(rng.integers(len(files)))]
        stood = {
            name: s for name, s in stamps(whole, "runs/[a-z]*/run.json").items() if Path(name).parent != path.parent
        }
        content = bytearray(path.read_bytes())
        content[int(rng.integers(len(content)))] ^= int(rng.integers(1, 256))
        path.write_bytes(bytes(content))
        process = vpac("sweep", str(home / "spec.toml"), "--store", str(whole), "--executor", "serial", "--json")
        _, said = process.communicate()
        if process.returncode != 0 or path.name not in said or digests(whole, names) != before:
            wrong.append(f"{path.name}: exit code {process.returncode}, {said[-200:]}")
        after = stamps(whole, "runs/[a-z]*/run.json")
        again += sum(after.get(name) != stamp for name, stamp in stood.items())  # of the runs that were not damaged
    return Row("a flipped byte in a stored run", times, times, wrong, again)


FAULTS = ((signal.SIGKILL, True), (signal.SIGTERM, False), (signal.SIGINT, False))
SUBJECTS = {"study": study, "PPO run": run}


def faults(home: Path, times: int, seed: int) -> dict[str, Callable[[], Row]]:
    """What each row is called, and what makes it; what they disturb is done in peace first, once it is needed."""
    rng, whole = np.random.default_rng(seed), cache(lambda name: SUBJECTS[name](home))

    def disturbed(title: str, name: str, number: signal.Signals, group: bool) -> Row:
        return Row(title, *whole(name).disturb(number, times, rng, group))

    def flipped() -> Row:
        whole("study")
        return flips(home, times, rng)

    found: dict[str, Callable[[], Row]] = {}
    for number, group in FAULTS:
        for name in SUBJECTS:
            title = f"{number.name} at random moments of a {name}"
            found[title] = partial(disturbed, title, name, number, group)
    return {**found, "a flipped byte in a stored run": flipped}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORDS", help="rows whose names hold one of these")
    given = parser.parse_args()
    machine = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"
    print(f"{datetime.now(UTC):%Y-%m-%d}, {machine}, seed {given.seed}\n")
    print("| fault | how often | runs to the end | endings or exits that were wrong | finished work lost or repeated |")
    print("|---|---:|---:|---:|---:|")
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, fault in faults(Path(folder), given.times, given.seed).items():
            if not any(words in name for words in given.only):
                continue
            row = fault()
            print(f"| {row.fault} | {row.sent} | {row.ends} | {len(row.wrong)} | {row.again} |", flush=True)
            bad += len(row.wrong) + row.again
            for words in row.wrong[:3]:
                print(json.dumps(words), file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
