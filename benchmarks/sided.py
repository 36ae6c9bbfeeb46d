"""Risk-averse methods on continuous tasks with reward noise on one side, all within one PPO.

    python benchmarks/sided.py                                   everything, ten seeds: hours; resumes when stopped
    python benchmarks/sided.py --tasks pendulum --arms PPO VPAC --seeds 3
    python benchmarks/sided.py --only-table                      print the tables of what has been measured
    python benchmarks/sided.py --only-table --figure docs/images/sided.png    and draw the frontiers

The tasks are registered in `vpac.envs.registration`; LunarLander needs `gymnasium[box2d]`. Steps, seeds and risk aversions
are the same for all, settings the defaults of each learner. Prices are given by R without a unit, as in `rivals.py`: ψ = R /
standard deviation of PPO's discounted return, for MVPI of a step's reward, measured on two seeds (100, 101) beside the ten;
Gini deviation and CVaR have price 2R. Policies are measured with their noise, in 200 episodes: mean and variance of the
discounted return (γ = 0.99), which learners optimise, and CVaR 10 %. An episode is careful if at most a tenth of its steps
are on the noisy side.

No oracle knows the best policy here. A method is judged against the best point of all methods at each price, otherwise as in
`rivals.py` (`vpac.lab.report.trade_off.scores`). Results are lines of JSON in docs/data/sided.jsonl.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import rivals
from paired import Players, fill
from rivals import ARMS, Key
from vpac import deep
from vpac.evaluation.play import plain, play
from vpac.lab.report.trade_off import Swept, scores
from vpac.risk.metrics import cvar, interquartile_mean

RESULTS = Path(__file__).parent.parent / "docs" / "data" / "sided.jsonl"
TASKS = {
    "pendulum": ("vpac/TwoSidedPendulum-v0", 100_000, 0.01),
    "lander": ("vpac/NoisyLunarLander-v0", 200_000, 0.0),
    "swimmer": ("vpac/TwoSidedSwimmer-v0", 150_000, 0.5),
    "cheetah": ("vpac/TwoSidedHalfCheetah-v0", 200_000, 0.0),
}
"""Environment, steps of a training, and where the noisy side begins on the first observed axis."""
METHODS = {arm: ARMS[arm] for arm in ARMS if arm not in ("VAAC, published", "CVaR")}
METHODS |= {
    "VPAC, ψ rises over half": ("VPACPPO", {"psi_warm_up": 0.5}),
    "VPAC, variance given the start": ("VPACPPO", {"variance_of": "state"}),
    "VPAC, J of 16 episodes": ("VPACPPO", {"luck_episodes": 16}),
}
NAMES = ("task", "arm", "R", "seed")
AVERSIONS, CALIBRATION, EPISODES, GAMMA = (0.3, 1.0), (100, 101), 200, 0.99


def measure(agent: deep.PPO, env: str, low: float, seed: int) -> dict[str, float]:
    """Mean, variance and CVaR of the discounted return, mean score, a step's spread, share of careful episodes."""
    starts, acts = np.random.SeedSequence(seed, spawn_key=(5000,)).spawn(2)
    policy, rng, players = agent.policy(), np.random.default_rng(acts), Players(env, starts)
    noisy, paid = np.zeros(EPISODES), []

    def record(
        counted: Any, number: Any, steps: Any, seen: Any, actions: Any, rewards: Any, ends: Any, cuts: Any
    ) -> None:
        there = counted & (np.asarray(seen)[:, 0] > low)
        np.add.at(noisy, number[there], 1.0)
        paid.append(np.asarray(rewards)[counted])

    terms = (plain, lambda rewards, steps, _: GAMMA**steps * rewards)
    sums, lengths, _ = play(players, lambda seen, _: policy.act(seen, rng), EPISODES, 1.0, terms, record=record)
    players.envs.close()
    return {
        "mean": float(sums[1].mean()), "variance": float(sums[1].var(ddof=1)), "cvar": float(cvar(sums[1], 0.1)),
        "score": float(sums[0].mean()), "careful": float((noisy <= 0.1 * lengths).mean()),
        "step": float(np.concatenate(paid).std()),
    }  # fmt: skip


