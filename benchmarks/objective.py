"""Share of the possible gain in U = mean − ψ · variance of each learner, between PPO and the best possible.

    python benchmarks/objective.py                                  everything; resumes where it was stopped
    python benchmarks/objective.py --tasks bandit catch-up --seeds 5 --steps 0.5
    python benchmarks/objective.py --steps 4 --arms PPO "start, luck critic (default)"   four times as long
    python benchmarks/objective.py --only-table                     print the table of what has been measured

Every task is a finite process, so the policy that was learned, with its noise, is judged exactly, and exact ascent knows the
best U of policies that see the whole state. ψ = R / standard deviation of the best risk-neutral policy, R = 0.1, 0.3, 1, 3. All
learners have the same networks, steps and rates; all seeds and prices of one on a task are trained by one compiled program. The
share of the possible gain is (U − U_PPO) / (U* − U_PPO), of means over seeds. It is given where caring about variance can pay:
where U* is above the U of the best risk-neutral policy by more than a hundredth of its standard deviation. Elsewhere U* − U_PPO
is only what PPO has not learned.
Results are lines of JSON in docs/data/objective.jsonl, the best U in docs/data/objective-best.json.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
from scipy import stats

from vpac import FiniteMDP, oracle
from vpac.envs.functional import FiniteEnv

HERE = Path(__file__).parent
RESULTS = HERE.parent / "docs" / "data" / "objective.jsonl"
BEST = HERE.parent / "docs" / "data" / "objective-best.json"
AVERSIONS = (0.1, 0.3, 1.0, 3.0)
COMMON = {
    "envs": 32,
    "steps": 64,
    "epochs": 8,
    "minibatch": 256,
    "hidden": (64,),
    "learning_rate": 2.5e-3,
    "entropy": 0.1,
}
COMMON |= {"normalise_observations": False}


@dataclass(frozen=True)
class Task:
    """A finite process, what of it can be seen, and how long to learn."""

    name: str
    mdp: FiniteMDP
    gamma: float
    steps: int
    features: np.ndarray
    limit: int | None = None
    """Steps after which training episodes are cut off."""
    hidden: bool = False
    """Whether the policy does not see the whole state; then the best U is that of policies that do."""
    apart: bool = False
    """Whether it is shown but not part of the averages."""

    @cached_property
    def env(self) -> FiniteEnv:
        """As trainings are compiled for it."""
        return FiniteEnv(self.mdp, self.features, self.limit)

    def priced(self, psi: float) -> FiniteEnv:
        """The same, with rewards that are less by ψ times the variance of their noise."""
        m, (state, action) = self.mdp, np.divmod(self.mdp.row, self.mdp.n_actions)
        mdp = FiniteMDP.from_transitions(
            m.n_states, m.n_actions, state, action, m.successor, m.probability, m.reward - psi * m.noise, m.noise, m.start,
            m.terminal,
        )  # fmt: skip
        return FiniteEnv(mdp, self.features, self.limit)

    def judge(self, agent: Any) -> tuple[float, float]:
        """Exact mean and variance of the return of an agent's policy, with its noise."""
        policy = agent.policy()
        logits = policy.outputs(policy.normalise(self.features.astype(np.float32))).astype(np.float64)
        found = oracle.evaluate(self.mdp, oracle.softmax(logits), self.gamma)
        return float(found.mean), float(found.total_variance)

    @cached_property
    def neutral(self) -> tuple[float, float]:
        """Mean and variance of the return of the best risk-neutral policy."""
        found = oracle.evaluate(self.mdp, oracle.optimal_policy(self.mdp, self.gamma), self.gamma)
        return float(found.mean), float(found.total_variance)

    @property
    def std(self) -> float:
        """Standard deviation of the return of the best risk-neutral policy."""
        return math.sqrt(self.neutral[1])

    def psi(self, aversion: float) -> float:
        """R / std, to two digits."""
        return float(f"{aversion / self.std:.2g}")


