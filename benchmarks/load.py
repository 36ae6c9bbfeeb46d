"""Load tests: a store of many runs, a study of many tiny runs, a long PPO run.

    python benchmarks/load.py                       everything, hours
    python benchmarks/load.py --store 10000         a store of this many runs (default 100 000)
    python benchmarks/load.py --study 1000          a study of this many tiny runs (default 10 000)
    python benchmarks/load.py --ppo 200000          a PPO run of this many steps (default 20 million)

The store is written by the store's own code without waiting for the disk, with the numbers of one run for all of them; each
command then runs in a process of its own. The overhead of a study is the time of its workers for a run, in wall and processor
seconds, minus the time of as many processes that do the same runs and store nothing. Both are measured after compilation.
The PPO run writes what `vpac train` writes. The exit status is 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from multiprocessing import active_children, get_context
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from vpac.lab.experiments.catalogue import read_experiment
from vpac.lab.experiments.spec import Arm, Experiment
from vpac.lab.kinds.task import perform
from vpac.lab.store import store as storing
from vpac.lab.store.backend import Scratch
from vpac.lab.store.run import Run
from vpac.lab.store.store import Store
from vpac.lab.workers.pool import Processes
from vpac.lab.workers.study import plan
from vpac.lab.workers.worker import provenance

ARMS, GROUP = 10, 64
SECONDS, MEGABYTES = 60.0, 1500.0
"""Bars of a command on the store of 100 000 runs."""
OVERHEAD = 5.0
"""Bar of a tiny run, ms."""
POINTS, SPEED, MEMORY = 20, 0.05, 0.05
"""Looks at the PPO run, and bars: shares by which speed and memory may drift."""
PPO = {"envs": 16, "steps": 128, "epochs": 4, "minibatch": 512, "hidden": (16, 16)}
SPEC = """
name = "load"
env = "vpac/CatchUp-v0"
algorithm = "vpac"
episodes = 40
every = 2
runs = {runs}
settings = {{ gamma = 0.95, max_episode_steps = 20 }}
[grid]
psi = {psis}
[[figures]]
kind = "bars"
title = "Final policies"
[[figures]]
kind = "curves"
title = "Learning curves"
"""
LAUNCHER = """
import resource, subprocess, sys, time
begun = time.perf_counter()
code = subprocess.run(sys.argv[1:]).returncode
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(time.perf_counter() - begun, usage.ru_utime + usage.ru_stime, usage.ru_maxrss, file=sys.stderr)
sys.exit(code)
"""
"""A small process that starts the command: the peak of a process counts that of the one it was forked from."""
console = Console(width=120)


def measured(*words: str) -> tuple[float, float, float]:
    """Wall seconds, processor seconds and MB at the peak of a command."""
    command = [sys.executable, "-I", "-S", "-c", LAUNCHER, sys.executable, "-m", "vpac", *words]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"vpac {' '.join(words)}: {done.stderr}")
    seconds, processor, kilobytes = map(float, done.stderr.splitlines()[-1].split())
    return seconds, processor, kilobytes / 1024


def fill(folder: Path, count: int) -> Path:
    """A store of so many runs, as a study leaves it; returns the study's file."""
    arms = min(ARMS, count)
    spec = folder / "load.toml"
    spec.write_text(SPEC.format(runs=-(-count // arms), psis=[i / 100 for i in range(arms)]))
    runs, store = plan(read_experiment(spec), full=True).all(), Store(folder / "store")
    result = perform(runs[0], Scratch(folder / "scratch"))
    wait, encode = os.fsync, storing.as_parquet
    content = encode(result.metrics, compression="zstd")
    os.fsync, storing.as_parquet = lambda handle: None, lambda columns, **how: content  # type: ignore[assignment]
    about = {"seconds": 0.01, "time": datetime.now(UTC).isoformat(timespec="seconds"), **provenance()}
    try:
        for begin in range(0, len(runs), GROUP):
            store.keep({
                run.name: storing.packed(run, replace(result, final=shifted(result.final, i)), about)
                for i, run in enumerate(runs[begin : begin + GROUP], begin)
            })  # fmt: skip
    finally:
        os.fsync, storing.as_parquet = wait, encode
    return spec


def shifted(final: dict[str, float | None], number: int) -> dict[str, float | None]:
    """Final numbers that are not all the same."""
    return {name: None if value is None else value + 1e-6 * number for name, value in final.items()}


def many_runs(count: int, folder: Path) -> bool:
    """The commands on a store of `count` runs."""
    begun = time.perf_counter()
    spec, store, out = fill(folder, count), str(folder / "store"), str(folder / "out")
    console.print(f"{count:,} runs written in {time.perf_counter() - begun:.0f} s")
    commands = {
        "vpac runs": ("runs", "--store", store),
        "vpac runs --json": ("runs", "--store", store, "--json"),
        "vpac sweep, nothing to do, first page": ("sweep", str(spec), "--store", store, "--out", out, "--json"),
        "vpac sweep, nothing to do": ("sweep", str(spec), "--store", store, "--out", out, "--json"),
        "vpac report": ("report", "--store", store, "--out", out, "--json"),
    }
    table, kept = Table("command", "wall s", "processor s", "peak MB", title=f"A store of {count:,} runs"), True
    for name, words in commands.items():
        seconds, processor, peak = measured(*words)
        table.add_row(name, f"{seconds:.1f}", f"{processor:.1f}", f"{peak:.0f}")
        kept &= seconds < SECONDS and peak < MEGABYTES
    console.print(table)
    return verdict(f"each below {SECONDS:g} s and {MEGABYTES:g} MB", kept)


def tiny(count: int) -> list[Run]:
    """Runs of two episodes."""
    experiment = Experiment(
        name="tiny", title="Tiny", env="vpac/CatchUp-v0", episodes=2, every=1, runs=count,
        settings={"gamma": 0.95, "max_episode_steps": 20}, arms=(Arm(label="AC", algorithm="ac"),),
    )  # fmt: skip
    return plan(experiment, full=True).all()


def alone(runs: list[Run]) -> tuple[float, float]:
    """Wall and processor seconds of runs that are not stored, after compilation."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        for run in runs[:2]:
            perform(run, Scratch(Path("unused")))
        wall, processor = time.perf_counter(), time.process_time()
        for run in runs:
            perform(run, Scratch(Path("unused")))
        return time.perf_counter() - wall, time.process_time() - processor


def processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def many_tiny_runs(count: int, folder: Path) -> bool:
    """What a study adds to each of its runs."""
    jobs, runs = os.cpu_count() or 1, tiny(count)
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        found = list(pool.map(alone, [runs[i::jobs] for i in range(jobs)]))
    own_wall, own = max(wall for wall, _ in found) / count, sum(processor for _, processor in found) / count
    hands, store = Processes(jobs), Store(folder / "tiny")
    try:
        list(hands.run(Store(folder / "warm"), tiny(8 * jobs)))
        workers = [process.pid for process in active_children() if process.pid is not None]
        before = sum(map(processor_seconds, workers)) + time.process_time()
        begun = time.perf_counter()
        done = sum(outcome.status == "finished" for outcome in hands.run(store, runs))
        wall = (time.perf_counter() - begun) / count
        processor = (sum(map(processor_seconds, workers)) + time.process_time() - before) / count
    finally:
        hands.close()
    assert done == count
    table = Table("ms for each run", "alone", "in a study", "overhead", title=f"{count:,} tiny runs, {jobs} processes")
    table.add_row(
        "wall time × processes", *(f"{1e3 * x:.2f}" for x in (jobs * own_wall, jobs * wall, jobs * (wall - own_wall)))
    )
    table.add_row("processor time", *(f"{1e3 * x:.2f}" for x in (own, processor, processor - own)))
    console.print(table)
    return verdict(
        f"less than {OVERHEAD:g} ms of a worker's time beyond the run", 1e3 * jobs * (wall - own_wall) < OVERHEAD
    )


def drift(values: list[float]) -> float:
    """Change from the second quarter to the last one, as a share of the former: the first one still warms up."""
    quarter = max(1, len(values) // 4)
    early, late = np.mean(values[quarter : 2 * quarter]), np.mean(values[-quarter:])
    return float(late / early - 1.0)


def long_run(steps: int, folder: Path) -> bool:
    """Memory and speed of a PPO run, at `POINTS` moments."""
    import vpac.deep
    from vpac.deep.logs import JsonLines

    agent = vpac.deep.PPO("CartPole-v1", seed=1, **PPO)
    lines = JsonLines(folder / "metrics.jsonl", agent)
    looks: list[tuple[int, float, float, float]] = []

    def look(agent: vpac.deep.PPO) -> None:
        lines(agent)
        if agent.timesteps >= (len(looks) + 1) * steps // POINTS:
            resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
            looks.append((agent.timesteps, time.perf_counter(), time.process_time(), resident))

    begun = (0, time.perf_counter(), time.process_time(), 0.0)
    agent.learn(steps, callback=look, checkpoints=folder / "checkpoints")
    lines.close()
    table = Table("steps", "MB", "steps/s", "steps/processor s", title=f"PPO on CartPole-v1, {agent.timesteps:,} steps")
    speeds, thrifts = [], []
    for before, now in zip([begun, *looks], looks, strict=False):
        speeds.append((now[0] - before[0]) / (now[1] - before[1]))
        thrifts.append((now[0] - before[0]) / (now[2] - before[2]))
        table.add_row(f"{now[0]:,}", f"{now[3]:.0f}", f"{speeds[-1]:,.0f}", f"{thrifts[-1]:,.0f}")
    console.print(table)
    memory, speed, thrift = drift([point[3] for point in looks]), drift(speeds), drift(thrifts)
    size = sum(path.stat().st_size for path in (folder / "checkpoints").rglob("*") if path.is_file())
    written = (folder / "metrics.jsonl").stat().st_size
    console.print(
        f"second quarter to last: memory {memory:+.1%}, speed {speed:+.1%}, by processor time {thrift:+.1%}; "
        f"checkpoints {size / 1e6:.2f} MB, metrics.jsonl {written / 1e6:.2f} MB, "
        f"{len(agent.history):,} of {agent.iteration:,} iterations remembered"
    )
    return verdict(f"memory within {MEMORY:.0%}, speed within {SPEED:.0%}", memory < MEMORY and abs(speed) < SPEED)


def verdict(claim: str, holds: bool) -> bool:
    console.print(f"{'kept  ' if holds else 'BROKEN'}  {claim}\n", style="" if holds else "bold red")
    return holds


PARTS = {"store": (many_runs, 100_000), "study": (many_tiny_runs, 10_000), "ppo": (long_run, 20_000_000)}


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    for name, (_, size) in PARTS.items():
        parser.add_argument(f"--{name}", type=int, nargs="?", const=size, metavar="N", help=f"default {size:,}")
    parser.add_argument("--folder", type=Path, help="work here; default: a temporary folder")
    asked = parser.parse_args()
    sizes = {name: getattr(asked, name) for name in PARTS}
    if not any(sizes.values()):
        sizes = {name: size for name, (_, size) in PARTS.items()}
    console.print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {platform.platform(terse=True)}, {os.cpu_count()} cores")
    kept = True
    for name, size in sizes.items():
        if size:
            folder = Path(tempfile.mkdtemp(prefix="vpac-load-", dir=asked.folder))
            try:
                kept &= PARTS[name][0](size, folder)
            finally:
                shutil.rmtree(folder)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
