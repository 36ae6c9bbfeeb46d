"""Learned frontiers beside each other and beside the oracle's: which form buys more, whatever it calls the price.

At equal ψ two forms are optima of different objectives, so a table at equal ψ compares prices and not forms. Here every form is
swept over ψ, and judged by what a user with a price ψ_j gets who may choose the learner's own price freely:

    hypervolume   below the concave frontier of the points (variance, mean), as a share of the oracle's
    tuned loss    average over j of  U*_j − max_k (m_k − ψ_j v_k),  U*_j the oracle's best U at ψ_j
    plain loss    average over j of  U*_j − (m_j − ψ_j v_j), the learner's own price being the user's

m_k and v_k are averages over runs at the k-th price. Intervals are percentiles over resampled runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from vpac.lab.experiments.spec import Arm, Figure
from vpac.lab.report.chart import Cell, Panel, Points, Spots, Table
from vpac.lab.report.results import Results, over_runs
from vpac.risk.frontier import hypervolume
from vpac.typing import FloatArray

RESAMPLES = 2000
LEAST_RUNS = 5


@dataclass(frozen=True)
class Swept:
    """The runs of one form along the price."""

    psis: FloatArray
    """The prices, ascending, [K]."""
    means: list[FloatArray]
    """Mean return of each run, for each price."""
    variances: list[FloatArray]
    """Variance of the return of each run."""

    def resampled(self, count: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Averages over the runs (first row) and over resamples of them, [1 + count, K] each."""
        m, v = np.empty((2, 1 + count, len(self.psis)))
        for k, (mean, variance) in enumerate(zip(self.means, self.variances, strict=True)):
            rows = np.vstack([np.arange(len(mean)), rng.integers(0, len(mean), (count, len(mean)))])
            m[:, k], v[:, k] = mean[rows].mean(axis=1), variance[rows].mean(axis=1)
        return m, v


def swept(results: Results, figure: Figure, arms: list[Arm]) -> dict[str, Swept]:
    """The runs of each value of `lines`."""
    found: dict[str, Swept] = {}
    for name in dict.fromkeys(str(arm.at[figure.lines or ""]) for arm in arms):
        those = [arm for arm in arms if str(arm.at[figure.lines or ""]) == name]
        those.sort(key=lambda arm: float(arm.at[figure.x or ""]))
        means, variances = ([results.final(arm.label, q) for arm in those] for q in ("mean", "variance"))
        found[name] = Swept(np.array([float(arm.at[figure.x or ""]) for arm in those]), means, variances)
    return found


def frontier_panels(
    results: Results, figure: Figure, arms: list[Arm], looks: Mapping[str, int | str]
) -> tuple[list[Panel], list[str]]:
    """Mean against variance, a point for each price, with 95 % intervals over runs; the oracle's as another line.

    Points more than two standard deviations below the best mean are named in a note: the others would be hard to tell apart.
    """
    series, left_out = [], []
    forms = swept(results, figure, arms)
    best = max((float(form.means[0].mean()), float(form.variances[0].mean())) for form in forms.values())
    for name, form in forms.items():
        shown = [k for k, mean in enumerate(form.means) if mean.mean() >= best[0] - 2.0 * best[1] ** 0.5]
        gone = [f"{psi:g}" for k, psi in enumerate(form.psis) if k not in shown]
        left_out += [f"{name}: ψ = {', '.join(gone)}"] if gone else []
        pairs = ("variance", form.variances), ("mean", form.means)
        x, y = ([over_runs(those[k], q) for k in shown] for q, those in pairs)
        names = [f"{form.psis[k]:g}" for k in shown]
        series.append(Spots.of(name, x, y, names=names, joined=True, style=looks[name]))
    if figure.oracle:
        _, means, variances = np.array(figure.oracle).T
        series.append(Spots("oracle", variances, means, joined=True, style="oracle"))
    notes = [f"Not drawn, because the mean collapses: {'; '.join(left_out)}."] if left_out else []
    return [Points(series, "variance of the return", "mean return", "")], notes


@dataclass(frozen=True)
class Score:
    """Of one form: the estimate in the first row, resamples below it, [1 + count]."""

    volume: FloatArray
    """Hypervolume, as a share of the reference's."""
    tuned: FloatArray
    """Loss in U with a price of the learner's own choice …"""
    plain: FloatArray
    """… and with the user's."""


def scores(
    forms: Mapping[str, Swept], oracle: FloatArray, seed: int = 0, resamples: int = RESAMPLES
) -> dict[str, Score]:
    """Judge forms against the oracle's points [J, (ψ, mean, variance)]; without any, against all points of all forms.

    The box of the hypervolume ends at the largest variance without a price and one standard deviation below the best mean.
    """
    rng = np.random.default_rng(seed)
    drawn = {name: form.resampled(resamples, rng) for name, form in forms.items()}
    if not len(oracle):
        psis = next(iter(forms.values())).psis
        points = np.concatenate([np.stack([m[0], v[0]]) for m, v in drawn.values()], axis=1)
        best = (points[0] - psis[:, None] * points[1]).argmax(axis=1)
        oracle = np.stack([psis, *points[:, best]], axis=1)
    psis, means, variances = oracle.T
    ceiling = max(float(variances[0]), *(float(v[0, 0]) for _, v in drawn.values()))
    floor = float(means[0] - variances[0] ** 0.5)
    most, ideal = hypervolume(means, variances, floor, ceiling), means - psis * variances
    found = {}
    for name, (m, v) in drawn.items():
        worth = m[:, None, :] - psis[:, None] * v[:, None, :]
        here = np.searchsorted(forms[name].psis, psis)
        own = worth[:, np.arange(len(psis)), np.minimum(here, m.shape[1] - 1)]
        tuned, plain = (ideal - worth.max(axis=2)).mean(axis=1), (ideal - own).mean(axis=1)
        found[name] = Score(hypervolume(m, v, floor, ceiling) / most, tuned, plain)
    return found


def compared(results: Results, figure: Figure) -> Table | None:
    """A row for each form: its scores and those less the first form's; None while a form has too few runs."""
    forms = swept(results, figure, results.some(figure.arms))
    if any(min(map(len, form.means)) < LEAST_RUNS for form in forms.values()):
        return None
    found = scores(forms, np.array(figure.oracle).reshape(-1, 3))
    first = next(iter(found))
    rows: list[dict[str, Cell]] = []
    for name, score in found.items():
        row: dict[str, Cell] = {"form": name}
        titles = {"hypervolume": "volume", "loss in U, tuned ψ": "tuned", "loss in U, equal ψ": "plain"}
        for title, field in titles.items():
            values, reference = getattr(score, field), getattr(found[first], field)
            row[title], row[f"{title}, 95 % interval"] = float(values[0]), _ends(values)
            row[f"{title}, less that of {first}"] = None if name == first else _ends(values - reference)
        rows.append(row)
    best = "the oracle's" if figure.oracle else "the best point of all"
    title = f"Forms by their frontiers: hypervolume as a share of {best}, losses against {best}"
    return Table.from_records(rows, title)


def _ends(values: FloatArray) -> str:
    low, high = np.quantile(values[1:], [0.025, 0.975])
    return f"{low:.3g} … {high:.3g}".replace("-", "−")
