"""Training of the PPO family with checkpoints: as a stored run, whose final policy is measured, and for `vpac train`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vpac import algorithms
from vpac.envs.check import skip_checks
from vpac.errors import UserError
from vpac.evaluation.play import Played, play_policy
from vpac.files import hold, jsonable
from vpac.interruption import stop_if_asked, until_checkpoint
from vpac.lab.kinds.saved_agents import CHECKPOINTS, check_unused, remove_training
from vpac.lab.kinds.task import task_recipe, training_run
from vpac.lab.store.backend import Scratch
from vpac.lab.store.run import LEARNER, Run, canonical
from vpac.lab.store.store import Result
from vpac.risk import metrics as risk
from vpac.typing import FloatArray

if TYPE_CHECKING:
    from vpac.deep.ppo import PPO

FIXED_EPISODES = 100
"""Episodes of the paper's evaluation, all from the same start, so that only the policy's own noise remains."""
CURVE_ROWS = 1000
"""Stored rows of the curve of a long run."""
PLAYERS = 64
"""Environments in which evaluation episodes are played."""


def perform(run: Run, scratch: Scratch) -> Result:
    """Train, then play `episodes` episodes with random starts, and the paper's with one start, if it can be fixed."""
    agent, damaged = _agent(run.task, run.seed, scratch.folder)
    _learn(agent, run.task["steps"], scratch)
    agent.environments.close()
    return _measured(agent, run.task, damaged)


def _learn(agent: PPO, steps: int, scratch: Scratch, message: str = "", callback: Any = None) -> None:
    """Learn, with checkpoints; after a signal, which prints `message`, continue to the next one."""

    def kept() -> None:
        scratch.keep()
        stop_if_asked()

    with until_checkpoint(message):
        resuming = agent.timesteps > agent.span[0]
        agent.learn(steps, callback=callback, checkpoints=scratch.folder, resuming=resuming, kept=kept)


def perform_side_by_side(runs: Sequence[Run], scratches: Sequence[Scratch]) -> Iterator[Callable[[], Result]]:
    """Train a batch of runs of one program (`task.program_of`), at most `Layout.most`; each callable then measures a policy.

    Runs with the same number of steps learn together: after an interruption some may have a later checkpoint than others.
    """
    from vpac.deep.compiled import Layout, learn_batch

    with skip_checks():
        found = [_agent(run.task, run.seed, scratch.folder) for run, scratch in zip(runs, scratches, strict=True)]
    for timesteps in sorted({agent.timesteps for agent, _ in found}):
        group = [i for i, (agent, _) in enumerate(found) if agent.timesteps == timesteps]
        for i in group:
            found[i][0].begin(runs[i].task["steps"], resuming=timesteps > 0)

        def checkpoint(which: int, group: list[int] = group) -> None:
            i = group[which]
            found[i][0].checkpoint(scratches[i].folder, scratches[i].keep)
            if i == group[-1]:
                stop_if_asked()

        with until_checkpoint():
            learn_batch([found[i][0] for i in group], Layout.of(), checkpoint)
    for run, (agent, damaged) in zip(runs, found, strict=True):
        yield partial(_after_training, agent, run.task, damaged)


def _after_training(agent: PPO, task: dict[str, Any], damaged: tuple[str, ...]) -> Result:
    """The result of an agent that has learned in a batch, in which it may have diverged."""
    if agent.diverged is not None:
        raise agent.diverged
    return _measured(agent, task, damaged)


def _measured(agent: PPO, task: dict[str, Any], damaged: tuple[str, ...]) -> Result:
    """The result of a trained agent."""
    final, samples = measure(agent, task) if task["episodes"] else (_recent(agent), {})
    policy = agent.policy()
    arrays: dict[str, Any] = dict(policy.arrays())
    arrays |= {"strides": np.array(policy.strides)} if policy.kernels else {}
    arrays |= {"masked": np.array(1)} if policy.interface.masked else {}
    return Result(curve(agent), arrays | samples, final, damaged)


def trained(agent: PPO) -> tuple[Run, Result]:
    """`vpac train` as a run, whose policy is not measured after training, and its result."""
    run = training_run(agent, agent.environments, 0, learner=LEARNER, steps=agent.timesteps, episodes=0, fixed_start={})
    return run, _measured(agent, run.task, ())


def _recent(agent: PPO) -> dict[str, float | None]:
    """The metrics of the last iteration; mean and variance are those of the scores of recent episodes."""
    last: dict[str, float | None] = jsonable(agent.history[-1])
    return {"mean": last["score_mean"], "variance": last["score_variance"], **last}


