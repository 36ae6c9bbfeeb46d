"""Cost of a step of the deep learners: ours, Stable-Baselines3's, SBX's, and EnvPool's without learning.

Claims, each checked in this run (the exit status is 1 if one does not hold), on HalfCheetah-v5, networks 256-128, minibatches
of 512, 5 epochs, 16 384 environment steps an iteration:

- 64 environments: VPAC-PPO at least 2.5 times the steps per second of SB3's and of SBX's PPO, at least 55 % of EnvPool's alone.
- 64 environments: PPO, with two networks as theirs, at least 2 times SB3's and 1.8 times SBX's.
- 8 environments: at least 1.5 times SB3's and SBX's, with VPAC-PPO and with PPO.
- The paper's preset (8 environments): at least 70 % of EnvPool's speed alone.
- Without EnvPool at least as fast as SB3, with both numbers of environments.
- Less than 1500 MB of memory; less than 15 s to compile, and less from the cache in a new process.

VPAC-PPO trains four networks, without the luck critic three, PPO two as theirs; ours normalise observations and rewards, theirs
nothing.
All have the same number of environments and make the same gradient updates. SB3 and SBX first try both of their vector
environments, on one thread and on all, and EnvPool all numbers of threads up to that of the cores; the fastest takes part.
Each contestant is a process of its own. They take turns of a few seconds, round after round, so that a machine that is slower
for a while is slower for all of them; a ratio is the median of the rounds' ratios, a speed the median of the rounds' speeds.
Two iterations before the clock starts compile and warm everything.
The processor time of an iteration is that of all threads; of "subproc" it leaves out the workers.

    pip install 'vpac[deep,mujoco,envpool,bench]'
    python benchmarks/deep.py [--quick] [--only {64,8,paper,compile}]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from importlib.metadata import version

from rich.console import Console
from rich.table import Table

from contestant import OURS, PAPER, Contestant, Started, installed

TIMES_LIBRARY = {
    "ours": {64: {"SB3": 2.5, "SBX": 2.5}, 8: {"SB3": 1.5, "SBX": 1.5}},
    "PPO": {64: {"SB3": 2.0, "SBX": 1.8}, 8: {"SB3": 1.5, "SBX": 1.5}},
}
SHARE_OF_ENVPOOL, PAPER_SHARE, MEGABYTES, SECONDS = 0.55, 0.7, 1500.0, 15.0
ROUNDS, TRIAL = 10, 2
TURN = {"ours": 2, "three": 2, "PPO": 2, "gymnasium": 1, "paper": 3, "SB3": 1, "SBX": 1, "EnvPool": 4}
"""Iterations of a turn."""
CORES = len(os.sched_getaffinity(0))
NEEDED = ("jax", "mujoco", "envpool")
OTHERS = ("torch", "stable-baselines3", "sbx-rl")
PARTS = ("64", "8", "paper", "compile")

Claims = list[tuple[str, bool]]
console = Console(width=120)


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two rounds, and no trials")
    parser.add_argument("--only", choices=PARTS, help="one part: a number of environments, or the compilation")
    arguments = parser.parse_args()
    parts = PARTS if arguments.only is None else (arguments.only,)
    needed = NEEDED + OTHERS * bool({"64", "8"} & set(parts))
    missing = [name for name in needed if not installed(name)]
    if missing:
        console.print(
            f"{', '.join(missing)} not installed: pip install 'vpac[deep,mujoco,envpool,bench]'", markup=False
        )
        return 1
    console.print(", ".join(f"{name} {version(name)}" for name in needed) + f"; {CORES} cores")
    columns = ("", "environments", "steps per second", "VPAC-PPO ÷ this", "processor s an iteration", "memory, MB")
    table = Table(*columns, title="Speed of learning")
    kept: Claims = []
    for part in parts:
        if part == "compile":
            kept += compilation()
        elif part == "paper":
            kept += race(table, 8, arguments.quick, tuple(PAPER), ("EnvPool",))
        else:
            kept += race(table, int(part), arguments.quick)
    if table.rows:
        console.print(table)
    for claim, holds in kept:
        console.print(f"{'kept  ' if holds else 'BROKEN'}  {claim}", style="" if holds else "bold red")
    return 0 if all(holds for _, holds in kept) else 1


def race(
    table: Table, envs: int, quick: bool, us: tuple[str, ...] = tuple(OURS),
    others: tuple[str, ...] = ("SB3", "SBX", "EnvPool"),
) -> Claims:  # fmt: skip
    """All contestants with so many environments; speeds are relative to the first."""
    contest = [Contestant(who, envs) for who in us]
    for who in others:
        ways = ways_of(who, envs)
        contest.append(ways[0] if quick else max(ways, key=trial))
    started: list[Started] = [one.start() for one in contest]
    rounds: list[dict[str, dict[str, float]]] = []
    for _ in range(2 if quick else ROUNDS):
        rounds.append({one.who.who: one.iterate(TURN[one.who.who]) for one in started})
        said = ", ".join(f"{who} {result['speed']:,.0f}" for who, result in rounds[-1].items())
        console.print(f"{envs} environments, steps per second: {said}", style="dim")
    for one in started:
        one.stop()
    ratio = {}
    for one in contest:
        turns = [result[one.who] for result in rounds]
        ratio[one.who] = statistics.median(result[one.who]["seconds"] / result[us[0]]["seconds"] for result in rounds)
        speed, processor = (statistics.median(turn[what] for turn in turns) for what in ("speed", "processor"))
        name = (OURS | PAPER).get(one.who, str(one))
        table.add_row(
            name, str(envs), f"{speed:,.0f}", f"{ratio[one.who]:.2f}", f"{processor:.2f}", f"{turns[-1]['memory']:.0f}"
        )
    if us[0] in PAPER:
        share = ratio["EnvPool"]
        return [
            (f"the paper's preset: at least {PAPER_SHARE:.0%} of EnvPool's speed: {share:.0%}", share >= PAPER_SHARE)
        ]
    return claims(envs, ratio, rounds[-1]["ours"]["memory"])


def claims(envs: int, ratio: dict[str, float], memory: float) -> Claims:
    """What was promised for this number of environments."""
    found: Claims = []
    for us, bars in TIMES_LIBRARY.items():
        for who, least in bars[envs].items():
            times = ratio[who] / ratio[us]
            claim = f"{envs} environments: {OURS[us]} at least {least:g} times the speed of {who}: {times:.2f} times"
            found.append((claim, times >= least))
    if envs == 64:
        share = ratio["EnvPool"]
        claim = f"{envs} environments: at least {SHARE_OF_ENVPOOL:.0%} of EnvPool's speed alone: {share:.0%}"
        found.append((claim, share >= SHARE_OF_ENVPOOL))
    times = ratio["SB3"] / ratio["gymnasium"]
    found.append((f"{envs} environments, without EnvPool: at least the speed of SB3: {times:.2f} times", times >= 1.0))
    found.append((f"{envs} environments: less than {MEGABYTES:g} MB: {memory:.0f} MB", memory < MEGABYTES))
    return found


def ways_of(who: str, envs: int) -> list[Contestant]:
    """What a competitor may try."""
    if who == "EnvPool":
        return [Contestant(who, envs, threads=n) for n in range(min(envs, CORES), 0, -1)]
    few_or_all = sorted({1, CORES})
    return [Contestant(who, envs, vector, n) for vector in ("dummy", "subproc") for n in few_or_all]


def trial(one: Contestant) -> float:
    """Steps per second in a few iterations; 0 if it hangs."""
    try:
        started = one.start()
        speed = started.iterate(TRIAL)["speed"]
        started.stop()
    except RuntimeError:
        speed = 0.0
    console.print(f"tried {one} with {one.envs} environments: {speed:,.0f} steps per second")
    return speed


def compilation() -> Claims:
    """What the first iteration takes longer than the next, in a process that finds no compilations and in one that does."""
    with tempfile.TemporaryDirectory() as folder:
        runs = [Contestant("ours", 64).start(XDG_CACHE_HOME=folder) for _ in range(2)]
    for run in runs:
        run.stop()
    cold, warm = (max(0.0, run.warm["first"] - run.warm["later"]) for run in runs)
    claim = f"compiled in less than {SECONDS:g} s: {cold:.1f} s, and from the cache in a new process {warm:.1f} s"
    return [(claim, cold < SECONDS and warm < cold)]


if __name__ == "__main__":
    sys.exit(main())
