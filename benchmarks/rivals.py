"""Risk-averse methods on six tasks, all within one PPO: same networks, steps, seeds and risk aversions.

    python benchmarks/rivals.py                                  everything; resumes where it was stopped
    python benchmarks/rivals.py --tasks maze --arms PPO VPAC --seeds 5 --share 0.5
    python benchmarks/rivals.py --only-table                     print the tables of what has been measured
    python benchmarks/rivals.py --only-table --figure docs/images/rivals.png    and draw the frontiers

Every task is a finite process, so mean and variance of the learned policy, with its noise, are exact and the oracle knows
the best frontier; CVaR 10 % and careful episodes are those of 2000 sampled episodes. Prices are given by R without a unit:
ψ = R / standard deviation of the best risk-neutral policy's return; MVPI prices the variance of a step's reward, so its R
is relative to that; Gini deviation and CVaR have the unit of the return, and 2R as price (the slope of a standard deviation
s is that of the variance / 2s). "Soft risk" is an idea of CeSoR (Greenberg and others 2022): the price of CVaR rises over
80 % of the training, so that successful policies are found first. Its other idea, over-sampling of rare episodes by
changing the environment, is in `oversampling.py`.

A rival on a task is judged by its frontier over R, as forms are in the report (`vpac.lab.report.trade_off`): hypervolume as
a share of the oracle's, and the loss in U = mean − ψ · variance against the oracle's best at every ψ, with the price of its
own choice. Ranks of the loss are averaged over resampled seeds. MVPI with PPO's clipped steps is TRVO's reward volatility
with a trust region (Bisi and others 2020) but for the constant λ y² of each step, which changes nothing in tasks of fixed
length, and for the trust region, which is a clip here and a bound on the KL divergence there. Results are lines of JSON in
docs/data/rivals.jsonl.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from objective import COMMON, Task, inventory, portfolio, shop
from vpac import FiniteMDP, oracle
from vpac.lab.report.trade_off import Swept, scores
from vpac.risk.compare import probability_of_improvement
from vpac.risk.metrics import cvar, interquartile_mean

HERE = Path(__file__).parent
RESULTS = HERE.parent / "docs" / "data" / "rivals.jsonl"
AVERSIONS = (0.1, 0.3, 1.0, 3.0)
EPISODES, ALPHA = 2000, 0.1


@dataclass(frozen=True)
class Rivalry:
    """A task, and the states that a careful episode never visits."""

    task: Task
    risky: np.ndarray

    @property
    def mdp(self) -> FiniteMDP:
        """The process."""
        return self.task.mdp

    def sample(self, policy: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns of episodes, whether each was careful, and the rewards of all their steps."""
        mdp, sums = self.mdp, np.cumsum(policy, axis=1)
        state = rng.choice(mdp.n_states, EPISODES, p=mdp.start)
        returns, careful, alive, paid = np.zeros(EPISODES), np.ones(EPISODES, bool), np.ones(EPISODES, bool), []
        for step in range(self.task.limit or 1000):
            careful &= ~(alive & self.risky[state])
            action = np.minimum((rng.random(EPISODES)[:, None] > sums[state]).sum(axis=1), mdp.n_actions - 1)
            row = state * mdp.n_actions + action
            first, last = mdp.indptr[row], mdp.indptr[row + 1]
            draw = rng.random(EPISODES)
            before = np.concatenate([[0.0], np.cumsum(mdp.probability)])
            place = np.clip(np.searchsorted(before[1:], before[first] + draw, side="right"), first, last - 1)
            place = np.clip(place, 0, len(mdp.probability) - 1)  # of an episode that is over it does not matter
            reward = mdp.reward[place] + np.sqrt(mdp.noise[place]) * rng.standard_normal(EPISODES)
            returns += np.where(alive, self.task.gamma**step * reward, 0.0)
            paid.append(reward[alive])
            state = np.where(alive, mdp.successor[place], state)
            alive &= ~mdp.terminal[state]
            if not alive.any():
                break
        return returns, careful, np.concatenate(paid)

    @property
    def step_std(self) -> float:
        """Standard deviation of a step's reward of the best risk-neutral policy."""
        policy = oracle.optimal_policy(self.mdp, self.task.gamma)
        return float(self.sample(policy, np.random.default_rng(0))[2].std())


def _registered(name: str, env: str, gamma: float, steps: int, limit: int | None, risky: Callable[..., Any]) -> Rivalry:
    mdp = FiniteMDP.from_gymnasium(env)
    return Rivalry(Task(name, mdp, gamma, steps, np.eye(mdp.n_states), limit), np.asarray(risky(mdp), bool))


