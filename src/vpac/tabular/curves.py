"""How good the policies along a run are: exactly where the process is finite, by compiled rollouts otherwise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from vpac.errors import UserError, one_of
from vpac.oracle.policies import greedy, softmax
from vpac.tabular.agents import Learner
from vpac.tabular.arrays import Workspace
from vpac.tabular.environment import World
from vpac.tabular.exact import exact_moments
from vpac.tabular.kernel.generator import generator
from vpac.tabular.loop import FixedPolicy, play, play_path
from vpac.typing import FloatArray, IntArray

Policy = Literal["greedy", "softmax"]


@dataclass(frozen=True)
class Curve:
    """Mean and variance of the return of the policies along a run."""

    episodes: IntArray
    """After how many episodes each policy was there."""
    mean: FloatArray
    """Mean return."""
    variance: FloatArray
    """Variance of the return, the start state's share included."""


@dataclass
class Snapshots:
    """A callback for `Learner.learn(callback=…, every=…)` that keeps the policies along the way."""

    episodes: list[int] = field(default_factory=list)
    """When they were kept."""
    thetas: list[FloatArray] = field(default_factory=list)
    """Their parameters."""

    def __call__(self, learner: Learner) -> None:
        """Keep the learner's policy."""
        self.episodes.append(learner.episodes)
        self.thetas.append(learner.weights.theta.copy())

    def curve(
        self,
        learner: Learner,
        policy: Policy = "greedy",
        *,
        evaluate: Literal["exact", "rollouts"] = "exact",
        horizon: int | None = None,
        n_rollouts: int = 800,
        threads: int = 1,
    ) -> Curve:
        """Mean and variance of each policy that was kept.

        Args:
            learner: whose policies they are.
            policy: the greedy or the softmax policy of the parameters.
            evaluate: exactly, or by rollouts as in the paper. The continuous world always uses rollouts.
            horizon: cut episodes off after so many steps; default: the learner's own limit.
            n_rollouts: how many rollouts for each policy.
            threads: how many policies at a time.
        """
        one_of(policy, ("greedy", "softmax"), "policy")
        one_of(evaluate, ("exact", "rollouts"), "way to evaluate")
        limit = horizon or learner.environment.limit
        if evaluate == "exact" and learner.environment.mdp is not None:
            thetas = np.stack(self.thetas)
            policies = greedy(thetas) if policy == "greedy" else softmax(thetas, learner.options.temperature)
            mean, variance = exact_moments(learner.environment.mdp, policies, learner.options.gamma, limit, threads)
        else:
            streams = np.random.SeedSequence([learner.seed, 1]).spawn(len(self.thetas))
            samples = [
                rollouts(learner, theta, policy, n_rollouts, limit, seed)
                for theta, seed in zip(self.thetas, streams, strict=True)
            ]
            mean, variance = np.mean(samples, axis=1), np.var(samples, axis=1, ddof=1)
        return Curve(np.array(self.episodes), mean, variance)


def rollouts(
    learner: Learner, theta: FloatArray, policy: Policy, count: int, limit: int, seed: np.random.SeedSequence
) -> FloatArray:
    """Discounted returns of `count` episodes of a policy, in compiled code."""
    returns = np.zeros(count)
    play(*_compiled(learner, theta, policy, limit), generator(seed), _work(learner), returns)
    return returns


def paths(learner: Learner, policy: str, count: int, limit: int, seed: np.random.SeedSequence) -> list[Any]:
    """Where `count` episodes of the learner's greedy or softmax policy went, from start to end.

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
