"""Kills, stops and damages a study and a PPO run many times, and prints what was lost; `make torture` runs it.

    python benchmarks/torture.py                    everything, hours
    python benchmarks/torture.py --times 3          the same, three times each

Each row is a fault, how often it was caused, and how many of the endings were not byte for byte those of an undisturbed run.
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
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

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


class Subject:
    """Something long that can be stopped and gone on with."""

    def __init__(
        self, name: str, home: Path, command: Callable[[Path], list[str]], names: Callable[[Path], bool]
    ) -> None:
        self.name, self.home, self.command, self.names = name, home, command, names
        begun = time.monotonic()
        process = vpac(*command(home / f"{name}-whole"))
        _, said = process.communicate()
        if process.returncode:
            raise SystemExit(f"the undisturbed {name} failed: {said}")
        self.whole, self.seconds = digests(home / f"{name}-whole", names), time.monotonic() - begun

    def disturb(self, number: int, times: int, rng: np.random.Generator, group: bool) -> tuple[int, int, list[str]]:
        """Stop it `times` times at random moments, going on after each; when it ends, begin again. What happened: signals
        that arrived in time, endings, and complaints."""
        folder, sent, ends = self.home / f"{self.name}-{number}", 0, 0
        wrong: list[str] = []
        while sent < times or ends == 0:
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
            if process.returncode == 0:
                ends += 1
                if digests(folder, self.names) != self.whole:
                    wrong.append("the result differs")
                shutil.rmtree(folder)
        return sent, ends, wrong


def study(home: Path) -> Subject:
    (home / "spec.toml").write_text(SPEC)
    command = lambda folder: ["sweep", str(home / "spec.toml"), "--store", str(folder), "--jobs", "2", "--json"]  # noqa: E731
    return Subject(
        "study", home, command, lambda path: path.suffix in (".safetensors", ".parquet") and "runs" in path.parts
    )


def run(home: Path) -> Subject:
    def command(folder: Path) -> list[str]:
        again = ["--resume", str(folder)] if any((folder / "checkpoints").glob("[0-9]*")) else []
        return [*DEEP, "--out", str(folder), *again]

    wanted = ("weights.safetensors", "agent.json", "metrics.jsonl", "policy.safetensors")
    return Subject("PPO run", home, command, lambda path: path.name in wanted and "checkpoints" not in path.parts)


def flips(home: Path, times: int, rng: np.random.Generator) -> tuple[str, int, int, int, list[str]]:
    """A byte of any file of the study's store; then the study is carried out again."""
    whole, wrong = home / "study-whole", []
    names = lambda path: path.suffix in (".safetensors", ".parquet") and "runs" in path.parts  # noqa: E731
    before = digests(whole, names)
    places = [path for path in whole.rglob("*") if path.is_file() and "runs" in path.parts]
    for _ in range(times):
        path = places[int(rng.integers(len(places)))]
        content = bytearray(path.read_bytes())
        content[int(rng.integers(len(content)))] ^= int(rng.integers(1, 256))
        path.write_bytes(bytes(content))
        process = vpac("sweep", str(home / "spec.toml"), "--store", str(whole), "--executor", "serial", "--json")
        _, said = process.communicate()
        if process.returncode != 0 or path.name not in said or digests(whole, names) != before:
            wrong.append(f"{path.name}: exit code {process.returncode}, {said[-200:]}")
    return "a flipped byte in a stored run", times, times, len(wrong), wrong


def rows(home: Path, times: int, seed: int) -> Iterator[tuple[str, int, int, int, list[str]]]:
    rng = np.random.default_rng(seed)
    for make in (study, run):
        subject = make(home)
        for number, group in ((signal.SIGKILL, True), (signal.SIGTERM, False), (signal.SIGINT, False)):
            name = signal.Signals(number).name
            sent, ends, wrong = subject.disturb(number, times, rng, group)
            yield f"{name} at random moments of a {subject.name}", sent, ends, len(wrong), wrong
    yield flips(home, times, rng)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    machine = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"
    print(f"{datetime.now(UTC):%Y-%m-%d}, {machine}, seed {given.seed}\n")
    print("| fault | how often | runs to the end | endings or exits that were wrong |\n|---|---:|---:|---:|")
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for fault, sent, ends, wrong, why in rows(Path(folder), given.times, given.seed):
            print(f"| {fault} | {sent} | {ends} | {wrong} |", flush=True)
            bad += wrong
            for words in why[:3]:
                print(json.dumps(words), file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