def bandit() -> Task:
    """One step: a safe arm that pays 1, a risky one that pays 1.5 with variance 1; the risky one is better for ψ < ½."""
    P, pay, noise = np.zeros((2, 2, 2)), np.zeros((2, 2, 2)), np.zeros((2, 2, 2))
    P[:, :, 1], pay[0, :, 1], noise[0, 1, 1] = 1.0, (1.0, 1.5), 1.0
    mdp = FiniteMDP(P, pay, noise, np.array([1.0, 0.0]), np.array([False, True]))
    return Task("bandit", mdp, 0.99, 20_000, np.eye(2))


def world(name: str, env: Any, gamma: float, steps: int, limit: int | None = None, apart: bool = False) -> Task:
    """A registered finite world, its states visible."""
    mdp = FiniteMDP.from_gymnasium(env)
    return Task(name, mdp, gamma, steps, np.eye(mdp.n_states), limit, apart=apart)


def trap(name: str, env: str, steps: int, limit: int, **given: Any) -> Task:
    """A world in which the goal is hard to find, and standing still has no variance."""
    return world(name, gymnasium.make(env, **given), 0.99, steps, limit, apart=True)


Outcomes = Callable[[int, int, int], Iterator[tuple[int, float, float, float]]]


def timed(horizon: int, n: int, actions: int, outcomes: Outcomes, first: np.ndarray) -> FiniteMDP:
    """A process of fixed length; `outcomes(t, x, a)` yields (next x, probability, mean and variance of the reward)."""
    rows = [
        (t * n + x, a, (t + 1) * n + y if t + 1 < horizon else horizon * n, p, mean, noise)
        for t in range(horizon)
        for x in range(n)
        for a in range(actions)
        for y, p, mean, noise in outcomes(t, x, a)
    ]
    state, action, after, chance, pay, noise = (np.array(column) for column in zip(*rows, strict=True))
    size = horizon * n + 1
    start = np.zeros(size)
    start[:n] = first
    return FiniteMDP.from_transitions(
        size, actions, state, action, after, chance, pay, noise, start=start, terminal=np.arange(size) == size - 1
    )


def columns(horizon: int, n: int, time_too: bool) -> np.ndarray:
    """Features of a process of fixed length: x as zeros and a one and, if it is visible, the time as well."""
    x = np.tile(np.eye(n), (horizon, 1))
    t = np.repeat(np.eye(horizon), n, axis=0)
    rows = np.hstack([x, t]) if time_too else x
    return np.vstack([rows, np.zeros((1, rows.shape[1]))])


def poisson(mean: float, count: int) -> np.ndarray:
    """Probabilities of 0 … count − 1."""
    return np.array([math.exp(-mean) * mean**k / math.factorial(k) for k in range(count)])


def shop(name: str, visible: bool) -> Task:
    """The shop of docs/your-environment.md, 12 weeks at a price of 9: order 0, 4 or 8, sell to Poisson(5) customers."""
    chances = poisson(5.0, 80)

    def outcomes(t: int, stock: int, action: int) -> Iterator[tuple[int, float, float, float]]:
        ordered = min((0, 4, 8)[action], 20 - stock)
        for sold in range(stock + ordered + 1):
            left = stock + ordered - sold
            yield (
                left,
                chances[sold:].sum() if left == 0 else chances[sold],
                9.0 * sold - 6.0 * ordered - 0.5 * left,
                0.0,
            )

    mdp = timed(12, 21, 3, outcomes, np.eye(21)[0])
    return Task(name, mdp, 1.0, 200_000 if visible else 100_000, columns(12, 21, visible), hidden=not visible)


def inventory() -> Task:
    """The season of examples/inventory.py."""
    sys.path.insert(0, str(HERE.parent / "examples"))
    from inventory import Inventory

    made = Inventory()
    return Task("inventory", made.mdp, 1.0, 100_000, columns(made.weeks, made.shelf + 1, True))


