"""Is a budget for the standard deviation met? Three tasks, five seeds each, VPACPPO with its defaults.

    python benchmarks/budgets.py                                    15 runs: about ten minutes on two idle cores
    python benchmarks/budgets.py --tasks bets --seeds 0 1           some of them
    python benchmarks/budgets.py --scale 0.4                        with fewer steps
    python benchmarks/budgets.py --quick                            a test: one seed, a tenth of the steps, no verdict

Nothing is set but the number of steps, γ = 1 and the budget, which is about two thirds of the standard deviation of the best
risk-neutral policy. Every policy is measured with its noise over 4000 new episodes; the budget is met if the 95 % interval of
the standard deviation reaches it. "of best" is the mean as a share of the largest mean that any policy can have within the
budget: of bets in closed form; of the other two an upper bound, min over ψ of U*(ψ) + ψ V, where U* is the best mean − ψ ·
variance, by exact ascent, of policies that see the whole state. The shop's policy does not see the week. The portfolio's moods
lie on a grid of 11. Exit code 1 if fewer than 13 of 15 are met. docs/data/budgets.jsonl has a line of JSON for every run.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from objective import portfolio, shop
from vpac import FiniteMDP, oracle
from vpac.oracle.frontier import ascend

RESULTS = Path(__file__).parents[1] / "docs" / "data" / "budgets.jsonl"
BEST = RESULTS.with_name("budgets-best.json")
RATIOS = (0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.2, 1.6)
"""Prices at which the bound is computed, as ψ · √V."""
ENVS, EPISODES, NEEDED = 16, 4000, 13 / 15


class Table(VectorEnv):
    """Copies of a finite process, all stepped at once; an observation is a row of `features`."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(self, mdp: FiniteMDP, features: np.ndarray, n: int, limit: int | None = None) -> None:
        self.mdp, self.features, self.num_envs, self.limit = mdp, features.astype(np.float32), n, limit
        self.single_observation_space = spaces.Box(-np.inf, np.inf, features.shape[1:], np.float32)
        self.single_action_space = spaces.Discrete(mdp.n_actions)
        width = int(np.diff(mdp.indptr).max())
        place = np.minimum(mdp.indptr[:-1, None] + np.arange(width), len(mdp.probability) - 1)
        there = np.arange(width) < np.diff(mdp.indptr)[:, None]
        self._entry, self._sums = place, np.cumsum(np.where(there, mdp.probability[place], 0.0), axis=1)
        self._last = np.diff(mdp.indptr) - 1
        self._starts = np.cumsum(mdp.start)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin anew."""
        self._rng = np.random.default_rng(seed)
        self._state, self._elapsed = self._begin(self.num_envs), np.zeros(self.num_envs, np.int64)
        return self.features[self._state], {}

    def _begin(self, n: int) -> np.ndarray:
        drawn = np.searchsorted(self._starts, self._rng.random(n) * self._starts[-1], side="right")
        return np.minimum(drawn, self.mdp.n_states - 1)

    def step(self, actions: Any) -> tuple[Any, ...]:
        """A step of each; what ends begins anew within it."""
        mdp, rng = self.mdp, self._rng
        row = self._state * mdp.n_actions + np.asarray(actions)
        which = (self._sums[row] <= rng.random(self.num_envs)[:, None]).sum(axis=1)
        entry = self._entry[row, np.minimum(which, self._last[row])]
        reward = mdp.reward[entry] + np.sqrt(mdp.noise[entry]) * rng.standard_normal(self.num_envs)
        state = mdp.successor[entry]
        self._elapsed += 1
        over = mdp.terminal[state]
        cut = ~over & (self._elapsed >= self.limit) if self.limit else np.zeros_like(over)
        final, ended = self.features[state], over | cut
        self._state = np.array(state)
        self._state[ended] = self._begin(int(ended.sum()))
        self._elapsed[ended] = 0
        return self.features[self._state], reward, over, cut, {"final_obs": final}


class Shelf(Table):
    """The shop of docs/your-environment.md: what is seen is the stock, a Discrete observation; the week is hidden."""

    def __init__(self, mdp: FiniteMDP, n: int) -> None:
        super().__init__(mdp, np.zeros((mdp.n_states, 1)), n)
        self.features = np.arange(mdp.n_states) % 21
        self.single_observation_space = spaces.Discrete(21)


class Market(Table):
    """The portfolio of examples/portfolio.py, moods on a grid: seen are the share of time that is over and the mood."""

    def __init__(self, mdp: FiniteMDP, n: int) -> None:
        states = np.arange(mdp.n_states)
        super().__init__(mdp, np.stack([states // 11 / 8.0, states % 11 / 10.0], axis=1), n)


class Bets(VectorEnv):
    """Ten rounds: a stake a in [0, 1] pays a · N(1, 2²); what is seen is the share of rounds that are over.

    The best mean with a variance of V is that of the constant stake √(V / 40): ten times as much.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012
    ROUNDS = 10

    def __init__(self, n: int) -> None:
        self.num_envs = n
        self.single_observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
        self.single_action_space = spaces.Box(0.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin anew."""
        self._rng, self._round = np.random.default_rng(seed), np.zeros(self.num_envs, np.int64)
        return self._look(), {}

    def _look(self) -> np.ndarray:
        return (self._round[:, None] / self.ROUNDS).astype(np.float32)

    def step(self, actions: Any) -> tuple[Any, ...]:
        """A round of each."""
        stake = np.clip(np.asarray(actions, np.float64)[:, 0], 0.0, 1.0)
        reward = stake * self._rng.normal(1.0, 2.0, self.num_envs)
        self._round += 1
        over, final = self._round == self.ROUNDS, self._look()
        self._round[over] = 0
        return self._look(), reward, over, np.zeros_like(over), {"final_obs": final}


@dataclass(frozen=True)
class Task:
    """What is learned, for how long, and how much it may vary."""

    make: Callable[[int], VectorEnv]
    steps: int
    std: float
    """The budget, in units of reward."""
    mdp: FiniteMDP | None = None
    """The same as a finite process, if it is one."""


@cache
def get_task(name: str) -> Task:
    """A task by its name."""
    if name == "bets":
        return Task(Bets, 300_000, 4.0)
    if name == "shop":
        mdp = shop("shop", False).mdp
        return Task(lambda n: Shelf(mdp, n), 200_000, 18.0, mdp)
    mdp = portfolio().mdp
    return Task(lambda n: Market(mdp, n), 300_000, 14.0, mdp)


@cache
def best(name: str) -> float:
    """Largest mean within the budget, or an upper bound of it; those that take minutes are kept in a file."""
    task = get_task(name)
    if task.mdp is None:
        return 10.0 * math.sqrt(task.std**2 / 40.0)
    known = json.loads(BEST.read_text()) if BEST.exists() else {}
    if name not in known:
        print(f"the best mean of {name} within its budget ...", file=sys.stderr, flush=True)
        policy, bounds = oracle.optimal_policy(task.mdp, 1.0), []
        for psi in np.array(RATIOS) / task.std:
            policy = ascend(task.mdp, policy, psi, 1.0, most_steps=300)
            moments = oracle.evaluate(task.mdp, policy, 1.0)
            bounds.append(float(moments.mean - psi * (moments.total_variance - task.std**2)))
        known[name] = round(min(bounds), 4)
        BEST.write_text(json.dumps(known, indent=1) + "\n")
    return float(known[name])


TASKS = ("shop", "portfolio", "bets")


def run(name: str, seed: int, share: float = 1.0, **settings: Any) -> dict[str, Any]:
    """Train one agent with a budget and measure it."""
    from vpac import VPACPPO, budget_report

    task, begun = get_task(name), time.monotonic()
    agent = VPACPPO(task.make(ENVS), gamma=1.0, seed=seed, budget={"max_std": task.std}, **settings)
    agent.learn(int(task.steps * share))
    report = budget_report(agent, task.make(100), episodes=EPISODES, seed=1000 + seed)
    std = [math.sqrt(x) for x in (report.variance.estimate, report.variance.low, report.variance.high)]
    return {
        "task": name, "seed": seed, "steps": agent.timesteps, "budget": task.std, "std": std, "mean": report.mean.estimate,
        "of_best": report.mean.estimate / best(name), "psi": agent.psi, "met": report.met,
        "seconds": round(time.monotonic() - begun, 1),
    }  # fmt: skip


def line(row: dict[str, Any]) -> str:
    """A run as a row of a table."""
    std, low, high = row["std"]
    return (
        f"| {row['task']} | {row['seed']} | {row['budget']:g} | {std:.2f} ({low:.2f} … {high:.2f}) | {row['mean']:.1f} | "
        f"{row['of_best']:.0%} | {row['psi']:.3g} | {'met' if row['met'] else 'MISSED'} |"
    )


HEAD = "| task | seed | budget | standard deviation (95 %) | mean | of best | ψ | |\n|---|---|---|---|---|---|---|---|"


def verdict(rows: Sequence[dict[str, Any]]) -> int:
    """Print the table; returns 1 if too few budgets are met."""
    met, needed = sum(row["met"] for row in rows), math.ceil(NEEDED * len(rows))
    print(HEAD, *(line(row) for row in rows), sep="\n")
    print(f"\n{met} of {len(rows)} met; at least {needed} are asked for")
    return int(met < needed)


def _one(job: tuple[str, int, float]) -> dict[str, Any]:
    return run(*job)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Is a budget for the standard deviation met?")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--seeds", nargs="+", type=int, default=range(5))
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--scale", type=float, default=1.0, help="multiply steps by this")
    parser.add_argument("--quick", action="store_true", help="one seed, a tenth of the steps, no verdict")
    given = parser.parse_args(arguments)
    seeds, share = ([0], 0.1) if given.quick else (list(given.seeds), given.scale)
    for task in given.tasks:
        best(task)
    jobs, rows, begun = [(task, seed, share) for task in given.tasks for seed in seeds], [], time.monotonic()
    with multiprocessing.get_context("spawn").Pool(min(given.workers, len(jobs))) as pool:
        for done, row in enumerate(pool.imap(_one, jobs), 1):
            rows.append(row)
            left = (time.monotonic() - begun) / done * (len(jobs) - done) / 60
            print(f"{done} of {len(jobs)}, {left:.0f} minutes left: {line(row)}", file=sys.stderr, flush=True)
    if len(rows) == 15 and share == 1.0:
        RESULTS.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return verdict(rows) * (not given.quick)


if __name__ == "__main__":
    sys.exit(main())
