"""Does our PPO learn as much as Stable-Baselines3's? Final scores at the same hyper-parameters, several seeds each.

Both: networks 64-64 with tanh, separate for policy and value, orthogonal initialisation, Adam with ε = 1e-5 and a constant
step, advantages normalised, the value not clipped, gradients clipped at 0.5, observations and rewards normalised, Gymnasium's
environments, the same steps, environments, epochs and minibatches. Afterwards 20 episodes of the most likely action, from the
same starts for both. What still differs, because each library does it so:

- SB3 adds the two losses, the value's times 0.5, clips their gradient as one and takes one Adam step; ours clips and steps
  each network for itself. Adam does not mind the factor; the clipping does.
- SB3 normalises advantages in each minibatch, ours in each iteration.
- SB3's VecNormalize moves with every step; ours stays for an iteration, and begins after the first. Neither clips rewards.
- SB3's environments begin the next episode within the step that ends one; ours spend a step on it, which counts.

A run is kept as a small file, so that an interrupted study goes on where it was, and the table can be printed again.

    pip install 'vpac[deep,mujoco,bench]'
    python benchmarks/parity.py [--seeds 5] [--jobs 2] [--only Pendulum-v1] [--steps 500000] [--out DIR]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from contestant import installed
from vpac.files import write_text
from vpac.risk import difference_of_means, mean_interval

SETTINGS: dict[str, dict[str, Any]] = {
    "Pendulum-v1": {"envs": 4, "steps": 1024, "epochs": 10, "minibatch": 256, "rate": 1e-3, "gamma": 0.9},
    "Hopper-v5": {"envs": 8, "steps": 256, "epochs": 10, "minibatch": 256, "rate": 3e-4, "gamma": 0.99},
}
LIBRARIES = {"ours": "vpac", "SB3": "stable-baselines3"}
STEPS, SEEDS, EPISODES, FIRST_START = 500_000, 5, 20, 10_000
NEEDED = ("jax", "mujoco", "torch", "stable-baselines3")

Act = Callable[[Any], Any]
"""The most likely action for one observation."""


class Job(NamedTuple):
    """One run."""

    env: str
    library: str
    seed: int
    steps: int

    def path(self, folder: Path) -> Path:
        """The file of its result."""
        return folder / f"{self.env}-{self.library}-{self.seed}.json"

    def found(self, folder: Path) -> dict[str, Any] | None:
        """Its result, if it has one from these settings."""
        try:
            result: dict[str, Any] = json.loads(self.path(folder).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        same = result.get("settings") == SETTINGS[self.env] and result.get("steps") == self.steps
        return result if same else None


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--only", choices=list(SETTINGS), help="one environment")
    parser.add_argument("--steps", type=int, default=STEPS, help="environment steps of a run")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="runs of each library on each environment")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("parity"), help="folder of the results")
    arguments = parser.parse_args()
    envs = list(SETTINGS) if arguments.only is None else [arguments.only]
    jobs = [Job(e, who, s, arguments.steps) for s in range(arguments.seeds) for e in envs for who in LIBRARIES]
    left = [job for job in jobs if job.found(arguments.out) is None]
    if left:
        missing = [name for name in NEEDED if not installed(name)]
        if missing:
            print(f"{', '.join(missing)} not installed: pip install 'vpac[deep,mujoco,bench]'")
            return 1
        carry_out(left, arguments.out, arguments.jobs)
    return 0 if show(envs, jobs, arguments.out) else 1


def carry_out(left: list[Job], folder: Path, workers: int) -> None:
    """Each run in a process of its own."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, max_tasks_per_child=1) as pool:
        underway = {pool.submit(run, job): job for job in left}
        for number, done in enumerate(as_completed(underway), 1):
            job, result = underway[done], done.result()
            write_text(job.path(folder), json.dumps(result, indent=1) + "\n")
            what = f"{job.env} {job.library} seed {job.seed}: {np.mean(result['scores']):.1f}"
            print(f"[{number} of {len(left)}] {what}, {result['seconds']:.0f} s", file=sys.stderr)


