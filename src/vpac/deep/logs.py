"""What learning leaves for others to read: JSON lines, and TensorBoard files with the tags of Stable-Baselines3."""

from __future__ import annotations

import errno
import json
import math
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from vpac.files import make_folder, unwritable, write_bytes

if TYPE_CHECKING:
    from vpac.deep.ppo import PPO

__all__ = ["LINES", "MOST", "TAGS", "Display", "History", "JsonLines", "TensorBoard", "as_json", "numbers", "spacing"]

TAGS = {
    "rollout/ep_rew_mean": "score_mean",
    "rollout/ep_len_mean": "length_mean",
    "train/approx_kl": "kl",
    "train/clip_fraction": "clip_fraction",
    "train/explained_variance": "explained_variance",
    "train/learning_rate": "learning_rate",
    "train/policy_gradient_loss": "policy_loss",
    "train/value_loss": "value_loss",
    "rollout/ep_rew_variance": "score_variance",
    "rollout/return_mean": "return_mean",
    "rollout/return_variance": "return_variance",
    "variance/psi": "psi",
    "variance/predicted": "predicted_variance",
    "variance/measured": "measured_variance",
    "variance/loss": "spread_loss",
    "variance/objective": "objective",
    "variance/penalty_share": "penalty_share",
    "variance/weight_share": "weight_share",
    "variance/reversed_share": "reversed_share",
    "variance/luck_drift": "luck_drift",
    "variance/start_value": "start_value",
    "variance/start_variance": "start_variance",
}
"""TensorBoard's names of our numbers; those of the first eight are Stable-Baselines3's, as are the ones written below."""


LINES = 8192
"""Lines of a file that are kept, some 6 MB; there are at least half as many once there were so many iterations."""


def as_json(row: dict[str, float]) -> str:
    """A row as one line of JSON; what is not known yet is null."""
    return json.dumps({name: value if math.isfinite(value) else None for name, value in row.items()}, allow_nan=False)


def spacing(iteration: int) -> int:
    """Iterations from one that is written down to the next when this one is the last: 1 for the first `LINES`, then 2, 4, …

    It depends on nothing else, so that a run that was stopped leaves what one that was not does.
    """
    every = 1
    while iteration > LINES * every:
        every *= 2
    return every


