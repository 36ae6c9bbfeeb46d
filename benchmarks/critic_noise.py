"""How noisy is the penalty's part of the policy gradient with each critic of the penalty?

    python benchmarks/critic_noise.py [--env vpac/CatchUp-v0] [--iterations 60]

PPO learns a policy, which is then held fixed while each critic learns; afterwards every iteration gives one estimate g of the
penalty's gradient. The noise is trace(Cov g) / |mean g|²: how many iterations it takes for an estimate whose error is as large
as the gradient itself. The price is so high that the mean's part of the weights does not matter. The noise of every seed is
stored in docs/data/critic_noise.json.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

from vpac import PPO, VPACPPO
from vpac.deep.improve import Samples, flat, policy_gradient
from vpac.deep.networks import first_numbers
from vpac.files import write_text

RESULTS = Path(__file__).parents[1] / "docs" / "data" / "critic_noise.json"
PRICE = 1e4
ARMS = {
    "variance, direct": {"penalty": "variance"},
    "variance, quantile": {"penalty": "variance", "penalty_critic": "quantile"},
    "variance, none": {"penalty": "variance", "penalty_critic": "none"},
    "gini, quantile": {"penalty": "gini"},
    "gini, none": {"penalty": "gini", "penalty_critic": "none"},
    "cvar, quantile": {"penalty": "cvar"},
    "cvar, none": {"penalty": "cvar", "penalty_critic": "none"},
}
SHARED = {"gamma": 0.95, "envs": 32, "steps": 64, "hidden": (64,), "checkpoint_every": 10_000, "entropy": 0.1}


class Watched(VPACPPO):
    """Keeps the gradient of every iteration."""

    def _improve(self, rollout: Any, inputs: Any) -> None:
        columns = self.networks.policy.net.weights[0].shape[0]
        seen, valid = first_numbers(jax.tree.map(flat, inputs.batch.begun), columns), flat(inputs.batch.valid)
        actions = flat(rollout.actions)
        log_probs = self.networks.policy.log_prob(seen, actions)
        samples = Samples(seen, actions, log_probs, flat(inputs.weights) * valid / PRICE, valid)
        leaves = jax.tree.leaves(jax.jit(policy_gradient)(self.networks.policy, samples))
        self.__dict__.setdefault("gradients", []).append(np.concatenate([np.ravel(leaf) for leaf in leaves]))
        super()._improve(rollout, inputs)


def noise(env: str, neutral: PPO, settings: dict[str, Any], iterations: int, seed: int) -> float:
    """trace(Cov g) / |mean g|², the squared mean without its own error."""
    still = {"learning_rate": 1e-30, "critic_learning_rate": 2.5e-3, "decay_learning_rate": False, "psi_warm_up": 0.0}
    agent = Watched(env, psi=PRICE, seed=seed, **SHARED, **still, **settings).start_from(neutral)
    agent.learn(2 * iterations * agent.per_iteration)
    found = np.array(agent.__dict__["gradients"][iterations:], np.float64)
    spread = float(found.var(axis=0, ddof=1).sum())
    return spread / max(float((found.mean(axis=0) ** 2).sum()) - spread / len(found), 1e-12)


def main() -> None:
    """Print the table in Markdown and store its figures."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--env", default="vpac/CatchUp-v0")
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the figures are stored")
    asked = parser.parse_args()
    neutral = PPO(asked.env, **SHARED).learn(40_000)
    noises = {}
    print("| penalty, critic | noise |\n|---|---|")
    for name, settings in ARMS.items():
        found = [noise(asked.env, neutral, settings, asked.iterations, seed) for seed in range(asked.seeds)]
        noises[name] = found
        print(f"| {name} | {np.mean(found):.2f} ± {np.std(found, ddof=1) / len(found) ** 0.5:.2f} |", flush=True)
    figures = {"env": asked.env, "iterations": asked.iterations, "jax": jax.__version__, "noise": noises}
    write_text(asked.out, json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
