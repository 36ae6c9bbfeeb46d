"""Growth of cost with states, actions, runs, environments, network width, trainings and cores, and where it is linear.

    python benchmarks/scaling.py                          everything
    python benchmarks/scaling.py --quick                  the same at smaller sizes
    python benchmarks/scaling.py --only states width      parts: states oracle actions runs environments width trainings cores

Each line is one quantity at growing sizes: its cost (the best of some repetitions, since whatever else the machine does only
adds time), the exponent of a power law fitted to all sizes by least squares on logarithms, the exponent between neighbouring
sizes, and from which size on it is linear (neighbouring exponents within 0.2 of 1, or of −1 for cores), with the reason.
Processor time is measured where one thread works, wall time where several do.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from vpac import VPAC, oracle
from vpac.envs import FiniteMDP, PuddleWorld
from vpac.lab.experiments.spec import Arm, Experiment
from vpac.lab.store.records import index
from vpac.lab.store.store import Store
from vpac.lab.workers.pool import Processes
from vpac.lab.workers.study import carry_out_studies, plan
from vpac.threads import one_blas_thread

GAMMA, NEAR = 0.95, 0.2
console = Console(width=120)


@dataclass(frozen=True)
class Growth:
    """Costs at growing sizes."""

    what: str
    """The cost, with its unit."""
    sizes: Sequence[float]
    costs: Sequence[float]
    why: str
    """Why it is not linear where it is not."""
    ideal: float = 1.0
    """The exponent that counts as linear."""


def exponents(sizes: Sequence[float], costs: Sequence[float]) -> tuple[float, list[float]]:
    """Of the power law through all points, and between neighbours."""
    x, y = np.log(np.asarray(sizes, float)), np.log(np.asarray(costs, float))
    return float(np.polyfit(x, y, 1)[0]), [float(slope) for slope in np.diff(y) / np.diff(x)]


def where(growth: Growth) -> str:
    """From which size up to which it is linear, in words: the longest stretch, and the last of several."""
    slopes = exponents(growth.sizes, growth.costs)[1]
    linear = [abs(slope - growth.ideal) <= NEAR for slope in slopes]
    if all(linear):
        return "linear throughout"
    if not any(linear):
        return "nowhere linear"
    stretches = [list(group) for holds, group in groupby(range(len(linear)), linear.__getitem__) if holds]
    stretch = max(reversed(stretches), key=len)
    begin, end = stretch[0], stretch[-1] + 1
    return f"linear from {growth.sizes[begin]:g} to {growth.sizes[end]:g}"


def best(work: Callable[[], object], times: int = 5, clock: Callable[[], float] = time.process_time) -> float:
    """Seconds of the quickest of some repetitions, after one that warms up."""
    work()
    found = []
    for _ in range(times):
        begun = clock()
        work()
        found.append(clock() - begun)
    return max(min(found), 1e-9)


def learner_step(mdp: FiniteMDP, steps: int = 200_000) -> float:
    """Seconds of a step of VPAC, in episodes that only the limit ends."""

    def work() -> VPAC:
        return VPAC(mdp, seed=1, gamma=GAMMA, psi=0.01, max_episode_steps=1000).learn(steps // 1000)

    return best(work, 3) / int(work().history.lengths.sum())


def evaluation(mdp: FiniteMDP) -> float:
    """Seconds of Q and σ of the uniform policy."""
    with one_blas_thread():
        return best(lambda: oracle.evaluate(mdp, oracle.uniform(mdp), GAMMA), 3)


def states(quick: bool) -> Iterator[Growth]:
    """Grids of 100 · scale² states, four moves."""
    scales = (1, 2, 4, 8) if quick else (1, 2, 4, 10, 20, 32)
    worlds = [PuddleWorld(scale=scale, moves=4).mdp for scale in scales]
    sizes = [mdp.n_states for mdp in worlds]
    yield Growth(
        "oracle, Q and σ of a policy, ms", sizes, [1e3 * evaluation(mdp) for mdp in worlds],
        "up to 1500 states a dense factorisation, which heads for the cube; beyond, sparse iterations, at first the price of "
        "their calls, then linear each, and larger grids need more of them",
    )  # fmt: skip
    yield Growth(
        "a step of tabular VPAC, µs", sizes, [1e6 * learner_step(mdp) for mdp in worlds],
        "a step touches one row of each table, so its cost does not grow until the tables outgrow the caches", 0.0,
    )  # fmt: skip


def sizes_of_the_oracle(quick: bool) -> Iterator[Growth]:
    """The search for the best policy, and the whole distribution of the return, on grids of 100 · scale² states."""
    scales = (1, 2, 3) if quick else (1, 2, 3, 4, 6, 10)
    worlds = [PuddleWorld(scale=scale, moves=4).mdp for scale in scales]
    sizes = [mdp.n_states for mdp in worlds]
    with one_blas_thread():
        oracle.best_policy(worlds[0], 0.01, GAMMA)  # imports what the first search needs
        costs = [once(lambda mdp=mdp: oracle.best_policy(mdp, 0.01, GAMMA)) for mdp in worlds]  # type: ignore[misc]
        yield Growth(
            "oracle, the best policy of one price, s", sizes, costs,
            "up to 320 states each round inverts two dense matrices, up to 1500 those of the last ascents do; other rounds "
            "cost a few sparse solutions; beyond 1500 no references are tried",
        )  # fmt: skip
        costs = [
            once(lambda mdp=mdp: oracle.distribution(mdp, oracle.optimal_policy(mdp, GAMMA), GAMMA, points=500))  # type: ignore[misc]
            for mdp in worlds
        ]
        yield Growth(
            "oracle, the distribution of the return, s", sizes, costs,
            "a step costs transitions × points, and episodes on larger grids have more steps",
        )  # fmt: skip


def once(work: Callable[[], object]) -> float:
    """Seconds of processor time."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def random_process(n_states: int, n_actions: int) -> FiniteMDP:
    """Three successors for each state and action."""
    rng = np.random.default_rng(n_actions)
    shape = (n_states * n_actions, 3)
    row = np.repeat(np.arange(shape[0]), 3)
    return FiniteMDP.from_transitions(
        n_states, n_actions, row // n_actions, row % n_actions, rng.integers(n_states, size=shape).ravel(),
        rng.dirichlet(np.ones(3), shape[0]).ravel(), rng.normal(size=shape).ravel(),
    )  # fmt: skip


