"""A shop for one season: too small orders lose sales, too large orders leave unsold stock.

The environment is finite, so the oracle computes its exact mean–variance frontier; the learners find it from experience. Run

    python examples/inventory.py

for two figures in results/inventory: the frontier, and what risk-averse policies do differently. Or use the shop as any
other environment, in this folder: `vpac train vpac inventory:Inventory --psi 0.02 --gamma 1`.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vpac import AC, VPAC, FiniteMDP
from vpac.envs import FiniteMDPEnv
from vpac.lab.kinds.frontier import Measurement, frontier_point
from vpac.lab.report.chart import Chart, Line, Lines, Points, Spots
from vpac.lab.report.draw import write
from vpac.lab.report.trade_off import framed, spots_of
from vpac.oracle import Frontier, Moments, evaluate, frontier, greedy
from vpac.tabular import learn_many


class Inventory(FiniteMDPEnv):
    """Order stock each week, then sell to random demand; leftovers are sold off at the end.

    The state is (week, stock on the shelf), numbered week · (shelf + 1) + stock, and one terminal state. The action is
    the number of items to order; orders beyond the shelf are cut. Demand is Poisson. A sold item pays `price`, an ordered one
    costs `cost`, an item kept for a week costs `holding`; after the last week each leftover is worth `salvage`.

    Args:
        weeks: length of the season.
        shelf: how much fits on the shelf.
        order: the largest order.
        demand: mean demand of a week.
        price: what a customer pays.
        cost: what an item costs.
        holding: cost of keeping an item for a week.
        salvage: what an item is worth at the end.
        render_mode: "ansi" or "rgb_array".
    """

    def __init__(
        self,
        weeks: int = 4,
        shelf: int = 8,
        order: int = 5,
        demand: float = 3.0,
        price: float = 10.0,
        cost: float = 6.0,
        holding: float = 0.5,
        salvage: float = 2.0,
        render_mode: str | None = None,
    ) -> None:
        self.weeks, self.shelf = weeks, shelf
        chances = np.array([math.exp(-demand) * demand**k / math.factorial(k) for k in range(4 * shelf)])
        rows = []
        for week in range(weeks):
            for stock in range(shelf + 1):
                for wanted in range(order + 1):
                    ordered = min(wanted, shelf - stock)
                    for sold in range(stock + ordered + 1):
                        left = stock + ordered - sold
                        chance = chances[sold:].sum() if left == 0 else chances[sold]
                        reward = price * sold - cost * ordered - holding * left + salvage * left * (week == weeks - 1)
                        after = weeks * (shelf + 1) if week == weeks - 1 else self.number(week + 1, left)
                        rows.append((self.number(week, stock), wanted, after, chance, reward))
        state, action, successor, probability, paid = (np.array(column) for column in zip(*rows, strict=True))
        size = weeks * (shelf + 1) + 1
        mdp = FiniteMDP.from_transitions(
            size, order + 1, state, action, successor, probability, paid,
            start=np.arange(size) == 0, terminal=np.arange(size) == size - 1,
            action_names=tuple(f"order {k}" for k in range(order + 1)),
        )  # fmt: skip
        super().__init__(mdp, render_mode)

    def number(self, week: int, stock: int) -> int:
        """The state's number."""
        return week * (self.shelf + 1) + stock


PRICES = (0.0, 0.02, 0.05, 0.1, 0.2)
"""Values of ψ, in 1 / unit of money."""
GAMMA = 1.0


def train(shop: Inventory, psi: float, episodes: int, seeds: Sequence[int]) -> list[np.ndarray]:
    """Train with ψ; return one greedy policy for each seed.

    The critics learn first: at first they do not know that leftovers can be sold next week, and an actor that follows them
    learns to order too little and does not recover. ψ rises after that, for the same reason.
    """
    first = episodes // 15
    settings = {
        "gamma": GAMMA,
        "alpha_theta": f"warm-up:0.002:{first}:{first}",
        "alpha_w": 0.02,
        "alpha_z": 0.02,
        "max_episode_steps": 100,
    }
    if psi == 0.0:
        learners = learn_many(AC, shop.mdp, seeds, episodes, **settings)
    else:
        price = f"warm-up:{psi}:{first}:{3 * first}"
        learners = learn_many(VPAC, shop.mdp, seeds, episodes, psi=price, variance_of="return", **settings)
    return [greedy(learner.policy()) for learner in learners]


def frontier_chart(shop: Inventory, exact: Frontier, learned: dict[float, list[np.ndarray]]) -> Chart:
    """Draw mean against standard deviation of the season's profit: the exact frontier and the learned policies."""
    best = Spots(
        "best there is (oracle)", np.sqrt(exact.variances), exact.means, joined=True, style="oracle",
    )  # fmt: skip
    points = []
    for psi, policies in learned.items():
        moments = [evaluate(shop.mdp, policy, GAMMA) for policy in policies]
        exactly = [Measurement(float(m.mean), float(m.total_variance) ** 0.5, None, None) for m in moments]
        points.append(frontier_point(psi, exactly))
    found = spots_of("learned (AC, VPAC)", points, "VPAC", "ψ")
    seeds = len(next(iter(learned.values())))
    return Chart(
        "inventory-frontier", "A shop's profit: mean against spread",
        "Each point is a policy at its price of variance ψ. The line is the best that the oracle finds at the same prices; "
        "points are learned, with 95 % intervals over seeds of the exact mean and standard deviation of the greedy policies.",
        [framed([best, found], "standard deviation of the season's profit", "mean profit")],
        foot=f"Bars: 95 % intervals over {seeds} seeds; an arrow: the bar goes on." if seeds > 1 else "One training a price.",
    )  # fmt: skip


