"""Does a learner with `penalty=` raise its own objective, mean − ψ · measure? Against PPO and the best known policy.

    python benchmarks/measures.py                                   everything; resumes where it was stopped
    python benchmarks/measures.py --tasks bandit --seeds 2 --steps 0.2     a quick look; keeps nothing
    python benchmarks/measures.py --only-table

The tasks are those of `objective.py`, so every learned policy, with its noise, is judged exactly by the oracle's distribution
of the return. With R that of the task and s the standard deviation of the best risk-neutral policy, ψ is R / s for variance
and volatility, 2R / s for the semi-variance and 2R for the others (the slope of s is that of the variance / 2s); β of the
entropic risk is 1 / s. The volatility is summed over an episode, E[Σ_t γ^t (R − y)²], y the mean reward of a step: that is
what PPO's rewards are charged. The best known is the best of all policies that were learned here and of those of the oracle's
frontier, which is exact for the variance. Results are lines of JSON in docs/data/measures.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from objective import COMMON, Task, get_task, half_width
from vpac import deep, oracle
from vpac.oracle.occupancy import visits
from vpac.risk.measures import measure_of

RESULTS = Path(__file__).parent.parent / "docs" / "data" / "measures.jsonl"
TASKS = {"bandit": 1.0, "catch-up": 3.0, "inventory": 1.0}
"""R of each task, at which caring about the spread can pay."""
PENALTIES = ("variance", "std", "semivariance", "cvar:0.1", "gini", "mad", "entropic", "volatility")
CRITICS = ("quantile", "none")
"""Other critics of the variance: "none" weighs whole episodes, as Tamar, Di Castro and Mannor (2012) do."""
PRICES = (0.1, 0.3, 1.0, 3.0, 10.0)
"""R of the policies of the oracle's frontier."""
Row = dict[str, Any]


def named(penalty: str, task: Task) -> str:
    """The penalty with its parameter."""
    return f"entropic:{1.0 / task.std:.3g}" if penalty == "entropic" else penalty


def price(penalty: str, task: Task) -> float:
    """ψ."""
    times = 1.0 if penalty in ("variance", "volatility") else 2.0
    return float(f"{times * TASKS[task.name] / task.std ** (measure_of(penalty).degree - 1):.2g}")


def arms(task: Task) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Name, class and settings of every learner."""
    yield "PPO", "PPO", {}
    for penalty in PENALTIES:
        exact = named(penalty, task)
        yield penalty, "VPACPPO", {"penalty": exact, "psi": price(exact, task)}
    for critic in CRITICS:
        yield f"variance, {critic}", "VPACPPO", {"penalty_critic": critic, "psi": price("variance", task)}


def judged(task: Task, policy: np.ndarray) -> dict[str, float]:
    """The mean and every measure of a policy's return, exactly."""
    found = {"mean": float(oracle.evaluate(task.mdp, policy, task.gamma).mean)}
    for penalty in PENALTIES:
        if penalty != "volatility":
            found[penalty] = measure_of(named(penalty, task)).exact(task.mdp, policy, task.gamma)
    return found | {"volatility": volatility(task, policy)}


def volatility(task: Task, policy: np.ndarray) -> float:
    """E[Σ_t γ^t (R − y)²], y the mean reward of the steps of episodes."""
    mdp = task.mdp

    def weights(gamma: float) -> np.ndarray:
        often = visits(mdp, policy, gamma, None)[:, None] * policy
        return often.reshape(-1)[mdp.row] * mdp.probability

    steps = weights(1.0)
    mean = float(steps @ mdp.reward / steps.sum())
    return float(weights(task.gamma) @ ((mdp.reward - mean) ** 2 + mdp.noise))


def policy_of(task: Task, agent: Any) -> np.ndarray:
    """π[s, a] of an agent."""
    policy = agent.policy()
    logits = policy.outputs(policy.normalise(task.features.astype(np.float32))).astype(np.float64)
    return np.asarray(oracle.softmax(logits))


def complete(row: Row) -> bool:
    """Whether nothing is missing: rows that others are compared with need every measure."""
    return "volatility" in row or row["arm"] not in ("PPO", "frontier")


def measure(task: Task, seeds: int, share: float, cores: int, done: list[Row]) -> Iterator[Row]:
    """Train and judge what is missing."""
    known = {(row["task"], row["arm"], row["seed"]) for row in done if complete(row)}
    if (task.name, "frontier", 0) not in known:
        found = oracle.frontier(task.mdp, [task.psi(aversion) for aversion in PRICES], task.gamma)
        for number, policy in enumerate(found.policies):
            yield {"task": task.name, "arm": "frontier", "seed": number, **judged(task, policy)}
    for arm, kind, settings in arms(task):
        missing = [seed for seed in range(seeds) if (task.name, arm, seed) not in known]
        if not missing:
            continue
        print(f"{task.name}, {arm}: seeds {missing}", file=sys.stderr, flush=True)
        given = settings | ({"psi": [settings["psi"]]} if settings else {})
        agents = getattr(deep, kind).learn_many(
            task.env, int(task.steps * share), seeds=missing, cores=cores, gamma=task.gamma, **COMMON, **given
        )
        for agent in agents:
            if agent.diverged:
                raise agent.diverged
            yield {"task": task.name, "arm": arm, "seed": agent.seed, **judged(task, policy_of(task, agent))}


def show(rows: list[Row]) -> None:
    """Print the tables in Markdown."""
    for name in dict.fromkeys(row["task"] for row in rows):
        task, mine = get_task(name), [row for row in rows if row["task"] == name]
        print(f"\n**{name}** (γ = {task.gamma:g}, {task.steps:,} steps, R = {TASKS[name]:g})\n")
        print("| learner | ψ | PPO | learned | best known | share of the gain |\n|---|---|---|---|---|---|")
        for arm, _, settings in arms(task):
            if arm == "PPO":
                continue
            penalty, psi = arm.partition(",")[0], settings["psi"]

            def column(which: str, penalty: str = penalty, psi: float = psi, mine: list[Row] = mine) -> np.ndarray:
                return np.array(
                    [row["mean"] - psi * row[penalty] for row in mine if row["arm"] == which and penalty in row]
                )

            ppo, learned = column("PPO"), column(arm)
            if min(len(ppo), len(learned)) < 2:
                continue
            best = max(row["mean"] - psi * row[penalty] for row in mine if penalty in row)
            gain = best - ppo.mean()
            share = (
                f"{100 * (learned.mean() - ppo.mean()) / gain:.0f} %" if gain > 0.01 * task.std else "nothing to gain"
            )
            texts = [f"{x.mean():.4g} ± {half_width(x):.2g}" for x in (ppo, learned)]
            print(f"| `{arm}` | {psi:g} | {texts[0]} | {texts[1]} | {best:.4g} | {share} |")


def main() -> None:
    """Measure what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS), metavar="TASK")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=float, default=1.0, help="share of each task's steps; below 1 nothing is kept")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="cores")
    parser.add_argument("--only-table", action="store_true", help="measure nothing")
    asked = parser.parse_args()
    keep = asked.steps == 1.0
    rows = [json.loads(line) for line in RESULTS.read_text().splitlines()] if keep and RESULTS.exists() else []
    for name in () if asked.only_table else asked.tasks:
        for row in measure(get_task(name), asked.seeds, asked.steps, asked.jobs, list(rows)):
            rows.append(row)
            if keep:
                with RESULTS.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    latest = {(row["task"], row["arm"], row["seed"]): row for row in rows}
    show([row for row in latest.values() if row["task"] in asked.tasks])


if __name__ == "__main__":
    main()
