"""A run of the PPO family: it learns, and its last policy is measured in the paper's way and in an honest one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vpac import algorithms
from vpac.evaluation.play import Played, play_policy
from vpac.interruption import stop_if_asked, until_checkpoint
from vpac.lab.kinds.task import task_recipe
from vpac.lab.store.backend import Scratch
from vpac.lab.store.run import Run, canonical
from vpac.lab.store.store import Result
from vpac.risk import metrics as risk
from vpac.typing import FloatArray

if TYPE_CHECKING:
    from vpac.deep.ppo import PPO

FIXED_EPISODES = 100
"""Episodes of the paper's evaluation: every one from the same start, so that only the policy's own noise is left."""
ROWS = 1000
"""Rows of the curve that are stored of a long run."""
PLAYERS = 64
"""Environments that evaluation episodes are played in."""


def perform(run: Run, scratch: Scratch) -> Result:
    """Train, then play `episodes` episodes with starts drawn anew, and the paper's with one start, if it can be fixed.

    Args:
        run: the task and its seed.
        scratch: for checkpoints; with one in it, the run goes on from there.
    """
    task = run.task
    agent, damaged = _agent(task, run.seed, scratch.folder)

    def kept() -> None:
        scratch.keep()
        stop_if_asked()

    with until_checkpoint():
        agent.learn(task["steps"], checkpoints=scratch.folder, resuming=agent.timesteps > 0, kept=kept)
    agent.environments.close()
    final, samples = measure(agent, task)
    policy = agent.policy()
    arrays: dict[str, Any] = {f"weight.{i}": W for i, W in enumerate(policy.weights)}
    arrays |= {f"bias.{i}": b for i, b in enumerate(policy.biases)} | {"mean": policy.mean, "scale": policy.scale}
    arrays |= {} if policy.log_std is None else {"log_std": policy.log_std}
    return Result(curve(agent), arrays | samples, final, damaged)


def _agent(task: dict[str, Any], seed: int, folder: Path) -> tuple[PPO, tuple[str, ...]]:
    """The agent of the last good checkpoint, or a new one, and what was wrong with those that are not good.

    The task says which environment it is: a checkpoint that names another is not this run's.
    """
    from vpac.deep.checkpoint import latest_checkpoint

    env, arguments = task_recipe(task).parts()
    kind = algorithms.find(task["algorithm"], algorithms.DEEP).load()
    fresh = kind(env, seed=seed, arguments=arguments or None, **task["settings"])
    agent, damaged = latest_checkpoint(kind, folder, fresh.environments) or (None, [])
    if agent is None:
        return fresh, tuple(damaged)
    if agent.seed != fresh.seed or canonical(agent.options.as_dict()) != canonical(fresh.options.as_dict()):
        return fresh, (*damaged, f"the checkpoint in {folder} is that of another run")
    return agent, tuple(damaged)


def curve(agent: PPO) -> dict[str, FloatArray]:
    """The numbers of the iterations, at most `ROWS` of them."""
    rows = agent.history
    chosen = np.unique(np.linspace(0, len(rows) - 1, min(ROWS, len(rows))).round().astype(int))
    return {name: np.array([rows[i].get(name, np.nan) for i in chosen]) for name in rows[-1]}


def measure(agent: PPO, task: dict[str, Any]) -> tuple[dict[str, float | None], dict[str, Any]]:
    """Final numbers by name, and the samples behind them."""
    from vpac.envs.vector import environments, remembering

    env, arguments = task_recipe(task).parts()
    if agent.memory is not None:
        env, given, _ = remembering(env, arguments, PLAYERS, agent.variance_gamma)
        arguments = given or {}
    starts, fixed = np.random.SeedSequence(agent.seed, spawn_key=(1000,)).spawn(2)
    envs = environments(env, PLAYERS, "auto", arguments)
    played = play_policy(agent.policy(), envs, task["episodes"], starts, agent.options.gamma)
    envs.close()
    final = _numbers(played)
    samples: dict[str, Any] = {"scores": played.scores, "returns": played.returns, "lengths": played.lengths}
    if task["fixed_start"]:
        envs = environments(env, PLAYERS, "auto", {**arguments, **task["fixed_start"]})
        again = play_policy(agent.policy(), envs, FIXED_EPISODES, fixed, agent.options.gamma)
        envs.close()
        final |= {"fixed_mean": float(again.scores.mean()), "fixed_variance": _variance(again.scores)}
        final |= {"fixed_discounted_variance": _variance(again.returns)}
        samples |= {"fixed_scores": again.scores, "fixed_returns": again.returns}
    return final, samples


def _variance(sample: FloatArray) -> float | None:
    """None: a single episode has none."""
    return float(sample.var(ddof=1)) if len(sample) > 1 else None


def _numbers(played: Played) -> dict[str, float | None]:
    found: dict[str, float | None] = {"length": float(played.lengths.mean()), "volatility": played.volatility}
    for prefix, sample in (("", played.scores), ("discounted_", played.returns)):
        variance = _variance(sample)
        found |= {
            f"{prefix}mean": float(sample.mean()), f"{prefix}variance": variance,
            f"{prefix}sharpe": float(sample.mean()) / variance**0.5 if variance else None,
            f"{prefix}cvar": float(risk.cvar(sample, 0.1)),
        }  # fmt: skip
    return found