def _follow() -> Rivalry:
    """Steps and gaps visible; careful: never nearer than 3, where braking cannot crash."""
    return _registered("car following", "vpac/CarFollowing-v0", 0.999, 120_000, 30, lambda m: np.append(
        np.arange(m.n_states - 1) // 2 % 8 < 2, False))  # fmt: skip


def _servers() -> Rivalry:
    """Careful: from the fifth step on never fewer than three servers."""

    def few(mdp: FiniteMDP) -> np.ndarray:
        state = np.arange(mdp.n_states - 1)
        return np.append((state // 14 >= 5) & (state // 2 % 7 < 3), False)

    return _registered("server allocation", "vpac/ServerAllocation-v0", 0.999, 120_000, 30, few)


def _without(task: Task) -> Rivalry:
    """A task in which no state is the risky one."""
    return Rivalry(task, np.zeros(task.mdp.n_states, bool))


TASKS: dict[str, Callable[[], Rivalry]] = {
    "maze": lambda: _registered("maze", "vpac/GuardedMaze-v0", 0.999, 40_000, 100, lambda m: m.layout.has("x")),
    "car following": _follow,
    "server allocation": _servers,
    "shop": lambda: _without(shop("shop", True)),
    "inventory": lambda: _without(inventory()),
    "portfolio": lambda: _without(portfolio()),
}
get_task = cache(lambda name: TASKS[name]())
ARMS: dict[str, tuple[str, dict[str, Any]]] = {
    "PPO": ("PPO", {}),
    "VPAC": ("VPACPPO", {}),
    "VPAC, published": ("VPACPPO", {"form": "published"}),
    "VAAC": ("VAACPPO", {}),
    "VAAC, published": ("VAACPPO", {"form": "published"}),
    "MVPI (TRVO)": ("MVPIPPO", {}),
    "variance of episodes (Tamar)": ("VPACPPO", {"penalty_critic": "none"}),
    "Gini deviation": ("VPACPPO", {"penalty": "gini"}),
    "CVaR": ("VPACPPO", {"penalty": "cvar:0.1"}),
    "CVaR, soft risk": ("VPACPPO", {"penalty": "cvar:0.1", "psi_warm_up": 0.8}),
}
Key = tuple[str, str, float, int]


def price(task: str, arm: str, aversion: float) -> float:
    """The price of a risk aversion, to two digits."""
    where, penalty = get_task(task), ARMS[arm][1].get("penalty", "variance")
    if penalty != "variance":
        return 2.0 * aversion
    std = where.step_std if arm.startswith("MVPI") else where.task.std
    return float(f"{aversion / std:.2g}")


def read() -> dict[Key, dict[str, float]]:
    """What has been measured, by task, arm, R and seed."""
    rows = [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    return {(row["task"], row["arm"], row["R"], row["seed"]): row for row in rows}


def learn(task: str, arm: str, seeds: list[int], share: float, keep: Callable[[dict[str, Any]], None]) -> None:
    """Train one rival on one task at all risk aversions, in one compiled program, and judge each policy."""
    from vpac import deep

    where, (kind, settings) = get_task(task), ARMS[arm]
    prices = {} if kind == "PPO" else {price(task, arm, r): r for r in AVERSIONS}
    begun = threading.local()

    def judged(agent: Any) -> None:
        psi = 0.0 if kind == "PPO" else agent.options.psi
        row: dict[str, Any] = {"task": task, "arm": arm, "R": prices.get(psi, 0.0), "psi": psi, "seed": agent.seed}
        if not agent.diverged:
            policy = agent.policy()
            logits = policy.outputs(policy.normalise(where.task.features.astype(np.float32))).astype(np.float64)
            table = oracle.softmax(logits)
            exact = oracle.evaluate(where.mdp, table, where.task.gamma, where.task.limit)
            returns, careful, _ = where.sample(table, np.random.default_rng([agent.seed, 1]))
            row |= {
                "mean": float(exact.mean), "variance": float(exact.total_variance), "cvar": float(cvar(returns, ALPHA)),
                "careful": float(careful.mean()),
            }  # fmt: skip
        now = time.thread_time()
        row["seconds"], begun.at = round(now - getattr(begun, "at", 0.0), 2), now
        keep(row)

    getattr(deep, kind).learn_many(
        where.task.env, int(where.task.steps * share), seeds=seeds, cores=1, kept=judged, gamma=where.task.gamma, **COMMON,
        **settings, **({"psi": list(prices)} if prices else {}),
    )  # fmt: skip


def measure(tasks: list[str], arms: list[str], seeds: int, share: float) -> dict[Key, dict[str, float]]:
    """Do what is not done; every result of full length is a line in the file as soon as there is one."""
    found, lock = read() if share == 1.0 else {}, threading.Lock()
    for task in tasks:
        for arm in arms:
            prices = (0.0,) if arm == "PPO" else AVERSIONS
            missing = [s for s in range(seeds) if any((task, arm, r, s) not in found for r in prices)]
            if not missing:
                continue

            def keep(row: dict[str, Any]) -> None:
                with lock:
                    found[row["task"], row["arm"], row["R"], row["seed"]] = row
                    if share == 1.0:
                        with RESULTS.open("a") as file:
                            file.write(json.dumps(row) + "\n")

            learn(task, arm, missing, share, keep)
            print(f"{task}, {arm}: {len(missing)} seeds", file=sys.stderr, flush=True)
    return found


def swept(found: dict[Key, dict[str, float]], task: str, arm: str) -> Swept | None:
    """A rival's runs along R, PPO's being those at R = 0; None while a price has fewer seeds than PPO, or fewer than two."""
    points = [("PPO", 0.0)] + ([] if arm == "PPO" else [(arm, r) for r in AVERSIONS])
    rows = [[row for (t, a, r, _), row in sorted(found.items()) if (t, a, r) == (task, *point)] for point in points]
    if min(map(len, rows)) < max(2, len(rows[0])):
        return None
    rows = [[row for row in those if "mean" in row] for those in rows]
    means, variances = ([np.array([row[key] for row in those]) for those in rows] for key in ("mean", "variance"))
    psis = [0.0] + [price(task, "VPAC", r) for _, r in points[1:]]
    return Swept(np.array(psis), means, variances)


def best(task: str) -> np.ndarray:
    """ψ, mean and variance of the oracle's best policy at each risk aversion, that of none first."""
    where = get_task(task).task
    psis = [0.0, *(where.psi(r) for r in AVERSIONS)]
    found = oracle.frontier(where.mdp, psis, where.gamma, restarts=0)
    return np.stack([found.psis, found.means, found.variances], axis=1)


def show(found: dict[Key, dict[str, float]]) -> None:
    """Print for each task the frontiers, scores and ranks in Markdown, and who wins where."""
    verdicts, placed = [], dict[str, list[np.ndarray]]()
    for task in [task for task in TASKS if any(key[0] == task for key in found)]:
        forms = {arm: form for arm in ARMS if (form := swept(found, task, arm)) is not None}
        if "PPO" not in forms or len(forms) < 2:
            continue
        ideal = best(task)
        runs = min(len(sample) for form in forms.values() for sample in form.means)
        judged = scores(forms, ideal)
        ranks = np.argsort(np.argsort(np.stack([score.tuned for score in judged.values()]), axis=0), axis=0) + 1.0
        print(f"\n**{task}** ({get_task(task).task.steps:,} steps, {runs} seeds)\n")
        careful = bool(get_task(task).risky.any())
        heads = [
            "",
            "mean",
            "variance",
            "CVaR 10 %",
            *(["careful"] if careful else []),
            "hypervolume",
            "loss in U, tuned",
        ]
        print(f"| {' | '.join(heads)} | IQM of U | P(better than PPO) | rank |\n|" + "---|" * (len(heads) + 3))
        psi, mean, variance = ideal[AVERSIONS.index(1.0) + 1]
        exact = f"| oracle | {mean:.4g} | {variance:.4g} | | {'| ' * careful}1 | 0 | {mean - psi * variance:.4g} | | |"
        print(_minus(exact))
        ppo = _worth(found, task, "PPO", 0.0, psi)
        for place, (arm, score) in enumerate(judged.items()):
            here = ppo if arm == "PPO" else _worth(found, task, arm, 1.0, psi)
            better, typical = "" if arm == "PPO" else _ends(*_improvement(here, ppo)), float(interquartile_mean(here))
            low, high = np.quantile(ranks[place, 1:], [0.025, 0.975])
            print(
                f"| {arm} | {_cells(found, task, arm)} | {_interval(score.volume)} | {_interval(score.tuned)} | "
                f"{_minus(f'{typical:.4g}')} | {better} | {ranks[place, 0]:.0f} ({low:.0f} … {high:.0f}) |"
            )
            placed.setdefault(arm, []).append(ranks[place])
        verdicts.append((task, *_winner(judged)))
    if verdicts:
        print("\n| task | least loss in U | separate from the others? |\n|---|---|---|")
        for row in verdicts:
            print("| " + " | ".join(row) + " |")
        print("\n| method | mean rank over tasks | rank by task |\n|---|---|---|")
        for arm, ranked in sorted(placed.items(), key=lambda item: float(np.mean([one[0] for one in item[1]]))):
            print(f"| {arm} | {_interval(np.mean(ranked, axis=0))} | {', '.join(f'{one[0]:.0f}' for one in ranked)} |")


def draw(found: dict[Key, dict[str, float]], path: Path) -> None:
    """Draw each task's frontiers: means over seeds with 95 % intervals, and the oracle's."""
    import matplotlib.pyplot as plt

    from vpac.lab.report.geometry import LIGHT, look

    figure, axes = plt.subplots(2, 3, figsize=(13, 7.6), layout="constrained")
    for axis, task in zip(axes.flat, TASKS, strict=True):
        ideal = best(task)
        axis.plot(ideal[:, 2], ideal[:, 1], color="black", linewidth=1, marker="x", label="oracle")
        for number, arm in enumerate(arm for arm in ARMS if arm != "PPO"):
            form, style = swept(found, task, arm), look(number)
            if form is None:
                continue
            line = {"marker": style.marker, "linestyle": style.line, "linewidth": 1, "elinewidth": 0.5, "markersize": 4}
            x, y = ([float(np.mean(sample)) for sample in those] for those in (form.variances, form.means))
            wide, high = ([_half(sample) for sample in those] for those in (form.variances, form.means))
            colour = "0.5" if number >= len(LIGHT) else style.colour
            axis.errorbar(x, y, high, wide, label=arm, color=colour, **line)
        span = np.ptp(ideal[:, 1]) or 1.0
        axis.set_xlim(-0.05 * ideal[:, 2].max(), 1.6 * ideal[:, 2].max())
        axis.set_ylim(ideal[:, 1].min() - span, ideal[:, 1].max() + 0.15 * span)
        axis.set(title=task, xlabel="variance of the return", ylabel="mean")
        axis.grid(alpha=0.25)
    figure.legend(*axes.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
    figure.savefig(path, dpi=110)


def _half(values: np.ndarray) -> float:
    """Half of the 95 % interval of a mean."""
    return float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values)))


def _winner(judged: dict[str, Any]) -> tuple[str, str]:
    """Who loses least, and from whom that is not clearly apart."""
    order = sorted(judged, key=lambda arm: float(judged[arm].tuned[0]))
    first = judged[order[0]].tuned
    near = [arm for arm in order[1:] if np.quantile((judged[arm].tuned - first)[1:], 0.025) <= 0.0]
    return order[0], "yes" if not near else "no: " + "; ".join(near)


def _rows(found: dict[Key, dict[str, float]], task: str, arm: str, r: float) -> list[dict[str, float]]:
    return [row for (t, a, x, _), row in sorted(found.items()) if (t, a, x) == (task, arm, r) and "mean" in row]


def _worth(found: dict[Key, dict[str, float]], task: str, arm: str, r: float, psi: float) -> np.ndarray:
    return np.array([row["mean"] - psi * row["variance"] for row in _rows(found, task, arm, r)])


def _cells(found: dict[Key, dict[str, float]], task: str, arm: str) -> str:
    """Mean, variance, CVaR and share of careful episodes at R = 1."""
    rows = _rows(found, task, arm, 0.0 if arm == "PPO" else 1.0)
    mean, variance, tail, careful = (
        np.array([row[key] for row in rows]) for key in ("mean", "variance", "cvar", "careful")
    )
    cells = [_minus(f"{np.mean(x):.4g} ± {_half(x):.2g}") for x in (mean, variance, tail)]
    return " | ".join(cells + ([f"{100 * np.mean(careful):.0f} %"] if get_task(task).risky.any() else []))


def _improvement(x: np.ndarray, y: np.ndarray) -> tuple[float, float, float]:
    found = probability_of_improvement(x, y, seed=0, resamples=2000)
    return found.estimate, found.low, found.high


def _interval(values: np.ndarray) -> str:
    low, high = np.quantile(values[1:], [0.025, 0.975])
    return _ends(float(values[0]), float(low), float(high))


def _ends(estimate: float, low: float, high: float) -> str:
    return _minus(f"{estimate:.3g} ({low:.3g} … {high:.3g})")


def _minus(text: str) -> str:
    return text.replace("-", "−")


def main() -> int:
    """Measure what is missing and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--share", type=float, default=1.0, help="of the steps; results of less than 1 are not kept")
    parser.add_argument("--only-table", action="store_true")
    parser.add_argument("--figure", type=Path, help="draw the frontiers into this file")
    given = parser.parse_args()
    found = read() if given.only_table else measure(given.tasks, given.arms, given.seeds, given.share)
    show(found)
    if given.figure:
        draw(found, given.figure)
    return 0


if __name__ == "__main__":
    sys.exit(main())
