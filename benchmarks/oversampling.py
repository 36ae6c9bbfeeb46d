"""Does over-sampling rare dangers help a learner of CVaR? The idea of CeSoR, inside our PPO, on the three tasks with a danger.

    python benchmarks/oversampling.py                        everything, ten seeds; resumes when stopped
    python benchmarks/oversampling.py --tasks maze --seeds 3
    python benchmarks/oversampling.py --only-table           print what has been measured

CeSoR (Greenberg and others 2022) learns CVaR from the returns of whole episodes. Its cross-entropy sampler makes the dangers
of the environment more frequent, so that more episodes are in the worst tenth, and weights each episode by the ratio of its
probabilities. Here the danger is the guard, the leader's brake or the rush; a fifth of the environments keep its true
probability. An episode's weight is p / (s p + (1 − s) q), with its probabilities p in the true environment and q in the
changed one, and the share s of episodes from the true one, so it is at most 1 / s. After each iteration the probability of the
danger moves half the way to its weighted frequency in the worst episodes: those below the 10 % quantile of true returns, or
in the worst fifth of all if that is higher. It stays below ½.

Both arms penalise CVaR 10 % without a critic, with a price that rises over 80 % of the training ("soft risk"), and λ = 1,
since V is that of the sampled episodes. Networks, steps, seeds and prices are those of `rivals.py`, and so is the
measurement: mean and variance exact, CVaR 10 % and careful episodes of 2000 samples. Both arms are stepped by NumPy.
Results are lines of JSON in docs/data/oversampling.jsonl.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import warnings
from collections import deque
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

import rivals
from objective import COMMON
from paired import fill
from vpac import FiniteMDP, oracle
from vpac.deep import VPACPPO
from vpac.risk.metrics import cvar

RESULTS = rivals.RESULTS.with_name("oversampling.jsonl")
ENVS = {
    "maze": ("vpac/GuardedMaze-v0", "guard"),
    "car following": ("vpac/CarFollowing-v0", "brakes"),
    "server allocation": ("vpac/ServerAllocation-v0", "rush"),
}
"""Each environment, and its argument that is the probability of its danger."""
ARMS = ("CVaR of episodes", "CVaR of episodes, over-sampled")
NAMES = ("task", "arm", "R", "seed")
ALPHA, SMALLEST_TAIL, MOST_DANGER, KEPT = 0.1, 0.2, 0.5, 1000
TRUE = 6
"""Environments, of 32, that keep the true probability."""


@dataclass(frozen=True)
class Case:
    """An environment whose danger has a probability that can be changed."""

    env: str
    argument: str

    def mdp(self, probability: float | None = None) -> FiniteMDP:
        """The process at this probability of the danger; None: the true one."""
        given = {} if probability is None else {self.argument: probability}
        return FiniteMDP.from_gymnasium(gymnasium.make(self.env, **given))

    @property
    def probability(self) -> float:
        """The true probability."""
        mdp, other = self.mdp(), self.mdp(MOST_DANGER)
        return float(mdp.probability[dangerous(mdp, other)].min())


def dangerous(mdp: FiniteMDP, other: FiniteMDP) -> np.ndarray:
    """The transitions in which the danger comes: those more probable in the other process."""
    return np.asarray(other.probability > mdp.probability)


class Episodes(VectorEnv[Any, Any, Any]):
    """Copies of a finite process, stepped together; each has its own probabilities of the transitions."""

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, mdp: FiniteMDP, copies: int, limit: int) -> None:
        self.mdp, self.num_envs, self.limit = mdp, copies, limit
        self.single_observation_space = spaces.Box(0.0, 1.0, (mdp.n_states,), np.float32)
        self.single_action_space = spaces.Discrete(mdp.n_actions)
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, copies)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, copies)
        self.probability = np.tile(mdp.probability, (copies, 1))
        self.seen = np.eye(mdp.n_states, dtype=np.float32)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin all episodes."""
        self.rng = np.random.default_rng(seed)
        self.state = self.rng.choice(self.mdp.n_states, self.num_envs, p=self.mdp.start)
        self.steps, self.over = np.zeros(self.num_envs, int), np.zeros(self.num_envs, bool)
        return self.seen[self.state], {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """One step of each; where an episode is over, a new one begins instead."""
        mdp, every, row = self.mdp, np.arange(self.num_envs), self.state * self.mdp.n_actions + actions
        place = np.minimum(mdp.indptr[row], len(mdp.successor) - 1)  # a terminal state has no transitions
        last, left = mdp.indptr[row + 1] - 1, self.rng.random(self.num_envs)
        for _ in range(int(np.diff(mdp.indptr).max()) - 1):
            left = left - self.probability[every, place]
            place = place + ((left >= 0.0) & (place < last))
        begins = self.over
        start = self.rng.choice(mdp.n_states, self.num_envs, p=mdp.start)
        self.state = np.where(begins, start, mdp.successor[place])
        self.steps = np.where(begins, 0, self.steps + 1)
        terminated = ~begins & mdp.terminal[self.state]
        truncated = ~begins & ~terminated & (self.steps >= self.limit)
        self.over = terminated | truncated
        return self.seen[self.state], np.where(begins, 0.0, mdp.reward[place]), terminated, truncated, {}


class EpisodeCVaR(VPACPPO):
    """VPAC-PPO with a penalty of whole episodes; over-samples the danger of `case`, if there is one."""

    def __init__(self, env: Episodes, case: Case | None, **settings: Any) -> None:
        super().__init__(
            env, penalty=f"cvar:{ALPHA:g}", penalty_critic="none", gae_lambda=1.0, psi_warm_up=0.8, **settings
        )
        self.cases, self.case = env, case
        self.log_ratio, self.counts = np.zeros(env.num_envs), np.zeros((2, env.num_envs))
        """Of the unfinished episodes: log of p / q; dangers that came, and that could have come."""
        self.ended: list[tuple[float, ...]] = []
        """Of the episodes that ended in this rollout: environment, weight, dangers that came, that could have come."""
        self.returns: deque[tuple[float, float, float]] = deque(maxlen=KEPT)
        """Returns and weights of recent episodes, and whether they were in a true environment."""
        self.changed = env.mdp.probability
        """Probabilities of the transitions in the changed environments."""
        if case is not None:
            self.danger, self.comes = case.probability, dangerous(env.mdp, case.mdp(MOST_DANGER))
            self.possible = np.isin(env.mdp.row, env.mdp.row[self.comes])

    def _estimate(self, rollout: Any) -> Any:
        """The update, each step weighted by the ratio of its episode."""
        ratios = self._ratios(rollout)
        inputs = super()._estimate(rollout)
        return inputs._replace(weights=inputs.weights * ratios.astype(np.float32))

    def _ratios(self, rollout: Any) -> np.ndarray:
        """For each step the weight of its episode; of the part so far if the episode goes on."""
        ratios = np.ones(rollout.rewards.shape)
        if self.case is None:
            return ratios
        mdp, copies = self.cases.mdp, np.arange(self.cases.num_envs)
        states = rollout.raw.argmax(axis=-1)
        began, self.ended = np.zeros(len(copies), int), []
        share = np.mean([true for *_, true in self.returns]) if self.returns else TRUE / len(copies)
        for t, action in enumerate(rollout.actions):
            place = self._place(states[t] * mdp.n_actions + action, states[t + 1], rollout.rewards[t])
            counted = rollout.valid[t] > 0.0
            self.log_ratio += np.where(counted, np.log(mdp.probability[place] / self.changed[place]), 0.0)
            self.counts += counted * np.stack([self.comes[place], self.possible[place]])
            for i in np.flatnonzero(rollout.running[t] == 0.0):
                weight = 1.0 / (share + (1.0 - share) * math.exp(-self.log_ratio[i]))
                ratios[began[i] : t + 1, i], began[i] = weight, t + 1
                self.ended.append((float(i), weight, *self.counts[:, i]))
                self.log_ratio[i], self.counts[:, i] = 0.0, 0.0
        for i in copies:
            ratios[began[i] :, i] = 1.0 / (share + (1.0 - share) * math.exp(-self.log_ratio[i]))
        return ratios

    def _place(self, row: np.ndarray, after: np.ndarray, reward: np.ndarray) -> np.ndarray:
        """The transition of each row to this state with this reward, or the first of the row."""
        mdp = self.cases.mdp
        found = np.minimum(mdp.indptr[row], len(mdp.successor) - 1)
        for offset in range(1, int(np.diff(mdp.indptr).max())):
            there = np.clip(mdp.indptr[row] + offset, found, np.maximum(mdp.indptr[row + 1] - 1, found))
            fits = (mdp.successor[there] == after) & np.isclose(mdp.reward[there], reward)
            found = np.where(fits, there, found)
        return found

    def _recent_law(self) -> tuple[Any, Any]:
        """Returns of recent episodes, with the ratios as weights; also sets the probability of the danger."""
        if self.case is None:
            return super()._recent_law()
        import jax.numpy as jnp

        those = [(one.priced, *about) for one, about in zip(self._ended, self.ended, strict=True)]
        self.returns.extend((value, weight, float(copy < TRUE)) for value, copy, weight, *_ in those)
        if those:
            self._sample_more(np.array(those))
        found = np.zeros((2, KEPT), np.float32)
        found[:, : len(self.returns)] = np.array(self.returns).reshape(-1, 3).T[:2]
        return jnp.asarray(found[0]), jnp.asarray(found[1])

    def _sample_more(self, those: np.ndarray) -> None:
        """Set the probability of the danger to its weighted frequency in the worst episodes (the cross-entropy method)."""
        value, _, weight, came, possible = those.T
        true = np.array([value for value, _, true in self.returns if true])
        tail = np.quantile(true if len(true) else value, ALPHA)
        worst = value <= max(tail, np.quantile(value, SMALLEST_TAIL))
        could = float((weight * possible)[worst].sum())
        if could > 0.0 and self.case is not None:
            frequency = float((weight * came)[worst].sum()) / could
            self.danger = float(np.clip(0.5 * (self.danger + frequency), self.case.probability, MOST_DANGER))
            self.changed = self.cases.probability[TRUE:] = self.case.mdp(self.danger).probability


def train(task: str, arm: str, aversion: float, seed: int) -> EpisodeCVaR:
    """Train one arm from one seed."""
    where = rivals.get_task(task)
    assert where.task.limit is not None
    case = Case(*ENVS[task]) if arm.endswith("over-sampled") else None
    env = Episodes(where.mdp, COMMON["envs"], where.task.limit)
    agent = EpisodeCVaR(env, case, seed=seed, gamma=where.task.gamma, psi=2.0 * aversion, **COMMON)
    agent.learn(where.task.steps)
    return agent


def policy_of(agent: EpisodeCVaR, features: np.ndarray) -> np.ndarray:
    """Probabilities of the actions in each state."""
    policy = agent.policy()
    return oracle.softmax(policy.outputs(policy.normalise(features.astype(np.float32))).astype(np.float64))


def job(task: str, arm: str, aversion: float, seed: int) -> dict[str, Any]:
    """Train one arm from one seed and measure its policy."""
    where, agent = rivals.get_task(task), train(task, arm, aversion, seed)
    table = policy_of(agent, where.task.features)
    exact = oracle.evaluate(where.mdp, table, where.task.gamma, where.task.limit)
    returns, careful, _ = where.sample(table, np.random.default_rng([seed, 1]))
    return {
        "mean": float(exact.mean), "variance": float(exact.total_variance), "cvar": float(cvar(returns, ALPHA)),
        "careful": float(careful.mean()), "danger": agent.danger if agent.case else None,
    }  # fmt: skip


def show(found: dict[rivals.Key, dict[str, Any]]) -> None:
    """Print a table for each task, in Markdown."""
    for task in ENVS:
        rows = {
            (arm, r): [row for (t, a, x, _), row in sorted(found.items()) if (t, a, x) == (task, arm, r)]
            for r in rivals.AVERSIONS
            for arm in ARMS
        }
        if not any(rows.values()):
            continue
        print(f"\n**{task}**\n\n| R | | seeds | mean | variance | CVaR 10 % | careful | danger |")
        print("|---|---|---:|---|---|---|---:|---:|")
        for (arm, r), those in rows.items():
            if len(those) < 2:
                continue
            cells = []
            for name in ("mean", "variance", "cvar"):
                values = np.array([row[name] for row in those])
                cells.append(f"{values.mean():.4g} ± {rivals._half(values):.2g}")
            danger = f"{np.mean([row['danger'] for row in those]):.2f}" if those[0]["danger"] else ""
            careful = f"{100 * np.mean([row['careful'] for row in those]):.0f} %"
            print(f"| {r:g} | {arm} | {len(those)} | {rivals._minus(' | '.join(cells))} | {careful} | {danger} |")


def crashes(arm: str, aversion: float, seed: int, episodes: int = 4000) -> tuple[float, float]:
    """In car following: share of episodes that end in a crash, and share of the crashes in which the leader did not brake."""
    where = rivals.get_task("car following")
    assert where.task.limit is not None
    table, mdp = policy_of(train("car following", arm, aversion, seed), where.task.features), where.mdp
    env, rng = Episodes(mdp, episodes, where.task.limit), np.random.default_rng(seed)
    env.reset(seed=[seed, 5])
    alive, crashed, own = np.ones(episodes, bool), np.zeros(episodes, bool), np.zeros(episodes, bool)
    for _ in range(where.task.limit):
        row = env.state * mdp.n_actions
        row += (rng.random(episodes)[:, None] > np.cumsum(table[env.state], axis=1)).sum(axis=1).clip(max=2)
        _, rewards, terminated, truncated, _ = env.step(row % mdp.n_actions)
        now = alive & terminated & (rewards < -10.0)
        crashed, own = crashed | now, own | (now & (np.diff(mdp.indptr)[row] == 1))  # whatever the leader does
        alive &= ~(terminated | truncated)
    return float(crashed.mean()), float(own.sum() / max(crashed.sum(), 1))


def main() -> int:
    """Measure what is missing, then print the tables."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--tasks", nargs="+", choices=list(ENVS), default=list(ENVS), metavar="TASK")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only-table", action="store_true", help="measure nothing")
    parser.add_argument(
        "--crashes", action="store_true", help="only count crashes in car following at R = 1, seeds 0 to 2"
    )
    asked = parser.parse_args()
    if asked.crashes:
        for arm in ARMS:
            shares = np.mean([crashes(arm, 1.0, seed) for seed in range(3)], axis=0)
            print(
                f"{arm}: {100 * shares[0]:.0f} % of the episodes crash, {100 * shares[1]:.0f} % of these without a brake"
            )
        return 0
    lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else []
    found: dict[rivals.Key, dict[str, Any]] = {
        (r["task"], r["arm"], r["R"], r["seed"]): r for r in map(json.loads, lines)
    }
    wanted = [(t, a, r, s) for s in range(asked.seeds) for t in asked.tasks for r in rivals.AVERSIONS for a in ARMS]
    todo = [] if asked.only_table else [key for key in wanted if key not in found]
    warnings.simplefilter("ignore")
    fill(RESULTS, todo, found, lambda key: {**dict(zip(NAMES, key, strict=True)), **job(*key)})
    show(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
