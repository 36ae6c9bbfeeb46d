"""The exact frontier as a chart and as the page's explorer, from its stored run."""

from __future__ import annotations

import numpy as np

from vpac.envs.finite_mdp import FiniteMDP
from vpac.execution.making import process_of
from vpac.oracle.frontier import Frontier
from vpac.report.chart import Chart, Points, Spots
from vpac.report.document import Explorer
from vpac.report.explorer import explore
from vpac.report.results import Results, check_named

APART = 0.15
"""Share of the axes that names keep clear of one another."""

__all__ = ["explorer_of", "frontier_chart", "frontier_of"]


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
