"""Evaluation of the policies of a run: exact for finite MDPs, by compiled rollouts otherwise.

`exact_moments` is the recursion of `vpac.oracle.moments` with a horizon, vectorised over policies:

    V_h(s) = E[R + γ V_{h−1}(S')]        M_h(s) = E[R² + 2γ R V_{h−1}(S') + γ² M_{h−1}(S')]

It stops once nothing changes any more. A test compares it with the oracle, which sums centred squares.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from vpac.envs.finite_mdp import FiniteMDP
from vpac.errors import UserError, one_of
from vpac.oracle.policies import greedy, softmax
from vpac.tabular.agents import Learner
from vpac.tabular.arrays import Workspace
from vpac.tabular.environment import World
from vpac.tabular.kernel.generator import generator
from vpac.tabular.kernel.jit import compiled, inlined
from vpac.tabular.loop import FixedPolicy, play, play_path
from vpac.typing import FloatArray, IntArray

PolicyKind = Literal["greedy", "softmax"]


@dataclass(frozen=True)
class Curve:
    """Mean and variance of the return of a run's policies."""

    episodes: IntArray
    """Number of episodes before each policy."""
    mean: FloatArray
    variance: FloatArray
    """Variance including that over start states."""


@dataclass
class Snapshots:
    """A callback for `Learner.learn(callback=…, every=…)` that keeps the current policies."""

    episodes: list[int] = field(default_factory=list)
    thetas: list[FloatArray] = field(default_factory=list)

    def __call__(self, learner: Learner) -> None:
        """Keep the learner's policy."""
        self.episodes.append(learner.episodes)
        self.thetas.append(learner.weights.theta.copy())

    def curve(
        self, learner: Learner, policy: PolicyKind = "greedy", *, evaluate: Literal["exact", "rollouts"] = "exact",
        horizon: int | None = None, n_rollouts: int = 800,
    ) -> Curve:  # fmt: skip
        """Mean and variance of each stored policy, exact or by rollouts as in the paper.

        The continuous puddle world always uses rollouts. Episodes end after `horizon` steps, by default the learner's limit.
        """
        one_of(policy, ("greedy", "softmax"), "policy")
        one_of(evaluate, ("exact", "rollouts"), "way to evaluate")
        limit = horizon or learner.environment.limit
        if evaluate == "exact" and learner.environment.mdp is not None:
            thetas = np.stack(self.thetas)
            policies = greedy(thetas) if policy == "greedy" else softmax(thetas, learner.options.temperature)
            mean, variance = exact_moments(learner.environment.mdp, policies, learner.options.gamma, limit)
        else:
            streams = np.random.SeedSequence([learner.seed, 1]).spawn(len(self.thetas))
            samples = [
                rollouts(learner, theta, policy, n_rollouts, limit, seed)
                for theta, seed in zip(self.thetas, streams, strict=True)
            ]
            mean, variance = np.mean(samples, axis=1), np.var(samples, axis=1, ddof=1)
        return Curve(np.array(self.episodes), mean, variance)


def rollouts(
    learner: Learner, theta: FloatArray, policy: PolicyKind, count: int, limit: int, seed: np.random.SeedSequence
) -> FloatArray:
    """Discounted returns of `count` episodes of a policy, in compiled code."""
    returns = np.zeros(count)
    play(*_compiled(learner, theta, policy, limit), generator(seed), _work(learner), returns)
    return returns


def paths(learner: Learner, policy: str, count: int, limit: int, seed: np.random.SeedSequence) -> list[Any]:
    """Trajectories of `count` episodes of the learner's greedy or softmax policy.

    Returns:
        For each episode its states, [steps + 1], or in the continuous puddle world its points, [steps + 1, 2].
    """
    compiled, rng, work = _compiled(learner, learner.weights.theta, policy, limit), generator(seed), _work(learner)
    positions, found = np.zeros((limit + 1, 2)), []
    for _ in range(count):
        walked = positions[: play_path(*compiled, rng, work, positions) + 1]
        found.append(walked[:, 0].copy().view(np.int64) if learner.environment.mdp is not None else walked.copy())
    return found


def _compiled(learner: Learner, theta: FloatArray, policy: str, limit: int) -> tuple[World, FixedPolicy]:
    if learner.environment.world is None:
        raise UserError(f"{learner.environment.name} is not compiled: its policies cannot be rolled out here")
    coldness = 1.0 / learner.options.temperature
    return learner.environment.world, FixedPolicy(theta, coldness, policy == "greedy", learner.options.gamma, limit)


def _work(learner: Learner) -> Workspace:
    return Workspace.make(learner.environment.n_active, learner.environment.n_actions)


MOST_LANES = 64
"""Policies in a batch: enough for vector instructions, few enough for the caches."""
SETTLED = 1e-15
VARIANCE_ROUNDING = 1e-12
"""A variance below this share of the second moment is a rounding error and counts as zero."""


class _Model(NamedTuple):
    """Transitions, and for each the index of its (state, successor) pair among all such pairs, −1 if it ends the episode."""

    row: IntArray
    pair: IntArray
    probability: FloatArray
    reward: FloatArray
    square: FloatArray
    pair_start: IntArray
    pair_successor: IntArray
    crossed: bool
    """Whether any reward with a non-zero mean is paid before the end; if not, 2γ E[R V(S')] is zero."""


