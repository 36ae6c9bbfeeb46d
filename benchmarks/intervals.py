"""Coverage of the intervals of `ReturnSample`: the table of docs/measuring.md.

    python benchmarks/intervals.py                   600 samples of each kind, a minute or two
    python benchmarks/intervals.py --trials 3000

Nominally 95 %. An end that is unknown is beyond the truth. The last column is the share of samples that come with the note that
their variance rests on too few episodes (`vpac.risk.sample`).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import stats

from vpac.risk import ReturnSample
from vpac.typing import FloatArray

METRICS = ("mean", "variance", "semivariance", "sharpe", "quantile", "value_at_risk", "cvar", "gini_deviation")
HEAD = (
    "mean",
    "variance, std",
    "semivariance",
    "sharpe",
    "quantile 0.5",
    "value_at_risk 0.05",
    "cvar 0.05",
    "gini_deviation",
)


class World(NamedTuple):
    """A distribution of returns, and what is true of it."""

    draw: Callable[[np.random.Generator, tuple[int, int]], FloatArray]
    """Samples."""
    truths: tuple[float, ...]
    """Of `METRICS`, in order."""


Z, T5, E1 = float(stats.norm.ppf(0.05)), float(stats.t.ppf(0.05, 5)), float(np.exp(0.5))
V1, K = float(np.exp(2.0) - np.exp(1.0)), 20.0 ** (1.0 / 3.0)
TAIL = float(np.exp(2.0) * stats.norm.cdf(1.5) - 2.0 * np.e * stats.norm.cdf(0.5) + np.e * stats.norm.cdf(-0.5))
T5_GINI = 0.6919914
"""Half the mean distance of two numbers of Student's t with 5 degrees of freedom: ∫ F(1 − F), computed numerically."""
WORLDS = {
    "normal": World(
        lambda rng, size: rng.normal(1.0, 1.0, size),
        (1.0, 1.0, 0.5, 1.0, 1.0, 1.0 + Z, 1.0 - float(stats.norm.pdf(Z)) / 0.05, np.pi**-0.5),
    ),
    "exponential losses": World(
        lambda rng, size: -rng.exponential(size=size),
        (-1.0, 1.0, 2.0 / np.e, -1.0, np.log(0.5), np.log(0.05), np.log(0.05) - 1.0, 0.5),
    ),
    "Student t, 5 degrees": World(
        lambda rng, size: rng.standard_t(5, size),
        (0.0, 5 / 3, 5 / 6, 0.0, 0.0, T5, -(5 + T5**2) / 4 * float(stats.t.pdf(T5, 5)) / 0.05, T5_GINI),
    ),
    "lognormal losses": World(
        lambda rng, size: -np.exp(rng.normal(size=size)),
        (-E1, V1, TAIL, -E1 / V1**0.5, -1.0, -np.exp(-Z), -E1 * float(stats.norm.cdf(1.0 + Z)) / 0.05, E1 * 0.5204999),
    ),
    "Pareto losses, index 3": World(
        lambda rng, size: -rng.pareto(3.0, size),
        (-0.5, 0.75, 1.0 / 1.5, -0.5 / 0.75**0.5, 1.0 - 2.0 ** (1.0 / 3.0), 1.0 - K, 1.0 - 1.5 * K, 0.3),
    ),
    "a loss of 10 once in 50": World(
        lambda rng, size: -10.0 * (rng.random(size) < 0.02), (-0.2, 1.96, 1.9208, -0.2 / 1.4, 0.0, 0.0, -4.0, 0.196)
    ),
}


def covered(world: World, episodes: int, trials: int, seed: int = 0) -> tuple[list[float], float]:
    """Shares of samples whose intervals hold the truth, metric by metric, and of samples with a note."""
    inside, noted = np.zeros((trials, len(METRICS)), bool), np.zeros(trials, bool)
    for trial, x in enumerate(world.draw(np.random.default_rng(seed), (trials, episodes))):
        sample = ReturnSample(x, x, np.ones(episodes, int), np.ones(episodes, bool), 1.0)
        noted[trial] = bool(sample.notes())
        for place, (metric, truth) in enumerate(zip(METRICS, world.truths, strict=True)):
            found = sample.interval(metric)
            inside[trial, place] = not (found.low > truth + 1e-9 or found.high < truth - 1e-9)
    return inside.mean(axis=0).tolist(), float(noted.mean())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=600, help="samples of each kind")
    trials = parser.parse_args().trials
    print(f"| returns | episodes | {' | '.join(HEAD)} | noted |")
    print("|---|---|" + "---|" * (len(HEAD) + 1))
    for name, world in WORLDS.items():
        for episodes in (100, 1000):
            shares, noted = covered(world, episodes, trials)
            print(f"| {name} | {episodes} | {' | '.join(f'{100 * s:.0f}' for s in (*shares, noted))} |", flush=True)


if __name__ == "__main__":
    main()
