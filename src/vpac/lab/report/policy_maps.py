"""What policies do: maps of grid worlds, and trajectories in the continuous puddle world."""

from __future__ import annotations

from typing import Any

import numpy as np

from vpac.envs.finite_mdp import FiniteMDP
from vpac.envs.maps import GridMap
from vpac.envs.worlds import ContinuousPuddleWorld
from vpac.lab.experiments.spec import Arm, Figure
from vpac.lab.kinds.tabular import risky_states
from vpac.lab.kinds.task import learner_of
from vpac.lab.report.chart import Grid, Panel, Plane, Rectangle, Region, Trajectory
from vpac.lab.report.explorer import policy_arrows
from vpac.lab.report.results import Results, check_named
from vpac.lab.store.store import Record
from vpac.oracle import evaluate
from vpac.oracle.policies import greedy, softmax
from vpac.tabular.agents import Learner
from vpac.tabular.curves import paths
from vpac.typing import FloatArray

EPISODES = 10_000
"""Episodes over which visits are counted, as in the paper."""
DRAWN, LONGEST = 5, 1000
"""Trajectories drawn in the continuous puddle world, the shortest ones, and steps drawn of each."""
VALUES = {
    "trajectory": "", "variance": "variance of the return", "mean variance": "variance of the return",
    "visits": "√ visits an episode",
}  # fmt: skip
"""What the colour of each map means."""


def stored_learner(record: Record) -> Learner:
    """The learner of a stored run, as it was at the end."""
    check_named(record.run)
    learner, learned = learner_of(record.run.task, record.run.seed), record.policy()
    for name, weights in learner.weights._asdict().items():
        weights[...] = learned[name]
    return learner


def _stored_policy(record: Record, policy: str) -> FloatArray:
    """The greedy or softmax policy [S, A] of a stored run."""
    theta = record.policy()["theta"]
    return (
        greedy(theta)
        if policy == "greedy"
        else softmax(theta, float(record.run.task["settings"].get("temperature", 1.0)))
    )


def map_panels(results: Results, figure: Figure, arms: list[Arm]) -> tuple[list[Panel], list[str]]:
    """A row of maps for each arm."""
    panels: list[Panel] = []
    for arm in arms:
        records = results.records[arm.label]
        learner = stored_learner(records[0])
        mdp, policy, gamma = learner.environment.mdp, results.study.experiment.policy, learner.options.gamma
        if mdp is None or mdp.layout is None:
            raise ValueError(f"{learner.environment.name} cannot be drawn as a map")
        horizon = results.study.experiment.horizon or learner.environment.limit
        table = _stored_policy(records[0], policy)
        episodes = paths(learner, policy, EPISODES, horizon, np.random.SeedSequence([learner.seed, 3]))
        for shown in figure.shows:
            values: FloatArray | None = None
            walked: list[Trajectory] = []
            if shown == "trajectory":
                style = arm.label if arm.label in ("AC", "VPAC") else None
                walked = [Trajectory(arm.label, _longest_way(mdp, mdp.layout, episodes), style)]
            elif shown == "variance":
                values = evaluate(mdp, table, gamma, horizon).variance
            elif shown == "mean variance":
                tables = np.stack([_stored_policy(record, policy) for record in records])
                values = np.asarray(evaluate(mdp, tables, gamma, horizon).variance.mean(axis=0))
            elif shown == "visits":
                visited = np.concatenate([states[:-1] for states in episodes])
                values = np.sqrt(np.bincount(visited, minlength=mdp.n_states) / len(episodes))
            panels.append(_map(mdp, mdp.layout, f"{arm.label}: {shown}", VALUES[shown], values, table, walked))
    return panels, []


def _map(
    mdp: FiniteMDP,
    layout: GridMap,
    title: str,
    label: str,
    values: FloatArray | None,
    policy: FloatArray,
    walked: list[Trajectory],
) -> Grid:
    shown = None if values is None else layout.fill(np.where(mdp.terminal, np.nan, values))
    goal = layout.position[mdp.goal]
    risky = np.nan_to_num(layout.fill(risky_states(mdp).astype(float))) > 0.0
    start = (round(walked[0].points[0][0]), round(walked[0].points[0][1])) if walked else None
    return Grid(
        layout.state < 0, shown, label, title, [Region("random reward", risky)] if risky.any() else [],
        (int(goal[0][0]), int(goal[0][1])) if len(goal) else None, start, policy_arrows(mdp, policy), walked,
    )  # fmt: skip


def _longest_way(mdp: FiniteMDP, layout: GridMap, episodes: Any) -> list[tuple[float, float]]:
    """The first episode from the start that is farthest from the goal."""
    goal = layout.position[mdp.goal][0]
    starts = np.flatnonzero(mdp.start > 0.0)
    far = starts[np.argmax(np.abs(layout.position[starts] - goal).sum(axis=1))]
    states = next((states for states in episodes if states[0] == far), episodes[0])
    return [(float(row), float(column)) for row, column in layout.position[states]]


def plane_panels(results: Results, figure: Figure, arms: list[Arm]) -> tuple[list[Panel], list[str]]:
    """The shortest trajectories of each arm in the continuous puddle world, from starts behind the puddle."""
    world = ContinuousPuddleWorld()
    low, high = world.puddle
    panels: list[Panel] = []
    for arm in arms:
        learner = stored_learner(results.records[arm.label][0])
        episodes = paths(learner, results.study.experiment.policy, 400, 5000, np.random.SeedSequence([learner.seed, 3]))
        behind = [points for points in episodes if points[0].max() < low] or episodes
        walked = [
            Trajectory(f"episode {number + 1}", points[:LONGEST].round(3).tolist(), number)
            for number, points in enumerate(sorted(behind, key=len)[:DRAWN])
        ]
        title = f"{arm.label}: {results.final(arm.label, 'risky').mean():.1%} of steps in the puddle"
        goal = (float(world.goal[0]), float(world.goal[1]))
        panels.append(Plane(walked, title, [Rectangle("puddle", low, low, high, high)], goal, world.goal_distance))
    note = (
        "The shortest of the sampled episodes from the lower left corner; most take longer. Shares are over all runs."
    )
    return panels, [note]