def run(job: Job) -> dict[str, Any]:
    """Learn, then play."""
    warnings.filterwarnings("ignore")
    began = time.perf_counter()
    act = (ours if job.library == "ours" else theirs)(job, **SETTINGS[job.env])
    seconds = time.perf_counter() - began
    return {
        **job._asdict(),
        "version": version(LIBRARIES[job.library]),
        "settings": SETTINGS[job.env],
        "seconds": round(seconds, 1),
        "scores": [round(score, 3) for score in play(act, job.env)],
    }


def ours(job: Job, *, envs: int, steps: int, epochs: int, minibatch: int, rate: float, gamma: float) -> Act:
    """Our PPO, every setting that matters spelled out."""
    from vpac.deep import PPO

    agent = PPO(
        job.env, seed=job.seed, backend="gymnasium", envs=envs, steps=steps, epochs=epochs, minibatch=minibatch,
        learning_rate=rate, decay_learning_rate=False, gamma=gamma, gae_lambda=0.95, clip=0.2, entropy=0.0,
        target_kl=None, max_grad_norm=0.5, critic_max_grad_norm=0.5, adam_eps=1e-5, hidden=(64, 64), activation="tanh",
        initialisation="orthogonal", log_std=0.0, normalise_observations=True, reward_scale=None,
        normalise_advantages=True, checkpoint_every=10**9,
    )  # fmt: skip
    return agent.learn(job.steps).policy()


def theirs(job: Job, *, envs: int, steps: int, epochs: int, minibatch: int, rate: float, gamma: float) -> Act:
    """SB3's PPO with the same."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    torch.set_num_threads(1)
    makers: list[Any] = [lambda: gymnasium.make(job.env)] * envs
    venv = VecNormalize(DummyVecEnv(makers), clip_obs=10.0, clip_reward=np.inf, gamma=gamma)
    model = PPO(
        "MlpPolicy", venv, seed=job.seed, n_steps=steps, n_epochs=epochs, batch_size=minibatch, learning_rate=rate,
        gamma=gamma, gae_lambda=0.95, clip_range=0.2, clip_range_vf=None, ent_coef=0.0, vf_coef=0.5, target_kl=None,
        max_grad_norm=0.5, normalize_advantage=True, device="cpu",
        policy_kwargs={"net_arch": {"pi": [64, 64], "vf": [64, 64]}, "activation_fn": torch.nn.Tanh, "ortho_init": True},
    )  # fmt: skip
    model.learn(job.steps)
    venv.training = False
    return lambda seen: model.predict(venv.normalize_obs(seen), deterministic=True)[0]


def play(act: Act, name: str) -> list[float]:
    """Undiscounted scores of episodes whose starts are the same for every policy."""
    env, scores = gymnasium.make(name), []
    for episode in range(EPISODES):
        (seen, _), score, over = env.reset(seed=FIRST_START + episode), 0.0, False
        while not over:
            seen, reward, terminated, truncated, _ = env.step(act(seen))
            score, over = score + float(reward), terminated or truncated
        scores.append(score)
    return scores


def show(envs: list[str], jobs: list[Job], folder: Path) -> bool:
    """Print the table; true if ours is as good everywhere: its interval reaches the other's, or lies above it."""
    every = True
    print("| environment | steps | seeds | vpac PPO | Stable-Baselines3 PPO | difference | verdict |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for env in envs:
        sample: dict[str, list[float]] = {library: [] for library in LIBRARIES}
        for job in jobs:
            result = job.found(folder) if job.env == env else None
            if result is not None:
                sample[job.library].append(float(np.mean(result["scores"])))
        mine, other = (mean_interval(sample[library]) for library in LIBRARIES)
        apart = difference_of_means(sample["ours"], sample["SB3"])
        good = mine.high >= other.low
        verdict = (
            "better" if mine.low > other.high else "on par" if good else "undecided" if np.isnan(mine.high) else "WORSE"
        )
        every = every and good
        cells = [f"{x.estimate:.0f} ({x.low:.0f} … {x.high:.0f})" for x in (mine, other, apart)]
        steps, seeds = f"{jobs[0].steps:,}".replace(",", " "), len(sample["ours"])
        print(f"| {env} | {steps} | {seeds} | {cells[0]} | {cells[1]} | {cells[2]} | {verdict} |")
    print()
    print(f"Mean score of {EPISODES} episodes after learning, its mean over seeds with a 95 % interval.")
    return every


if __name__ == "__main__":
    sys.exit(main())