class JsonLines:
    """A line for each iteration, also of a resumed run, at most `LINES`: whenever there would be more, every second one goes.

    What an agent remembers is written first; where it does not remember every iteration, the lines up to its last one stay.
    """

    def __init__(self, path: Path, agent: PPO) -> None:
        self._path = path
        kept = [f"{as_json(row)}\n".encode() for row in agent.history]
        if agent.history.every > 1:
            every, found = spacing(agent.iteration), self._lines(agent)
            whole = any(list(found) == list(range(step, agent.iteration + 1, step)) for step in (every, 2 * every))
            kept = list(found.values()) if whole else kept
        self._replace(kept)

    def __call__(self, agent: PPO) -> None:
        """An iteration has ended."""
        every = spacing(agent.iteration)
        if every > spacing(agent.iteration - 1):
            self._file.close()
            self._replace(list(self._lines(agent).values()))
        if agent.iteration % every:
            return
        line = f"{as_json(agent.history[-1])}\n".encode()
        before = self._file.tell()
        try:
            if self._file.write(line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            with suppress(OSError):
                self._file.truncate(before)  # no half line
            raise unwritable(self._path, error, len(line)) from None

    def close(self) -> None:
        """No more."""
        self._file.close()

    def _replace(self, lines: list[bytes]) -> None:
        write_bytes(self._path, b"".join(lines))
        self._file = os.fdopen(_own(self._path, os.O_WRONLY | os.O_APPEND), "ab", buffering=0)

    def _lines(self, agent: PPO) -> dict[int, bytes]:
        """Lines that are in the file and may stay, by their iteration: none after an agent's last one, and `spacing` apart."""
        every, found = spacing(agent.iteration), {}
        with (
            suppress(OSError, ValueError, TypeError, KeyError, OverflowError),
            open(self._path, "rb", opener=_own) as file,
        ):
            for line in file:
                iteration = round(json.loads(line)["timesteps"] * agent.iteration / agent.timesteps)
                if iteration <= agent.iteration and iteration % every == 0:
                    found[iteration] = line
        return found


def _own(path: Path | str, flags: int) -> int:
    """Open a file and nothing else: a link may lead anywhere, and at a pipe one would wait."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


class TensorBoard:
    """Files for TensorBoard; needs the extra `tensorboard`.

    What is written stays. Of a long run fewer and fewer iterations are written, by `spacing`: each time that its length doubles
    adds half of `LINES`.
    """

    def __init__(self, folder: Path, agent: PPO) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        make_folder(folder)
        self._folder, self._writer = folder, EventFileWriter(str(folder))
        if agent.timesteps:  # what a run that was killed wrote after its checkpoint no longer counts
            begun = SessionLog(status=SessionLog.START)
            self._writer.add_event(Event(wall_time=time.time(), step=agent.timesteps + 1, session_log=begun))
        self._last = (time.monotonic(), agent.timesteps)

    def __call__(self, agent: PPO) -> None:
        """An iteration has ended."""
        if agent.iteration % spacing(agent.iteration):
            return
        row, now = agent.history[-1], time.monotonic()
        before, steps = self._last
        self._last = (now, agent.timesteps)
        numbers: dict[str, Any] = {tag: row[name] for tag, name in TAGS.items() if name in row}
        numbers |= {
            "time/fps": (agent.timesteps - steps) / max(now - before, 1e-9),
            "time/iterations": agent.iteration,
            "time/total_timesteps": agent.timesteps,
            "train/n_updates": agent.iteration * agent.options.epochs,
            "train/clip_range": agent.options.clip,
            "train/entropy_loss": -row["entropy"],
            "train/loss": row["policy_loss"] + row["value_loss"],
        }
        if "std" in row:
            numbers["train/std"] = row["std"]
        self._write({tag: float(value) for tag, value in numbers.items() if math.isfinite(value)}, agent.timesteps)

    def _write(self, numbers: dict[str, float], step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in numbers.items()]
        try:
            self._writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))
        except OSError as error:
            raise unwritable(self._folder, error) from None

    def close(self) -> None:
        """Write what is left."""
        try:
            self._writer.close()
        except OSError as error:
            raise unwritable(self._folder, error) from None


MOST = 4096
"""Rows that are kept; there are at least half as many once there were so many iterations."""


class History(list[dict[str, float]]):
    """A row of numbers for each iteration, at most `MOST`: whenever there are more, every second one goes.

    So memory and checkpoints stay small however long a run is. Which rows are left depends on nothing but the number of
    iterations. The last row is always that of the last iteration.
    """

    every: int = 1
    """Iterations from one row to the next, but for the last."""
    last: int = 0
    """Number of the iteration that the last row is of."""

    @classmethod
    def read(cls, rows: Iterable[dict[str, float]], every: int, last: int) -> Self:
        """As it was stored."""
        if every < 1:
            raise ValueError(f"rows of every {every} iterations")
        found = cls(rows)
        found.every, found.last = every, last
        return found

    def add(self, iteration: int, row: dict[str, float]) -> None:
        """The numbers of the next iteration; the first one is number 1."""
        if self and self.last % self.every:
            self.pop()
        self.append(row)
        self.last = iteration
        if len(self) > MOST:
            self[:-1] = self[1:-1:2]
            self.every *= 2


def numbers(agent: PPO) -> dict[str, str]:
    """What people look at while an agent learns."""
    row = agent.history[-1]
    found = {
        "score": f"{row['score_mean']:.4g} (variance {row['score_variance']:.3g})",
        "return": f"{row['return_mean']:.4g} (variance {row['return_variance']:.3g})",
        "KL": f"{row['kl']:.2g}",
    }
    if "measured_variance" in row:
        found |= {"ψ": f"{row['psi']:.3g}"}
        if "objective" in row:
            found["U"] = f"{row['objective']:.4g}"
        found["penalty ÷ advantage"] = f"{row['penalty_share']:.2g}"
        found |= {"predicted ÷ measured": f"{row['predicted_variance'] / max(row['measured_variance'], 1e-30):.2f}"}
    return found


class Display:
    """A bar with steps per second and the time left, and below it the numbers of recent episodes.

    It is a callback of `learn`, and passes on to another.

    Args:
        agent: that learns.
        steps: how many it will take.
        callback: called as well.
        already: how many of them were taken before it began.
    """

    def __init__(
        self, agent: PPO, steps: int, callback: Callable[[Any], bool | None] | None = None, already: int = 0
    ) -> None:
        from rich.console import Console, Group
        from rich.live import Live
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
        from rich.text import Text

        self._progress = Progress(
            TextColumn("{task.completed:,.0f} of {task.total:,.0f} steps"), BarColumn(20), TextColumn("{task.fields[speed]}"),
            TimeRemainingColumn(),
        )  # fmt: skip
        self._text = Text()
        self._live = Live(Group(self._progress, self._text), console=Console(stderr=True), refresh_per_second=4)
        self._callback, self._begin = callback, agent.timesteps - already
        self._task = self._progress.add_task("", total=steps, completed=already, speed="compiling")
        self._last = (time.monotonic(), agent.timesteps)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *reason: Any) -> None:
        self._live.__exit__(*reason)
        if not self._live.console.is_terminal:  # where nothing moves the last line has no end
            self._live.console.print()

    def __call__(self, agent: PPO) -> bool | None:
        """An iteration has ended."""
        now, (before, steps) = time.monotonic(), self._last
        self._last = (now, agent.timesteps)
        self._progress.update(
            self._task, completed=agent.timesteps - self._begin,
            speed=f"{(agent.timesteps - steps) / max(now - before, 1e-9):,.0f} steps/s",
        )  # fmt: skip
        self._text.plain = "  ".join(f"{name} {value}" for name, value in numbers(agent).items())
        return None if self._callback is None else self._callback(agent)