def portfolio() -> Task:
    """Two years of examples/portfolio.py, with the market's mood on a grid: stocks pay 2 % more and vary, from 2 to 12 %."""
    n = 11
    moods = np.linspace(0.0, 1.0, n)
    near = np.exp(-0.5 * ((moods[:, None] - moods) / 0.15) ** 2)
    near /= near.sum(axis=1, keepdims=True)

    def outcomes(t: int, x: int, action: int) -> Iterator[tuple[int, float, float, float]]:
        share = action / 4.0
        for y in range(n):
            yield y, near[x, y], 0.5 + 2.0 * share, (share * (2.0 + 10.0 * moods[x])) ** 2

    return Task("portfolio", timed(8, n, 5, outcomes, np.full(n, 1 / n)), 1.0, 200_000, columns(8, n, True))


def two_sided() -> Task:
    """Walk left or right for 20 steps; a step pays |x|, on the right a quarter more and with noise. The time is hidden."""
    n, middle = 11, 5

    def outcomes(t: int, x: int, action: int) -> Iterator[tuple[int, float, float, float]]:
        y = int(np.clip(x + (1 if action else -1), 0, n - 1))
        right = y > middle
        yield y, 1.0, abs(y - middle) / 5.0 * (1.25 if right else 1.0), 1.0 * right

    return Task("two-sided, time hidden", timed(20, n, 2, outcomes, np.eye(n)[middle]), 0.99, 60_000,
                columns(20, n, False), hidden=True)  # fmt: skip


TASKS: dict[str, Callable[[], Task]] = {
    "bandit": bandit,
    "catch-up": lambda: world("catch-up", "vpac/CatchUp-v0", 0.95, 100_000, 100),
    "risky shortcut": lambda: world("risky shortcut", "vpac/RiskyShortcut-v0", 0.95, 60_000, 200),
    "four rooms": lambda: world("four rooms", "vpac/FourRooms-v0", 0.99, 200_000, 500),
    "inventory": inventory,
    "shop, week visible": lambda: shop("shop, week visible", True),
    "shop, week hidden": lambda: shop("shop, week hidden", False),
    "portfolio": portfolio,
    "two-sided, time hidden": two_sided,
    "cliff walking": lambda: trap("cliff walking", "CliffWalking-v1", 200_000, 200, is_slippery=True),
    "frozen lake": lambda: trap("frozen lake", "FrozenLake-v1", 100_000, 100, map_name="4x4"),
}
get_task = cache(lambda name: TASKS[name]())


NEUTRAL = ("PPO", "PPO, no time", "PPO, λ = 0.5")
"""Arms without a price."""
DEFAULT = "start, luck critic (default)"
"""The arm that `VPACPPO` is by default."""
WARM = "default, but ψ rises at first"
"""ψ rises from 0 over the first twentieth of the training: the default until 17 November 2026."""
RISING = "default, but ψ rises over half"
FALLING = "default, but ψ falls"
"""The price is twice ψ at first and falls to ψ in the first half of the training."""
LATE = "default, but ψ after half of the training"
"""The price is 0 for half of the training and rises over the next three tenths."""
SHORT = "default, but λ = 0.5"
"""Advantages and targets with `gae_lambda` = 0.5: less noise of later rewards, more trust in the critics."""
GIVEN = "default, but variance given the start"
"""`variance_of="state"`: luck is measured from the value of the start state, not from the mean return of earlier episodes."""
FEW = "default, but J of 16 episodes"
"""Luck is measured from the mean return of the last 16 episodes instead of 100."""
PRICED = "PPO, noise priced"
"""PPO whose rewards are less by ψ times the variance of their noise. Where nothing else varies, that is U, without a critic."""


def _forms() -> dict[str, tuple[str, dict[str, Any]]]:
    arms: dict[str, tuple[str, dict[str, Any]]] = {
        "PPO": ("PPO", {}), NEUTRAL[1]: ("PPO", {"time_aware": False}), DEFAULT: ("VPACPPO", {})
    }  # fmt: skip
    for aware in (True, False):
        word = "" if aware else ", no time"
        arms[f"published{word}"] = ("VPACPPO", {"form": "published", "time_aware": aware})
        for weighting in ("start", "uniform"):
            for luck in (False, True):
                if (weighting, luck, aware) != ("start", True, True):
                    settings = {"weighting": weighting, "time_aware": aware, "luck_critic": luck}
                    arms[f"{weighting}{', luck critic' if luck else ''}{word}"] = ("VPACPPO", settings)
    return arms | {"VAAC": ("VAACPPO", {}), "MVPI": ("MVPIPPO", {})}


