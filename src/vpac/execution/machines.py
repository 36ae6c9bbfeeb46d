"""What the machines of a Ray cluster have, and what of it a run is given."""

from __future__ import annotations

import time
from typing import Any

from vpac.execution.run import Run

__all__ = ["REFRESH", "Machines", "needs"]

REFRESH = 5.0
"""Seconds between two looks at the cluster."""
USUAL: dict[str, int] = {"CPU": 1, "memory": 512 * 2**20}
"""What a run is given; a worker that trains a tabular learner takes about 350 MB on one thread."""
RESOURCES: dict[str, dict[str, int]] = {"deep": {"CPU": 2, "memory": 2**30}}
"""What runs of another kind are given. The PPO family computes on two threads, always (`deep/compilation.py`), and steps
EnvPool's environments on as many as it is given; 64 copies of HalfCheetah take 840 MB."""


class Machines:
    """The nodes of a cluster, looked at now and then: they come and go.

    Args:
        ray: the module, connected.
    """

    def __init__(self, ray: Any) -> None:
        self.cores = 1
        """Of all of them."""
        self.largest: dict[str, float] = {}
        """Of each resource, how much the machine with the most of it has."""
        self._ray, self._seen = ray, float("-inf")

    def look(self) -> None:
        """See which are there, unless that was just done."""
        if time.monotonic() - self._seen > REFRESH:
            nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
            self.cores, self._seen = int(sum(node.get("CPU", 0) for node in nodes)), time.monotonic()
            self.largest = {name: max((node.get(name, 0.0) for node in nodes), default=0.0) for name in USUAL}

    def lost(self, given: dict[str, int]) -> bool:
        """Whether a task that was given so much waits for a machine that has gone, though there are smaller ones."""
        return any(0 < self.largest.get(name, 0) < amount for name, amount in given.items())


def needs(run: Run, largest: dict[str, float]) -> dict[str, int]:
    """What a run is given: what its kind uses, or all that the largest machine has. It would wait for more for ever, and
    threads can share a core; results depend on neither."""
    wanted = RESOURCES.get(str(run.task.get("kind")), USUAL)
    return {name: min(amount, int(largest.get(name, 0)) or amount) for name, amount in wanted.items()}
