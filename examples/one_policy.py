"""One policy for every ψ: the portfolio of portfolio.py, with ψ as an input of the policy.

A conditioned policy is trained once, for all ψ in a range; separate policies need one training for each ψ. Both are measured
at the same ψ and compared by the objective, U = mean − ψ · variance. Run, in this folder,

    python one_policy.py

for U at each ψ, with its standard error over seeds, and a figure in results/one-policy: both frontiers.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import vpac
from portfolio import Portfolio
from vpac.lab.kinds.frontier import Measurement, frontier_point
from vpac.lab.report.chart import Chart
from vpac.lab.report.draw import write
from vpac.lab.report.trade_off import frontier_panel
from vpac.risk import TradeOff

PRICES = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1)
"""Values of ψ, in 1 / percent."""
SETTINGS: dict[str, Any] = {"gamma": 1.0, "steps": 64, "hidden": (32, 32), "learning_rate": 1e-3}


def separate(psi: float, steps: int, seed: int) -> Any:
    """Train a policy for this ψ alone."""
    return vpac.VPACPPO(Portfolio, psi=psi, seed=seed, **SETTINGS).learn(steps).policy()


def conditioned(steps: int, seed: int) -> Callable[[float], Any]:
    """Train one conditioned policy for all ψ."""
    agent = vpac.VPACPPO(Portfolio, psi="conditioned", psi_range=(0.0, max(PRICES)), seed=seed, **SETTINGS)
    return agent.learn(steps).at


Samples = dict[float, list[vpac.ReturnSample]]
"""Returns by ψ: one sample for each training."""


def measure(policies: Callable[[float], Sequence[Any]], episodes: int) -> Samples:
    """Play the policies that `policies` returns for each ψ."""
    return {
        psi: [vpac.evaluate(policy, Portfolio, episodes, seed=1000 + seed) for seed, policy in enumerate(policies(psi))]
        for psi in PRICES
    }


def objective(psi: float, samples: Sequence[vpac.ReturnSample]) -> tuple[float, float]:
    """U = mean − ψ · variance: its mean over trainings, and the standard error of that; NaN for one training."""
    found = np.array([sample.mean - psi * sample.variance for sample in samples])
    error = found.std(ddof=1) / np.sqrt(len(found)) if len(found) > 1 else np.nan
    return float(found.mean()), float(error)


def trade_off(measured: Samples) -> TradeOff:
    """Mean and standard deviation at each ψ, with intervals over trainings."""
    return TradeOff(
        tuple(
            frontier_point(psi, [Measurement(s.mean, s.std, None, s.returns) for s in samples])
            for psi, samples in measured.items()
        )
    )


def chart(one: TradeOff, many: TradeOff, seeds: int) -> Chart:
    """Draw both frontiers in one plot."""
    over = f"{seeds} trainings" if seeds > 1 else "the episodes of one training"
    return Chart(
        "one-policy", "One policy for all prices, and one policy for each",
        "Mean against standard deviation of the gain over two years, in percent of the capital, with 95 % intervals over "
        f"{over}. The conditioned policy was trained once, four times as long as each of the others.",
        [frontier_panel({"one for each price": many, "conditioned": one})],
        foot=f"Portfolio over two years, gains in percent. Bars: 95 % intervals over {over}; an arrow: the bar goes on.",
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> list[Path]:
    """Train both, measure, draw. The conditioned policy is trained four times as long as each of the others."""
    parser = argparse.ArgumentParser(description="One policy for all prices of variance, and one for each.")
    parser.add_argument("--out", type=Path, default=Path("results/one-policy"), help="folder of the figure")
    parser.add_argument("--scale", type=float, default=1.0, help="multiply steps by this: a quick look")
    parser.add_argument("--seeds", type=int, default=5, help="trainings of each kind")
    given = parser.parse_args(arguments)
    steps, episodes = max(1, int(60_000 * given.scale)), max(30, int(2000 * given.scale))
    every = [conditioned(4 * steps, seed) for seed in range(given.seeds)]
    one = measure(lambda psi: [at(psi) for at in every], episodes)
    many = measure(lambda psi: [separate(psi, steps, seed) for seed in range(given.seeds)], episodes)
    for name, found in (("conditioned", one), ("one for each price", many)):
        print(name)
        for point in trade_off(found).points:
            u, error = objective(point.psi, found[point.psi])
            print(
                f"  ψ = {point.psi:<6g} mean {point.mean.estimate:7.3f}   standard deviation {point.std.estimate:7.3f}"
                f"   U {u:7.3f} ± {error:.3f}"
            )
    return write(chart(trade_off(one), trade_off(many), given.seeds), given.out, ("png", "csv"))


if __name__ == "__main__":
    main()
