"""The shop of docs/your-environment.md as a finite MDP."""

from __future__ import annotations

from math import exp, factorial

import numpy as np

from vpac import FiniteMDP


def shop(price: float = 9.0) -> FiniteMDP:
    """21 stock levels, 3 orders, demand Poisson(5); it goes on forever: pass the weeks as horizon."""
    entries = []
    for stock in range(21):
        for action in range(3):
            ordered = min((0, 4, 8)[action], 20 - stock)
            chance = [exp(-5) * 5**sold / factorial(sold) for sold in range(stock + ordered)]
            for sold, p in enumerate([*chance, 1.0 - sum(chance)]):
                left = stock + ordered - sold
                entries.append((stock, action, left, p, price * sold - 6.0 * ordered - 0.5 * left))
    return FiniteMDP.from_transitions(21, 3, *map(np.array, zip(*entries, strict=True)), start=np.arange(21) == 0)
