"""The paper's Table 1 at its own settings and length: 24.6 or 41 million steps a run, PPO, VAAC and VPAC as published.

    python benchmarks/paper_table.py                                 everything, three seeds: a day on two cores; resumes
    python benchmarks/paper_table.py --tasks halfcheetah --seeds 1
    python benchmarks/paper_table.py --only-table                    print what has been measured, beside the paper's numbers

Runs are those of `vpac reproduce mujoco/halfcheetah mujoco/hopper mujoco/walker2d`, one after the other, seed by seed. Each is
a line of JSON in docs/data/paper.jsonl as soon as it is finished: final numbers in the paper's way (100 episodes from one
start) and with starts drawn anew (512 episodes), and the learning curve at a hundred indices. Checkpoints are kept in
results/paper, so that a stopped run goes on; they can be deleted. Several processes with different tasks can share the file.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from vpac.lab.experiments.catalogue import EXPERIMENTS
from vpac.lab.kinds import deep
from vpac.lab.store.backend import Scratch
from vpac.lab.store.run import Run
from vpac.lab.workers.study import plan
from vpac.risk import mean_interval

HERE = Path(__file__).parent
RESULTS = HERE.parent / "docs" / "data" / "paper.jsonl"
CHECKPOINTS = HERE.parent / "results" / "paper"
TASKS = ("halfcheetah", "hopper", "walker2d")
ARMS = ("PPO", "VAAC", "VPAC")
CURVE = ("timesteps", "score_mean", "score_variance", "return_variance", "penalty_share")
POINTS = 100
PACKAGES = ("mujoco", "envpool", "jax", "gymnasium")
COLUMNS = {
    "fixed_mean": "mean, one start",
    "fixed_variance": "variance, one start",
    "mean": "mean",
    "variance": "variance",
}


def carried_out(run: Run, task: str, arm: str) -> dict[str, Any]:
    """Train one run, or go on with it, and summarise what came of it."""
    begun, scratch = time.monotonic(), Scratch(CHECKPOINTS / run.name)
    found = deep.perform(run, scratch)
    scratch.clear()
    indices = np.unique(np.linspace(0, len(found.metrics["timesteps"]) - 1, POINTS).round().astype(int))
    curve = {name: [short(x) for x in found.metrics[name][indices]] for name in CURVE if name in found.metrics}
    final = {name: short(value) for name, value in found.final.items() if value is not None}
    about = {"task": task, "arm": arm, "number": run.number, "run": run.name}
    rest = {"versions": {name: version(name) for name in PACKAGES}, "seconds": round(time.monotonic() - begun)}
    return {**about, **final, **rest, "curve": curve}


def short(x: float) -> float | None:
    """A number in six digits; None if it is not one."""
    return float(f"{x:.6g}") if np.isfinite(x) else None


def read() -> list[dict[str, Any]]:
    """The runs that are finished."""
    lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else []
    return [json.loads(line) for line in lines]


def show(rows: list[dict[str, Any]]) -> None:
    """Print averages over runs ± half of their 95 % intervals (Student's), beside the paper's numbers, in Markdown."""
    print(f"| task | | runs | {' | '.join(COLUMNS.values())} | paper: mean | variance |")
    print("|---|---|---:|" + "---:|" * 6)
    for task in TASKS:
        arms = {arm.label: arm for arm in EXPERIMENTS[f"mujoco/{task}"].arms}
        for label in ARMS:
            runs = [row for row in rows if (row["task"], row["arm"]) == (task, label)]
            if runs:
                cells = [cell(np.array([row[name] for row in runs])) for name in COLUMNS]
                cells += [f"{arms[label].paper[name]:.3g}" for name in ("fixed_mean", "fixed_variance")]
                print(f"| {task} | {label} | {len(runs)} | {' | '.join(cells)} |")


def cell(values: np.ndarray) -> str:
    """Mean ± half of its interval."""
    found = mean_interval(values) if len(values) > 1 else None
    return f"{values.mean():.3g}" + ("" if found is None else f" ± {(found.high - found.low) / 2.0:.2g}")


def main() -> int:
    """Carry out what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), metavar="TASK")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS), metavar="ARM")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only-table", action="store_true", help="measure nothing")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    for number in range(0 if asked.only_table else asked.seeds):
        for task in asked.tasks:
            runs = plan(EXPERIMENTS[f"mujoco/{task}"], runs=asked.seeds).runs
            for arm in asked.arms:
                if (task, arm, number) in {(row["task"], row["arm"], row["number"]) for row in read()}:
                    continue
                row = carried_out(runs[arm][number], task, arm)
                with RESULTS.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row, ensure_ascii=False) + "\n")
                print(f"{task}, {arm}, run {number}: {row['seconds'] / 60:.0f} minutes", file=sys.stderr, flush=True)
    show(read())
    return 0


if __name__ == "__main__":
    sys.exit(main())
