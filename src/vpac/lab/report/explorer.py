"""Behaviour of policies: maps of grid worlds, `vpac solve`, the exact frontier's chart, the page's slider, and trajectories."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from vpac.envs.finite_mdp import FiniteMDP
from vpac.envs.maps import EIGHT_MOVES, GridMap
from vpac.envs.worlds import ContinuousPuddleWorld
from vpac.files import jsonable
from vpac.lab.experiments.spec import Arm, Figure
from vpac.lab.kinds import saved_agents
from vpac.lab.kinds.tabular import risky_states
from vpac.lab.kinds.task import process_of, task_recipe
from vpac.lab.report.chart import Arrow, Chart, Grid, Panel, Points, Region, Spots, Table, Trajectory
from vpac.lab.report.geometry import colour_scale
from vpac.lab.report.interactive import numbers
from vpac.lab.report.results import Results, check_named
from vpac.lab.store.store import Record
from vpac.oracle.frontier import Frontier
from vpac.oracle.moments import Moments, evaluate
from vpac.oracle.policies import greedy, softmax
from vpac.tabular.agents import Learner
from vpac.tabular.curves import paths
from vpac.typing import FloatArray

APART = 0.15
"""Minimal distance of labelled points, as a share of the axes."""


@dataclass(frozen=True)
class Explorer:
    """A world whose best policies are shown by a slider over prices of variance."""

    data: dict[str, Any]
    """Data that the slider's script reads: the map, and each policy's numbers by cell, row by row."""
    about: str = ""
    """Text about what is shown; an empty line begins a new paragraph."""
    title: str = "Four rooms: what a price on variance does"

    def table(self) -> Table:
        """The policies without their maps."""
        keys = {
            "psi": "ψ", "mean": "mean", "variance": "variance", "std": "standard deviation", "sharpe": "Sharpe ratio",
        }  # fmt: skip
        return Table.of([*keys.values()], [[point[key] for key in keys] for point in self.data["points"]], self.title)


def explore(mdp: FiniteMDP, found: Frontier, gamma: float, about: str = "") -> Explorer:
    """Every policy of a frontier, with its exact variance and visitation by cell."""
    layout = mdp.layout
    if layout is None or not set(mdp.action_names) <= set(EIGHT_MOVES):
        raise ValueError("only worlds with a map, and moves for actions, can be explored")

    def by_cell(values: FloatArray) -> FloatArray:
        return layout.fill(np.where(mdp.terminal, np.nan, values)).ravel()

    points = []
    for psi, policy in zip(found.psis, found.policies, strict=True):
        moments = evaluate(mdp, policy, gamma)
        mean, variance = float(moments.mean), float(moments.variance_of(found.variance_of))
        points.append(
            {
                "psi": float(psi), "mean": mean, "variance": variance, "std": math.sqrt(max(variance, 0.0)),
                "sharpe": mean / variance**0.5 if variance > 0.0 else None,
                "actions": np.nan_to_num(by_cell(policy.argmax(axis=-1)), nan=-1.0).astype(int).tolist(),
                "cellVariance": numbers(by_cell(moments.variance)), "visitation": numbers(by_cell(moments.visitation)),
            }
        )  # fmt: skip
    rows, columns = layout.letters.shape
    data = {
        "rows": rows, "columns": columns, "walls": (layout.state < 0).ravel().astype(int).tolist(),
        "frozen": (layout.letters == "f").ravel().astype(int).tolist(), "goal": layout.position[mdp.goal][0].tolist(),
        "points": points, "moves": [list(EIGHT_MOVES[name]) for name in mdp.action_names],
        "scales": {"variance": colour_scale("viridis"), "visitation": colour_scale("cividis")},
    }  # fmt: skip
    return Explorer(data, about)


def policy_arrows(mdp: FiniteMDP, policy: FloatArray) -> list[Arrow]:
    """The likeliest action of each state as an arrow, unless all are equally likely; none if actions are not moves."""
    if mdp.layout is None or not set(mdp.action_names) <= set(EIGHT_MOVES):
        return []
    arrows = []
    for state in np.flatnonzero(~mdp.terminal & (np.ptp(policy, axis=-1) > 1e-9)):
        row, column = (int(x) for x in mdp.layout.position[state])
        action = int(np.argmax(policy[state]))
        arrows.append(Arrow(row, column, *EIGHT_MOVES[mdp.action_names[action]], float(policy[state, action])))
    return arrows


class ExactFrontier:
    """The stored frontier of a study of kind "frontier"."""

    def __init__(self, results: Results) -> None:
        self.study = results.study
        self.record = results.records[results.arms[0].label][0]
        metrics = self.record.metrics()
        psis, means, variances = (metrics[name].to_numpy() for name in ("psi", "mean", "variance"))
        self.found = Frontier(psis, means, variances, self.record.policy()["policies"], "return")

    def tables(self) -> list[Table]:
        """No tables: the chart's data has all numbers."""
        return []

    def charts(self) -> list[Chart]:
        """Mean against variance, a point for each price."""
        found = self.found
        spots = Spots("oracle", found.variances, found.means, names=self._labels(), joined=True, style="oracle")
        return [
            Chart(
                self.study.experiment.name.replace("/", "-"), "The exact mean–variance frontier",
                "The best stationary policy found for each price ψ: mean against variance of the return.",
                [Points([spots], "variance of the return", "mean return")],
            )
        ]  # fmt: skip

    def _labels(self) -> list[str]:
        """Prices beside points that are far enough from the last labelled one."""
        points = np.stack([v / (np.ptp(v) or 1.0) for v in (self.found.variances, self.found.means)], axis=1)
        labels, last = [], np.full(2, np.inf)
        for psi, point in zip(self.found.psis, points, strict=True):
            apart = not np.abs(point - last).max() < APART
            labels.append(f"ψ = {psi:g}" if apart else "")
            last = point if apart else last
        return labels

    def explorer(self) -> Explorer:
        """The frontier's policies, for the slider."""
        task = self.record.run.task
        check_named(self.record.run)
        about = (
            "Every policy is the best that the oracle finds at its price; all numbers are exact, nothing is sampled."
        )
        return explore(process_of(task), self.found, float(task["settings"]["gamma"]), about)


