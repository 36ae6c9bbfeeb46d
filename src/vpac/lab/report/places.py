"""Where policies go, drawn: maps of grid worlds and ways over the continuous puddle."""

from __future__ import annotations

from typing import Any

import numpy as np

from vpac.envs.continuous_puddle_world import ContinuousPuddleWorld
from vpac.envs.finite_mdp import FiniteMDP
from vpac.envs.maps import GridMap
from vpac.lab.experiments.spec import Arm, Figure
from vpac.lab.kinds.tabular import risky_states
from vpac.lab.kinds.task import learner_of
from vpac.lab.report.chart import Arrow, Grid, Panel, Plane, Rectangle, Region, Trajectory
from vpac.lab.report.frontier import policy_arrows
from vpac.lab.report.results import Results, check_named, table_of
from vpac.lab.store.store import Record
from vpac.oracle import evaluate
from vpac.tabular.agents import Learner
from vpac.tabular.loop import paths
from vpac.typing import FloatArray

__all__ = ["maps", "planes", "stored_learner"]

TRAJECTORIES = 10_000
"""Over which visits are counted, as in the paper."""
WAYS, LONGEST = 5, 1000
"""Episodes drawn over the continuous puddle, the quickest, and how many steps are drawn of each."""
VALUES = {
    "trajectory": "", "variance": "variance of the return", "mean variance": "variance of the return",
    "visits": "√ visits an episode",
}  # fmt: skip


def stored_learner(record: Record) -> Learner:
    """The learner of a stored run, as it was at the end."""
    check_named(record.run)
    learner, learned = learner_of(record.run.task, record.run.seed), record.policy()
    for name, weights in learner.weights._asdict().items():
        weights[...] = learned[name]
    return learner


def maps(results: Results, figure: Figure, arms: list[Arm]) -> tuple[list[Panel], list[str]]:
    """A row of maps for each arm."""
    panels: list[Panel] = []
    for arm in arms:
        records = results.records[arm.label]
        learner = stored_learner(records[0])
        mdp, policy = learner.environment.mdp, results.study.experiment.policy
        if mdp is None or mdp.layout is None:
            raise ValueError(f"{learner.environment.name} cannot be drawn as a map")
        horizon = results.study.experiment.horizon or learner.environment.limit
        table = table_of(records[0], policy)
        walks = paths(learner, policy, TRAJECTORIES, horizon, np.random.SeedSequence([learner.seed, 3]))
        for shown in figure.shows:
            values = _values(shown, mdp, table, walks, records, policy, learner.options.gamma, horizon)
            ways = [
                Trajectory(arm.label, _way(mdp, mdp.layout, walks), arm.label if arm.label in ("AC", "VPAC") else None)
            ]
            panels.append(_grid(mdp, mdp.layout, f"{arm.label}: {shown}", VALUES[shown], values, table,
                                ways if shown == "trajectory" else []))  # fmt: skip
    return panels, []


def _values(
    shown: str,
    mdp: FiniteMDP,
    table: FloatArray,
    walks: Any,
    records: list[Record],
    policy: str,
    gamma: float,
    horizon: int,
) -> FloatArray | None:
    """A number for each state."""
    if shown == "variance":
        return evaluate(mdp, table, gamma, horizon).variance
    if shown == "mean variance":
        tables = np.stack([table_of(record, policy) for record in records])
        return np.asarray(evaluate(mdp, tables, gamma, horizon).variance.mean(axis=0))
    if shown == "visits":
        visited = np.concatenate([walk[:-1] for walk in walks])
        return np.sqrt(np.bincount(visited, minlength=mdp.n_states) / len(walks))
    return None


def _grid(
    mdp: FiniteMDP,
    layout: GridMap,
    title: str,
    label: str,
    values: FloatArray | None,
    table: FloatArray,
    ways: list[Trajectory],
) -> Grid:
    shown = None if values is None else layout.fill(np.where(mdp.terminal, np.nan, values))
    goal = layout.position[mdp.goal]
    risky = np.nan_to_num(layout.fill(risky_states(mdp).astype(float))) > 0.0
    start = (round(ways[0].points[0][0]), round(ways[0].points[0][1])) if ways else None
    return Grid(
        layout.state < 0, shown, label, title, [Region("random reward", risky)] if risky.any() else [],
        (int(goal[0][0]), int(goal[0][1])) if len(goal) else None, start, _arrows(mdp, table), ways,
    )  # fmt: skip


def _arrows(mdp: FiniteMDP, table: FloatArray) -> list[Arrow]:
    try:
        return policy_arrows(mdp, table)
    except ValueError:  # actions that are not moves
        return []


def _way(mdp: FiniteMDP, layout: GridMap, walks: Any) -> list[tuple[float, float]]:
    """The first walk from the start that is farthest from the goal."""
    goal = layout.position[mdp.goal][0]
    starts = np.flatnonzero(mdp.start > 0.0)
    far = starts[np.argmax(np.abs(layout.position[starts] - goal).sum(axis=1))]
    walk = next((walk for walk in walks if walk[0] == far), walks[0])
    return [(float(row), float(column)) for row, column in layout.position[walk]]


def planes(results: Results, figure: Figure, arms: list[Arm]) -> tuple[list[Panel], list[str]]:
    """The quickest ways over the continuous puddle for each arm, from starts beyond it, seen from the goal."""
    puddle = ContinuousPuddleWorld()
    low, high = puddle.puddle
    panels: list[Panel] = []
    for arm in arms:
        learner = stored_learner(results.records[arm.label][0])
        walks = paths(learner, results.study.experiment.policy, 400, 5000, np.random.SeedSequence([learner.seed, 3]))
        beyond = sorted((walk for walk in walks if walk[0].max() < low), key=len) or sorted(walks, key=len)
        ways = [Trajectory(f"episode {n + 1}", w[:LONGEST].round(3).tolist(), n) for n, w in enumerate(beyond[:WAYS])]
        share = results.final(arm.label, "risky").mean()
        region = Rectangle("puddle", low, low, high, high)
        panels.append(
            Plane(
                ways,
                f"{arm.label}: {share:.1%} of steps in the puddle",
                [region],
                (float(puddle.goal[0]), float(puddle.goal[1])),
                puddle.goal_distance,
            )
        )
    note = "The quickest of the sampled episodes from the lower left corner; most wander for longer. Shares are over all runs."
    return panels, [note]
