"""Coverage of the intervals of `vpac.offline` over many logs of finite worlds, judged by the oracle.

    python benchmarks/offline.py [--logs 500] [--episodes 300] [--seed 7] [--methods fitted marginalised]

A table for each world: how often the 95 % intervals of mean, variance and CVaR hold the exact value, and the root mean squared
error as a share of that of plain importance sampling (the mean of ρ_{0:T} G, and of ρ_{0:T} (G − Ĵ)²).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

from vpac import FiniteMDP, oracle
from vpac.evaluation.importance import METHODS, LogStudy, offline
from vpac.evaluation.log import Chances, Log

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


WORLDS = {"corridor": corridor, "random": random_world}


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


def measure(
    name: str, logs: int, episodes: int, seed: int, methods: Sequence[str] = METHODS
) -> tuple[dict[tuple[str, str], list[float]], list[float]]:
    """By method and metric: coverage and error as a share of plain importance sampling's; effective sizes."""
    mdp, target, behaviour = WORLDS[name]()
    moments = oracle.evaluate(mdp, target, GAMMA)
    exact = {"mean": float(moments.mean), "variance": float(moments.total_variance)}
    exact["cvar"] = oracle.distribution(mdp, target, GAMMA).cvar(ALPHA)
    held: dict[tuple[str, str], list[bool]] = {}
    errors: dict[tuple[str, str], list[float]] = {}
    sizes, above = [], []
    for k in range(logs):
        log = sample_log(mdp, behaviour, episodes, np.random.default_rng([seed, k]))
        report = offline(log, target, gamma=GAMMA, methods=methods, alphas=(ALPHA,), seed=k, lowest=-1e3)
        above.append(report.lower <= exact["mean"])
        study = LogStudy(log, Chances.of(target, log.observation, log.action), GAMMA)
        sizes.append(study.effective("weighted"))
        plain = float(np.mean(study.weight * study.returns))
        squared = float(np.mean(study.weight * (study.returns - plain) ** 2))
        for metric, value in (("mean", plain), ("variance", squared)):
            errors.setdefault(("plain", metric), []).append(value - exact[metric])
        for method in methods:
            one = report[method]
            for metric, found in (("mean", one.mean), ("variance", one.variance), ("cvar", one.cvar.get(ALPHA))):
                if found is not None:
                    held.setdefault((method, metric), []).append(found.low <= exact[metric] <= found.high)
                    errors.setdefault((method, metric), []).append(found.estimate - exact[metric])
    size = {key: float(np.sqrt(np.mean(np.square(x)))) for key, x in errors.items()}
    table = {
        key: [float(np.mean(x)), size[key] / size["plain", key[1]] if key[1] != "cvar" else float("nan")]
        for key, x in held.items()
    }
    return table, [float(np.mean(sizes)), float(np.mean(above))]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--logs", type=int, default=500)
    options.add_argument("--episodes", type=int, default=300)
    options.add_argument("--seed", type=int, default=7)
    options.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    given = options.parse_args()
    for name in WORLDS:
        table, (size, above) = measure(name, given.logs, given.episodes, given.seed, given.methods)
        print(
            f"{name}: {given.logs} logs of {given.episodes} episodes, {size:.0f} effective; lower bound {100 * above:.1f} %"
        )
        print("| method | metric | coverage | error / plain IS |\n|---|---|---|---|")
        for (method, metric), (coverage, share) in table.items():
            print(f"| {method} | {metric} | {100 * coverage:.1f} % | {share:.2f} |")


if __name__ == "__main__":
    main()