def price(found: dict[Key, dict[str, float]], task: str, arm: str, aversion: float) -> float:
    """The price of a risk aversion, to two digits."""
    if METHODS[arm][1].get("penalty", "variance") != "variance":
        return 2.0 * aversion
    neutral = [found[task, "PPO", 0.0, seed] for seed in CALIBRATION]
    spread = [row["step"] if arm.startswith("MVPI") else math.sqrt(row["variance"]) for row in neutral]
    return float(f"{aversion / np.mean(spread):.2g}")


def job(found: dict[Key, dict[str, float]], task: str, arm: str, aversion: float, seed: int) -> dict[str, Any]:
    """Train one method from one seed and measure its policy."""
    (env, steps, low), (kind, settings) = TASKS[task], METHODS[arm]
    given = {} if arm == "PPO" else {"psi": price(found, task, arm, aversion), **settings}
    agent = getattr(deep, kind)(env, seed=seed, **given).learn(steps)
    agent.environments.close()
    return {**given, **measure(agent, env, low, seed)}


def jobs(tasks: list[str], arms: list[str], seeds: int) -> list[Key]:
    """What sets the prices first, then seed by seed, so that a stopped run has whole comparisons."""
    points = [(arm, r) for arm in arms for r in ((0.0,) if arm == "PPO" else AVERSIONS)]
    return [
        *((task, "PPO", 0.0, seed) for task in tasks for seed in CALIBRATION),
        *((task, arm, r, seed) for task in tasks for seed in range(seeds) for arm, r in points),
    ]


def show(found: dict[Key, dict[str, Any]], figure: Path | None) -> None:
    """Print for each task the scores and the numbers at each R, in Markdown; draw the frontiers."""
    shown: dict[str, dict[str, Swept]] = {}
    for task in TASKS:
        forms = {arm: form for arm in METHODS if (form := swept(found, task, arm)) is not None}
        if "PPO" not in forms or len(forms) < 2:
            continue
        shown[task] = forms
        judged = scores(forms, best(forms, [0.0, *(price(found, task, "VPAC", r) for r in AVERSIONS)]))
        ranks = np.argsort(np.argsort(np.stack([score.tuned for score in judged.values()]), axis=0), axis=0) + 1.0
        seeds = len(forms["PPO"].means[0])
        print(f"\n**{task}** (`{TASKS[task][0]}`, {TASKS[task][1]:,} steps, {seeds} seeds)\n")
        print("| all prices | hypervolume | loss in U, tuned | rank |\n|---|---|---|---|")
        for place, (arm, score) in enumerate(judged.items()):
            low, high = np.quantile(ranks[place, 1:], [0.025, 0.975])
            cells = [rivals._interval(score.volume), rivals._interval(score.tuned)]
            print(rivals._minus(f"| {arm} | {' | '.join(cells)} | {ranks[place, 0]:.0f} ({low:.0f} … {high:.0f}) |"))
        for aversion in AVERSIONS:
            at_price(found, task, list(judged), aversion)
    if figure:
        draw(shown, figure)


def at_price(found: dict[Key, dict[str, Any]], task: str, arms: list[str], aversion: float) -> None:
    """Print what the policies of each method are like at one risk aversion."""
    psi = price(found, task, "VPAC", aversion)
    heads = (f"R = {aversion:g} (ψ = {psi:g})", "mean", "variance", "CVaR 10 %", "careful", "score", "U", "IQM of U")
    print(f"\n| {' | '.join(heads)} | P(better than PPO) |\n" + "|---" * (len(heads) + 1) + "|")
    neutral = worth(found, task, "PPO", psi)
    for arm in arms:
        those = rows(found, task, arm, aversion)
        here = worth(found, task, arm, psi, aversion)
        cells = [interval(those, name) for name in ("mean", "variance", "cvar")]
        better = "" if arm == "PPO" else rivals._ends(*rivals._improvement(here, neutral))
        careful, total = (np.mean([row[name] for row in those]) for name in ("careful", "score"))
        u = f"{here.mean():.4g} ± {rivals._half(here):.2g}"
        cells += [f"{100 * careful:.0f} %", f"{total:.4g}", u, f"{interquartile_mean(here):.4g}", better]
        print(rivals._minus(f"| {arm} | {' | '.join(cells)} |"))


