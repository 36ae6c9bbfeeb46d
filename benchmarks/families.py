"""What the default settings learn on the environments that come with Gymnasium, before anybody tunes anything.

    python benchmarks/families.py                         everything, three seeds: about an hour of one core
    python benchmarks/families.py --seeds 1 --only CartPole-v1 FrozenLake-v1

Scores are undiscounted, over 200 episodes of the last policy, with its noise. The bar is
Gymnasium's `reward_threshold` where there is one that the best policy reaches (with its reason below where it is ours); a
family works if the median seed passes. The exit status is 1 if one does not.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass

import gymnasium
import numpy as np
from rich.console import Console
from rich.table import Table

import vpac
from vpac.deep import PPO

EPISODES = 200


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

    @property
    def learner(self) -> str:
        """Its name, with what was set."""
        return ", ".join([self.algorithm, *(f"{name}={value:g}" for name, value in self.settings)])


TASKS = (
    Task("CartPole-v1", "PPO", 100_000, 475.0, "classic control"),
    Task("Acrobot-v1", "PPO", 200_000, -100.0, "classic control"),
    Task("MountainCar-v0", "PPO", 500_000, -120.0, "classic control"),  # Gymnasium's −110 is close to the best there is
    Task("MountainCarContinuous-v0", "PPO", 200_000, 90.0, "classic control"),
    Task("Pendulum-v1", "PPO", 300_000, -200.0, "classic control"),  # no threshold; −150 is upright from most starts
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
    Task("Hopper-v5", "PPO", 500_000, 1000.0, "MuJoCo"),  # a hopper that stands upright for 1000 steps
)


def chance(env: str) -> float:
    """The mean score of random actions."""
    world = gymnasium.make(env)
    world.action_space.seed(0)
    policy = lambda observation: world.action_space.sample()  # noqa: E731
    return float(vpac.evaluate(policy, env, episodes=EPISODES, seed=0).undiscounted_returns.mean())


def learned(task: Task, seed: int) -> float:
    """The mean score after learning with the defaults."""
    kind = PPO if task.algorithm == "PPO" else vpac.AC
    agent = kind(task.env, seed=seed, **dict(task.settings)).learn(task.effort)
    return float(vpac.evaluate(agent, task.env, episodes=EPISODES, seed=0).undiscounted_returns.mean())


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=sorted({task.env for task in TASKS}), metavar="ENV")
    asked, console, passed = parser.parse_args(), Console(width=120), True
    table = Table(
        "family", "environment", "learner", "steps or episodes", "chance", "median", "worst seed", "bar", "s each"
    )
    for task in TASKS:
        if asked.only and task.env not in asked.only:
            continue
        begun = time.process_time()
        scores = [learned(task, seed) for seed in range(asked.seeds)]
        each = (time.process_time() - begun) / asked.seeds
        row = (chance(task.env), float(np.median(scores)), min(scores), task.bar)
        table.add_row(
            task.family, task.env, task.learner, f"{task.effort:,}", *(f"{x:.4g}" for x in row), f"{each:.0f}",
            style="" if row[1] >= task.bar else "bold red",
        )  # fmt: skip
        print(task.env, task.algorithm, *(f"{score:.4g}" for score in scores), file=sys.stderr, flush=True)
        passed &= row[1] >= task.bar
    console.print(table)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
