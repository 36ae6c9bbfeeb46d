"""Writes docs/data/evidence.jsonl, what the runs of `vpac reproduce evidence` came down to, and prints the tables of the docs.

    python docs/evidence_data.py [STORE]        reads a store first; experiments that it does not hold stay as they are
    python docs/evidence_data.py --table        the tables only, from the file that is there

A line is an arm: the experiment, its label, what is varied, and mean and variance of the last policy of each run; of
`evidence/vaac` also at episodes 1000 and 4500. Runs that failed or diverged are counted in `failed`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from vpac.lab.experiments.catalogue import EXPERIMENTS
from vpac.lab.report.results import Results, read_results
from vpac.lab.report.trade_off import Swept, scores
from vpac.lab.store.records import studies
from vpac.lab.store.store import Store
from vpac.risk import mean_interval, ratio_of_means

OUT = Path(__file__).parent / "data" / "evidence.jsonl"
GROUPS = ("evidence/", "grid-search/")
EPISODES = (1000, 4500)


def main() -> None:
    """Read a store, or what was read before, and show."""
    where = sys.argv[1] if len(sys.argv) > 1 else "results"
    if where != "--table":
        store = Store(where)
        found = [study for study in studies(store) if study.experiment.name.startswith(GROUPS)]
        rows = [row for study in found for row in lines(read_results(store, study, {}))]
        if not rows:
            sys.exit(f"{where} holds no run of these experiments.\n\n{__doc__}")
        new = {row["experiment"] for row in rows}
        rows = [row for row in kept() if row["experiment"] not in new] + rows
        OUT.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    rows = kept()
    for name in dict.fromkeys(row["experiment"] for row in rows):
        print(f"\n**{name}**\n")
        shown = forms if name.startswith("evidence/forms") else grid if name.startswith("grid") else show
        shown(name, [row for row in rows if row["experiment"] == name])


def kept() -> list[dict[str, Any]]:
    """What was read before."""
    text = OUT.read_text(encoding="utf-8") if OUT.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def lines(results: Results) -> list[dict[str, Any]]:
    """The arms of a study that have a finished run."""
    name, rows = results.study.experiment.name, []
    for arm in results.arms:
        row: dict[str, Any] = {"experiment": name, "arm": arm.label, "at": arm.at}
        row["failed"] = len(results.study.runs[arm.label]) - len(results.records[arm.label])
        row |= {q: [float(f"{x:.6g}") for x in results.final(arm.label, q)] for q in ("mean", "variance")}
        if name == "evidence/vaac":
            for episode in EPISODES:
                for q in ("mean", "variance"):
                    curve = results.curve(arm.label, q)
                    row[f"{q} at {episode}"] = float(curve.mean[list(curve.x).index(episode)])
        rows.append(row)
    return rows


def show(_: str, rows: list[dict[str, Any]]) -> None:
    """The table of one experiment."""
    print("| arm | runs | mean | variance |" + "".join(f" at {e} |" for e in EPISODES if f"mean at {e}" in rows[0]))
    print("|---|---|---|---|" + "---|" * sum(f"mean at {e}" in rows[0] for e in EPISODES))
    for row in rows:
        cells = [_interval(mean_interval(row[q])) for q in ("mean", "variance")]
        cells += [
            f"{row[f'mean at {e}']:.3g} / {row[f'variance at {e}']:.3g}" for e in EPISODES if f"mean at {e}" in row
        ]
        print(f"| {row['arm']} | {len(row['mean'])} | " + " | ".join(cells) + " |")
    first = rows[0]
    for row in rows[1:]:
        found = ratio_of_means(row["variance"], first["variance"])
        print(f"\nvariance, {row['arm']} ÷ {first['arm']}: {_interval(found)}", end="")
    print()


def forms(name: str, rows: list[dict[str, Any]]) -> None:
    """Scores of each form by its frontier, and less those of the first."""
    swept = {}
    for form in dict.fromkeys(row["at"]["form"] for row in rows):
        those = sorted((row for row in rows if row["at"]["form"] == form), key=lambda row: row["at"]["ψ"])
        means, variances = ([np.array(row[q]) for row in those] for q in ("mean", "variance"))
        swept[form] = Swept(np.array([row["at"]["ψ"] for row in those]), means, variances)
    oracle = np.array(EXPERIMENTS[name].figures[0].oracle).reshape(-1, 3)
    found = scores(swept, oracle)
    first = next(iter(found))
    print("| form | hypervolume | loss in U, tuned ψ | less the first's | loss in U, equal ψ | less the first's |")
    print("|---|---|---|---|---|---|")
    for form, score in found.items():
        cells = [_resampled(score.volume)]
        for values, reference in ((score.tuned, found[first].tuned), (score.plain, found[first].plain)):
            cells += [_resampled(values), "" if form == first else _resampled(values - reference)]
        print(f"| {form} | " + " | ".join(cells) + " |")


def grid(name: str, rows: list[dict[str, Any]]) -> None:
    """For each algorithm what the paper's rule chooses, and what the paper chose; settings of which a run diverged are out."""
    heads = ("algorithm", "settings", "diverge", "by the rule", "mean / variance", "by the paper", "mean / variance")
    print(f"| {' | '.join(heads)} |\n|---|---:|---:|---|---|---|---|")
    for algorithm, paper in PAPER[name].items():
        tried = sum(arm.at["algorithm"] == algorithm for arm in EXPERIMENTS[name].arms)
        those = [row for row in rows if row["at"]["algorithm"] == algorithm]
        whole = [row for row in those if not row["failed"]]
        best = max(whole, key=lambda row: float(np.mean(row["mean"])))
        tied = [row for row in whole if _difference(best, row) <= 2.0]
        chosen = min(tied, key=lambda row: float(np.mean(row["variance"])))
        theirs = next(row for row in those if all(row["at"][key] == value for key, value in paper.items()))
        place = "" if theirs in tied else ", diverges" if theirs["failed"] else ", a lower mean"
        ours = f"{_setting(chosen['at'])} ({len(tied)} with this mean)"
        cells = (
            algorithm,
            tried,
            tried - len(whole),
            ours,
            _moments(chosen),
            _setting(theirs["at"]) + place,
            _moments(theirs),
        )
        print(f"| {' | '.join(map(str, cells))} |")


