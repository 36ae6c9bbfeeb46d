"""Softmax and argmax policy in the discrete puddle world, and the possible gain at the paper's ψ.

    python benchmarks/measured_policies.py            seeds 0 to 19, about a minute

Trains AC and published VPAC off-policy with the settings of `puddle-world/discrete` and measures two policies of
the same parameters exactly, episodes of at most 500 steps: the softmax at temperature 100, which learned, and its argmax,
which the paper and `vpac reproduce` measure. U = mean − ψ · variance at ψ = 0.002; the last line is the oracle's best U there
and that of the best risk-neutral policy, both without a limit of steps.
"""

from __future__ import annotations

import math
import sys

import numpy as np
from scipy import stats

from vpac import FiniteMDP, oracle
from vpac.lab.experiments.puddle_world import AC, CLIPPED_SETTINGS, VPAC
from vpac.tabular import OffPolicyAC, OffPolicyVPAC, learn_many

SEEDS, EPISODES, PSI, GAMMA, LIMIT = range(20), 2500, 0.002, 0.99, 500


def interval(sample: np.ndarray) -> str:
    """The mean and half of its 95 % interval, by Student's t."""
    half = stats.t.ppf(0.975, len(sample) - 1) * sample.std(ddof=1) / math.sqrt(len(sample))
    return f"{sample.mean():.2f} ± {half:.2f}"


def main() -> int:
    """Train, measure and print a table in Markdown."""
    mdp = FiniteMDP.from_gymnasium("vpac/PuddleWorld-v0")
    common = {**CLIPPED_SETTINGS, "temperature": 100.0, "max_episode_steps": LIMIT}
    arms = {
        "AC": (OffPolicyAC, AC.settings),
        "VPAC, published": (OffPolicyVPAC, VPAC.settings),
    }
    print("| | policy | largest probability | mean | variance | U |\n|---|---|---|---|---|---|")
    for name, (kind, settings) in arms.items():
        learners = learn_many(kind, "vpac/PuddleWorld-v0", SEEDS, EPISODES, **{**common, **settings})
        for policy in ("softmax", "argmax"):
            rows = []
            for learner in learners:
                theta = learner.weights.theta
                soft = oracle.softmax(theta / 100.0)
                played = soft if policy == "softmax" else oracle.greedy(theta)
                found = oracle.evaluate(mdp, played, GAMMA, horizon=LIMIT)
                mean, variance = float(found.mean), float(found.total_variance)
                rows.append((float(played.max(axis=1).mean()), mean, variance, mean - PSI * variance))
            share, *numbers = np.transpose(rows)
            print(f"| {name} | {policy} | {share.mean():.3f} | " + " | ".join(interval(x) for x in numbers) + " |")
    frontier = oracle.frontier(mdp, [0.0, PSI], GAMMA)
    neutral, best = ((float(m), float(v)) for m, v in zip(frontier.means, frontier.variances, strict=True))
    print(
        f"\nbest risk-neutral policy: {neutral[0]:.2f} / {neutral[1]:.2f}, U {neutral[0] - PSI * neutral[1]:.2f};",
        end=" ",
    )
    print(f"best at ψ = {PSI}: {best[0]:.2f} / {best[1]:.2f}, U {best[0] - PSI * best[1]:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
