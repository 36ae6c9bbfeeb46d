"""How fast are compiled trainings? Ratios, all measured in one run.

    python benchmarks/compiled.py                                    the frontier, and CartPole without rejax
    python benchmarks/compiled.py --rejax FOLDER --gymnax FOLDER     CartPole against rejax as well

1. CartPole, PPO: steps per second against rejax at equal settings (64 environments, 128 steps, 4 epochs of 4 minibatches, two
   layers of 64). rejax 0.1.3 needs gymnax 0.0.9 and vpac gymnax 1.x, so each runs in a process of its own, in turns, with a
   folder that `pip install --target FOLDER rejax` (and `gymnax`) filled. Bar: 1.2 × rejax.
2. The portfolio of examples/portfolio.py, VPACPPO with its defaults: 8 prices × 10 seeds of its JAX version by `learn_many`,
   against as many runs in the portfolio itself, one after the other, of which two are measured. Bar: 10 × as fast, compiling
   included, which takes at most 15 s of processor time, and hardly any in a second process.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
SETTINGS = {"envs": 64, "steps": 128, "epochs": 4, "minibatch": 2048, "hidden": (64, 64), "decay_learning_rate": False}
PRICES = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)


def clock() -> tuple[float, float]:
    """Seconds of the wall and of the processor."""
    return time.perf_counter(), time.process_time()


def report(steps: int, begun: tuple[float, float]) -> None:
    """Print what a part of the benchmark found, for the process that started it."""
    wall, processor = (now - then for now, then in zip(clock(), begun, strict=True))
    print(json.dumps({"steps": steps, "wall": wall, "processor": processor}))


def cartpole_vpac(steps: int) -> None:
    """PPO on gymnax's CartPole, compiled before it is timed."""
    from vpac.deep import PPO

    for seed in (0, 1):
        agent, begun = PPO("gymnax:CartPole-v1", seed=seed, **SETTINGS), clock()
        agent.learn(steps)
    report(agent.timesteps, begun)


def cartpole_rejax(steps: int) -> None:
    """The same by rejax, evaluated only before and after."""
    import jax
    from rejax import get_algo

    algo = get_algo("ppo").create(
        env="CartPole-v1", total_timesteps=steps, eval_freq=steps, num_envs=64, num_steps=128, num_epochs=4,
        num_minibatches=4, skip_initial_evaluation=True,
        agent_kwargs={"hidden_layer_sizes": (64, 64), "activation": "tanh"},
    ).replace(eval_callback=lambda *given: ())  # fmt: skip
    train = jax.jit(algo.train)
    for seed in (0, 1):
        begun = clock()
        jax.block_until_ready(train(jax.random.PRNGKey(seed)))
    report(steps, begun)


def frontier_compiled(steps: int, seeds: int = 10) -> None:
    """The frontier by one program; the first line is what compiling took, with the first call of it."""
    from vpac.deep import VPACPPO

    env = portfolio()
    begun = clock()
    VPACPPO(env, psi=0.0, gamma=1.0).learn(1)
    report(0, begun)
    begun = clock()
    VPACPPO.learn_many(env, steps, seeds=range(seeds), psi=PRICES, gamma=1.0)
    report(steps * seeds * len(PRICES), begun)


def frontier_again(steps: int) -> None:
    """What compiling takes in a second process, which finds it in the cache."""
    from vpac.deep import VPACPPO

    env = portfolio()
    begun = clock()
    VPACPPO(env, psi=0.0, gamma=1.0).learn(1)
    report(0, begun)


def portfolio() -> Any:
    """The JAX version of the portfolio."""
    from vpac.envs.jax_worlds import jax_version

    sys.path.insert(0, str(HERE.parents[1] / "examples"))
    return jax_version("portfolio:Portfolio")


def frontier_host(steps: int) -> None:
    """Two runs of it as it was before, compiled before they are timed."""
    from vpac.deep import VPACPPO

    sys.path.insert(0, str(HERE.parents[1] / "examples"))
    VPACPPO("portfolio:Portfolio", psi=0.0, gamma=1.0).learn(1)
    for seed in (1, 2):
        begun = clock()
        VPACPPO("portfolio:Portfolio", gamma=1.0, psi=0.02, seed=seed).learn(steps)
        report(steps, begun)


