"""Draws docs/images/mujoco-score.png from docs/data/mujoco.json: what form and discount do to the score of a hopper; and
docs/images/score-prices.png from docs/data/score.jsonl: what a price on the score's variance does on three tasks; and
docs/images/paired.png from docs/data/paired.jsonl: what a price does to a trained HalfCheetah.

A dot is a run, its score measured in 512 episodes without discount; in the last figure it is a pair.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

from vpac.lab.report.geometry import look

HERE = Path(__file__).parent
PANELS = {"mujoco/hopper-today": "γ = 0.99, 1 M steps", "mujoco/hopper-horizon": "γ = 0.999, 500 k steps"}
ARMS = {
    "PPO": ("PPO", 6), "VAAC": ("VAAC", 3), "VPAC": ("VPAC published", 1), "VPAC corrected": ("VPAC corrected", 0),
}  # fmt: skip
"""What each is called here, and its look."""


PRICED = {"PPO": 6, "R = 0.1": 3, "R = 0.3": 1, "R = 1": 0, "later, R = 0": 4}
"""Arms of benchmarks/score.py, and their looks."""


def dots(axis: Any, variances: list[float], means: list[float], style: int, label: str) -> None:
    """A dot for each run: its standard deviation to the right, its mean upwards."""
    axis.plot(
        [variance**0.5 for variance in variances], means, linestyle="none", marker=look(style).marker, markersize=6,
        alpha=0.8, color=look(style).colour, markeredgecolor="white", label=label,
    )  # fmt: skip


def prices() -> None:
    """A panel for each task: mean and standard deviation of every run of each arm."""
    rows = [json.loads(line) for line in (HERE / "data" / "score.jsonl").read_text(encoding="utf-8").splitlines()]
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
    for axis, task in zip(axes, ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5"), strict=True):
        for arm, style in PRICED.items():
            runs = [row for row in rows if (row["env"], row["arm"]) == (task, arm) and row["seed"] < 100]
            label = {"later, R = 0": "PPO, later γ = 0.997"}.get(arm, arm)
            dots(axis, [row["variance 1"] for row in runs], [row["mean 1"] for row in runs], style, label)
        axis.set(title=task, xlabel="standard deviation of the score", xscale="log")
        low, high = axis.get_xlim()
        marks = (10, 30, 100, 300, 1000) if high > 30 * low else (100, 200, 300, 500, 1000, 1500)
        axis.set_xticks(ticks := [x for x in marks if low < x < high], map(str, ticks))
        axis.minorticks_off()
        axis.grid(alpha=0.25)
    axes[0].set_ylabel("mean score")
    axes[1].legend(frameon=False, fontsize=9)
    path = HERE / "images" / "score-prices.png"
    figure.savefig(path, dpi=150)
    print(path)


def pairs(task: str = "HalfCheetah-v5") -> None:
    """Ratios to ψ = 0 of the same checkpoint: a dot for each pair, and geometric means with 95 % intervals."""
    rows = [json.loads(line) for line in (HERE / "data" / "paired.jsonl").read_text(encoding="utf-8").splitlines()]
    found = {(row["arm"], row["seed"]): row for row in rows if row["env"] == task}
    arms = [arm for arm in dict.fromkeys(arm for arm, _ in found) if arm.startswith(("corrected", "published"))]
    figure, axes = plt.subplots(1, 2, figsize=(8.6, 3.6), sharey=True, layout="constrained")
    for axis, (name, title) in zip(
        axes, (("variance 0.99", "variance of the return"), ("mean 1", "mean score")), strict=True
    ):
        for place, arm in enumerate(arms[::-1]):
            logs = np.log([row[name] / found["ψ = 0", seed][name] for (one, seed), row in found.items() if one == arm])
            half = stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / len(logs) ** 0.5
            style = look(0 if arm.startswith("corrected") else 1)
            axis.plot(np.exp(logs), [place] * len(logs), ".", color=style.colour, alpha=0.4)
            ends = np.exp([logs.mean() - half, logs.mean() + half])
            axis.hlines(place, *ends, color=style.colour, linewidth=2)
            axis.plot(np.exp(logs.mean()), place, style.marker, color=style.colour, markersize=7)
        axis.axvline(1.0, color="0.5", linewidth=0.8)
        axis.set(xscale="log", xlabel=f"{title} ÷ that at ψ = 0")
        ticks = (0.2, 0.5, 1.0, 2.0, 5.0) if "variance" in name else (0.6, 0.8, 1.0, 1.2)
        axis.set_xticks(ticks, map(str, ticks))
        axis.minorticks_off()
        axis.grid(alpha=0.25)
    axes[0].set_yticks(range(len(arms)), arms[::-1])
    path = HERE / "images" / "paired.png"
    figure.savefig(path, dpi=150)
    print(path)


def main() -> None:
    """Two panels with one pair of axes, then those of the prices and of the pairs."""
    prices()
    pairs()
    rows = json.loads((HERE / "data" / "mujoco.json").read_text(encoding="utf-8"))
    figure, axes = plt.subplots(1, 2, figsize=(8.2, 3.6), sharex=True, sharey=True, layout="constrained")
    for axis, (experiment, title) in zip(axes, PANELS.items(), strict=True):
        for arm, (label, style) in ARMS.items():
            runs = [row for row in rows if row["experiment"] == experiment and row["arm"] == arm]
            dots(axis, [row["variance"] for row in runs], [row["mean"] for row in runs], style, label)
        axis.set(title=title, xlabel="standard deviation of the score", xscale="log")
        axis.grid(alpha=0.25)
    axes[0].set_ylabel("mean score")
    axes[1].legend(frameon=False, fontsize=9)
    path = HERE / "images" / "mujoco-score.png"
    figure.savefig(path, dpi=150)
    print(path)


if __name__ == "__main__":
    main()