class _Scratch(NamedTuple):
    chance: FloatArray
    cross: FloatArray
    paid: FloatArray
    square: FloatArray
    value: FloatArray
    moment: FloatArray
    value_next: FloatArray
    moment_next: FloatArray

    @classmethod
    def make(cls, pairs: int, states: int, lanes: int) -> _Scratch:
        return cls(*(np.zeros((n, lanes)) for n in (*[pairs] * 2, *[states] * 6)))


def exact_moments(
    mdp: FiniteMDP, policies: FloatArray, gamma: float, horizon: int
) -> tuple[FloatArray, FloatArray]:  # fmt: skip
    """Mean and total variance of the return of each policy, [N] and [N], of policies [N, S, A]."""
    value, moment = exact_state_moments(mdp, policies, gamma, horizon)
    mean, second = (value * mdp.start).sum(axis=-1), (moment * mdp.start).sum(axis=-1)
    variance = second - mean**2
    return mean, np.where(variance > VARIANCE_ROUNDING * second, variance, 0.0)


def exact_state_moments(
    mdp: FiniteMDP, policies: FloatArray, gamma: float, horizon: int
) -> tuple[FloatArray, FloatArray]:  # fmt: skip
    """Mean and second moment of the return of each policy from each state, [N, S] and [N, S], of policies [N, S, A]."""
    model = _model(mdp)
    count = len(policies)
    lanes = min(MOST_LANES, -(-count // 8) * 8)
    blocks = -(-count // lanes)
    padded = np.zeros((blocks * lanes, mdp.n_states * mdp.n_actions))
    padded[:count] = np.asarray(policies, np.float64).reshape(count, -1)
    padded = np.ascontiguousarray(padded.reshape(blocks, lanes, -1).transpose(0, 2, 1))
    value, moment = np.zeros((2, blocks, mdp.n_states, lanes))

    for block in range(blocks):
        scratch = _Scratch.make(len(model.pair_successor), mdp.n_states, lanes)
        _moments(model, mdp.n_actions, padded[block], gamma, horizon, scratch, value[block], moment[block])
    by_policy = (x.transpose(0, 2, 1).reshape(-1, mdp.n_states)[:count] for x in (value, moment))
    return next(by_policy), next(by_policy)


def _model(mdp: FiniteMDP) -> _Model:
    """The model of an MDP, without pairs that end the episode."""
    goes_on = ~mdp.terminal[mdp.successor]
    key = (mdp.row // mdp.n_actions * mdp.n_states + mdp.successor)[goes_on]
    pairs, place = np.unique(key, return_inverse=True)
    pair = np.full(len(mdp.row), -1)
    pair[goes_on] = place
    start = np.searchsorted(pairs // mdp.n_states, np.arange(mdp.n_states + 1))
    return _Model(
        np.asarray(mdp.row, np.int64), pair, mdp.probability, mdp.reward, mdp.reward**2 + mdp.noise,
        start.astype(np.int64), (pairs % mdp.n_states).astype(np.int64),
        bool((mdp.reward[goes_on] != 0.0).any()),
    )  # fmt: skip


@inlined
def _settled(new: FloatArray, old: FloatArray) -> bool:
    """Whether all changes are rounding errors."""
    for state in range(new.shape[0]):
        for lane in range(new.shape[1]):
            if abs(new[state, lane] - old[state, lane]) > SETTLED * abs(new[state, lane]):
                return False
    return True


@compiled
def _moments(
    model: _Model, n_actions: int, policies: FloatArray, gamma: float, horizon: int, scratch: _Scratch,
    values: FloatArray, moments: FloatArray,
) -> None:  # fmt: skip
    """First and second moments, [S, policies], of policies given as [S·A, policies]."""
    chance, cross, paid, square = scratch.chance, scratch.cross, scratch.paid, scratch.square
    lanes = policies.shape[1]
    for entry in range(len(model.pair)):
        row, pair = model.row[entry], model.pair[entry]
        for lane in range(lanes):
            share = policies[row, lane] * model.probability[entry]
            paid[row // n_actions, lane] += share * model.reward[entry]
            square[row // n_actions, lane] += share * model.square[entry]
            if pair < 0:
                continue
            chance[pair, lane] += gamma * share
            cross[pair, lane] += 2.0 * gamma * share * model.reward[entry]
    value, moment, value_next, moment_next = scratch.value, scratch.moment, scratch.value_next, scratch.moment_next
    for step in range(horizon):
        for state in range(len(paid)):
            for lane in range(lanes):
                value_next[state, lane] = paid[state, lane]
                moment_next[state, lane] = square[state, lane]
            for pair in range(model.pair_start[state], model.pair_start[state + 1]):
                there = model.pair_successor[pair]
                for lane in range(lanes):
                    value_next[state, lane] += chance[pair, lane] * value[there, lane]
                for lane in range(lanes):
                    moment_next[state, lane] += gamma * chance[pair, lane] * moment[there, lane]
                if model.crossed:
                    for lane in range(lanes):
                        moment_next[state, lane] += cross[pair, lane] * value[there, lane]
        value, value_next = value_next, value
        moment, moment_next = moment_next, moment
        if step % 16 == 15 and _settled(value, value_next) and _settled(moment, moment_next):
            break
    for state in range(len(paid)):
        for lane in range(lanes):
            values[state, lane], moments[state, lane] = value[state, lane], moment[state, lane]