PARTS = {f.__name__: f for f in (cartpole_vpac, cartpole_rejax, frontier_compiled, frontier_again, frontier_host)}


def run(part: str, steps: int, path: str | None = None, **more: str) -> list[dict[str, Any]]:
    """A part in a process of its own."""
    here = [str(HERE.parents[1] / "src"), *([path] if path else [])]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(here)} | more
    command = [sys.executable, str(HERE), "--part", part, "--steps", str(steps)]
    found = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if found.returncode:
        sys.exit(f"{part} failed: {found.stderr[-2000:]}")
    return [json.loads(line) for line in found.stdout.splitlines() if line.startswith("{")]


def compared(rejax: str, gymnax: str | None, steps: int, rounds: int) -> bool:
    """Print the ratio to rejax; returns whether it is at least 1.2."""
    ratios = []
    for _ in range(rounds):
        ours, theirs = run("cartpole_vpac", steps, gymnax)[-1], run("cartpole_rejax", steps, rejax)[-1]
        speeds = [{key: one["steps"] / one[key] for key in ("wall", "processor")} for one in (ours, theirs)]
        ratios.append([speeds[0][key] / speeds[1][key] for key in ("wall", "processor")])
        print(
            f"CartPole, steps a second: vpac {speeds[0]['wall']:,.0f}, rejax {speeds[1]['wall']:,.0f}; by processor time "
            f"{speeds[0]['processor']:,.0f} and {speeds[1]['processor']:,.0f}", flush=True,
        )  # fmt: skip
    wall, processor = (statistics.median(column) for column in zip(*ratios, strict=True))
    print(f"CartPole: {wall:.2f} × rejax by the clock, {processor:.2f} × by processor time (bar 1.2)")
    return wall >= 1.2


def main() -> int:
    """Measure and judge."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--part", choices=list(PARTS), help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, default=100_000, help="of each run")
    parser.add_argument("--only", choices=["cartpole", "frontier"], help="one of the two")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rejax", metavar="FOLDER", help="where rejax is installed")
    parser.add_argument("--gymnax", metavar="FOLDER", help="where gymnax 1.x is, if not in this environment")
    asked = parser.parse_args()
    if asked.part:
        PARTS[asked.part](asked.steps)
        return 0
    kept = []
    if asked.rejax and asked.only != "frontier":
        kept.append(compared(asked.rejax, asked.gymnax, max(asked.steps, 8192 * 40), asked.rounds))
    if asked.only != "cartpole":
        kept.append(priced(asked.steps))
    return 0 if all(kept) else 1


def priced(steps: int) -> bool:
    """Print what the frontier takes; returns whether it keeps its bars."""
    with tempfile.TemporaryDirectory() as cache:
        before = run("frontier_host", steps)
        compiling, frontier = run("frontier_compiled", steps, JAX_COMPILATION_CACHE_DIR=cache)
        (cached,) = run("frontier_again", steps, JAX_COMPILATION_CACHE_DIR=cache)
    host = {key: statistics.mean(one[key] for one in before) for key in ("wall", "processor")}
    runs = frontier["steps"] // steps
    ratio, work = (host[key] * runs / (frontier[key] + compiling[key]) for key in ("wall", "processor"))
    after = host["wall"] * runs / frontier["wall"]
    print(
        f"portfolio: compiling {compiling['wall']:.1f} s, {compiling['processor']:.1f} s of processor time (bar 15); in a "
        f"second process {cached['wall']:.1f} s, {cached['processor']:.1f} s"
    )
    print(
        f"portfolio, {runs} runs of {steps:,} steps: {frontier['wall']:.0f} s compiled, {host['wall']:.1f} s for one run "
        f"before: {ratio:.1f} × one run after the other, with compiling (bar 10); {after:.1f} × without, "
        f"{work:.1f} × by processor time"
    )
    return ratio >= 10.0 and compiling["processor"] <= 15.0


if __name__ == "__main__":
    sys.exit(main())
