"""How good the policies along a run are: exactly where the process is finite, by compiled rollouts otherwise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from vpac.errors import UserError, one_of
from vpac.oracle.policies import greedy, softmax
from vpac.tabular.agents import Learner
from vpac.tabular.arrays import Workspace
from vpac.tabular.exact import exact_moments
from vpac.tabular.kernel.generator import generator
from vpac.tabular.loop import play
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
    environment = learner.environment
    if environment.world is None:
        raise UserError(f"{environment.name} is not compiled: its policies cannot be rolled out here")
    returns = np.zeros(count)
    work = Workspace.make(environment.n_active, environment.n_actions)
    coldness = 1.0 / learner.options.temperature
    play(
        environment.world,
        theta,
        coldness,
        policy == "greedy",
        learner.options.gamma,
        limit,
        generator(seed),
        work,
        returns,
    )
    return returns