def actions(quick: bool) -> Iterator[Growth]:
    """Random processes of 200 states."""
    sizes = (2, 8, 32, 128) if quick else (2, 4, 8, 16, 32, 64, 128)
    worlds = [random_process(200, size) for size in sizes]
    yield Growth(
        "oracle, Q and σ of a policy, ms", sizes, [1e3 * evaluation(mdp) for mdp in worlds],
        "with few actions the factorisation over states dominates, which does not know actions",
    )  # fmt: skip
    yield Growth(
        "a step of tabular VPAC, µs", sizes, [1e6 * learner_step(mdp) for mdp in worlds],
        "the softmax over actions and its gradient are linear; with few actions the rest of a step dominates",
    )  # fmt: skip


def study_of(runs: int, episodes: int = 2) -> Any:
    return plan(Experiment(
        name="growing", title="Growing", env="vpac/CatchUp-v0", episodes=episodes, every=max(1, episodes // 2), runs=runs,
        settings={"gamma": GAMMA, "max_episode_steps": 20}, arms=(Arm(label="AC", algorithm="ac"),),
    ), full=True)  # fmt: skip


def runs(quick: bool) -> Iterator[Growth]:
    """Studies of tiny runs on one worker that has compiled already; then the same store again."""
    sizes = (25, 50, 100, 200) if quick else (100, 300, 1000, 3000, 10_000)
    folder, costs = Path(tempfile.mkdtemp(prefix="vpac-scaling-")), np.zeros((3, len(sizes)))
    hands = Processes(1)
    try:
        list(hands.run(Store(folder / "warm"), study_of(8).all()))
        for i, size in enumerate(sizes):
            store, plans = Store(folder / str(size)), [study_of(size)]
            for part, work in enumerate((
                lambda store=store, plans=plans: carry_out_studies(plans, store, hands),
                lambda store=store, plans=plans: carry_out_studies(plans, Store(store.root), hands),
                lambda store=store: index(store),
            )):  # fmt: skip
                begun = time.perf_counter()
                work()
                costs[part, i] = time.perf_counter() - begun
    finally:
        hands.close()
        shutil.rmtree(folder)
    yield Growth("a study of tiny runs, s of wall time", sizes, costs[0], "few runs do not fill a group of 64, whose wait for "
                 "the disk they share")  # fmt: skip
    yield Growth("the same again, nothing to do, s of wall time", sizes, costs[1], "a few milliseconds at any size: the note "
                 "of the study; from 4000 runs on all cores read")  # fmt: skip
    yield Growth(
        "the index of it, read for the first time, s of wall time",
        sizes,
        costs[2],
        "the first one imports Polars; from 4000 runs on all cores read",
    )


def ppo(envs: int, width: int, steps: int = 32) -> Any:
    from vpac.deep import PPO

    return PPO("CartPole-v1", seed=1, envs=envs, steps=steps, epochs=2, minibatch=256, hidden=(width, width))


def environments(quick: bool) -> Iterator[Growth]:
    """Iterations of 32 steps of each environment."""
    sizes = (1, 4, 16, 64) if quick else (1, 4, 16, 64, 256)
    agents = [ppo(size, 64) for size in sizes]
    costs = [best(lambda agent=agent: agent.learn(agent.per_iteration), 5, time.perf_counter) for agent in agents]  # type: ignore[misc]
    console.print(
        "steps/s: " + ", ".join(f"{32 * n / cost:,.0f} with {n}" for n, cost in zip(sizes, costs, strict=True))
    )
    yield Growth(
        "an iteration of PPO on CartPole-v1, ms of wall time", sizes, [1e3 * cost for cost in costs],
        "with few environments the calls of the policy and of the update cost as much as with many; then stepping, and the "
        "gradient steps of 256 samples, of which there is a whole number, grow with them",
    )  # fmt: skip


def width(quick: bool) -> Iterator[Growth]:
    """Two hidden layers of so many units, updates of 1024 samples."""
    sizes = (16, 64, 256) if quick else (16, 32, 64, 128, 256, 512)
    costs = []
    for size in sizes:
        agent = ppo(32, size)
        agent.learn(agent.per_iteration)
        rollout = agent._collect()

        def update(agent: Any = agent, rollout: Any = rollout) -> None:
            agent._improve(rollout, agent._estimate(rollout))
            agent.updater.finish()

        costs.append(1e3 * best(update, 3, time.perf_counter))
    yield Growth(
        "an update of PPO, ms of wall time", sizes, costs,
        "narrow networks cost what their calls cost; the weights between the two hidden layers grow as the square of their "
        "width, everything else only linearly, and larger matrix products are quicker for their size", 2.0,
    )  # fmt: skip


def trainings(quick: bool) -> Iterator[Growth]:
    """`learn_many`: seeds × prices of VPACPPO by one program that is compiled already, five iterations each."""
    from vpac.deep import VPACPPO
    from vpac.envs.jax_worlds import jax_version

    env, sizes = jax_version("vpac/RiskyShortcut-v0"), (1, 4, 16) if quick else (1, 4, 16, 64, 256)
    settings = {"envs": 8, "steps": 32, "epochs": 2, "minibatch": 64, "hidden": (16, 16)}

    def work(size: int) -> None:
        seeds, prices = (max(1, size // 4), min(size, 4))
        VPACPPO.learn_many(env, 5 * 256, seeds=range(seeds), psi=[0.1 * k for k in range(prices)], **settings)

    costs = [best(lambda size=size: work(size), 2, time.perf_counter) for size in sizes]  # type: ignore[misc]
    yield Growth(
        "seeds × prices in one program, s of wall time", sizes, costs,
        "one agent leaves the other cores idle; from there on each costs the same",
    )  # fmt: skip


def cores(quick: bool) -> Iterator[Growth]:
    """The same study on more and more workers, which have compiled already."""
    most = os.cpu_count() or 1
    sizes = sorted({min(2**k, most) for k in range(most.bit_length())} | {most} | {2 * most})
    folder, costs = Path(tempfile.mkdtemp(prefix="vpac-scaling-")), []
    try:
        for jobs in sizes:
            hands = Processes(jobs)
            try:
                list(hands.run(Store(folder / f"warm{jobs}"), study_of(64 * jobs, 400).all()))
                begun = time.perf_counter()
                list(hands.run(Store(folder / str(jobs)), study_of(200 if quick else 2000, 400).all()))
                costs.append(time.perf_counter() - begun)
            finally:
                hands.close()
    finally:
        shutil.rmtree(folder)
    yield Growth(
        "a study, s of wall time, by workers", sizes, costs,
        f"there are {most} cores, and the driver and the disk need their share of them", -1.0,
    )  # fmt: skip


PARTS = {
    "states": states, "oracle": sizes_of_the_oracle, "actions": actions, "runs": runs, "environments": environments,
    "width": width, "trainings": trainings, "cores": cores,
}  # fmt: skip


def show(name: str, growth: Growth) -> None:
    overall, between = exponents(growth.sizes, growth.costs)
    table = Table(name, *(f"{size:,g}" for size in growth.sizes))
    table.add_row(growth.what, *(f"{cost:.3g}" for cost in growth.costs))
    table.add_row("exponent from the size before", "", *(f"{slope:.2f}" for slope in between))
    console.print(table)
    target = {1.0: "", -1.0: " (ideal: −1)", 0.0: " (constant: 0)", 2.0: " (weights: 2)"}[growth.ideal]
    seen = where(growth).replace("linear", "as that") if target else where(growth)
    console.print(f"grows as {name}^{overall:.2f}{target}; {seen}: {growth.why}.\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="smaller sizes")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS), help="some of it")
    asked = parser.parse_args()
    console.print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {platform.platform(terse=True)}, {os.cpu_count()} cores\n")
    for name in asked.only:
        for growth in PARTS[name](asked.quick):
            show(name, growth)
    return 0


if __name__ == "__main__":
    sys.exit(main())