def best(forms: dict[str, Swept], psis: list[float]) -> np.ndarray:
    """ψ, mean and variance of the best point of all methods at each price."""
    pairs = [(m.mean(), v.mean()) for form in forms.values() for m, v in zip(form.means, form.variances, strict=True)]
    return np.array([(psi, *max(pairs, key=lambda pair: pair[0] - psi * pair[1])) for psi in psis])


def rows(found: dict[Key, dict[str, Any]], task: str, arm: str, aversion: float = 1.0) -> list[dict[str, Any]]:
    """The runs of a method at a risk aversion; those of PPO have none."""
    key = (task, arm, 0.0 if arm == "PPO" else aversion)
    return [row for place, row in sorted(found.items()) if place[:3] == key and place[3] < CALIBRATION[0]]


def worth(found: dict[Key, dict[str, Any]], task: str, arm: str, psi: float, aversion: float = 1.0) -> np.ndarray:
    """U of each run of a method at a risk aversion."""
    return np.array([row["mean"] - psi * row["variance"] for row in rows(found, task, arm, aversion)])


def interval(those: list[dict[str, Any]], name: str) -> str:
    """The mean over runs and half of its 95 % interval."""
    values = np.array([row[name] for row in those])
    return f"{values.mean():.4g} ± {rivals._half(values):.2g}"


def swept(found: dict[Key, dict[str, Any]], task: str, arm: str) -> Swept | None:
    """A method's runs along R, PPO's being those at R = 0; None with fewer than two."""
    points = [("PPO", 0.0)] + ([] if arm == "PPO" else [(arm, r) for r in AVERSIONS])
    samples = [rows(found, task, *point) for point in points]
    if min(map(len, samples)) < 2:
        return None
    means, variances = ([np.array([row[name] for row in those]) for those in samples] for name in ("mean", "variance"))
    return Swept(np.array([0.0, *(price(found, task, "VPAC", r) for _, r in points[1:])]), means, variances)


def draw(shown: dict[str, dict[str, Swept]], path: Path) -> None:
    """Draw each task's frontiers: means over seeds with 95 % intervals."""
    import matplotlib.pyplot as plt

    from vpac.lab.report.geometry import LIGHT, look

    figure, axes = plt.subplots(
        1, len(shown), figsize=(max(6.0, 4.3 * len(shown)), 5.2), layout="constrained", squeeze=False
    )
    for axis, (task, forms) in zip(axes.flat, shown.items(), strict=True):
        for number, (arm, form) in enumerate((arm, form) for arm, form in forms.items() if arm != "PPO"):
            style = look(number)
            line = {"marker": style.marker, "linestyle": style.line, "linewidth": 1, "elinewidth": 0.5, "markersize": 4}
            spreads = [np.sqrt(sample) for sample in form.variances]
            x, y = ([float(sample.mean()) for sample in those] for those in (spreads, form.means))
            wide, high = ([rivals._half(sample) for sample in those] for those in (spreads, form.means))
            axis.errorbar(x, y, high, wide, label=arm, color="0.5" if number >= len(LIGHT) else style.colour, **line)
        axis.plot(x[:1], y[:1], "ko", markersize=7, label="PPO", zorder=5)
        axis.set(title=task, xlabel="standard deviation of the return", ylabel="mean")
        axis.grid(alpha=0.25)
    figure.legend(
        *axes.flat[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=min(5, 2 * len(shown)),
        frameon=False,
    )
    figure.savefig(path, dpi=110)


def main() -> int:
    """Measure what is missing, then print the tables."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS), metavar="TASK")
    parser.add_argument("--arms", nargs="+", choices=list(METHODS), default=list(METHODS), metavar="ARM")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only-table", action="store_true", help="measure nothing")
    parser.add_argument("--figure", type=Path, help="draw the frontiers into this file")
    asked = parser.parse_args()
    lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else []
    found: dict[Key, dict[str, Any]] = {(r["task"], r["arm"], r["R"], r["seed"]): r for r in map(json.loads, lines)}
    todo = [] if asked.only_table else [key for key in jobs(asked.tasks, asked.arms, asked.seeds) if key not in found]
    warnings.simplefilter("ignore")
    fill(RESULTS, todo, found, lambda key: {**dict(zip(NAMES, key, strict=True)), **job(found, *key)})
    show(found, asked.figure)
    return 0


if __name__ == "__main__":
    sys.exit(main())
