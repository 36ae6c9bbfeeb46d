"""Does a variance penalty lower the variance of a trained policy? In pairs: each arm continues from the same PPO checkpoints.

    python benchmarks/paired.py                                   everything, ten checkpoints: hours; resumes when stopped
    python benchmarks/paired.py --tasks Hopper-v5 --seeds 3
    python benchmarks/paired.py --only-table                      print what has been measured

Over seeds of PPO the logarithm of the score's variance has a standard deviation of 1 to 4, so that few independent runs decide
nothing. Here PPO learns for a million steps; then every arm goes on from that agent for 300 000 steps with the same seed:
published and corrected with the γ of PPO, 0.99; with the variance of the score (`variance_gamma=1`); and with γ = 0.997, whose
horizon is a third of an episode. ψ is set by the size of the penalty, sd(penalty) / sd(A_V) = 0.1, 0.3 and 1, measured with ψ
≈ 0 on two seeds (100, 101) beside the ten; or by a budget, half the variance that the same checkpoint has with ψ = 0. Policies
are measured with their noise, in 1000 episodes with starts drawn anew. An arm is compared with ψ = 0 at its own γ, seed by
seed: the ratio of variances (of their logarithms) and the ratio of means, with 95 % intervals by Student's t.

A last arm, "frozen policy", asks whether the errors of V count as risk: the policy stays, only the critics learn, and the
variance that they predict from the start is recorded after a tenth and after all of 600 000 steps, beside the measured one.
Results are lines of JSON in docs/data/paired.jsonl; checkpoints are kept in results/paired and can be deleted.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from vpac.deep import PPO, VPACPPO
from vpac.envs.vector import environments
from vpac.evaluation.play import plain, play
from vpac.risk import Budget, mean_interval

HERE = Path(__file__).parent
RESULTS = HERE.parent / "docs" / "data" / "paired.jsonl"
CHECKPOINTS = HERE.parent / "results" / "paired"
TASKS = ("Hopper-v5", "Walker2d-v5", "HalfCheetah-v5")
STEPS, MORE, EPISODES, PLAYERS = 1_000_000, 300_000, 1000, 64
KINDS: dict[str, dict[str, Any]] = {
    "corrected": {},
    "published": {"form": "published"},
    "corrected, score": {"variance_gamma": 1.0},
    "corrected, long": {"gamma": 0.997},
}
CONTROLS = {"ψ = 0": "corrected", "ψ = 0, long": "corrected, long"}
"""Arms without a price, and the settings they have."""
SIZES = (0.1, 0.3, 1.0)
FORMS = ("corrected", "published")
HALF = {f"{kind}, half the variance": kind for kind in FORMS}
"""Arms with a budget: half the variance of "ψ = 0" at the γ of training."""
FROZEN = "frozen policy"
"""Arm in which only the critics learn, for `FROZEN_STEPS`."""
FROZEN_STEPS = 600_000
CALIBRATION = (100, 101)
TINY = 1e-9
"""A price that changes nothing, at which the size of a penalty can be measured."""
GAMMAS = (0.99, 0.997, 1.0)
"""Discounts of the returns that are measured; the first is that of training."""

Key = tuple[str, str, int]
NAMES = ("env", "arm", "seed")


class Players:
    """Environments as `play` wants them, from seeds given once."""

    def __init__(self, env: str, seeds: np.random.SeedSequence) -> None:
        self.envs = environments(env, PLAYERS, "auto", {})
        self.n, self.resets_in_next_step = self.envs.n, not self.envs.same_step
        self.seeds = seeds.generate_state(self.n).tolist()

    def reset(self) -> Any:
        """Begin all episodes."""
        return self.envs.reset(self.seeds)

    def step(self, actions: Any) -> Any:
        """One step of each."""
        return self.envs.step(actions)[:4]

    def restart(self, observations: Any, over: Any, number: Any) -> Any:
        """Episodes begin by themselves."""
        return observations


def measure(agent: PPO, env: str, seed: int, episodes: int = EPISODES) -> dict[str, float]:
    """Mean and variance of the returns at each of `GAMMAS`, CVaR 10 % of the score, and the mean length."""
    starts, acts = np.random.SeedSequence(seed, spawn_key=(4000,)).spawn(2)
    policy, rng, players = agent.policy(), np.random.default_rng(acts), Players(env, starts)
    terms = [lambda r, k, _, g=g: g**k * r for g in GAMMAS[:-1]] + [plain]
    sums, lengths, _ = play(players, lambda seen, _: policy.act(seen, rng), episodes, 1.0, tuple(terms))
    players.envs.close()
    found = {"length": float(lengths.mean()), "cvar": float(np.sort(sums[-1])[: episodes // 10].mean())}
    for gamma, returns in zip(GAMMAS, sums, strict=True):
        found |= {f"mean {gamma:g}": float(returns.mean()), f"variance {gamma:g}": float(returns.var(ddof=1))}
    return found


def trained(env: str, seed: int, steps: int = STEPS) -> PPO:
    """PPO after so many steps, from the file if there is one."""
    folder = CHECKPOINTS / (f"{env}-{seed}" if steps == STEPS else f"{env}-{seed}-{steps}")
    if (folder / "agent.json").exists():
        return PPO.load(folder)
    agent = PPO(env, seed=seed).learn(steps)
    agent.save(folder)
    return agent


def gone_on(env: str, seed: int, psi: float | Budget, settings: dict[str, Any]) -> VPACPPO:
    """The agent after 300 000 more steps; its critics of the variance have a fifth of them before the whole price is paid."""
    priced = {"budget": psi} if isinstance(psi, Budget) else {"psi": psi, "psi_warm_up": 0.2}
    agent = VPACPPO(env, seed=seed, **priced, **settings).start_from(trained(env, seed))
    return agent.learn(MORE)


def frozen(env: str, seed: int) -> dict[str, float]:
    """The standard deviation of the return from the start, as the critics predict it early and late, and as measured."""
    still = {"learning_rate": 1e-30, "critic_learning_rate": 3e-4, "decay_learning_rate": False}
    agent = VPACPPO(env, seed=seed, psi=TINY, **still).start_from(trained(env, seed))
    rows: list[dict[str, float]] = []
    agent.learn(FROZEN_STEPS, callback=lambda agent: rows.append(agent.history[-1]))
    predicted = np.array([row["start_variance"] for row in rows])
    wide, ninth = len(rows) // 20, len(rows) // 10
    early, late = (
        math.sqrt(np.nanmean(part)) for part in (predicted[ninth - wide : ninth + wide], predicted[-2 * wide :])
    )
    return {"early": early, "late": late} | measure(agent, env, seed)


def arms() -> dict[str, tuple[str, float]]:
    """Kind and size of the penalty of each arm."""
    free = {arm: (kind, 0.0) for arm, kind in CONTROLS.items()}
    return free | {f"{kind}, {size:g}": (kind, size) for kind in KINDS for size in SIZES}


def all_arms() -> list[str]:
    """The same, and those that are not set by the size of a penalty."""
    return [*arms(), *HALF, FROZEN]


def control(arm: str) -> str:
    """The arm without a price that it is compared with."""
    return "ψ = 0, long" if "long" in arm else "ψ = 0"


def job(found: dict[Key, dict[str, Any]], env: str, arm: str, seed: int) -> dict[str, Any]:
    """Measure one arm from one checkpoint; a calibration is an arm "size of KIND"."""
    if arm.startswith("size of "):
        agent = gone_on(env, seed, TINY, KINDS[arm.removeprefix("size of ")])
        sizes = [row["penalty_share"] / TINY for row in list(agent.history)[len(agent.history) // 2 :]]
        return {"size": float(np.nanmedian(sizes))}
    if arm == FROZEN:
        return frozen(env, seed)
    if arm in HALF:
        limit = math.sqrt(0.5 * found[env, "ψ = 0", seed]["variance 0.99"])
        agent = gone_on(env, seed, Budget(max_std=limit), KINDS[HALF[arm]])
        return {"limit": limit, "psi": agent.psi} | measure(agent, env, seed)
    kind, size = arms()[arm]
    psi = 0.0
    if size:
        psi = size / float(np.mean([found[env, f"size of {kind}", seed]["size"] for seed in CALIBRATION]))
    return {"psi": psi} | measure(gone_on(env, seed, psi, KINDS[kind]), env, seed)


def jobs(tasks: list[str], chosen: list[str], seeds: int) -> list[Key]:
    """Calibrations first, then seed by seed, so that a stopped run has whole pairs."""
    return [
        *((env, f"size of {kind}", seed) for env in tasks for kind in KINDS for seed in CALIBRATION),
        *((env, arm, seed) for env in tasks for seed in range(seeds) for arm in chosen),
    ]


def read(file: Path = RESULTS) -> dict[Key, dict[str, Any]]:
    """What has been measured."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    rows = [json.loads(line) for line in lines]
    return {(row["env"], row["arm"], row["seed"]): row for row in rows}


