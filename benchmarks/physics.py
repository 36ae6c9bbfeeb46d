"""Do Gymnasium and EnvPool have the same physics? The same actions from the same state, step by step.

    python benchmarks/physics.py                       all three tasks, a few seconds

EnvPool steps trainings, Gymnasium steps single environments and their measurements. Each of ten episodes begins in
EnvPool's own first state, which Gymnasium's simulation is set to; both then take the same random actions. "one step" sets
Gymnasium to EnvPool's state before every step, "apart after" lets both run on and counts the steps until an observed number
differs by more than 1e-6. Contacts are chaotic: a difference in the last digit grows about tenfold every few steps, so runs
that part late still have the same physics; their scores agree in distribution, not number by number.
"""

from __future__ import annotations

import math
import sys
from importlib.metadata import version
from typing import Any

import gymnasium
import numpy as np

TASKS = ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5")
EPISODES, STEPS, FAR, CLIPPED = 10, 1000, 1e-6, 10.0
"""Hopper and Walker2d show velocities up to 10 only: from there on an observation does not tell the state."""
POSITIONS = {"exclude_current_positions_from_observation": False}


def set_state(env: Any, seen: np.ndarray) -> None:
    """Put a MuJoCo task of Gymnasium into the state that an observation with all positions shows."""
    task = env.unwrapped
    task.set_state(seen[: task.model.nq].copy(), seen[task.model.nq :].copy())


def compare(name: str) -> dict[str, Any]:
    """Differences of observations and rewards on one task."""
    import envpool

    ours: Any = gymnasium.make(name, **POSITIONS)
    twin = gymnasium.make(name, **POSITIONS)
    theirs = envpool.make_gymnasium(name, num_envs=1, seed=0, **POSITIONS)
    rng, low, high = np.random.default_rng(0), ours.action_space.low, ours.action_space.high
    apart, steps, rewards, ends = [], [], [], 0
    for episode in range(EPISODES):
        seen = np.asarray(theirs.reset()[0][0], np.float64)
        ours.reset(seed=episode)
        set_state(ours, seen)
        twin.reset(seed=episode)
        parted = None
        for step in range(STEPS):
            action = rng.uniform(low, high).astype(np.float32)
            known = np.abs(seen[ours.unwrapped.model.nq :]).max() < CLIPPED
            set_state(twin, seen)
            one, reward, *_ = twin.step(action)
            mine, _, over, *_ = ours.step(action)
            found, paid, ended, cut, _ = theirs.step(action[None])
            seen = np.asarray(found[0], np.float64)
            if known:
                steps.append(float(np.abs(one - seen).max()))
                rewards.append(float(abs(reward - paid[0])))
            if parted is None and np.abs(mine - seen).max() > FAR:
                parted = step + 1
            if ended[0] or cut[0]:
                ends += parted is None and bool(over) != bool(ended[0])
                break
        apart.append(parted or math.inf)
    return {"task": name, "steps": len(steps), "one": steps, "reward": rewards, "apart": apart, "ends": ends}


def main() -> int:
    """Print a table in Markdown; 1 if a single step differs by more than a thousandth."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("gymnasium", "mujoco", "envpool"))
    print(f"{versions}; {EPISODES} episodes of random actions\n")
    print("| task | steps | one step: median, largest difference | of the reward | apart after (steps) | other ends |")
    print("|---|---|---|---|---|---|")
    worst = 0.0
    for name in TASKS:
        found = compare(name)
        worst = max(worst, float(np.median(found["one"])))
        apart = ", ".join("never" if math.isinf(x) else str(x) for x in sorted(found["apart"]))
        print(
            f"| {name} | {found['steps']} | {np.median(found['one']):.1e}, {max(found['one']):.1e} | "
            f"{max(found['reward']):.1e} | {apart} | {found['ends']} |"
        )
    return int(worst > 1e-3)


if __name__ == "__main__":
    sys.exit(main())
