"""Cost of the oracle by size of the MDP, and on the paper's four rooms.

Claims, each checked in this run (the exit status is 1 if one does not hold):

- Q and σ of a policy on a slippery grid of a million states: less than 30 s and 4 GiB, building the process included in
  the memory; the same for every size below.
- Both Bellman equations, recomputed here from their definitions, hold to 1e-8 of the largest value.
- Q and σ of a policy on four rooms (104 states): less than 1 ms. A batch of 100 policies costs less for each of them.
- The best policy for one price of variance: less than 2 s of processor time for a shop of 300 states × 3 actions, less than
  60 s for random processes of 900 × 3 and 1500 × 4 and for a grid of 10 000 × 4, each with its certificate. With
  `--before COMMIT` the search of that commit runs, too, on the same shop, and this one is at least 40 times as fast and no
  worse.

Every size runs in a process of its own, so that peaks of memory do not mix, with three policies: uniform, a random
softmax, and one that heads for the goal. Times are wall-clock and on one thread: small systems gain nothing from more,
and large ones are solved without BLAS.

    python benchmarks/oracle.py --max-states 1000000
    python benchmarks/oracle.py --only search --before ff3f308
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from vpac import oracle
from vpac.envs import FiniteMDP, FourRooms, PuddleWorld
from vpac.threads import one_blas_thread

GAMMA = 0.99
SCALES = (4, 10, 32, 100)
"""Puddle world has 100 · scale² free cells."""
SECONDS, GIBIBYTES, RESIDUAL, FOUR_ROOMS_MS = 30.0, 4.0, 1e-8, 1.0
SHOP_SECONDS, GRID_SECONDS, TIMES_FASTER = 2.0, 60.0, 40.0
AVERSION = 1.0
"""The price of variance of a search is this / standard deviation of the best risk-neutral policy."""
BATCH, PIECE = 100, 1_000_000

FloatArray = NDArray[np.float64]
console = Console(width=120)


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--max-states", type=int, default=1_000_000, help="leave out larger grids")
    parser.add_argument("--scale", type=int, help="measure this one size and print JSON (used by the script itself)")
    parser.add_argument(
        "--only", nargs="+", choices=["growth", "rooms", "search"], default=["growth", "rooms", "search"]
    )
    parser.add_argument("--before", metavar="COMMIT", help="compare with the search of this commit")
    parser.add_argument(
        "--shop", action="store_true", help="search the shop and print JSON (used by the script itself)"
    )
    arguments = parser.parse_args()
    if arguments.scale or arguments.shop:
        print(json.dumps(measure(arguments.scale) if arguments.scale else searched(shop(), 1.0)))
        return 0
    kept: list[tuple[str, bool]] = []
    if "growth" in arguments.only:
        kept += growth([scale for scale in SCALES if 100 * scale**2 <= arguments.max_states] or [SCALES[0]])
    if "rooms" in arguments.only:
        kept += four_rooms()
    if "search" in arguments.only:
        kept += search(arguments.before)
    for claim, holds in kept:
        console.print(f"{'kept  ' if holds else 'BROKEN'}  {claim}", style="" if holds else "bold red")
    return 0 if all(holds for _, holds in kept) else 1


def growth(scales: list[int]) -> list[tuple[str, bool]]:
    """Measure and print every size; the claims about them."""
    table = Table("states", "transitions", "build s", "policy", "evaluate s", "peak GiB", "residual", title="Growth")
    runs = []
    for scale in scales:
        run = in_own_process(scale)
        runs.append(run)
        for name, found in run["policies"].items():
            table.add_row(
                f"{run['states']:,}", f"{run['transitions']:,}", f"{run['build']:.2f}", name,
                f"{found['seconds']:.3f}", f"{run['peak']:.2f}", f"{found['residual']:.1e}",
            )  # fmt: skip
    console.print(table)
    found = [one for run in runs for one in run["policies"].values()]
    slowest = max(one["seconds"] for one in found)
    peak, residual = max(run["peak"] for run in runs), max(one["residual"] for one in found)
    if len(runs) > 1:
        print_exponents(runs)
    return [
        (f"evaluate takes less than {SECONDS:g} s: {slowest:.1f} s", slowest < SECONDS),
        (f"the process takes less than {GIBIBYTES:g} GiB: {peak:.2f} GiB", peak < GIBIBYTES),
        (f"the Bellman equations hold to {RESIDUAL:g}: {residual:.1e}", residual < RESIDUAL),
    ]


def print_exponents(runs: list[dict[str, Any]]) -> None:
    """Least squares of log cost on log states, over all sizes and over the last two, where caches no longer help."""
    states = np.log([run["states"] for run in runs])
    costs = {f"time, {name}": [run["policies"][name]["seconds"] for run in runs] for name in runs[0]["policies"]}
    costs["memory beyond the imports"] = [run["peak"] - run["idle"] for run in runs]
    for name, cost in costs.items():
        fits = (np.polyfit(states[-last:], np.log(cost[-last:]), 1)[0] for last in (len(runs), 2))
        console.print("{} grows as states^{:.2f} (last two sizes: {:.2f})".format(name, *fits))
    console.print()


def in_own_process(scale: int) -> dict[str, Any]:
    command = [sys.executable, str(Path(__file__).resolve()), "--scale", str(scale)]
    return dict(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def measure(scale: int) -> dict[str, Any]:
    """Build and evaluate one size, once everything is imported."""
    warm = PuddleWorld(scale=4, moves=4).mdp  # large enough for the sparse solver
    oracle.evaluate(warm, oracle.uniform(warm), GAMMA)
    idle = peak_gibibytes()
    began = time.perf_counter()
    mdp = PuddleWorld(scale=scale, moves=4).mdp
    build = time.perf_counter() - began
    found = {}
    for name, policy in policies(mdp).items():
        with one_blas_thread():
            began = time.perf_counter()
            moments = oracle.evaluate(mdp, policy, GAMMA)
            seconds = time.perf_counter() - began
        gap = residual(mdp, policy, moments.action_value, moments.action_variance)
        found[name] = {"seconds": seconds, "residual": gap}
    size = {"states": mdp.n_states, "transitions": len(mdp.successor)}
    return size | {"build": build, "idle": idle, "peak": peak_gibibytes(), "policies": found}


def shop(weeks: int = 13, shelf: int = 22) -> FiniteMDP:
    """The shop of docs/your-environment.md: order 0, 4 or 8, sell to Poisson(5) customers; 300 states."""
    chances = np.array([np.exp(-5.0) * 5.0**k / math.factorial(k) for k in range(80)])
    rows, end, levels = [], weeks * (shelf + 1), shelf + 1
    for week, stock, action in product(range(weeks), range(levels), range(3)):
        ordered = min((0, 4, 8)[action], shelf - stock)
        for sold in range(stock + ordered + 1):
            left = stock + ordered - sold
            chance = chances[sold:].sum() if left == 0 else chances[sold]
            after = (week + 1) * levels + left if week + 1 < weeks else end
            rows.append((week * levels + stock, action, after, chance, 9.0 * sold - 6.0 * ordered - 0.5 * left))
    state, choice, after, chance, paid = np.array(rows).T
    start, last = np.eye(end + 1)[0], np.arange(end + 1) == end
    return FiniteMDP.from_transitions(end + 1, 3, state, choice, after, chance, paid, 0.0, start, last)


def searched(mdp: FiniteMDP, gamma: float) -> dict[str, Any]:
    """The best policy for one price: seconds of processor time, U and, if this version has them, what is certain."""
    neutral = oracle.evaluate(mdp, oracle.optimal_policy(mdp, gamma), gamma)
    psi, began = AVERSION / float(neutral.std), time.process_time()
    found = oracle.frontier(mdp, [psi], gamma)
    seconds = time.process_time() - began
    certain = [vars(one) for one in getattr(found, "certificates", ())]
    return {"seconds": seconds, "objective": float(found.objectives[0]), "certificate": (certain or [None])[0]}


def search(before: str | None) -> list[tuple[str, bool]]:
    """Measure the search on a shop, random processes and a grid, and the search of another commit on the shop."""
    from scaling import random_process

    with one_blas_thread():
        runs = {
            "shop, 300 × 3": searched(shop(), 1.0),
            "random, 300 × 3": searched(random_process(300, 3), GAMMA),
            "random, 900 × 3": searched(random_process(900, 3), GAMMA),
            "random, 1500 × 4": searched(random_process(1500, 4), GAMMA),
            "grid, 10,000 × 4": searched(PuddleWorld(scale=10, moves=4).mdp, GAMMA),
        }
    if before:
        runs[f"shop, {before}"] = searched_before(before)
    table = Table(
        "best policy of one price", "s", "U", "gradient", "best single change", "changes checked", title="Search"
    )
    for name, run in runs.items():
        certain = run["certificate"]
        texts = (
            [f"{certain['gradient']:.0e}", f"{certain['improvement']:.0e}", str(certain["checked"])] if certain else []
        )
        table.add_row(name, f"{run['seconds']:.2f}", f"{run['objective']:.5f}", *texts)
    console.print(table)
    small, *large = list(runs.values())[:5]
    slowest, old = max(run["seconds"] for run in large), list(runs.values())[5:]
    kept = [
        (f"the shop takes less than {SHOP_SECONDS:g} s: {small['seconds']:.2f} s", small["seconds"] < SHOP_SECONDS),
        (f"the others take less than {GRID_SECONDS:g} s: {slowest:.1f} s", slowest < GRID_SECONDS),
    ]
    for one in old:
        times = one["seconds"] / small["seconds"]
        kept.append((f"at least {TIMES_FASTER:g} times as fast as before: {times:.0f}", times >= TIMES_FASTER))
        kept.append(("no worse than before", small["objective"] >= one["objective"] - 1e-9))
    return kept


def searched_before(commit: str) -> dict[str, Any]:
    """The same search with the source of another commit."""
    root = Path(__file__).resolve().parent.parent
    with tempfile.TemporaryDirectory() as folder:
        source = subprocess.run(
            ["git", "-C", str(root), "archive", commit, "src"], check=True, capture_output=True
        ).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=source, check=True)
        command = [sys.executable, str(Path(__file__).resolve()), "--shop"]
        environment = os.environ | {"PYTHONPATH": f"{folder}/src", "OPENBLAS_NUM_THREADS": "1"}
        return dict(
            json.loads(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)
        )


def peak_gibibytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def policies(mdp: FiniteMDP) -> dict[str, FloatArray]:
    """Three kinds of policy: one diffuses, one diffuses unevenly, one travels."""
    theta = np.random.default_rng(0).normal(size=(mdp.n_states, mdp.n_actions))
    return {"uniform": oracle.uniform(mdp), "softmax": oracle.softmax(theta), "to the goal": to_the_goal(mdp)}


def to_the_goal(mdp: FiniteMDP) -> FloatArray:
    """Goes the longer way first, up, down, left or right, and one time in twenty anywhere."""
    assert mdp.layout is not None
    down, right = (mdp.layout.position[mdp.goal].mean(axis=0) - mdp.layout.position).T
    move = np.where(np.abs(down) > np.abs(right), np.where(down < 0, 0, 1), np.where(right < 0, 2, 3))
    return 0.95 * np.eye(mdp.n_actions)[move] + 0.05 / mdp.n_actions


def residual(mdp: FiniteMDP, policy: FloatArray, q: FloatArray, sigma: FloatArray) -> float:
    """How far Q = E[R + γ V(S')] and σ = E[δ² + γ² σ(S',A')] are from holding, relative to the largest Q and σ.

    Transition by transition and next action by next action, in pieces of the transition list that fit into memory:
    nothing of the oracle's own algebra.
    """
    flat_q, flat_sigma = q.ravel(), sigma.ravel()
    right_q, right_sigma = np.zeros_like(flat_q), np.zeros_like(flat_sigma)
    for first in range(0, len(mdp.successor), PIECE):
        piece = slice(first, first + PIECE)
        row, to, p = mdp.row[piece], mdp.successor[piece], mdp.probability[piece]
        target = mdp.reward[piece, None] + GAMMA * q[to]
        delta = target - flat_q[row, None]
        spread = delta**2 + mdp.noise[piece, None] + GAMMA**2 * sigma[to]
        for right, entries in ((right_q, target), (right_sigma, spread)):
            right += np.bincount(row, p * (policy[to] * entries).sum(axis=1), len(right))
    gaps = ((flat_q, right_q), (flat_sigma, right_sigma))
    return max(float(np.abs(left - right).max() / np.abs(left).max()) for left, right in gaps)


def four_rooms() -> list[tuple[str, bool]]:
    """One policy, one of a batch, and a plain reading of the equations, on the same process in the same run."""
    mdp = FourRooms().mdp
    theta = np.random.default_rng(0).normal(size=(BATCH, mdp.n_states, mdp.n_actions))
    batch, one = oracle.softmax(theta), oracle.uniform(mdp)
    tables = mdp.transition, mdp.reward_mean, mdp.reward_variance
    agree = residual(mdp, one, *plain(*tables, one))
    with one_blas_thread():
        alone = milliseconds(lambda: oracle.evaluate(mdp, one, GAMMA), 20)
        each = milliseconds(lambda: oracle.evaluate(mdp, batch, GAMMA), 1) / BATCH
        reading = milliseconds(lambda: plain(*tables, one), 2)
    table = Table(
        "four rooms, Q and σ of", "best ms", "median ms", "times faster than plain NumPy", title="Small processes"
    )
    for name, cost in (("one policy", alone), (f"each of {BATCH} policies", each), ("plain NumPy", reading)):
        table.add_row(name, f"{cost[0]:.3f}", f"{cost[1]:.3f}", f"{reading[0] / cost[0]:.1f}")
    console.print(table)
    return [
        (f"four rooms take less than {FOUR_ROOMS_MS:g} ms: {alone[0]:.3f} ms", alone[0] < FOUR_ROOMS_MS),
        (f"a policy of a batch costs less than one alone: {each[0]:.3f} ms", each[0] < alone[0]),
        (f"plain NumPy solves the same equations: {agree:.1e}", agree < RESIDUAL),
    ]


def plain(
    transition: FloatArray, mean: FloatArray, variance: FloatArray, policy: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Q and σ as their equations stand: one dense system over states and actions for each."""
    n = policy.size
    onward = (transition[:, :, :, None] * policy).reshape(n, n)
    q = np.linalg.solve(np.eye(n) - GAMMA * onward, (transition * mean).sum(axis=2).ravel())
    delta = mean.reshape(n, -1, 1) + GAMMA * q.reshape(policy.shape) - q[:, None, None]
    squared = (delta**2 + variance.reshape(n, -1, 1)).reshape(n, n)
    sigma = np.linalg.solve(np.eye(n) - GAMMA**2 * onward, (onward * squared).sum(axis=1))
    return q.reshape(policy.shape), sigma.reshape(policy.shape)


def milliseconds(what: Callable[[], Any], times: int, rounds: int = 60) -> FloatArray:
    """The best and the median of short rounds. Claims are about the best, which other work spoils least."""
    what()
    costs = []
    for _ in range(rounds):
        began = time.perf_counter()
        for _ in range(times):
            what()
        costs.append((time.perf_counter() - began) / times)
    return np.array([np.min(costs), np.median(costs)]) * 1e3


if __name__ == "__main__":
    sys.exit(main())
