"""Are limits of the mean, the tail and ruin met? Eight limits in five finite environments, five seeds each.

Every limit is one that a known policy keeps: of the four arms in closed form, of the others by the oracle (ascent of
mean − ψ · variance: tail −6.7 and ruin 11.1 % of the portfolio at ψ = 0.03, tail 17.1 of the inventory, ruin 0.2 % of the
battery). Each trained policy is measured in 4000 episodes. The script prints one row a run and fails if fewer than 22 of 25
limits, 36 of 40, are met. For limits of the mean, PPO's own mean after as many steps stands beside it.

    python benchmarks/limits.py [--tasks …] [--seeds …] [--scale 1.0]
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from objective import inventory, portfolio, shop
from vpac import FiniteMDP

EPISODES, NEEDED = 4000, 22 / 25


def arms() -> FiniteMDP:
    """One step: four arms that pay N(5, 6²), N(4.9, 3²), N(4, 1) and N(2, 0.1²)."""
    chance, mean, variance = (np.zeros((2, 4, 2)) for _ in range(3))
    chance[:, :, 1], mean[0, :, 1], variance[0, :, 1] = 1.0, (5.0, 4.9, 4.0, 2.0), np.square((6.0, 3.0, 1.0, 0.1))
    return FiniteMDP(chance, mean, variance, start=[1, 0], terminal=[False, True])


@dataclass(frozen=True)
class Task:
    """Where, what is limited, for how long."""

    env: str
    budget: str
    steps: int


TASKS = {
    "arms-ruin": Task("arms", "ruin:0.05:0", 60_000),
    "arms-tail": Task("arms", "cvar:0.1:2", 60_000),
    "shop-mean": Task("shop", "keep-mean:0.95", 200_000),
    "inventory-mean": Task("inventory", "keep-mean:0.95", 400_000),
    "portfolio-tail": Task("portfolio", "cvar:0.1:-8", 200_000),
    "portfolio-ruin": Task("portfolio", "ruin:0.12:0", 200_000),
    "inventory-tail": Task("inventory", "cvar:0.1:15", 200_000),
    "battery-ruin": Task("battery", "ruin:0.05:0", 200_000),
}


@cache
def world(name: str) -> tuple[FiniteMDP, Any, dict[str, Any]]:
    """A process, what is seen of it, and settings."""
    if name == "arms":
        return arms(), None, {"steps": 32, "hidden": (16,), "learning_rate": 3e-3}
    mdp, wide, long = timed_world(name)
    states = np.arange(mdp.n_states)
    return mdp, np.stack([states // wide / long, states % wide / (wide - 1.0)], axis=1), {}


def timed_world(name: str) -> tuple[FiniteMDP, int, float]:
    """A process whose states are time · width + x, the width, and how long it lasts."""
    if name == "shop":
        return shop("shop", False).mdp, 21, 12.0
    if name == "portfolio":
        return portfolio().mdp, 11, 8.0
    season = inventory()  # puts the folder of examples on the path
    if name == "inventory":
        from inventory import Inventory

        return season.mdp, Inventory().shelf + 1, float(Inventory().weeks)
    from dependable import Battery

    return Battery().mdp, 2, 30.0


def play(mdp: FiniteMDP, act: Any, features: Any, episodes: int, rng: np.random.Generator) -> np.ndarray:
    """Undiscounted returns of a policy, `act(observations, rng)`, all episodes side by side."""
    total, alive = np.zeros(episodes), np.ones(episodes, bool)
    state, sums = rng.choice(mdp.n_states, episodes, p=mdp.start), np.cumsum(mdp.probability)
    while alive.any():
        seen = state[alive] if features is None else features[state[alive]].astype(np.float32)
        row = state[alive] * mdp.n_actions + act(seen, rng)
        before = np.where(mdp.indptr[row] > 0, sums[np.maximum(mdp.indptr[row], 1) - 1], 0.0)
        entry = np.searchsorted(sums, before + rng.random(len(row)) * (1.0 - 1e-12), side="right")
        entry = np.minimum(entry, mdp.indptr[row + 1] - 1)
        total[alive] += mdp.reward[entry] + np.sqrt(mdp.noise[entry]) * rng.standard_normal(len(row))
        state[alive] = mdp.successor[entry]
        alive[alive] = ~mdp.terminal[mdp.successor[entry]]
    return total


def run(name: str, seeds: Sequence[int], share: float) -> list[dict[str, Any]]:
    """Train an agent for each seed and measure it."""
    from vpac import PPO, VPACPPO
    from vpac.envs.functional import FiniteEnv
    from vpac.risk.budget import check_limits

    task, begun = TASKS[name], time.process_time()
    mdp, features, settings = world(task.env)
    env, steps = FiniteEnv(mdp, features), int(task.steps * share)
    agents = VPACPPO.learn_many(env, steps, seeds=seeds, budget=task.budget, gamma=1.0, **settings)
    bold = {}
    if "keep-mean" in task.budget:  # how much of PPO's own mean is kept, after as many steps?
        bold = {agent.seed: agent for agent in PPO.learn_many(env, steps, seeds=seeds, gamma=1.0, **settings)}
    rows = []
    for agent in agents:
        returns = play(mdp, agent.policy().act, features, EPISODES, np.random.default_rng(agent.seed))
        held, now = agent.controller, agent.timesteps
        checks, *_ = check_limits(held.budget, returns, held.state, agent.looks, 0.95, now)
        check = checks[0]
        rows.append(
            {
                "task": name, "seed": agent.seed, "limit": task.budget, "bound": check.bound, "found": check.found.estimate,
                "low": check.found.low, "high": check.found.high, "met": check.met, "mean": float(returns.mean()),
                "std": float(returns.std()), "psi": agent.psi, "steps": now,
            }
        )  # fmt: skip
        if held.budget.keep_mean is not None:
            neutral = play(mdp, bold[agent.seed].policy().act, features, EPISODES, np.random.default_rng(agent.seed))
            rows[-1] |= {"ppo_mean": float(neutral.mean()), "ppo_std": float(neutral.std())}
        print(json.dumps(rows[-1]), flush=True)
    print(f"{name}: {time.process_time() - begun:.0f} s of CPU time", file=sys.stderr, flush=True)
    return rows


def verdict(rows: Sequence[dict[str, Any]]) -> int:
    """Say how many are met; returns 1 if too few are."""
    met, needed = sum(row["met"] for row in rows), math.ceil(NEEDED * len(rows))
    print(f"{met} of {len(rows)} met; at least {needed} are asked for")
    return int(met < needed)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--seeds", nargs="+", type=int, default=range(5))
    parser.add_argument("--scale", type=float, default=1.0, help="multiply steps by this")
    given = parser.parse_args(arguments)
    return verdict([row for task in given.tasks for row in run(task, list(given.seeds), given.scale)])


if __name__ == "__main__":
    sys.exit(main())
