"""What the default settings learn on Gymnasium's own environments, without tuning; and, where they fail, what helps.

    python benchmarks/families.py                         everything, five seeds: hours on two cores; resumes when stopped
    python benchmarks/families.py --only CartPole-v1 Hopper-v5
    python benchmarks/families.py --only-table            print what has been measured

Scores are undiscounted. Of the MuJoCo tasks at a million steps, CartPole, Acrobot and LunarLander: 20 episodes of the likeliest
action, and every seed of the last three must pass. Of the others: 200 episodes of the policy with its noise. The bar is
Gymnasium's `reward_threshold` where there is one that the best policy reaches (with its reason below where it is ours). A row
passes if the mean over seeds does. Results are lines of JSON in docs/data/families.jsonl. The exit status is 1 if a row fails.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy import stats

import vpac
from vpac.deep import PPO

RESULTS = Path(__file__).parent.parent / "docs" / "data" / "families.jsonl"


@dataclass(frozen=True)
class Task:
    """An environment, how long to learn, and the score that counts as learned."""

    env: str
    algorithm: str
    effort: int
    """Steps of PPO, episodes of AC."""
    bar: float
    family: str
    settings: tuple[tuple[str, float], ...] = ()
    """What is not left at its default."""
    greedy: bool = False
    """Whether the most likely action is measured, in 20 episodes; else the policy with its noise, in 200."""
    every: bool = False
    """Whether every seed has to pass, not only their mean."""

    @property
    def learner(self) -> str:
        """Its name, with what was set."""
        return ", ".join([self.algorithm, *(f"{name}={value:g}" for name, value in self.settings)])


EXPLORING = (("gamma", 0.9999), ("log_std", 1.0), ("entropy", 0.01))
"""Settings for a goal that small actions do not reach."""
TASKS = (
    Task("HalfCheetah-v5", "PPO", 1_000_000, 5000.0, "MuJoCo", greedy=True),
    Task("Hopper-v5", "PPO", 1_000_000, 2400.0, "MuJoCo", greedy=True),
    Task("Walker2d-v5", "PPO", 1_000_000, 3400.0, "MuJoCo", greedy=True),
    Task("Ant-v5", "PPO", 1_000_000, 2500.0, "MuJoCo", greedy=True),
    Task("CartPole-v1", "PPO", 100_000, 475.0, "classic control", greedy=True, every=True),
    Task("Acrobot-v1", "PPO", 200_000, -100.0, "classic control", greedy=True, every=True),
    Task("LunarLander-v3", "PPO", 1_000_000, 200.0, "Box2D", greedy=True, every=True),
    Task("MountainCar-v0", "PPO", 500_000, -120.0, "classic control"),  # Gymnasium's −110 is close to the best there is
    Task("MountainCarContinuous-v0", "PPO", 200_000, 90.0, "classic control"),
    Task("MountainCarContinuous-v0", "PPO", 200_000, 90.0, "classic control", EXPLORING),
    Task("Pendulum-v1", "PPO", 300_000, -200.0, "classic control"),  # no threshold; −150 is upright from most starts
    Task("Pendulum-v1", "PPO", 300_000, -200.0, "classic control", (("gamma", 0.95),)),
    Task("FrozenLake-v1", "PPO", 200_000, 0.7, "toy text"),
    Task("FrozenLake-v1", "AC", 20_000, 0.7, "toy text", (("alpha_theta", 0.05),)),  # α_θ is per unit of reward
    Task(
        "CliffWalking-v1", "PPO", 200_000, -17.0, "toy text"
    ),  # no threshold; the way along the rim is −13, one row up −15
    Task("CliffWalking-v1", "AC", 40_000, -17.0, "toy text"),  # the safe way, 17 steps; noise costs 0.05 after 5 000
    Task("Taxi-v4", "PPO", 500_000, 7.0, "toy text"),  # Gymnasium's 8 is above the best mean, about 7.9
    Task("Taxi-v4", "AC", 50_000, 7.0, "toy text"),
    Task("Blackjack-v1", "PPO", 300_000, -0.2, "toy text"),  # no threshold; basic strategy is about −0.05, chance −0.4
    Task("Blackjack-v1", "AC", 100_000, -0.2, "toy text"),
    Task("InvertedPendulum-v5", "PPO", 200_000, 950.0, "MuJoCo"),
    Task(
        "Swimmer-v5", "PPO", 300_000, 40.0, "MuJoCo"
    ),  # no threshold that PPO reaches with γ = 0.99; standing still is 0
    Task("Swimmer-v5", "PPO", 300_000, 40.0, "MuJoCo", (("gamma", 0.9999),)),
)


def learned(task: Task, seed: int) -> float:
    """The mean score after learning with the defaults."""
    kind = PPO if task.algorithm == "PPO" else vpac.AC
    agent = kind(task.env, seed=seed, **dict(task.settings)).learn(task.effort)
    how = {"episodes": 20 if task.greedy else 200, "deterministic": task.greedy}
    return float(vpac.evaluate(agent, task.env, seed=0, **how).undiscounted_returns.mean())


def read() -> dict[tuple[str, str, int, int], float]:
    """What has been measured, by environment, learner, effort and seed."""
    rows = [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    return {(row["env"], row["learner"], row["effort"], row["seed"]): row["score"] for row in rows}


def measure(tasks: list[Task], seeds: int) -> None:
    """Train what is missing, one line of data for each agent."""
    done = read()
    todo = [(t, s) for s in range(seeds) for t in tasks if (t.env, t.learner, t.effort, s) not in done]
    for number, (task, seed) in enumerate(todo):
        begun = time.monotonic()
        row = {
            "env": task.env,
            "learner": task.learner,
            "effort": task.effort,
            "seed": seed,
            "score": learned(task, seed),
        }
        with RESULTS.open("a") as file:
            file.write(json.dumps(row) + "\n")
        took = time.monotonic() - begun
        print(
            f"{number + 1} of {len(todo)}: {task.env}, seed {seed}: {row['score']:.4g} in {took:.0f} s", file=sys.stderr
        )


def passes(task: Task, scores: np.ndarray) -> bool:
    """Whether the scores of all seeds clear the bar."""
    return bool(len(scores) and (scores.min() if task.every else scores.mean()) >= task.bar)


def show(tasks: list[Task]) -> bool:
    """Print the table; returns whether every row passes."""
    done, console = read(), Console(width=140)
    table = Table(
        "family", "environment", "learner", "steps or episodes", "seeds", "mean and 95 % interval", "worst", "bar"
    )
    verdicts = []
    for task in tasks:
        found = [score for key, score in sorted(done.items()) if key[:3] == (task.env, task.learner, task.effort)]
        scores = np.array(found)
        verdicts.append(passes(task, scores))
        n = len(scores)
        half = stats.t.ppf(0.975, n - 1) * scores.std(ddof=1) / math.sqrt(n) if n > 1 else math.nan
        numbers = (f"{scores.mean():.4g} ± {half:.3g}", f"{scores.min():.4g}") if n else ("not measured", "")
        table.add_row(
            task.family, task.env, task.learner, f"{task.effort:,}", str(n), *numbers, f"{task.bar:g}",
            style="" if verdicts[-1] else "bold red",
        )  # fmt: skip
    console.print(table)
    return all(verdicts)


def main() -> int:
    """Measure what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=sorted({task.env for task in TASKS}), metavar="ENV")
    parser.add_argument("--only-table", action="store_true", help="measure nothing")
    asked = parser.parse_args()
    tasks = [task for task in TASKS if not asked.only or task.env in asked.only]
    if not asked.only_table:
        measure(tasks, asked.seeds)
    return 0 if show(tasks) else 1


if __name__ == "__main__":
    sys.exit(main())
