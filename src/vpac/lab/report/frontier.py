"""The exact frontier as a chart and as the page's explorer, from its stored run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vpac.envs.finite_mdp import FiniteMDP
from vpac.envs.maps import EIGHT_MOVES, GridMap
from vpac.lab.kinds.task import process_of
from vpac.lab.report.chart import Arrow, Chart, Points, Spots
from vpac.lab.report.document import Explorer, ExplorerPoint
from vpac.lab.report.results import Results, check_named
from vpac.oracle.frontier import Frontier
from vpac.oracle.moments import evaluate
from vpac.typing import FloatArray

if TYPE_CHECKING:
    from vpac.oracle.frontier import Frontier

__all__ = ["explore", "explorer_of", "frontier_chart", "frontier_of", "policy_arrows"]


def explore(mdp: FiniteMDP, found: Frontier, gamma: float, title: str, about: str = "") -> Explorer:
    """Every policy of a frontier, with its exact variance and visitation by cell."""
    layout = _layout(mdp)
    points = []
    for psi, policy in zip(found.psis, found.policies, strict=True):
        moments = evaluate(mdp, policy, gamma)
        alive, mean, variance = ~mdp.terminal, float(moments.mean), float(moments.variance_of(found.variance_of))
        actions = np.where(alive, policy.argmax(axis=-1), -1)
        points.append(
            ExplorerPoint(
                psi=float(psi),
                mean=mean,
                variance=variance,
                sharpe=mean / variance**0.5 if variance > 0.0 else float("inf"),
                actions=[int(a) for a in np.nan_to_num(layout.fill(actions.astype(float)), nan=-1.0).ravel()],
                cell_variance=_cells(layout, np.where(alive, moments.variance, np.nan)),
                visitation=_cells(layout, np.where(alive, moments.visitation, np.nan)),
            )
        )
    (goal,) = layout.position[mdp.goal][:1].tolist()
    rows, columns = layout.letters.shape
    return Explorer(
        rows, columns,
        [bool(wall) for wall in (layout.state < 0).ravel()],
        [bool(cell) for cell in (layout.letters == "f").ravel()],
        (goal[0], goal[1]), points, [EIGHT_MOVES[name] for name in mdp.action_names], title, about,
    )  # fmt: skip


def policy_arrows(mdp: FiniteMDP, policy: FloatArray, at_least: float = 0.0) -> list[Arrow]:
    """A policy [S, A] as arrows: the likeliest action of each state, or each that is likelier than `at_least` if positive."""
    layout = _layout(mdp)
    arrows = []
    for state in np.flatnonzero(~mdp.terminal):
        row, column = (int(x) for x in layout.position[state])
        likely = [int(np.argmax(policy[state]))] if at_least <= 0.0 else np.flatnonzero(policy[state] >= at_least)
        for action in likely:
            down, right = EIGHT_MOVES[mdp.action_names[action]]
            arrows.append(Arrow(row, column, down, right, float(policy[state, action])))
    return arrows


def _layout(mdp: FiniteMDP) -> GridMap:
    if mdp.layout is None or not set(mdp.action_names) <= set(EIGHT_MOVES):
        raise ValueError("only worlds that are drawn as a map, with moves for actions, can be explored")
    return mdp.layout


def _cells(layout: GridMap, values: FloatArray) -> list[float]:
    return [float(value) for value in layout.fill(values).ravel()]


APART = 0.15
"""Share of the axes that names keep clear of one another."""


def frontier_of(results: Results) -> tuple[FiniteMDP, Frontier, float]:
    """The process, its frontier and the discount factor."""
    (record,) = results.records[results.arms[0].label][:1]
    metrics = record.metrics()
    psis, means, variances = (metrics[name].to_numpy() for name in ("psi", "mean", "variance"))
    found = Frontier(psis, means, variances, record.policy()["policies"], "return")
    check_named(record.run)
    return process_of(record.run.task), found, float(record.run.task["settings"]["gamma"])


def frontier_chart(results: Results) -> Chart:
    """Mean against variance, a point for each price."""
    _, found, _ = frontier_of(results)
    names = _names(found)
    spots = Spots("oracle", found.variances, found.means, names=names, joined=True, style="oracle")
    return Chart(
        results.study.experiment.name.replace("/", "-"), "The exact mean–variance frontier",
        "The best stationary policy found for each price ψ: mean against variance of the return.",
        [Points([spots], "variance of the return", "mean return")],
    )  # fmt: skip


def _names(found: Frontier) -> list[str]:
    """Prices beside points that are far enough from the last one that has its price beside it."""
    places = np.stack(
        [found.variances / (np.ptp(found.variances) or 1.0), found.means / (np.ptp(found.means) or 1.0)], axis=1
    )
    names, last = [], np.full(2, np.inf)
    for psi, place in zip(found.psis, places, strict=True):
        named = not np.abs(place - last).max() < APART
        names.append(f"ψ = {psi:g}" if named else "")
        last = place if named else last
    return names


def explorer_of(results: Results) -> Explorer:
    """The frontier's policies, for the slider."""
    mdp, found, gamma = frontier_of(results)
    about = (
        "Every policy here is the best that the oracle finds at its price; all numbers are exact, nothing is sampled."
    )
    return explore(mdp, found, gamma, "Four rooms: what a price on variance does", about)
