"""Coverage of the intervals of `vpac.offline` over many logs of finite worlds, judged by the oracle.

    python benchmarks/offline.py [--logs 500] [--episodes 20 40 80 300] [--seed 7] [--methods fitted marginalised] [--out FILE]

A table for each world and size of log: how many logs had enough effective episodes, how often the 95 % intervals of mean,
variance and CVaR that are known hold the exact value, and the root mean squared error as a share of that of plain importance
sampling on the same logs (the mean of ρ_{0:T} G, and of ρ_{0:T} (G − Ĵ)²). `--out` adds them to a file of JSON.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vpac import FiniteMDP, UserError, oracle
from vpac.envs import CatchUp
from vpac.evaluation.importance import METHODS, LogStudy, offline
from vpac.evaluation.log import Chances, Log
from vpac.files import jsonable, write_text

ALPHA = 0.1
GAMMA = 0.95


def corridor() -> tuple[FiniteMDP, np.ndarray, np.ndarray]:
    """Six cells: a careful and a hasty step, the hasty one sometimes thrown back; noisy rewards."""
    n, rng = 7, np.random.default_rng(1)
    p, r, v = np.zeros((n, 2, n)), np.zeros((n, 2, n)), np.zeros((n, 2, n))
    for s in range(n - 1):
        p[s, 0, s + 1] = 1.0
        p[s, 1, min(s + 2, n - 1)] += 0.7
        p[s, 1, max(s - 1, 0)] += 0.3
        r[s], v[s] = rng.normal(-1.0, 0.3, (2, 1)), [[0.1], [1.0]]
    r[:, :, n - 1] += 5.0
    start, terminal = np.eye(n)[0] * 0.7 + np.eye(n)[1] * 0.3, np.arange(n) == n - 1
    mdp = FiniteMDP(p, r, v, start, terminal)
    return mdp, np.tile([0.65, 0.35], (n, 1)), np.tile([0.5, 0.5], (n, 1))


def random_world() -> tuple[FiniteMDP, np.ndarray, np.ndarray]:
    """Ten states and three actions drawn at random, ending with probability 1/4 a step."""
    n, k, rng = 11, 3, np.random.default_rng(2)
    p = np.zeros((n, k, n))
    p[:-1, :, :-1] = 0.75 * rng.dirichlet(np.ones(n - 1), (n - 1, k))
    p[:-1, :, -1] = 0.25
    mdp = FiniteMDP(
        p,
        rng.normal(size=(n, k, n)),
        np.full((n, k, n), 0.2),
        np.append(np.full(n - 1, 0.1), 0.0),
        np.arange(n) == n - 1,
    )
    target, behaviour = (oracle.softmax(0.3 * rng.normal(size=(n, k))) for _ in range(2))
    return mdp, target, behaviour


def catch_up() -> tuple[FiniteMDP, np.ndarray, np.ndarray]:
    """`vpac/CatchUp-v0`: a toss of a coin decides most of the return, so the estimate of its variance has hardly any
    first-order error."""
    mdp, rng = CatchUp().mdp, np.random.default_rng(1)
    preferences = 0.5 * rng.normal(size=(mdp.n_states, mdp.n_actions))
    return mdp, oracle.softmax(preferences + 0.15 * rng.normal(size=preferences.shape)), oracle.softmax(preferences)


WORLDS = {"corridor": corridor, "random": random_world, "catch-up": catch_up}


def sample_log(mdp: FiniteMDP, behaviour: np.ndarray, episodes: int, rng: np.random.Generator) -> Log:
    """Episodes of a behaviour policy, all stepped at once."""
    up_to, act_up_to = np.cumsum(mdp.transition, axis=-1), np.cumsum(behaviour, axis=-1)
    mean, deviation = mdp.reward_mean, np.sqrt(mdp.reward_variance)
    state, number = rng.choice(mdp.n_states, episodes, p=mdp.start), np.arange(episodes)
    rows = []
    while len(state):
        action = (rng.random((len(state), 1)) > act_up_to[state, :-1]).sum(axis=1)
        after = (rng.random((len(state), 1)) > up_to[state, action, :-1]).sum(axis=1)
        reward = mean[state, action, after] + deviation[state, action, after] * rng.standard_normal(len(state))
        rows.append((number, state, action, reward))
        alive = ~mdp.terminal[after]
        state, number = after[alive], number[alive]
    number, state, action, reward = (np.concatenate(x) for x in zip(*rows, strict=True))
    order = np.argsort(number, kind="stable")
    number, state, action, reward = number[order], state[order], action[order], reward[order]
    first = np.flatnonzero(np.append(True, number[1:] != number[:-1]))
    return Log(state[:, None].astype(float), action, reward, behaviour[state, action], first, np.ones(episodes, bool))


def measure(name: str, logs: int, episodes: int, seed: int, methods: Sequence[str] = METHODS) -> dict[str, Any]:
    """Coverage and error by method and metric, over the logs on which a method was not rejected."""
    mdp, target, behaviour = WORLDS[name]()
    moments = oracle.evaluate(mdp, target, GAMMA)
    exact = {"mean": float(moments.mean), "variance": float(moments.total_variance)}
    exact["cvar"] = oracle.distribution(mdp, target, GAMMA).cvar(ALPHA)
    held: dict[tuple[str, str], list[bool]] = {}
    errors: dict[tuple[str, str], list[tuple[float, float]]] = {}
    sizes, above = [], []
    for k in range(logs):
        log = sample_log(mdp, behaviour, episodes, np.random.default_rng([seed, k]))
        study = LogStudy(log, Chances.of(target, log.observation, log.action), GAMMA)
        sizes.append(study.effective("weighted"))
        try:
            report = offline(log, target, gamma=GAMMA, methods=methods, alphas=(ALPHA,), seed=k, lowest=-1e3)
        except UserError:  # all methods are rejected
            continue
        above.append(report.lower <= exact["mean"])
        plain = {"mean": float(np.mean(study.weight * study.returns)), "cvar": np.nan}
        plain["variance"] = float(np.mean(study.weight * (study.returns - plain["mean"]) ** 2))
        for one in report.estimates:
            for metric, found in (("mean", one.mean), ("variance", one.variance), ("cvar", one.cvar.get(ALPHA))):
                if found is not None and np.isfinite(found.low):
                    held.setdefault((one.method, metric), []).append(found.low <= exact[metric] <= found.high)
                    pair = (found.estimate - exact[metric], plain[metric] - exact[metric])
                    errors.setdefault((one.method, metric), []).append(pair)
    rows = []
    for method, metric in sorted(held, key=lambda key: (METHODS.index(key[0]), key[1] == "cvar", key[1])):
        ours, plainly = np.sqrt(np.mean(np.square(errors[method, metric]), axis=0))
        found = held[method, metric]
        row = {"method": method, "metric": metric, "logs": len(found), "coverage": float(np.mean(found))}
        rows.append({**row, "error": ours / plainly})
    return {
        "world": name, "episodes": episodes, "logs": logs, "seed": seed, "effective": float(np.mean(sizes)),
        "lower_bound": float(np.mean(above)) if above else None, "rows": rows,
    }  # fmt: skip


def store(table: dict[str, Any], path: Path) -> None:
    """Add a table to a file, in place of an earlier one of this world and size."""
    key = ("episodes", "world")
    tables = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    tables = [one for one in tables if any(one[name] != table[name] for name in key)] + [jsonable(table)]
    tables.sort(key=lambda one: (one["episodes"], [*WORLDS].index(one["world"])))
    write_text(path, json.dumps(tables, indent=1) + "\n")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--logs", type=int, default=500)
    options.add_argument("--episodes", type=int, nargs="+", default=[20, 40, 80, 300])
    options.add_argument("--seed", type=int, default=7)
    options.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    options.add_argument("--out", type=Path, help="where to store all figures, as JSON")
    given = options.parse_args()
    for episodes in given.episodes:
        for name in WORLDS:
            table = measure(name, given.logs, episodes, given.seed, given.methods)
            if given.out:
                store(table, given.out)
            bound = "" if table["lower_bound"] is None else f"; lower bound {100 * table['lower_bound']:.1f} %"
            print(f"{name}: {given.logs} logs of {episodes} episodes, {table['effective']:.0f} effective{bound}")
            if not table["rows"]:
                print("every method is rejected in every log", flush=True)
                continue
            print("| method | metric | logs | coverage | error / plain IS |\n|---|---|---|---|---|")
            for method, metric, count, coverage, error in (row.values() for row in table["rows"]):
                print(f"| {method} | {metric} | {count} | {100 * coverage:.1f} % | {error:.2f} |", flush=True)


if __name__ == "__main__":
    main()