MAIN = _forms()
ARMS = MAIN | {
    WARM: ("VPACPPO", {"psi_warm_up": 0.05}), RISING: ("VPACPPO", {"psi_warm_up": 0.5}), FALLING: ("VPACPPO", {}),
    LATE: ("VPACPPO", {}), PRICED: ("PPO", {}), NEUTRAL[2]: ("PPO", {"gae_lambda": 0.5}),
    SHORT: ("VPACPPO", {"gae_lambda": 0.5}), GIVEN: ("VPACPPO", {"variance_of": "state"}),
    FEW: ("VPACPPO", {"luck_episodes": 16}),
}  # fmt: skip
"""The last nine are measured only where they are asked for."""


def jobs(tasks: list[str], arms: list[str], seeds: int) -> list[tuple[str, str, float, int]]:
    """What is to be done: for each task PPO, then every arm at every price; PPO has no price."""
    found = []
    for task in tasks:
        for arm in arms:
            for aversion in (0.0,) if arm in NEUTRAL else AVERSIONS:
                psi = get_task(task).psi(aversion) if aversion else 0.0
                found += [(task, arm, psi, seed) for seed in range(seeds)]
    return found


Key = tuple[str, str, float, int]


def read(share: float) -> dict[Key, dict[str, float]]:
    """What has been measured with this share of the steps, by task, arm, ψ and seed."""
    if not RESULTS.exists():
        return {}
    rows = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    return {(row["task"], row["arm"], row["psi"], row["seed"]): row for row in rows if row.get("steps", 1.0) == share}


def programs(todo: list[Key]) -> list[tuple[str, str, list[float], list[int]]]:
    """What is to be done as (task, arm, prices, seeds): what one compiled program does with many runs."""
    seeds: dict[tuple[str, str, float], list[int]] = {}
    for task, arm, psi, seed in todo:
        seeds.setdefault((task, arm, psi), []).append(seed)
    found: dict[tuple[str, str, tuple[int, ...], float | None], list[float]] = {}
    for (task, arm, psi), which in seeds.items():
        found.setdefault((task, arm, tuple(which), psi if arm == PRICED else None), []).append(psi)
    return [(task, arm, prices, list(which)) for (task, arm, which, _), prices in found.items()]


def learn(
    task: str, arm: str, prices: list[float], seeds: list[int], share: float, cores: int, keep: Callable[..., object]
) -> None:
    """Train agents at these prices from these seeds and judge each; `keep` gets ψ, the seed and what was found."""
    from vpac import deep

    where, begun = get_task(task), threading.local()
    kind, settings = ARMS[arm]
    total = int(where.steps * share)
    path = {FALLING: f"linear:{{0}}:{{1}}:{total // 2}", LATE: f"warm-up:{{1}}:{total // 2}:{3 * total // 10}"}.get(arm)
    asked = {(psi if path is None else path.format(2 * psi, psi)): psi for psi in prices}
    price = {} if kind == "PPO" else {"psi": list(asked)}

    def judged(agent: Any) -> None:
        mean, variance = (math.nan, math.nan) if agent.diverged else where.judge(agent)
        now = time.thread_time()
        seconds, begun.at = now - getattr(begun, "at", 0.0), now
        psi = prices[0] if kind == "PPO" else asked[agent.options.psi]
        keep(psi, agent.seed, {"mean": mean, "variance": variance, "seconds": round(seconds, 2)})

    learner = getattr(deep, kind)
    learner.learn_many(
        where.priced(prices[0]) if arm == PRICED else where.env, total, seeds=seeds, cores=cores, kept=judged,
        gamma=where.gamma, **COMMON, **settings, **price,
    )  # fmt: skip


