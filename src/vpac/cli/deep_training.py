"""`vpac train` for the PPO family."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vpac.errors import UserError
from vpac.interruption import patient, stop_if_asked

if TYPE_CHECKING:
    from vpac.deep.ppo import PPO

__all__ = ["DEFAULT_STEPS", "resume", "train"]

DEFAULT_STEPS = 1_000_000
CHECKPOINTS = "checkpoints"


def train(
    kind: type[PPO], env: Any, steps: int | None, seed: int, folder: Path, quiet: bool, settings: dict[str, Any]
) -> int:
    """Train from the beginning; a folder that holds a run already is not written over."""
    _refuse_run(folder)
    if steps is not None and steps < 1:
        raise UserError(f"--steps must be a whole number from 1 up, got {steps}")
    agent = kind(env, seed=seed, **settings)
    return _learn(agent, env, DEFAULT_STEPS if steps is None else steps, folder, quiet)


def resume(
    kind: type[PPO],
    env: Any,
    folder: Path,
    out: Path | None,
    steps: int | None,
    quiet: bool,
    settings: dict[str, Any],
) -> int:
    """Go on from a run's last checkpoint to its end, or to a later one; settings that are given again must be its own."""
    from vpac.cli.output import say
    from vpac.deep.storage import latest_checkpoint

    found = latest_checkpoint(kind, folder / CHECKPOINTS, env)
    if found is None:
        raise UserError(
            f"there is no checkpoint in {folder / CHECKPOINTS} to go on from: without --resume it begins anew"
        )
    agent, damaged = found
    if agent is None:
        raise UserError(
            f"no checkpoint in {folder / CHECKPOINTS} can be read: {'; '.join(damaged)}; without --resume, and with another "
            "--out, it begins anew"
        )
    for words in damaged:
        say(f"passed over a damaged checkpoint: {words}", quiet=True)
    if out is not None and out != folder:
        raise UserError(f"--resume {folder} goes on in that folder: leave out --out {out}")
    _refuse_others(agent, settings, folder)
    begin, end = agent.span
    return _learn(agent, env, end - begin if steps is None else steps, folder, quiet)


def _refuse_others(agent: PPO, settings: dict[str, Any], folder: Path) -> None:
    """A run goes on as it began: what is given again must mean the same."""
    from vpac.deep.options import Options

    asked = {name: value for name, value in settings.items() if name != "preset"}
    meant, own = Options.read(asked, "default").as_dict(), agent.options.as_dict()
    pairs = {name: (meant[name], own[name]) for name in asked}
    if "preset" in settings:
        pairs["preset"] = (settings["preset"], agent.preset)
    for name, (theirs, ours) in pairs.items():
        if not _same(theirs, ours):
            raise UserError(
                f"{folder} was begun with {name} = {ours}, and goes on with it: leave out {name} = {theirs}"
            )


def _same(one: Any, other: Any) -> bool:
    """Equal, or the same number: a price of variance may be kept as text."""
    try:
        return bool(one == other) or float(one) == float(other)
    except (TypeError, ValueError):
        return False


def _refuse_run(folder: Path) -> None:
    from vpac.deep.storage import has_checkpoint

    if has_checkpoint(folder / CHECKPOINTS):
        raise UserError(f"{folder} holds a run already: go on with --resume {folder}, or choose another --out")


def _advice(folder: Path) -> str:
    """How to go on."""
    from vpac.deep.storage import has_checkpoint

    if has_checkpoint(folder / CHECKPOINTS):
        return f"To go on: the same command with --resume {folder}"
    return "There is no checkpoint yet: the same command begins anew"


def _learn(agent: PPO, env: Any, steps: int, folder: Path, quiet: bool) -> int:
    """Learn, with records and a display; then save, draw and show."""
    from vpac.cli.output import say, show
    from vpac.deep.logs import Display, JsonLines, TensorBoard
    from vpac.deep.vector import misses_envpool
    from vpac.files import hold
    from vpac.lab.report import deep_training as report

    already = agent.timesteps - agent.span[0]
    with ExitStack() as stack:
        stack.enter_context(hold(folder))
        if already == 0:
            _refuse_run(folder)  # another process may have been quicker
        watchers: list[Callable[[PPO], Any]] = [
            stack.enter_context(closing(JsonLines(folder / "metrics.jsonl", agent)))
        ]
        try:
            watchers.append(stack.enter_context(closing(TensorBoard(folder / "tensorboard", agent))))
        except ModuleNotFoundError:
            say("no TensorBoard files: pip install 'vpac[tensorboard]'", quiet=True)
        if misses_envpool(agent.environments):
            say("EnvPool steps MuJoCo tasks many times as fast: pip install 'vpac[envpool]'", quiet=True)

        def watch(agent: PPO) -> None:
            for watcher in watchers:
                watcher(agent)

        display = watch if quiet else stack.enter_context(Display(agent, steps, watch, already))
        try:
            with patient("vpac: stopping at the next checkpoint; Ctrl-C stops at once"):
                agent.learn(
                    steps, callback=display, checkpoints=folder / CHECKPOINTS, resuming=already > 0, kept=stop_if_asked
                )
        except KeyboardInterrupt:
            say(f"stopped after {agent.timesteps:,} steps. {_advice(folder)}", quiet=True)
            raise
    agent.save(folder)
    report.write(agent, folder)
    held = None
    if agent.holder is not None:
        from vpac.evaluation.measure import budget_report

        held = budget_report(agent, env, seed=int(np.random.SeedSequence([agent.seed, 2]).generate_state(1)[0]))
    show(report.as_dict(agent, held) if quiet else None, report.table(agent))
    if held is not None:
        say(held.words, quiet=quiet)
    say(f"wrote {folder}", quiet=quiet)
    return 0