def fill(file: Path, todo: list[Any], found: dict[Any, Any], measured: Callable[[Any], dict[str, Any]]) -> None:
    """Measure what is missing, a line of JSON in the file for each, and print how long it will take."""
    begun = time.monotonic()
    for done, key in enumerate(todo, 1):
        found[key] = measured(key)
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(found[key], ensure_ascii=False) + "\n")
        left = (time.monotonic() - begun) / done * (len(todo) - done)
        about = ", ".join(map(str, key))
        print(f"{done} of {len(todo)}, {left / 60:.0f} minutes left ({about})", file=sys.stderr, flush=True)


def ratio(logs: np.ndarray) -> str:
    """The geometric mean of ratios with its 95 % interval."""
    if len(logs) < 2:
        return "–" if len(logs) == 0 else f"{math.exp(logs[0]):.2f}"
    half = stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / math.sqrt(len(logs))
    low, middle, high = np.exp(logs.mean() + half * np.array([-1.0, 0.0, 1.0]))
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def gain(arm: str, rows: list[tuple[dict[str, Any], dict[str, Any]]]) -> str:
    """Mean difference in U = mean − ψ · variance, each with the discount that the arm is trained with, and its interval."""
    mean = "mean 0.997" if "long" in arm else "mean 0.99"
    variance = "variance 1" if "score" in arm else mean.replace("mean", "variance")
    gains = [a[mean] - b[mean] - a["psi"] * (a[variance] - b[variance]) for a, b in rows if a["psi"]]
    if len(gains) < 2:
        return ""
    found = mean_interval(np.array(gains))
    return f"{found.estimate:.1f} ({found.low:.1f} to {found.high:.1f})"


