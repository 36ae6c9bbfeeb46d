"""Cost of a step of the tabular and linear learners: ours, plain NumPy, and the fastest C we can write.

Claims, each checked in this run (the exit status is 1 if one does not hold):

- 100 runs of 1000 episodes of VPAC on four rooms: at least 300 times faster than a straightforward NumPy reading of
  Algorithm 1 (`naive.py`, one run of fewer episodes), at most 1.2 times the time of C (`limit.c`), less than 500 MB.
- Off-policy VPAC on the discrete puddle world, clipped ratios, uniform behaviour: at most 1.5 times the time of C.
- With compilations stored, the first episode is learned less than 1 s after the process starts.

Ours and C run on one thread and take turns. Times of a step are processor time, and the best of the repetitions counts,
because whatever else the machine does can only add time. C is compiled
for one algorithm and one number of actions, ours decides both when it runs. Both learn the same: the mean return of the
learned policies, by the oracle, is printed next to the times.

"Ours" is the compiled loop, called as C is called. The row "as a learner" is the same work by way of `VPAC(…).learn(…)`,
which is what `learn_many` does for each run: reading the settings and making the arrays takes Python some 0.2 ms. A run of
1000 episodes takes 3 ms, so that shows; it is no part of a step.

    python benchmarks/tabular.py [--quick]
"""

from __future__ import annotations

import argparse
import ctypes
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import naive
from vpac import VPAC, oracle
from vpac.envs import ContinuousPuddleWorld, FiniteMDP, FourRooms, PuddleWorld
from vpac.tabular import arrays as codes
from vpac.tabular.arrays import GOOD, History, Rates, Settings, Weights, Workspace
from vpac.tabular.curves import exact_moments
from vpac.tabular.environment import World, compile_mdp, compile_puddle
from vpac.tabular.features import tile_coder
from vpac.tabular.kernel.generator import generator
from vpac.tabular.loop import train

GAMMA, ALPHA_THETA, ALPHA_W, ALPHA_Z = 0.99, 0.01, 0.5, 0.5
LIMIT, REPETITIONS, NAIVE_EPISODES = 500, 7, 200
TIMES_NUMPY, TIMES_C, TIMES_C_OFF_POLICY, MEGABYTES, SECONDS = 300.0, 1.2, 1.5, 500.0, 1.0
MICROSECONDS = 100.0
FLAGS = ["-O3", "-march=native", "-ffast-math", "-shared", "-fPIC"]

FloatArray = NDArray[np.float64]
Claims = list[tuple[str, bool]]
console = Console(width=120)


class Learned(NamedTuple):
    """The outcome of one run."""

    theta: FloatArray
    steps: int


