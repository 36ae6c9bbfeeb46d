"""`vpac list`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from vpac.algorithms import ALGORITHMS
from vpac.cli.output import plain_table, show
from vpac.errors import one_of

OTHERS = {
    "CliffWalking-v1": "Gymnasium's cliff",
    "CliffWalkingSlippery-v1": "Gymnasium's cliff on slippery ground",
    "FrozenLake-v1": "Gymnasium's frozen lake, 4 × 4",
    "FrozenLake8x8-v1": "Gymnasium's frozen lake, 8 × 8",
    "Taxi-v4": "Gymnasium's taxi",
}


def environments() -> list[dict[str, Any]]:
    """Environments of vpac, and those of Gymnasium that have a transition table."""
    import gymnasium

    from vpac.envs.registration import NOISY_TASKS, WORLDS

    ours = [
        {"name": w.id, "exact": "Continuous" not in w.id, "limit": w.max_episode_steps, "about": w.about}
        for w in WORLDS
    ]
    ours += [{"name": task.id, "exact": False, "limit": 1000, "about": task.about} for task in NOISY_TASKS]
    others = [
        {"name": name, "exact": True, "limit": gymnasium.registry[name].max_episode_steps, "about": about}
        for name, about in OTHERS.items()
        if name in gymnasium.registry
    ]
    return ours + others


def algorithms() -> list[dict[str, Any]]:
    """Names for `vpac train`."""
    return [{"name": algorithm.name, "about": algorithm.about} for algorithm in ALGORITHMS.values()]


def experiments() -> list[dict[str, Any]]:
    """Names for `vpac reproduce`."""
    from vpac.lab.experiments.catalogue import EXPERIMENTS
    from vpac.lab.workers.study import plan

    return [
        {"name": e.name, "paper": e.paper or "ours", "runs": len(plan(e, full=True).all()), "about": e.title}
        for e in EXPERIMENTS.values()
    ]


LISTS = {"environments": environments, "algorithms": algorithms, "experiments": experiments}


@dataclass(frozen=True)
class List:
    """Show environments, algorithms and experiments.

    Example: vpac list environments
    """

    what: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[WHAT]")] = "all"
    """all, environments, algorithms or experiments."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self) -> int:
        """Collect the rows and show them."""
        one_of(self.what, ("all", *LISTS), "list")
        found = {name: rows() for name, rows in LISTS.items() if self.what in ("all", name)}
        show(found if self.json else None, *(plain_table(title, _in_words(rows)) for title, rows in found.items()))
        return 0


def _in_words(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows for people."""
    words = {"True": "yes", "False": "no", "None": "none"}
    return [
        {"solvable" if key == "exact" else key: words.get(str(value), value) for key, value in row.items()}
        for row in rows
    ]
