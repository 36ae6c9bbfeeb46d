"""Three policies that have to be dependable, each from its environment to its certificate (extra: deep).

    warehouse   keep 95 % of the profit, with less spread
    battery     lose money in at most 5 % of the months
    robot       hop, and fall in at most 2 % of the episodes (needs the extra mujoco, and five minutes)

Run

    python dependable.py warehouse battery

in this folder; certificates are written to results/dependable. Everything is done by commands, which are printed and can be
repeated with other numbers.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from vpac import FiniteMDP, monitor
from vpac.cli import main as vpac
from vpac.envs import FiniteMDPEnv


class Battery(FiniteMDPEnv):
    """A battery that earns its lease in a month: each day it is held as reserve for the grid, or trades on the spot market.

    Reserve is paid a fixed price. The spot market pays more on average, and on some days varies wildly; the forecast says what
    kind of day it is. The state is 2 · day + (1 on wild days), and one terminal state.

    Args:
        days: of a month.
        wild: share of wild days.
        reserve: what a day as reserve is paid.
        lease: what the battery costs in a month.
        spread: standard deviation of a wild day on the market.
        render_mode: "ansi" or "rgb_array".
    """

    def __init__(
        self,
        days: int = 30,
        wild: float = 0.4,
        reserve: float = 10.0,
        lease: float = 250.0,
        spread: float = 70.0,
        render_mode: str | None = None,
    ) -> None:
        spot = ((14.0, 10.0), (20.0, spread))
        size, rows = 2 * days + 1, []
        for day in range(days):
            for kind, (mean, std) in enumerate(spot):
                for action, (paid, varies) in enumerate(((reserve, 0.0), (mean, std**2))):
                    after = [(2 * day + 2, 1.0 - wild), (2 * day + 3, wild)] if day < days - 1 else [(size - 1, 1.0)]
                    rows += [(2 * day + kind, action, s, p, paid - lease / days, varies) for s, p in after]
        columns = (np.array(column) for column in zip(*rows, strict=True))
        start = np.zeros(size)
        start[:2] = 1.0 - wild, wild
        mdp = FiniteMDP.from_transitions(
            size, 2, *columns, start=start, terminal=np.arange(size) == size - 1, action_names=("reserve", "spot")
        )
        super().__init__(mdp, render_mode)


class Falls(gymnasium.Wrapper):
    """Pays −1 for a fall and nothing else, so that P(G < 0) is the probability of a fall."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take an action."""
        observation, _, terminated, truncated, info = self.env.step(action)
        return observation, -float(terminated), terminated, truncated, info


class FallsCost(gymnasium.Wrapper):
    """The environment's own reward, less a price for a fall."""

    def __init__(self, env: gymnasium.Env, price: float) -> None:
        super().__init__(env)
        self.price = price

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take an action."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, float(reward) - self.price * terminated, terminated, truncated, info


STAGES = (
    (500_000, 0.99, 0.0, {"max_episode_steps": 500}),  # to hop
    (400_000, 0.995, 0.0, {"forward_reward_weight": 0.3}),  # to hop for longer: speed pays less
    (550_000, 0.995, 50.0, {"forward_reward_weight": 0.2}),  # not to fall
)
"""Of the robot: steps, discount, price of a fall, and arguments of Hopper-v5."""


def hopper(price: float, **arguments: Any) -> gymnasium.Env:
    """Hopper-v5 in which a fall costs so much."""
    env = gymnasium.make("Hopper-v5", **arguments)
    return FallsCost(env, price) if price else env


def run(*words: object) -> None:
    """Print a command and carry it out."""
    print(f"$ {shlex.join(['vpac', *map(str, words)])}", flush=True)
    code = vpac([str(word) for word in words])
    if code not in (0, 3):  # 3: a limit does not hold; the certificate says which
        raise SystemExit(code)