Run = Callable[[int], Learned]
"""Learns with a seed."""


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="20 runs of 300 episodes, one repetition")
    arguments = parser.parse_args()
    if shutil.which("gcc") is None:
        console.print("no C compiler here: install gcc to compare with C")
        return 1
    runs, episodes, repetitions = (20, 300, 1) if arguments.quick else (100, 1000, REPETITIONS)
    table = Table("", "steps", "ns per step", "mean return learned", title="Time of a step")
    kept = on_policy(table, runs, episodes, repetitions)
    kept += off_policy(table, runs // 5, episodes, repetitions)
    tiles(table, max(1, runs // 25), episodes // 10, repetitions)
    console.print(table)
    kept += exact() + start()
    for claim, holds in kept:
        console.print(f"{'kept  ' if holds else 'BROKEN'}  {claim}", style="" if holds else "bold red")
    return 0 if all(holds for _, holds in kept) else 1


def on_policy(table: Table, runs: int, episodes: int, repetitions: int) -> Claims:
    """Four rooms: ours, C and NumPy; also the memory, which the imports are a part of."""
    mdp, psi = FourRooms().mdp, 0.015
    world = compile_mdp(mdp)
    contest = {
        "ours": ours(world, episodes, psi),
        "C": c(world, episodes, psi, False),
        "ours, as a learner": learner(mdp, episodes, psi),
    }
    best = race(table, "VPAC, four rooms", mdp, contest, runs, repetitions)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    began = time.process_time()
    _, _, steps = naive.vpac(mdp, NAIVE_EPISODES, LIMIT, GAMMA, psi, ALPHA_THETA, ALPHA_W, ALPHA_Z, 0)
    plain = (time.process_time() - began) / steps * 1e9
    table.add_row("VPAC, four rooms: plain NumPy", f"{steps:,}", f"{plain:,.0f}", "")
    faster, slower = plain / best["ours"], best["ours"] / best["C"]
    return [
        (f"at least {TIMES_NUMPY:g} times faster than plain NumPy: {faster:,.0f} times", faster >= TIMES_NUMPY),
        (f"on-policy at most {TIMES_C:g} times the time of C: {slower:.2f} times", slower <= TIMES_C),
        (f"{runs} runs take less than {MEGABYTES:g} MB: {peak:.0f} MB", peak < MEGABYTES),
    ]


def off_policy(table: Table, runs: int, episodes: int, repetitions: int) -> Claims:
    """The discrete puddle world."""
    mdp, psi = PuddleWorld().mdp, 0.005
    world = compile_mdp(mdp)
    contest = {"ours": ours(world, episodes, psi, on_policy=False), "C": c(world, episodes, psi, True)}
    best = race(table, "off-policy VPAC, puddle world", mdp, contest, runs, repetitions)
    slower = best["ours"] / best["C"]
    claim = f"off-policy at most {TIMES_C_OFF_POLICY:g} times the time of C: {slower:.2f} times"
    return [(claim, slower <= TIMES_C_OFF_POLICY)]


def tiles(table: Table, runs: int, episodes: int, repetitions: int) -> None:
    """The continuous puddle world through ten tilings."""
    world = compile_puddle(ContinuousPuddleWorld(), tile_coder(np.zeros(2), np.ones(2)))
    race(table, "VPAC, tile-coded puddle world", None, {"ours": ours(world, episodes, 0.005)}, runs, repetitions)


def exact() -> Claims:
    """Mean and variance of 200 policies of four rooms, random ones that wander for all of the 300 steps."""
    mdp = FourRooms().mdp
    policies = oracle.softmax(np.random.default_rng(0).normal(size=(200, mdp.n_states, mdp.n_actions)))
    best = np.inf
    for _ in range(1 + REPETITIONS):
        began = time.process_time()
        exact_moments(mdp, policies, GAMMA, 300)
        best = min(best, (time.process_time() - began) / len(policies) * 1e6)
    return [(f"an exact evaluation takes less than {MICROSECONDS:g} µs a policy: {best:.0f} µs", best < MICROSECONDS)]


def start() -> Claims:
    """A fresh process that learns one episode; the second one finds the first one's compilation."""
    code = "from vpac import VPAC; VPAC('vpac/FourRooms-v0').learn(1); import time; print(time.time())"
    costs = []
    for _ in range(1 + REPETITIONS):
        began = time.time()
        learned = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        costs.append(float(learned.stdout) - began)
    best = min(costs[1:])
    return [(f"the first episode is learned less than {SECONDS:g} s after the start: {best:.2f} s", best < SECONDS)]


def race(
    table: Table, name: str, mdp: FiniteMDP | None, contest: dict[str, Run], runs: int, repetitions: int
) -> dict[str, float]:
    """Nanoseconds of processor time for each step, the best of the repetitions, in which the contestants take turns."""
    best = dict.fromkeys(contest, np.inf)
    learned: dict[str, list[Learned]] = {}
    for run in contest.values():
        run(0)  # compiled and warm
    for _ in range(repetitions):
        for who, run in contest.items():
            began = time.process_time()
            learned[who] = [run(seed) for seed in range(runs)]
            cost = (time.process_time() - began) * 1e9
            best[who] = min(best[who], cost / sum(one.steps for one in learned[who]))
    for who, found in learned.items():
        mean = "" if mdp is None else f"{mean_return(mdp, found):.2f}"
        steps = sum(one.steps for one in found)
        table.add_row(f"{name}: {who}", f"{steps:,}", f"{best[who]:.1f}", mean)
    return best


def mean_return(mdp: FiniteMDP, found: list[Learned]) -> float:
    policies = oracle.softmax(np.array([one.theta for one in found]))
    return float(np.mean(oracle.evaluate(mdp, policies, GAMMA).mean))


def first_weights(world: World, seed: int) -> list[FloatArray]:
    rng = np.random.default_rng(seed)
    return [rng.random((world.n_features, world.n_actions)) for _ in range(3)]


def ours(world: World, episodes: int, psi: float, on_policy: bool = True) -> Run:
    """The library's compiled loop."""
    choice = Settings(
        critic=codes.DIRECT, form=codes.PUBLISHED, variance_of=codes.ACTION, baseline=False, gamma=GAMMA,
        temperature=1.0, score=1.0, limit=LIMIT, on_policy=on_policy, behaviour=codes.UNIFORM, epsilon=0.0,
        ratios=codes.CLIPPED, clip_actor=True,
    )  # fmt: skip
    rates = Rates(*(np.full(episodes, rate) for rate in (psi, ALPHA_THETA, ALPHA_W, ALPHA_Z, 0.0)))

    def run(seed: int) -> Learned:
        weights, history = Weights(*first_weights(world, seed), mean=np.zeros(1)), History.make(episodes)
        work, rng = Workspace.make(world.n_active, world.n_actions), generator(np.random.SeedSequence(seed))
        found, *_ = train(world, choice, weights, weights.theta, rates, rng, work, history, rng, np.zeros(0))
        assert found == GOOD
        return Learned(weights.theta, int(history.lengths.sum()))

    return run


def learner(mdp: FiniteMDP, episodes: int, psi: float) -> Run:
    """The same, from Python."""
    settings = {
        "form": "published", "baseline": False, "gamma": GAMMA, "psi": psi, "alpha_theta": ALPHA_THETA,
        "alpha_w": ALPHA_W, "alpha_z": ALPHA_Z, "start_policy": "uniform", "start_critics": "uniform",
        "max_episode_steps": LIMIT,
    }  # fmt: skip

    def run(seed: int) -> Learned:
        learned = VPAC(mdp, seed=seed, **settings).learn(episodes)
        return Learned(learned.weights.theta, int(learned.history.lengths.sum()))

    return run


def c(world: World, episodes: int, psi: float, off_policy: bool) -> Run:
    """`limit.c`, compiled for this case."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "limit.so"
        case = [f"-DACTIONS={world.n_actions}"] + ["-DOFF_POLICY"] * off_policy
        source = Path(__file__).with_name("limit.c")
        subprocess.run(["gcc", *FLAGS, *case, "-o", library, source, "-lm"], check=True)
        vpac = ctypes.CDLL(str(library)).vpac
    vpac.restype = ctypes.c_int64

    def run(seed: int) -> Learned:
        theta, w, z = first_weights(world, seed)
        arrays = (world.indptr, world.successor, world.probability, world.reward, world.deviation, world.terminal)
        steps = vpac(
            *c_arguments(len(theta), *arrays, len(world.starts), world.starts, theta, w, z, np.zeros_like(theta)),
            *c_arguments(generator(np.random.SeedSequence(seed)), episodes, LIMIT, GAMMA, psi, ALPHA_THETA, ALPHA_W),
            *c_arguments(ALPHA_Z, np.zeros(episodes)),
        )
        return Learned(theta, steps)

    return run


def c_arguments(*values: Any) -> list[Any]:
    """Arrays by address: they must live as long as the call, which the caller's own names see to."""
    kinds: dict[type, Any] = {int: ctypes.c_int64, float: ctypes.c_double}
    return [kinds[type(x)](x) if type(x) in kinds else np.ctypeslib.as_ctypes(x.view(as_plain(x))) for x in values]


def as_plain(array: NDArray[Any]) -> Any:
    """ctypes knows no arrays of bool."""
    return np.uint8 if array.dtype == bool else array.dtype


if __name__ == "__main__":
    sys.exit(main())
