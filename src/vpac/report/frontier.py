"""The exact frontier as a chart and as the page's explorer, from its stored run."""

from __future__ import annotations

from vpac.envs.finite_mdp import FiniteMDP
from vpac.execution.perform import process_of
from vpac.oracle.frontier import Frontier
from vpac.report.chart import Chart, Points, Spots
from vpac.report.document import Explorer
from vpac.report.explorer import explore
from vpac.report.results import Results

__all__ = ["explorer_of", "frontier_chart", "frontier_of"]


def frontier_of(results: Results) -> tuple[FiniteMDP, Frontier, float]:
    """The process, its frontier and the discount factor."""
    (record,) = results.records[results.arms[0].label][:1]
    metrics = record.metrics()
    psis, means, variances = (metrics[name].to_numpy() for name in ("psi", "mean", "variance"))
    found = Frontier(psis, means, variances, record.policy()["policies"], "return")
    return process_of(record.run.task), found, float(record.run.task["settings"]["gamma"])


def frontier_chart(results: Results) -> Chart:
    """Mean against variance, a point for each price."""
    _, found, _ = frontier_of(results)
    names = [f"ψ = {psi:g}" if k % 3 == 0 else "" for k, psi in enumerate(found.psis)]
    spots = Spots("oracle", found.variances, found.means, names=names, joined=True, style="oracle")
    return Chart(
        results.study.experiment.name.replace("/", "-"), "The exact mean–variance frontier",
        "The best stationary policy found for each price ψ: mean against variance of the return.",
        [Points([spots], "variance of the return", "mean return")],
    )  # fmt: skip


def explorer_of(results: Results) -> Explorer:
    """The frontier's policies, for the slider."""
    mdp, found, gamma = frontier_of(results)
    about = (
        "Every policy here is the best that the oracle finds at its price; all numbers are exact, nothing is sampled."
    )
    return explore(mdp, found, gamma, "Four rooms: what a price on variance does", about)
