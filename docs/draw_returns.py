"""Draw docs/images/two-policies.png, the first picture of the README: the returns of AC and of VPAC in four rooms.

    python docs/draw_returns.py

Ten trainings of each (seeds 0 to 9, 1000 episodes), 100 measured episodes of every policy. Prints mean and standard deviation.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("Agg")

import matplotlib.pyplot as plt

import vpac

WORLD = "vpac/FourRooms-v0"
POLICIES = {"maximises the mean (AC)": vpac.AC, "mean − 0.015 · variance (VPAC)": vpac.VPAC}
COLOURS = ("#1b5e9b", "#c2410c")


def returns(kind: type, seed: int) -> np.ndarray:
    """Discounted returns of 100 episodes of one trained policy."""
    settings = {} if kind is vpac.AC else {"psi": 0.015, "variance_of": "return"}
    agent = kind(WORLD, seed=seed, **settings).learn(1000)
    return vpac.evaluate(agent, WORLD, 100, seed=seed).returns


def main() -> None:
    """Train, measure, draw."""
    figure, axis = plt.subplots(figsize=(9.0, 2.9), layout="constrained")
    jitter = np.random.default_rng(0)
    for row, (name, kind) in enumerate(POLICIES.items()):
        sample = np.concatenate([returns(kind, seed) for seed in range(10)])
        print(f"{name}: mean {sample.mean():.1f}, standard deviation {sample.std(ddof=1):.1f}")
        low, high = np.quantile(sample, (0.05, 0.95))
        colour, height = COLOURS[row], -float(row)
        axis.scatter(
            sample, height + jitter.uniform(-0.28, 0.28, len(sample)), s=7, alpha=0.35, color=colour, linewidths=0
        )
        axis.plot((low, high), (height - 0.36,) * 2, color=colour, linewidth=3, solid_capstyle="butt")
        axis.plot(sample.mean(), height - 0.36, "D", color=colour, markersize=7, markeredgecolor="white")
        words = f"mean {sample.mean():.1f}, standard deviation {sample.std(ddof=1):.1f}"
        axis.text(1.01, height, f"{name}\n{words}", transform=axis.get_yaxis_transform(), color=colour, va="center")
    axis.set(xlabel="return of an episode", yticks=[], xlim=(-25, 100))
    axis.set_title("Nearly the same mean, and only one of them is dependable", loc="left", fontweight="bold")
    axis.spines[["left", "top", "right"]].set_visible(False)
    axis.grid(axis="x", color="#e5e7eb")
    axis.set_axisbelow(True)
    figure.savefig(Path(__file__).parent / "images" / "two-policies.png", dpi=150)


if __name__ == "__main__":
    main()
