"""Draws the pictures of docs/worlds.md: each world with a way walked by the risk-neutral optimum."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np
from PIL import Image

import vpac
from vpac import oracle

WORLDS = {
    "four-rooms": ("vpac/FourRooms-v0", 0, 0.99),
    "puddle-world": ("vpac/PuddleWorld-v0", 80, 0.99),
    "risky-shortcut": ("vpac/RiskyShortcut-v0", 0, 0.95),
}


def main() -> None:
    """Walk each world once and save its picture."""
    for name, (env_id, state, gamma) in WORLDS.items():
        env = gymnasium.make(env_id, render_mode="rgb_array", trajectory=True)
        policy = oracle.optimal_policy(vpac.FiniteMDP.from_gymnasium(env), gamma)
        here, _ = env.reset(seed=3, options={"state": state})
        ended = False
        while not ended:
            here, _, terminated, truncated, _ = env.step(np.int64(np.argmax(policy[here])))
            ended = terminated or truncated
        path = Path(__file__).parent / "images" / f"{name}.png"
        Image.fromarray(env.render()).save(path)
        print(path)


if __name__ == "__main__":
    main()