def warehouse(out: Path, scale: float, seed: int) -> Path:
    """Keep 95 % of the profit of the season, with less spread: train with a little more than has to be shown."""
    shop, how = (
        "inventory:Inventory",
        ("--gamma", 1, "--steps", max(4096, int(400_000 * scale)), "--seed", seed, "--overwrite"),
    )
    run("train", "ppo", shop, *how, "--out", out / "bold")
    run("train", "vpac-ppo", shop, *how, "--keep-mean", 0.97, "--out", out / "calm")
    here, measured = ("--env", shop, "--deterministic"), max(40, int(2000 * scale))
    run(
        "stress", out / "calm", *here, "--set", "demand=2,2.5,3.5,4", "--action-noise", "0.05,0.1", "--episodes", measured // 4,
        "--out", out / "stress",
    )  # fmt: skip
    run(
        "certify", out / "calm", *here, "--baseline", out / "bold", "--keep-mean", 0.95, "--max-ruin", "0.05:0",
        "--stress", out / "stress" / "stress.json", "--episodes", measured, "--sources", max(10, int(100 * scale)),
        "--out", out / "certificate",
    )  # fmt: skip
    return out / "certificate"


def battery(out: Path, scale: float, seed: int) -> Path:
    """Lose money in at most 5 % of the months: train for 3 %, so that it can be shown."""
    market = "dependable:Battery"
    how = ("--gamma", 1, "--steps", max(4096, int(400_000 * scale)), "--seed", seed, "--overwrite")
    run("train", "ppo", market, *how, "--out", out / "bold")
    run("train", "vpac-ppo", market, *how, "--max-ruin", "0.03:0", "--out", out / "calm")
    here, measured = ("--env", market, "--deterministic"), max(40, int(2000 * scale))
    run(
        "stress", out / "calm", *here, "--set", "wild=0.2,0.6", "spread=100", "lease=300", "--noise", "0.1",
        "--episodes", measured // 4, "--out", out / "stress",
    )  # fmt: skip
    for name in ("bold", "calm"):
        taken = ("--stress", out / "stress" / "stress.json", "--baseline", out / "bold") if name == "calm" else ()
        folder = out / ("certificate" if name == "calm" else "certificate-bold")
        sample = ("--episodes", measured, "--sources", max(10, int(100 * scale)), "--out", folder)
        run("certify", out / name, *here, *taken, "--max-ruin", "0.05:0", *sample)
    return out / "certificate"


def robot(out: Path, scale: float, seed: int) -> Path:
    """Hop, and fall in at most 2 % of the episodes: three trainings, each of which goes on from the one before."""
    from vpac import PPO

    agent, here = None, ("--env", "Hopper-v5", "--undiscounted", "--deterministic")
    for number, (steps, gamma, price, arguments) in enumerate(STAGES):
        before, agent = agent, PPO(partial(hopper, price, **arguments), seed=seed + number, gamma=gamma)
        if before is not None:
            agent.start_from(before)
        agent.learn(max(2048, int(steps * scale))).save(out / f"stage-{number + 1}")
        how = ("--episodes", max(4, int(40 * scale)), "--out", out / f"episodes-{number + 1}")
        run("evaluate", out / f"stage-{number + 1}", *here, *how)
    run(
        "certify", out / f"stage-{len(STAGES)}", *here, "--wrap", "dependable:Falls", "--max-ruin", "0.02:0",
        "--episodes", max(20, int(300 * scale)), "--sources", 0, "--out", out / "certificate",
    )  # fmt: skip
    return out / "certificate"


STORIES = {"warehouse": warehouse, "battery": battery, "robot": robot}


def watched(folder: Path) -> None:
    """Watch returns that are one standard deviation lower than those that were certified."""
    watch = monitor(folder / "certificate.json")
    lower = np.random.default_rng(0).choice(watch.reference, 200) - watch.reference.std()
    print(f"if returns were a standard deviation lower: {watch.update(lower) or 'no alarm in 200 episodes'}")


def main(arguments: Sequence[str] | None = None) -> list[Path]:
    """Train, measure, certify and watch."""
    parser = argparse.ArgumentParser(description="Policies with a certificate.")
    parser.add_argument("stories", nargs="*", default=["warehouse", "battery"], help=", ".join(STORIES))
    parser.add_argument("--out", type=Path, default=Path("results/dependable"), help="folder of the certificates")
    parser.add_argument("--scale", type=float, default=1.0, help="multiply steps and episodes by this: a quick look")
    parser.add_argument("--seed", type=int, default=0, help="of the training")
    given = parser.parse_args(arguments)
    found = []
    for name in given.stories:
        if name not in STORIES:
            parser.error(f"unknown story {name!r}: expected {', '.join(STORIES)}")
        found.append(STORIES[name](given.out / name, given.scale, given.seed))
        watched(found[-1])
    return found


if __name__ == "__main__":
    main()