def show(found: dict[Key, dict[str, Any]]) -> None:
    """Print a table for each task, in Markdown."""
    for env in TASKS:
        table = {
            arm: [
                (row, found[env, control(arm), s])
                for (e, a, s), row in found.items()
                if (e, a) == (env, arm) and (env, control(arm), s) in found
            ]
            for arm in [*arms(), *HALF]
        }
        if not any(table.values()):
            continue
        print(f"\n**{env}**; but for ψ = 0, ratios to ψ = 0 with the same γ, geometric means with 95 % intervals\n")
        print(
            "| arm | pairs | ψ | mean score | variance of the score | at 0.997 | at 0.99 | gain in U |\n"
            "|---|---:|---:|---|---|---|---|---|"
        )
        for arm, rows in table.items():
            columns = ("mean 1", "variance 1", "variance 0.997", "variance 0.99")
            if arm in CONTROLS and rows:
                cells = [f"{np.median([row[name] for row, _ in rows]):.3g} (median)" for name in columns]
            else:
                cells = [
                    ratio(np.array([math.log(a[name] / b[name]) for a, b in rows if min(a[name], b[name]) > 0.0]))
                    for name in columns
                ]
            if rows:
                psi = np.median([row["psi"] for row, _ in rows])
                print(f"| {arm} | {len(rows)} | {psi:.2g} | {' | '.join(cells)} | {gain(arm, rows)} |")
        critics = [row for (e, a, _), row in found.items() if (e, a) == (env, FROZEN)]
        if critics:
            print(
                f"\n{FROZEN}, {len(critics)} seeds: standard deviation of the return from the start, predicted ÷ measured\n"
            )
            for when in ("early", "late"):
                print(
                    f"- {when}: {ratio(np.array([math.log(row[when] ** 2 / row['variance 0.99']) / 2 for row in critics]))}"
                )


def main() -> int:
    """Measure what is missing, then print the tables."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), metavar="TASK")
    parser.add_argument("--arms", nargs="+", choices=all_arms(), default=all_arms(), metavar="ARM")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only-table", action="store_true", help="measure nothing")
    asked = parser.parse_args()
    found = read()
    todo = [] if asked.only_table else [key for key in jobs(asked.tasks, asked.arms, asked.seeds) if key not in found]
    warnings.simplefilter("ignore")
    fill(RESULTS, todo, found, lambda key: {**dict(zip(NAMES, key, strict=True)), **job(found, *key)})
    show(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