def behaviour_chart(shop: Inventory, learned: dict[float, list[np.ndarray]], seasons: int, seed: int = 0) -> Chart:
    """Draw stock, orders and the distribution of profits."""
    shown = [psi for psi in learned if psi in (0.0, 0.05, 0.2)]
    shelves, orders, spreads = [], [], []
    for style, psi in enumerate(shown):
        policy, label = learned[psi][0], "risk-neutral" if psi == 0.0 else f"ψ = {psi:g}"
        order = np.argmax(policy[:-1], axis=1).reshape(shop.weeks, -1)
        stock = np.arange(shop.shelf + 1)
        met = evaluate(shop.mdp, policy, GAMMA).visitation[:-1].reshape(shop.weeks, -1)
        filled = (met * np.minimum(stock + order, shop.shelf)).sum(axis=1)
        shelves.append(Spots(label, [str(w + 1) for w in range(shop.weeks)], filled, joined=True, style=style))
        week = min(1, shop.weeks - 1)
        seen = np.where(met[week] > 1e-3, order[week], np.nan)  # ignore states that are never visited
        orders.append(Spots(label, [str(s) for s in stock[:6]], seen[:6], joined=True, style=style))
        profits = np.sort(play(shop, policy, seasons, np.random.default_rng(seed)))
        levels = np.linspace(0.005, 0.995, 100)
        spreads.append(Line(label, np.quantile(profits, levels), levels, style=style))
    return Chart(
        "inventory-behaviour", "What a risk-averse shopkeeper does differently",
        "Risk-averse policies keep less on the shelf, most of all in the last week, when what is left is nearly worthless; "
        "they give up the best seasons and are spared the worst.",
        [
            Points(shelves, "week", "mean stock after ordering", "how full the shelf is kept"),
            Points(orders, "stock on the shelf", "items ordered", f"orders in week {min(2, shop.weeks)}"),
            Lines(spreads, "profit of a season", "share of seasons below", "how profits spread"),
        ],
    )  # fmt: skip


def play(shop: Inventory, policy: np.ndarray, seasons: int, rng: np.random.Generator) -> np.ndarray:
    """Return the profits of this many seasons."""
    profits = np.zeros(seasons)
    for season in range(seasons):
        state, over = shop.mdp.sample_start(rng), False
        while not over:
            state, paid, over = shop.mdp.sample(state, int(np.argmax(policy[state])), rng)
            profits[season] += paid
    return profits


def print_objectives(shop: Inventory, learned: dict[float, list[np.ndarray]], exact: Frontier) -> None:
    """Print U = mean − ψ · variance for each ψ: learned with it, learned with ψ = 0, and the optimum."""
    moments = {psi: [evaluate(shop.mdp, policy, GAMMA) for policy in policies] for psi, policies in learned.items()}

    def judged(found: Sequence[Moments], psi: float) -> str:
        u = np.array([float(m.mean - psi * m.total_variance) for m in found])
        return f"{u.mean():7.3f} ± {u.std(ddof=1) / len(u) ** 0.5 if len(u) > 1 else np.nan:.3f}"

    print("U = mean − ψ · variance of greedy policies, ± standard error over seeds")
    for psi, best in zip(learned, exact.objectives, strict=True):
        print(
            f"  ψ = {psi:<6g} learned {judged(moments[psi], psi)}   risk-neutral {judged(moments[0.0], psi)}   best {best:7.3f}"
        )
    mean, std = (
        [np.mean([m.mean for m in moments[psi]]) for psi in (0.0, 0.05)],
        [np.mean([m.total_variance**0.5 for m in moments[psi]]) for psi in (0.0, 0.05)],
    )
    kept, cut = mean[1] / mean[0], 1.0 - std[1] / std[0]
    print(f"ψ = 0.05 keeps {kept:.0%} of the mean profit and removes {cut:.0%} of its standard deviation")


def main(arguments: Sequence[str] | None = None) -> list[Path]:
    """Train at each ψ, draw the figures and print the trade-off."""
    parser = argparse.ArgumentParser(description="An inventory with risk: frontier and behaviour.")
    parser.add_argument("--out", type=Path, default=Path("results/inventory"), help="folder of the figures")
    parser.add_argument("--scale", type=float, default=1.0, help="multiply episodes by this: a quick look")
    parser.add_argument("--seeds", type=int, default=5, help="learners at each price")
    parser.add_argument("--weeks", type=int, default=4, help="length of the season")
    given = parser.parse_args(arguments)
    shop = Inventory(weeks=given.weeks)
    episodes = max(150, int(300_000 * given.scale))
    learned = {psi: train(shop, psi, episodes, range(given.seeds)) for psi in PRICES}
    exact = frontier(shop.mdp, PRICES, GAMMA, restarts=0)
    print_objectives(shop, learned, exact)
    charts = (frontier_chart(shop, exact, learned), behaviour_chart(shop, learned, max(50, int(5000 * given.scale))))
    return [path for chart in charts for path in write(chart, given.out, ("png", "csv"))]


if __name__ == "__main__":
    main()
