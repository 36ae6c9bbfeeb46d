"""Time of the driver of a cluster for each run, and whether it grows with the number of runs.

1. Real: no-op tasks through Ray on this machine, with the messages that runs have, by the loop that `--executor ray` uses.
2. Simulated: the same loop with 10 000 and 100 000 runs of recorded lengths on a cluster with a clock of its own, where
   the driver takes as long for each as was measured in 1.

Claim, checked in this run (the exit status is 1 if it does not hold): ten times the runs cost the driver at most 1.5 times
as much for each, real and simulated. Processor time counts, because other work on the machine does not change it much.

    python benchmarks/scheduler.py [--tasks 1000 10000] [--cores 1000] [--stretch 1]
"""

from __future__ import annotations

import argparse
import heapq
import sys
import time
from concurrent.futures import Future
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from vpac.lab.store.run import Run
from vpac.lab.workers.pool import TaskLoop
from vpac.lab.workers.ray import TASKS_PER_CORE
from vpac.lab.workers.worker import Outcome

SECONDS = (0.018, 0.024, 0.026, 0.028, 0.031, 0.033, 0.037, 0.044, 0.073, 0.415, 52.367)
"""How long the first 102 arms of `vpac reproduce --runs 1` took on two shared cores: the shortest, the deciles, the longest."""
FLAT = 1.5
TASK = {
    "kind": "training", "env": "vpac/FourRooms-v0", "env_settings": {}, "algorithm": "vpac", "episodes": 1000, "every": 20,
    "settings": {"gamma": 0.99, "psi": 0.015, "alpha_theta": 0.01, "alpha_w": 0.5, "alpha_z": 0.5, "temperature": 1.0},
    "policy": "greedy", "horizon": 300, "evaluate": "exact",
}  # fmt: skip


def runs(count: int) -> list[Run]:
    return [Run(TASK, number, number) for number in range(count)]


def nothing(address: str, identity: str, version: str, content: dict[str, Any]) -> list[Outcome]:
    """A run that takes no time: its messages and nothing else."""
    return [Outcome(str(content["number"]), "finished", 0.0)]


class Real:
    """Ray on this machine."""

    def __init__(self) -> None:
        from vpac.lab.workers.ray import OnRay

        self.hands = OnRay("local")
        self.task = self.hands._ray.remote(nothing).options(max_retries=0, num_cpus=1)

    def cost(self, count: int) -> tuple[float, float]:
        """Processor and wall seconds of the driver for each task."""

        def submit(batch: list[Run]) -> Future[list[Outcome]]:
            return self.task.remote("/store", "i" * 32, "0.1.0", batch[0].content).future()  # type: ignore[no-any-return]

        return _time(TaskLoop(submit, lambda: 64, _never), count)


class Simulated:
    """A cluster with a clock of its own: cores take tasks in their order, the driver is busy `cost` seconds with each."""

    def __init__(self, cores: int, lengths: Any, cost: float) -> None:
        self.lengths, self.cost, self.now, self.submitted = lengths, cost, 0.0, 0
        self.most = TASKS_PER_CORE * cores
        self.free = [0.0] * cores
        self.flying: list[tuple[float, int, Future[list[Outcome]], Outcome]] = []

    def submit(self, batch: list[Run]) -> Future[list[Outcome]]:
        """The core that is free first takes it, not before it is submitted."""
        (run,) = batch
        task: Future[list[Outcome]] = Future()
        self.now += self.cost
        end = max(heapq.heappop(self.free), self.now) + self.lengths[self.submitted]
        heapq.heappush(self.free, end)
        heapq.heappush(self.flying, (end, run.number, task, Outcome(run.name, "finished")))
        self.submitted += 1
        if self.submitted == min(self.most, len(self.lengths)):
            self._land()
        return task

    def room(self) -> int:
        """The loop asks before it waits: once the cluster is full, time for the next task to end."""
        if self.submitted >= min(self.most, len(self.lengths)) and self.flying:
            self._land()
        return self.most

    def _land(self) -> None:
        end, _, task, outcome = heapq.heappop(self.flying)
        self.now = max(self.now, end)
        task.set_result([outcome])


def _never(batch: list[Run], error: BaseException) -> list[Outcome]:
    raise error


def _time(loop: TaskLoop, count: int) -> tuple[float, float]:
    """Processor and wall seconds for each task."""
    given = runs(count)
    for run in given:  # names are hashes: they are the study's to pay for, before anything is submitted
        assert run.name
    wall, processor = time.perf_counter(), time.process_time()
    assert sum(1 for _ in loop.run(given)) == count
    return (time.process_time() - processor) / count, (time.perf_counter() - wall) / count


def main() -> int:
    parser = argparse.ArgumentParser(description="What the driver of a cluster pays for each run.")
    parser.add_argument("--tasks", type=int, nargs="+", default=[1000, 10_000], help="no-op tasks through Ray")
    parser.add_argument("--cores", type=int, default=1000, help="of the simulated cluster")
    parser.add_argument("--stretch", type=float, default=1.0, help="multiply the recorded lengths")
    asked = parser.parse_args()
    console, flat = Console(width=110), True

    real = Real()
    real.cost(200)
    table = Table("no-op tasks", "driver, µs of processor each", "wall, µs each", title="Ray on this machine")
    costs = []
    for count in asked.tasks:
        cost, wall = real.cost(count)
        costs.append(cost)
        table.add_row(f"{count:,}", f"{cost * 1e6:.0f}", f"{wall * 1e6:.0f}")
    real.hands.close()
    console.print(table)
    flat &= costs[-1] <= FLAT * costs[0]

    table = Table("runs", "loop, µs of processor each", "last run ends", "without a driver", "driver busy", "cores busy",
                  title=f"simulated: {asked.cores} cores, {costs[-1] * 1e6:.0f} µs a run")  # fmt: skip
    loops = []
    for count in (10_000, 100_000):
        quantiles = np.random.default_rng(count).random(count)
        lengths = asked.stretch * np.interp(quantiles, np.linspace(0.0, 1.0, len(SECONDS)), SECONDS)
        cluster, ideal = (Simulated(asked.cores, lengths.tolist(), cost) for cost in (costs[-1], 0.0))
        loops.append(_time(TaskLoop(cluster.submit, cluster.room, _never), count)[0])
        _time(TaskLoop(ideal.submit, ideal.room, _never), count)
        busy, work = count * costs[-1] / cluster.now, lengths.sum() / asked.cores / cluster.now
        ends = (f"{cluster.now:.1f} s", f"{ideal.now:.1f} s")
        table.add_row(f"{count:,}", f"{loops[-1] * 1e6:.1f}", *ends, f"{busy:.1%}", f"{work:.1%}")
    console.print(table)
    flat &= loops[-1] <= FLAT * loops[0]
    console.print("flat" if flat else f"NOT flat: more than {FLAT} times the cost for ten times the runs")
    return 0 if flat else 1


if __name__ == "__main__":
    sys.exit(main())