QUANTITY_ROWS = {
    "mean": "mean return",
    "total_variance": "variance of the return",
    "state_variance": "… of which given the start state, E[Var(G|S0)]",
    "action_variance": "… of which given the first action, too, E[σ(S0,A0)]",
    "std": "standard deviation",
    "sharpe": "Sharpe ratio (mean / standard deviation)",
    "goal_probability": "probability of reaching the goal",
    "steps": "expected number of steps",
}
STATE_MAPS = (
    ("value", "value  V(s)", "viridis"),
    ("variance", "variance  Var(G|s)", "magma"),
    ("visitation", "visitation  Σ γᵏ P(Sₖ = s)", "cividis"),
)
REGIONS = {"f": "frozen", "x": "treacherous"}


@dataclass(frozen=True)
class Solution:
    """The exact moments of a policy in an environment."""

    moments: Moments
    env: str
    policy: str

    @property
    def _setting(self) -> str:
        limit = f", {self.moments.horizon} steps" if self.moments.horizon else ""
        return f"{self.policy} policy, γ = {self.moments.gamma:g}{limit}"

    def _numbers(self) -> dict[str, float]:
        moments = self.moments
        plain = ("mean", "total_variance", "std", "sharpe", "goal_probability")
        found = {name: getattr(moments, name) for name in plain}
        found |= {f"{name}_variance": moments.variance_of(name) for name in ("state", "action")}
        found["steps"] = moments.visits[~moments.mdp.terminal].sum()
        return {name: float(found[name]) for name in QUANTITY_ROWS}

    def as_dict(self) -> dict[str, Any]:
        """Plain data; unknown numbers are None."""
        moments = self.moments
        by_state = {name: getattr(moments, name).tolist() for name, _, _ in STATE_MAPS}
        return {
            "env": self.env, "policy": self.policy, "gamma": moments.gamma, "horizon": moments.horizon,
            "states": moments.mdp.n_states, "actions": moments.mdp.n_actions,
            **jsonable(self._numbers()), "by_state": jsonable(by_state),
        }  # fmt: skip

    def tables(self) -> list[Table]:
        """The moments."""
        rows = [(QUANTITY_ROWS[name], f"{value:.6g}") for name, value in self._numbers().items()]
        return [Table.of(("", ""), rows, f"{self.env}, {self._setting}")]

    def charts(self) -> list[Chart]:
        """Maps of value, variance and visitation; arrows are the most likely actions."""
        moments, mdp = self.moments, self.moments.mdp
        layout = mdp.layout or GridMap.strip(mdp.n_states)
        goal, start = (_only(np.argwhere(layout.letters == letter)) for letter in "gs")
        dark = np.nan_to_num(layout.fill(np.where(mdp.terminal, 1.0, 0.0)), nan=1.0) > 0.0
        if goal:
            dark[goal] = False
        marked = {name: layout.letters == letter for letter, name in REGIONS.items()}
        regions = [Region(name, cells) for name, cells in marked.items() if cells.any()]
        panels = []
        for name, title, colours in STATE_MAPS:
            values = layout.fill(np.where(mdp.terminal, np.nan, getattr(moments, name)))
            arrows = policy_arrows(mdp, moments.policy) if name == "value" else []
            panels.append(Grid(dark, values, "", title, regions, goal, start, arrows, colours=colours))
        rows, columns = layout.letters.shape
        foot = f"{self._setting}: mean {float(moments.mean):.4g}, variance {float(moments.total_variance):.4g}"
        caption = "Arrows are the most likely actions; walls and terminal states are dark."
        return [Chart("solution", self.env, caption, panels, columns=1 if columns > 2 * rows else 3, foot=foot)]


def _only(cells: Any) -> tuple[int, int] | None:
    """The row and column of a cell, if there is one only."""
    return (int(cells[0][0]), int(cells[0][1])) if len(cells) == 1 else None