def _agent(task: dict[str, Any], seed: int, folder: Path) -> tuple[PPO, tuple[str, ...]]:
    """The agent of the last valid checkpoint, or a new one, and the errors of damaged ones.

    The task names the environment: a checkpoint that names another is rejected.
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
    """The metrics of the iterations, at most `CURVE_ROWS` of them."""
    rows = agent.history
    chosen = np.unique(np.linspace(0, len(rows) - 1, min(CURVE_ROWS, len(rows))).round().astype(int))
    return {name: np.array([rows[i].get(name, np.nan) for i in chosen]) for name in rows[-1]}


def measure(agent: PPO, task: dict[str, Any]) -> tuple[dict[str, float | None], dict[str, Any]]:
    """Final numbers by name, and the samples behind them."""
    from vpac.envs.vector import environments, remembering

    env, arguments = task_recipe(task).parts()
    if agent.memory is not None:
        env, given, _ = remembering(env, arguments, PLAYERS, agent.variance_gamma)
        arguments = given or {}
    starts, fixed = np.random.SeedSequence(agent.seed, spawn_key=(1000,)).spawn(2)
    envs = environments(env, PLAYERS, "auto", arguments, agent.interface.masked)
    played = play_policy(agent.policy(), envs, task["episodes"], starts, agent.options.gamma)
    envs.close()
    final = _numbers(played)
    samples: dict[str, Any] = {"scores": played.scores, "returns": played.returns, "lengths": played.lengths}
    if task["fixed_start"]:
        envs = environments(env, PLAYERS, "auto", {**arguments, **task["fixed_start"]}, agent.interface.masked)
        again = play_policy(agent.policy(), envs, FIXED_EPISODES, fixed, agent.options.gamma)
        envs.close()
        final |= {"fixed_mean": float(again.scores.mean()), "fixed_variance": _variance(again.scores)}
        final |= {"fixed_discounted_variance": _variance(again.returns)}
        samples |= {"fixed_scores": again.scores, "fixed_returns": again.returns}
    return final, samples


def _variance(sample: FloatArray) -> float | None:
    """Variance of a sample; None: a single episode has none."""
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


def resumed(kind: type[PPO], env: Any, folder: Path, settings: dict[str, Any], remark: Callable[[str], object]) -> PPO:
    """The agent of the last valid checkpoint of `vpac train`; settings that are given again must be the same."""
    from vpac.deep.checkpoint import latest_checkpoint
    from vpac.deep.options import PPOOptions

    agent, damaged = latest_checkpoint(kind, folder / CHECKPOINTS, env) or (None, [])
    if agent is None:
        why = f"can be read: {'; '.join(damaged)}" if damaged else "is there to go on from"
        raise UserError(f"no checkpoint in {folder / CHECKPOINTS} {why}: without --resume it starts from the beginning")
    for words in damaged:
        remark(f"passed over a damaged checkpoint: {words}")
    given = {name: value for name, value in settings.items() if name != "preset"}
    meant, own = PPOOptions.read(given, "default").as_dict(), agent.options.as_dict()
    pairs = {name: (meant[name], own[name]) for name in given}
    pairs |= {"preset": (settings["preset"], agent.preset)} if "preset" in settings else {}
    for name, (theirs, ours) in pairs.items():
        if not _same(theirs, ours):
            raise UserError(
                f"{folder} was started with {name} = {ours} and must continue with it: leave out {name} = {theirs}"
            )
    return agent


def _same(one: Any, other: Any) -> bool:
    """Whether values are equal, or the same number: ψ may be stored as text."""
    try:
        return bool(one == other) or float(one) == float(other)
    except (TypeError, ValueError):
        return False


def learn(
    agent: PPO, steps: int, folder: Path, remark: Callable[[str], object], *, quiet: bool, overwrite: bool = False,
    trackers: Sequence[str] = (),
) -> None:  # fmt: skip
    """Learn in a folder of `vpac train`, with checkpoints, records and a display.

    `steps` include those before the checkpoint; `trackers` are names of experiment trackers (`vpac.deep.trackers`).
    """
    from vpac.deep.checkpoint import has_checkpoint
    from vpac.deep.logs import JsonLines, ProgressDisplay, TensorBoard
    from vpac.deep.trackers import track
    from vpac.envs.vector import misses_envpool

    already = agent.timesteps - agent.span[0]
    with ExitStack() as stack:
        stack.enter_context(hold(folder))
        if already == 0:
            check_unused(folder, overwrite)  # another process may have written there meanwhile
            if overwrite:
                remove_training(folder)
        logs: list[Any] = [stack.enter_context(closing(JsonLines(folder / "metrics.jsonl", agent)))]
        try:
            logs.append(stack.enter_context(closing(TensorBoard(folder / "tensorboard", agent))))
        except ModuleNotFoundError:
            remark("no TensorBoard files: pip install 'vpac[tensorboard]'")
        except UnicodeEncodeError:
            remark("no TensorBoard files: TensorBoard cannot write into a folder whose name is not UTF-8")
        logs += [stack.enter_context(closing(track(name, agent, folder))) for name in trackers]
        if misses_envpool(agent.environments):
            remark("EnvPool steps MuJoCo tasks many times as fast: pip install 'vpac[envpool]'")

        def write(agent: PPO) -> None:
            for log in logs:
                log(agent)

        display = write if quiet else stack.enter_context(ProgressDisplay(agent, steps, write, already))
        try:
            words = "vpac: stopping at the next checkpoint; Ctrl-C stops at once"
            _learn(agent, steps, Scratch(folder / CHECKPOINTS), words, display)
        except KeyboardInterrupt:
            advice = "There is no checkpoint yet: the same command starts from the beginning"
            if has_checkpoint(folder / CHECKPOINTS):
                advice = f"To go on: the same command with --resume {folder}"
            remark(f"stopped after {agent.timesteps:,} steps. {advice}")
            raise