def measure(todo: list[Key], share: float, cores: int) -> dict[Key, dict[str, float]]:
    """Do what is to be done; every result of full length or more is a line in the file as soon as there is one."""
    begun, measured, one_at_a_time = time.monotonic(), {}, threading.Lock()
    with RESULTS.open("a") as file:
        for task, arm, prices, seeds in programs(todo):

            def keep(psi: float, seed: int, found: dict[str, float], task: str = task, arm: str = arm) -> None:
                with one_at_a_time:
                    measured[task, arm, psi, seed] = found
                    if share >= 1.0:
                        row = {"task": task, "arm": arm, "psi": psi, "seed": seed} | found
                        file.write(json.dumps(row | ({} if share == 1.0 else {"steps": share})) + "\n")
                        file.flush()

            learn(task, arm, prices, seeds, share, cores, keep)
            jax.clear_caches()  # a process has room for the maps of about forty such programs
            left = (time.monotonic() - begun) / len(measured) * (len(todo) - len(measured))
            print(
                f"{len(measured)} of {len(todo)}, {left / 60:.0f} minutes left ({task}, {arm})",
                file=sys.stderr,
                flush=True,
            )
    return measured


def best(task: str) -> list[float]:
    """The best U at each aversion, by the oracle's search; kept in a file."""
    known = json.loads(BEST.read_text()) if BEST.exists() else {}
    if task not in known:
        print(f"the best U of {task} ...", file=sys.stderr, flush=True)
        where = get_task(task)
        found = oracle.frontier(where.mdp, [where.psi(aversion) for aversion in AVERSIONS], where.gamma)
        known[task] = [round(float(u), 6) for u in found.objectives]
        BEST.write_text(json.dumps(known, indent=1) + "\n")
    return [float(u) for u in known[task]]


@dataclass(frozen=True)
class Cell:
    """One arm on one task at one price."""

    u: np.ndarray
    """U of each seed."""
    ppo: np.ndarray
    """U of PPO at the same price, seed by seed."""
    best: float
    neutral: float
    """U of the best risk-neutral policy."""
    worth: float
    """The smallest difference that counts."""

    @property
    def mean(self) -> float:
        """Mean U over seeds; a run that diverged makes it NaN."""
        return float(self.u.mean())

    @property
    def error(self) -> float:
        """Half of the 95 % interval of the mean, by Student's t."""
        return half_width(self.u)

    @property
    def share(self) -> float:
        """(U − U_PPO) / (U* − U_PPO); NaN where the best risk-neutral policy is as good as any."""
        ppo = float(self.ppo.mean())
        return (self.mean - ppo) / (self.best - ppo) if self.best - self.neutral > self.worth else math.nan

    @property
    def below(self) -> bool:
        """Whether it is below PPO beyond the 95 % interval of the difference of means, and by more than counts."""
        spread = math.hypot(self.error, half_width(self.ppo))
        return float(self.ppo.mean()) - self.mean > max(spread, self.worth)


def half_width(sample: np.ndarray) -> float:
    """t · standard error."""
    return float(stats.t.ppf(0.975, len(sample) - 1) * sample.std(ddof=1) / math.sqrt(len(sample)))


def cells(found: dict[Key, dict[str, float]], task: str) -> dict[tuple[str, float], Cell]:
    """What was measured on a task, by arm and aversion; arms with fewer than two seeds are left out."""
    where, known = get_task(task), best(task)

    def column(arm: str, key: float, psi: float) -> np.ndarray:
        rows = [row for (t, a, p, _), row in sorted(found.items()) if (t, a, p) == (task, arm, key)]
        return np.array([row["mean"] - psi * row["variance"] for row in rows])

    table = {}
    for place, aversion in enumerate(AVERSIONS):
        psi = where.psi(aversion)
        ppo = column("PPO", 0.0, psi)
        for arm in ARMS:
            u = column(arm, 0.0 if arm in NEUTRAL else psi, psi)
            if len(u) > 1:
                neutral = where.neutral[0] - psi * where.neutral[1]
                table[arm, aversion] = Cell(u, ppo, known[place], neutral, where.std / 100.0)
    return table