VISIT_EPISODES = 10_000
"""Episodes over which visits are counted, as in the paper."""
DRAWN_PATHS, DRAWN_STEPS = 5, 1000
"""Trajectories drawn in the continuous puddle world, the shortest ones, and steps drawn of each."""
SQUARES = 20
"""Rows and columns of the grid that it is drawn on."""
VALUES = {
    "trajectory": "", "variance": "variance of the return", "mean variance": "variance of the return",
    "visits": "√ visits an episode",
}  # fmt: skip
"""Meaning of the colour of each map."""


def stored_learner(record: Record) -> Learner:
    """The learner of a stored run, as it was at the end."""
    check_named(record.run)
    return saved_agents.stored_learner(record, task_recipe(record.run.task))


def _stored_policy(record: Record, policy: str) -> FloatArray:
    """The greedy or softmax policy [S, A] of a stored run."""
    theta, temperature = record.policy()["theta"], float(record.run.task["settings"].get("temperature", 1.0))
    return greedy(theta) if policy == "greedy" else softmax(theta, temperature)


def map_panels(results: Results, figure: Figure, arms: list[Arm]) -> tuple[list[Panel], list[str]]:
    """A row of maps for each arm."""
    panels: list[Panel] = []
    for arm in arms:
        records = results.records[arm.label]
        learner = stored_learner(records[0])
        mdp, policy, gamma = learner.environment.mdp, results.study.experiment.policy, learner.options.gamma
        if mdp is None or mdp.layout is None:
            raise ValueError(f"{learner.environment.name} cannot be drawn as a map")
        layout = mdp.layout
        risky = np.nan_to_num(layout.fill(risky_states(mdp).astype(float))) > 0.0
        regions = [Region("random reward", risky)] if risky.any() else []
        horizon = results.study.experiment.horizon or learner.environment.limit
        table = _stored_policy(records[0], policy)
        goal, arrows = _only(layout.position[mdp.goal][:1]), policy_arrows(mdp, table)
        episodes = paths(learner, policy, VISIT_EPISODES, horizon, np.random.SeedSequence([learner.seed, 3]))
        for shown in figure.shows:
            values: FloatArray | None = None
            walked: list[Trajectory] = []
            if shown == "trajectory":
                style = arm.label if arm.label in ("AC", "VPAC") else None
                walked = [Trajectory(arm.label, _longest_way(mdp, layout, episodes), style)]
            elif shown == "variance":
                values = evaluate(mdp, table, gamma, horizon).variance
            elif shown == "mean variance":
                tables = np.stack([_stored_policy(record, policy) for record in records])
                values = np.asarray(evaluate(mdp, tables, gamma, horizon).variance.mean(axis=0))
            elif shown == "visits":
                visited = np.concatenate([states[:-1] for states in episodes])
                values = np.sqrt(np.bincount(visited, minlength=mdp.n_states) / len(episodes))
            cells = None if values is None else layout.fill(np.where(mdp.terminal, np.nan, values))
            start = _only(np.round(walked[0].points[:1])) if walked else None
            title, walls = f"{arm.label}: {shown}", layout.state < 0
            panels.append(Grid(walls, cells, VALUES[shown], title, regions, goal, start, arrows, walked))
    return panels, []


def _longest_way(mdp: FiniteMDP, layout: GridMap, episodes: Any) -> Any:
    """The first episode from the start that is farthest from the goal, [steps, (row, column)]."""
    goal = layout.position[mdp.goal][0]
    starts = np.flatnonzero(mdp.start > 0.0)
    far = starts[np.argmax(np.abs(layout.position[starts] - goal).sum(axis=1))]
    return layout.position[next((states for states in episodes if states[0] == far), episodes[0])]


def plane_panels(results: Results, figure: Figure, arms: list[Arm]) -> tuple[list[Panel], list[str]]:
    """The shortest trajectories of each arm in the continuous puddle world, from starts behind the puddle, on a fine grid."""
    world, n = ContinuousPuddleWorld(), SQUARES
    low, high = world.puddle
    centres = (np.arange(n) + 0.5) / n
    inside = (centres > low) & (centres < high)
    puddle = Region("puddle", inside[:, None] & inside)
    goal = round((1.0 - float(world.goal[1])) * (n - 1)), round(float(world.goal[0]) * (n - 1))
    panels: list[Panel] = []
    for arm in arms:
        learner = stored_learner(results.records[arm.label][0])
        episodes = paths(learner, results.study.experiment.policy, 400, 5000, np.random.SeedSequence([learner.seed, 3]))
        behind = [points for points in episodes if points[0].max() < low] or episodes
        walked = [
            Trajectory(f"episode {number + 1}", (n * np.stack([1.0 - y, x], axis=1) - 0.5).round(3).tolist(), number)
            for number, (x, y) in enumerate(points[:DRAWN_STEPS].T for points in sorted(behind, key=len)[:DRAWN_PATHS])
        ]
        title = f"{arm.label}: {results.final(arm.label, 'risky').mean():.1%} of steps in the puddle"
        panels.append(Grid(np.zeros((n, n), bool), title=title, regions=[puddle], goal=goal, trajectories=walked))
    note = (
        "The shortest of the sampled episodes from the lower left corner; most take longer. Shares are over all runs."
    )
    return panels, [note]