def _difference(best: dict[str, Any], row: dict[str, Any]) -> float:
    """Of the means, in standard errors."""
    x, y = np.array(best["mean"]), np.array(row["mean"])
    error = np.sqrt(x.var(ddof=1) / len(x) + y.var(ddof=1) / len(y))
    return float((x.mean() - y.mean()) / error) if row is not best else 0.0


def _setting(at: dict[str, Any]) -> str:
    names = {"psi": "ψ", "alpha_theta": "α_θ", "alpha_w": "α_w", "alpha_z": "α_z"}
    return ", ".join(f"{text} = {at[name]:g}" for name, text in names.items() if name in at)


def _moments(row: dict[str, Any]) -> str:
    return f"{np.mean(row['mean']):.4g} / {np.mean(row['variance']):.4g}" if row["mean"] else ""


def _step_sizes(theta: float, w: float, z: float, psi: float) -> dict[str, float]:
    return {"alpha_theta": theta, "alpha_w": w, "alpha_z": z, "psi": psi}


PAPER: dict[str, dict[str, dict[str, float]]] = {
    "grid-search/four-rooms": {
        "AC": {"alpha_theta": 0.01, "alpha_w": 0.5}, "VPAC": _step_sizes(0.01, 0.5, 0.5, 0.015),
        "VAAC_TD": _step_sizes(0.01, 0.5, 0.5, 0.01), "VAAC": _step_sizes(0.001, 0.05, 0.005, 0.01),
    },
    "grid-search/puddle-world": {
        "AC": {"alpha_theta": 0.05, "alpha_w": 0.5}, "VPAC": _step_sizes(0.05, 0.5, 0.25, 0.002),
        "VAAC": _step_sizes(0.005, 0.01, 0.01, 0.0015),
    },
    "grid-search/continuous-puddle-world": {
        "AC": {"alpha_theta": 0.1, "alpha_w": 0.5}, "VPAC": _step_sizes(0.1, 0.5, 0.25, 0.001),
        "VAAC": _step_sizes(0.005, 0.05, 0.05, 0.0015),
    },
}  # fmt: skip
"""The paper's own choices, Tables 2 to 4."""


def _interval(found: Any) -> str:
    return f"{found.estimate:.4g} ({found.low:.4g} … {found.high:.4g})".replace("-", "−")


def _resampled(values: np.ndarray) -> str:
    low, high = np.quantile(values[1:], [0.025, 0.975])
    return f"{values[0]:.3g} ({low:.3g} … {high:.3g})".replace("-", "−")


if __name__ == "__main__":
    main()
