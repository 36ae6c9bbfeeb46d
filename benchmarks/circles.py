"""How many greedy policies walk in circles in four rooms, and their effect on averages over runs.

    python benchmarks/circles.py            AC and VPAC of four-rooms/performance, as published and corrected; a minute

Trains the runs of `four-rooms/performance` and `four-rooms/performance-corrected` (1000 episodes, the same seeds) and
computes for the greedy policy of each the exact probability that an episode from each start cell has not ended after 300
steps. A cell is a trap if that is above one half; a policy circles if it has one. The last columns are the means over the
runs that circle and over those that do not.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

from vpac import FiniteMDP, oracle
from vpac.lab.experiments.catalogue import EXPERIMENTS
from vpac.lab.store.run import seeds
from vpac.tabular import AC, VPAC, learn_many

HORIZON, GAMMA = 300, 0.99
KINDS = {"AC": AC, "VPAC": VPAC}


def unfinished(mdp: FiniteMDP, policy: np.ndarray) -> np.ndarray:
    """Probability that an episode from each state has not ended after `HORIZON` steps, [S]."""
    state, action = np.divmod(mdp.row, mdp.n_actions)
    matrix = np.zeros((mdp.n_states, mdp.n_states))
    np.add.at(matrix, (state, mdp.successor), mdp.probability * policy[state, action])
    matrix[mdp.terminal] = 0.0
    left = np.where(mdp.terminal, 0.0, 1.0)
    for _ in range(HORIZON):
        left = matrix @ left
    return left


def main() -> int:
    """Train, count and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    runs = parser.parse_args().runs
    mdp = FiniteMDP.from_gymnasium("vpac/FourRooms-v0")
    print("| | runs that circle | trap cells of those | mean / variance, circling | mean / variance, others |")
    print("|---|---|---|---|---|")
    for name in ("four-rooms/performance", "four-rooms/performance-corrected"):
        experiment = EXPERIMENTS[name]
        for label, kind in KINDS.items():
            settings = {**experiment.settings_of(experiment.arm(label)), "max_episode_steps": 500}
            learners = learn_many(kind, mdp, seeds(experiment.seed, runs), experiment.episodes, threads=1, **settings)
            rows = []
            for learner in learners:
                policy = oracle.greedy(learner.weights.theta)
                found = oracle.evaluate(mdp, policy, GAMMA, horizon=HORIZON)
                traps = int(((unfinished(mdp, policy) > 0.5) & (mdp.start > 0.0)).sum())
                rows.append((traps, float(found.mean), float(found.total_variance)))
            traps, means, variances = np.transpose(rows)
            stuck = traps > 0
            cells = [
                f"{means[which].mean():.2f} / {variances[which].mean():.1f}" if which.any() else ""
                for which in (stuck, ~stuck)
            ]
            form = "corrected" if name.endswith("corrected") else "published"
            print(f"| {label}, {form} | {stuck.sum():.0f} of {runs} | {traps[stuck].mean() if stuck.any() else 0:.1f} | "
                  f"{' | '.join(cells)} |", flush=True)  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
