"""Draws docs/images/paper-TASK.png from docs/data/paper.jsonl: the paper's learning curves and variances, run by run.

    python docs/draw_paper.py

A line is a run at the paper's settings and length; a dot is the variance of its final score over 512 starts, a bar the paper's.
"""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib.pyplot as plt

from vpac.lab.experiments.catalogue import EXPERIMENTS
from vpac.lab.report.geometry import look

HERE = Path(__file__).parent
STYLES = {"PPO": 6, "VAAC": 3, "VPAC": 1}


def draw(task: str, rows: list[dict]) -> Path:
    """Learning curves on the left, variances of the final policies on the right."""
    paper = {arm.label: arm.paper for arm in EXPERIMENTS[f"mujoco/{task}"].arms}
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.2, 3.4), layout="constrained")
    for place, (arm, style) in enumerate(STYLES.items()):
        runs, colour = [row for row in rows if row["arm"] == arm], look(style).colour
        for number, row in enumerate(runs):
            curve, label = row["curve"], arm if number == 0 else None
            left.plot(
                [step / 1e6 for step in curve["timesteps"]], curve["score_mean"], color=colour, alpha=0.8, label=label
            )
        right.plot(
            [place] * len(runs), [row["variance"] for row in runs], linestyle="none", marker=look(style).marker, color=colour,
            markeredgecolor="white", markersize=7,
        )  # fmt: skip
        right.hlines(paper[arm]["fixed_variance"], place - 0.25, place + 0.25, color=colour)
    left.set(title="training", xlabel="million steps", ylabel="score")
    left.legend(frameon=False, fontsize=9)
    right.set(title="final policy; bars: the paper", ylabel="variance of the score", yscale="log", xlim=(-0.6, 2.6))
    right.set_xticks(range(len(STYLES)), list(STYLES))
    for axis in (left, right):
        axis.grid(alpha=0.25)
    path = HERE / "images" / f"paper-{task}.png"
    figure.savefig(path, dpi=150)
    return path


def main() -> None:
    """One figure for each task that has runs of every algorithm."""
    rows = [json.loads(line) for line in (HERE / "data" / "paper.jsonl").read_text(encoding="utf-8").splitlines()]
    for task in sorted({row["task"] for row in rows}):
        of_task = [row for row in rows if row["task"] == task]
        if {row["arm"] for row in of_task} == set(STYLES):
            print(draw(task, of_task))


if __name__ == "__main__":
    main()