def show(found: dict[Key, dict[str, float]], share: float) -> bool:
    """Print the tables in Markdown; returns whether the default is nowhere below PPO and among the best on average."""
    tasks = [task for task in TASKS if any(key[0] == task for key in found)]
    shares: dict[str, dict[tuple[str, float], float]] = {arm: {} for arm in ARMS}
    losses: dict[str, list[str]] = {arm: [] for arm in ARMS}
    for task in tasks:
        table = cells(found, task)
        where = get_task(task)
        seeds = min(len(cell.u) for cell in table.values())
        bound = ", an upper bound: it sees what is hidden here" if where.hidden else ""
        about = f"γ = {where.gamma:g}, {int(where.steps * share):,} steps, {seeds} seeds; U* is the oracle's{bound}"
        print(f"\n**{task}** ({about})\n")
        print("| | " + " | ".join(f"R = {r:g} (ψ = {where.psi(r):g})" for r in AVERSIONS) + " |")
        print("|---|" + "---|" * len(AVERSIONS))
        print("| U* | " + " | ".join(f"{u:.4g}" for u in best(task)) + " |")
        for arm in ARMS:
            texts = []
            for aversion in AVERSIONS:
                cell = table.get((arm, aversion))
                if cell is None:
                    texts.append("")
                    continue
                gain = "" if arm in NEUTRAL or math.isnan(cell.share) else f", {100 * cell.share:.0f} %"
                texts.append(f"{cell.mean:.4g} ± {cell.error:.2g}{gain}{' ↓' if cell.below else ''}")
                if not math.isnan(cell.share):
                    shares[arm][task, aversion] = cell.share
                if cell.below:
                    losses[arm].append(f"{task} at R = {aversion:g}")
            if any(texts):
                print(f"| {arm} | " + " | ".join(texts) + " |")
    return _summary(tasks, shares, losses)


def _summary(tasks: list[str], shares: dict[str, dict[tuple[str, float], float]], losses: dict[str, list[str]]) -> bool:
    """Average shares over the cells that every arm has which was measured on all tasks and sees the time.

    An arm is as good as another if the paired interval holds 0.
    """
    shares = {arm: {key: x for key, x in row.items() if not get_task(key[0]).apart} for arm, row in shares.items()}
    losses = {
        arm: [cell for cell in row if not get_task(cell.partition(" at R")[0]).apart] for arm, row in losses.items()
    }
    whole = len(shares[DEFAULT])
    full = [arm for arm in MAIN if arm != "PPO" and "no time" not in arm and len(shares[arm]) == whole]
    common = sorted(set.intersection(*(set(shares[arm]) for arm in full)))
    if not common:  # only tasks that are apart
        return True
    means = {arm: float(np.mean([shares[arm][key] for key in common])) for arm in full}
    print(f"\n**Average share of the possible gain** over {len(common)} cells with something to gain\n")
    print("| learner | share | below PPO in |\n|---|---|---|")
    for arm in sorted(full, key=lambda arm: -means[arm]):
        print(f"| {arm} | {100 * means[arm]:.0f} % | {'; '.join(losses[arm]) or 'no cell'} |")
    winner = max(full, key=lambda arm: means[arm])
    gap = np.array([shares[winner][key] - shares[DEFAULT][key] for key in common])
    alike = winner == DEFAULT or float(gap.mean()) <= half_width(gap)
    finite = [shares[DEFAULT][key] for key in common if not get_task(key[0]).hidden]
    print(
        f"\nThe default, {DEFAULT!r}: {100 * np.mean(finite):.0f} % on tasks whose state is visible; "
        f"{'the best or as good as it' if alike else f'behind {winner!r}'} on average."
    )
    return alike and not losses[DEFAULT]


def main() -> int:
    """Measure what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS)[:-2], metavar="TASK",
                        help="by default all but the last two, which are apart")  # fmt: skip
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(MAIN), metavar="ARM")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--steps", type=float, default=1.0, help="share of each task's steps; below 1 nothing is kept")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="cores")
    parser.add_argument("--only-table", action="store_true", help="measure nothing")
    asked = parser.parse_args()
    done = read(asked.steps)
    if not asked.only_table:
        todo = [key for key in jobs(asked.tasks, asked.arms, asked.seeds) if key not in done]
        done |= measure(todo, asked.steps, asked.jobs)
    return 0 if show({key: row for key, row in done.items() if key[0] in asked.tasks}, asked.steps) else 1


if __name__ == "__main__":
    sys.exit(main())
