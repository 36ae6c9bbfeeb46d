"""Does a penalty on the variance of the score lower it on MuJoCo tasks? PPO and VPAC from scratch, a million steps each.

    python benchmarks/score.py                              everything, ten seeds: hours; resumes when stopped
    python benchmarks/score.py --tasks Hopper-v5 --seeds 3
    python benchmarks/score.py --only-table                 print what has been measured

The paper and its readers look at undiscounted scores, so the price is on their variance (`variance_gamma=1`). PPO has its
defaults, γ = 0.99, and once a longer horizon; VPAC has the defaults, at R = 0.1, 0.3 and 1. "later" arms are PPO for 700 000
steps and go on for 300 000 with γ = 0.997 and the price; one goes on with γ = 0.99, to show what a second start alone does.
In "last" arms that price is 0 for half of the 300 000 steps and rises over the next quarter.
ψ = R / standard deviation of PPO's score, measured on two seeds (100, 101) beside the ten. Policies are measured with their
noise, in 512 episodes with starts drawn anew. Arms are compared with PPO by ratios of averages over seeds (Fieller's 95 %
intervals), as the paper averages, and the variances also seed by seed, by their logarithms; U is the mean discounted as in the
arm − ψ · variance of the score, which VPAC maximises, its gain over PPO seed by seed (Student's t).
Results are lines of JSON in docs/data/score.jsonl.
"""

from __future__ import annotations

import argparse
import math
import sys
import warnings
from typing import Any

import numpy as np

import paired
from paired import Key, measure, ratio
from vpac.deep import PPO, VPACPPO
from vpac.risk import mean_interval, ratio_of_means

RESULTS = paired.RESULTS.with_name("score.jsonl")
AVERSIONS = (0.1, 0.3, 1.0)
NEUTRAL = {"PPO": 0.99, "γ = 0.997": 0.997}
"""Arms without a price, and their discounts."""
LAST = ("last, R = 0.3", "last, R = 1")
"""Arms whose price waits for half of the last 300 000 steps."""
LATER = {"later, γ = 0.99": 0.99, **dict.fromkeys(("later, R = 0", "later, R = 0.3", "later, R = 1", *LAST), 0.997)}
"""Arms that go on with a new optimiser for the last 300 000 steps, and their discounts then."""
ARMS = (*NEUTRAL, *(f"R = {r:g}" for r in AVERSIONS), *LATER)
EPISODES = 512


def job(found: dict[Key, dict[str, Any]], env: str, arm: str, seed: int, steps: int = paired.STEPS) -> dict[str, Any]:
    """Train one arm from one seed and measure its policy."""
    if arm in NEUTRAL:
        psi, agent = 0.0, PPO(env, seed=seed, gamma=NEUTRAL[arm])
    else:
        spread = np.mean([math.sqrt(found[env, "PPO", seed]["variance 1"]) for seed in paired.CALIBRATION])
        psi = float(f"{float(arm.rpartition('R = ')[2]) / spread:.2g}") if "R = " in arm else 0.0
        horizon: dict[str, Any] = {"gamma": LATER[arm]} if arm in LATER else {}
        if arm in LAST:
            horizon["psi"] = f"warm-up:{psi:g}:{paired.MORE // 2}:{paired.MORE // 4}"
        elif arm in LATER:
            horizon["psi_warm_up"] = 0.2
        agent = VPACPPO(env, seed=seed, **{"psi": psi, "variance_gamma": 1.0, **horizon})
    if arm in LATER:
        agent.start_from(paired.trained(env, seed, steps - paired.MORE))
        steps = paired.MORE
    agent.learn(steps)
    agent.environments.close()
    return {"psi": psi, **measure(agent, env, seed, EPISODES)}


def jobs(tasks: list[str], arms: list[str], seeds: int) -> list[Key]:
    """What sets the price first, then seed by seed, so that a stopped run has whole pairs."""
    return [
        *((env, "PPO", seed) for env in tasks for seed in paired.CALIBRATION),
        *((env, arm, seed) for seed in range(seeds) for env in tasks for arm in arms),
    ]


def of_averages(those: dict[int, dict[str, Any]], others: dict[int, dict[str, Any]], name: str) -> str:
    """The average of a number over seeds ÷ that of the other arm, with its interval."""
    if len(those) < 2:
        return "–"
    found = ratio_of_means([row[name] for row in those.values()], [row[name] for row in others.values()])
    return f"{found.estimate:.2f} ({found.low:.2f} to {found.high:.2f})"


def show(found: dict[Key, dict[str, Any]]) -> None:
    """Print a table for each task, in Markdown."""
    for env in paired.TASKS:
        rows = {arm: {s: row for (e, a, s), row in found.items() if (e, a) == (env, arm) and s < 100} for arm in ARMS}
        if not rows["PPO"]:
            continue
        print(f"\n**{env}**; medians over seeds, then comparisons with PPO, with 95 % intervals\n")
        print(
            "| arm | seeds | ψ | mean score | variance | CVaR 10 % | length | mean ÷ PPO | variance ÷ PPO | by pairs "
            "| gain in U |"
        )
        print("|---|---:|---:|---:|---:|---:|---:|---|---|---|---|")
        for arm, those in rows.items():
            if not those:
                continue
            score, variance, tail, length = (
                np.median([row[name] for row in those.values()]) for name in ("mean 1", "variance 1", "cvar", "length")
            )
            cells = ["" if arm == "PPO" else of_averages(those, rows["PPO"], name) for name in ("mean 1", "variance 1")]
            pairs = [math.log(row["variance 1"] / rows["PPO"][s]["variance 1"]) for s, row in those.items()]
            cells.append("" if arm == "PPO" else ratio(np.array(pairs)))
            psi = next(iter(those.values()))["psi"]
            mean = f"mean {LATER.get(arm, 0.99):g}"
            gains = [
                row[mean] - psi * row["variance 1"] - (other[mean] - psi * other["variance 1"])
                for s, row in those.items()
                if psi and (other := rows["PPO"].get(s))
            ]
            gain = mean_interval(np.array(gains)) if len(gains) > 1 else None
            cells.append("" if gain is None else f"{gain.estimate:.0f} ({gain.low:.0f} to {gain.high:.0f})")
            about = f"{psi:.2g} | {score:.0f} | {variance:.2g} | {tail:.0f} | {length:.0f}"
            print(f"| {arm} | {len(those)} | {about} | {' | '.join(cells)} |")
        free = rows["later, R = 0"]
        for arm in [arm for arm in LATER if rows[arm] and arm not in ("later, γ = 0.99", "later, R = 0")]:
            gains = [
                row["mean 0.997"] - free[s]["mean 0.997"] - row["psi"] * (row["variance 1"] - free[s]["variance 1"])
                for s, row in rows[arm].items()
                if s in free
            ]
            more = mean_interval(np.array(gains))
            print(f"\n{arm}: gain in U over later, R = 0: {more.estimate:.0f} ({more.low:.0f} to {more.high:.0f})")


def main() -> int:
    """Measure what is missing, then print the tables."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--tasks", nargs="+", choices=paired.TASKS, default=list(paired.TASKS), metavar="TASK")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS), metavar="ARM")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only-table", action="store_true", help="measure nothing")
    asked = parser.parse_args()
    found = paired.read(RESULTS)
    todo = [] if asked.only_table else [key for key in jobs(asked.tasks, asked.arms, asked.seeds) if key not in found]
    warnings.simplefilter("ignore")
    paired.fill(RESULTS, todo, found, lambda key: {**dict(zip(paired.NAMES, key, strict=True)), **job(found, *key)})
    show(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
