"""Records of training: metrics.jsonl, TensorBoard files with the tags of Stable-Baselines3, the history, a live display.

Long runs keep every second, fourth, … iteration. Which ones depends on nothing but the number of iterations, so that a run
that was stopped leaves what one that was not does.
"""

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
from vpac.portable import BINARY, NOFOLLOW, NONBLOCK
from vpac.progress import ProgressLines

if TYPE_CHECKING:
    from vpac.deep.ppo import PPO

TAGS = {
    "rollout/ep_rew_mean": "score_mean", "rollout/ep_len_mean": "length_mean", "train/approx_kl": "kl",
    "train/clip_fraction": "clip_fraction", "train/explained_variance": "explained_variance",
    "train/learning_rate": "learning_rate", "train/policy_gradient_loss": "policy_loss", "train/value_loss": "value_loss",
    "rollout/ep_rew_variance": "score_variance", "rollout/return_mean": "return_mean",
    "rollout/return_variance": "return_variance", "variance/psi": "psi", "variance/predicted": "predicted_variance",
    "variance/measured": "measured_variance", "variance/loss": "spread_loss", "variance/objective": "objective",
    "variance/penalty_share": "penalty_share", "variance/penalty_value": "penalty_value",
    "variance/weight_share": "weight_share", "variance/reversed_share": "reversed_share",
    "variance/luck_drift": "luck_drift", "variance/start_value": "start_value",
    "variance/start_variance": "start_variance",
}  # fmt: skip
"""TensorBoard's names of our metrics; those of the first eight are Stable-Baselines3's, as are the ones written below."""

MOST_LINES = 8192
"""Lines of metrics.jsonl that are kept, some 6 MB; there are at least half as many once there were so many iterations."""
MOST_ROWS = 4096
"""Rows of a history that are kept; there are at least half as many once there were so many iterations."""


class MetricsHistory(list[dict[str, float]]):
    """A row of metrics for each iteration, at most `MOST_ROWS`: whenever there are more, every second one is dropped.

    The last row is always that of the last iteration.
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
        """The metrics of the next iteration; the first one is number 1."""
        if self and self.last % self.every:
            self.pop()
        self.append(row)
        self.last = iteration
        if len(self) > MOST_ROWS:
            self[:-1] = self[1:-1:2]
            self.every *= 2


def spacing(iteration: int) -> int:
    """Iterations from one that is written to the next when this one is the last: 1 for the first `MOST_LINES`, then 2, 4, …"""
    every = 1
    while iteration > MOST_LINES * every:
        every *= 2
    return every


class JsonLines:
    """A line for each iteration, also of a resumed run, at most `MOST_LINES`.

    The rows of an agent's history are written first; where it does not have every iteration, the lines up to its last one stay.
    """

    def __init__(self, path: Path, agent: PPO) -> None:
        self._path = path
        kept = [_line(row) for row in agent.history]
        if agent.history.every > 1:
            every, found = spacing(agent.iteration), self._lines(agent)
            whole = any(list(found) == list(range(step, agent.iteration + 1, step)) for step in (every, 2 * every))
            kept = list(found.values()) if whole else kept
        self._replace(kept)

    def __call__(self, agent: PPO) -> None:
        """Write the last iteration."""
        every = spacing(agent.iteration)
        if every > spacing(agent.iteration - 1):
            self._file.close()
            self._replace(list(self._lines(agent).values()))
        if agent.iteration % every:
            return
        line, before = _line(agent.history[-1]), self._file.tell()
        try:
            if self._file.write(line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            with suppress(OSError):
                self._file.truncate(before)  # no half line
            raise unwritable(self._path, error, len(line)) from None

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _replace(self, lines: list[bytes]) -> None:
        write_bytes(self._path, b"".join(lines))
        self._file = os.fdopen(_open_file(self._path, os.O_WRONLY | os.O_APPEND), "ab", buffering=0)

    def _lines(self, agent: PPO) -> dict[int, bytes]:
        """Lines of the file that stay, by their iteration: none after an agent's last one, and `spacing` apart."""
        every, found = spacing(agent.iteration), {}
        unreadable = (OSError, ValueError, TypeError, KeyError, OverflowError)
        with suppress(*unreadable), open(self._path, "rb", opener=_open_file) as file:
            for line in file:
                iteration = round(json.loads(line)["timesteps"] * agent.iteration / agent.timesteps)
                if iteration <= agent.iteration and iteration % every == 0:
                    found[iteration] = line
        return found


def _line(row: dict[str, float]) -> bytes:
    """A row as one line of JSON; what is not known yet is null."""
    known = {name: value if math.isfinite(value) else None for name, value in row.items()}
    return f"{json.dumps(known, allow_nan=False)}\n".encode()


def _open_file(path: Path | str, flags: int) -> int:
    """Open a file and nothing else: a link may lead anywhere, and at a pipe one would wait."""
    return os.open(path, flags | NOFOLLOW | NONBLOCK | BINARY, 0o666)


class Tracker:
    """A callback of `learn` that passes the numbers of an iteration on, by the tags of Stable-Baselines3.

    A subclass has `write` and `close`. Of long runs iterations are `spacing` apart.
    """

    def __init__(self, agent: PPO) -> None:
        self._speed = Speed(agent)

    def __call__(self, agent: PPO) -> None:
        """Write the last iteration."""
        if agent.iteration % spacing(agent.iteration):
            return
        row = agent.history[-1]
        scalars: dict[str, Any] = {tag: row[name] for tag, name in TAGS.items() if name in row}
        scalars |= {
            "time/fps": self._speed(agent), "time/iterations": agent.iteration, "time/total_timesteps": agent.timesteps,
            "train/n_updates": agent.iteration * agent.options.epochs, "train/clip_range": agent.options.clip,
            "train/entropy_loss": -row["entropy"], "train/loss": row["policy_loss"] + row["value_loss"],
        }  # fmt: skip
        if "std" in row:
            scalars["train/std"] = row["std"]
        self.write({tag: float(value) for tag, value in scalars.items() if math.isfinite(value)}, agent.timesteps)

    def write(self, scalars: dict[str, float], step: int) -> None:
        """Write numbers by their tags."""
        raise NotImplementedError

    def close(self) -> None:
        """Write what is left."""

    @staticmethod
    def milliseconds() -> int:
        """The time, as trackers count it."""
        return int(time.time() * 1000)


class TensorBoard(Tracker):
    """Files for TensorBoard; needs the extra `tensorboard`. What is written stays."""

    def __init__(self, folder: Path, agent: PPO) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        super().__init__(agent)
        make_folder(folder)
        self._folder, self._writer = folder, EventFileWriter(str(folder))
        if agent.timesteps:  # what a run that was killed wrote after its checkpoint no longer counts
            begun = SessionLog(status=SessionLog.START)
            self._writer.add_event(Event(wall_time=time.time(), step=agent.timesteps + 1, session_log=begun))

    def write(self, scalars: dict[str, float], step: int) -> None:
        """Write an event."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
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


class Speed:
    """Steps per second since it was made. An iteration alone has no speed: the next rollout is collected meanwhile."""

    def __init__(self, agent: PPO) -> None:
        self._begun, self._already = time.monotonic(), agent.timesteps

    def __call__(self, agent: PPO) -> float:
        """Now."""
        return (agent.timesteps - self._already) / max(time.monotonic() - self._begun, 1e-9)


class ProgressDisplay:
    """A callback of `learn`: a bar with steps per second and the time left, and below it metrics of recent episodes.

    `callback` is called as well; `already` of the `steps` were taken before it began.
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
        self._speed, self._lines = Speed(agent), ProgressLines(steps, "steps", already)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *reason: Any) -> None:
        self._live.__exit__(*reason)
        if not self._live.console.is_terminal:  # where nothing moves the last line has no end
            self._live.console.print()

    def __call__(self, agent: PPO) -> bool | None:
        """Show the last iteration."""
        speed = f"{self._speed(agent):,.0f} steps/s"
        self._progress.update(self._task, completed=agent.timesteps - self._begin, speed=speed)
        metrics = shown_metrics(agent.history[-1])
        self._text.plain = "  ".join(f"{name} {value}" for name, value in metrics.items())
        self._lines.tell(agent.timesteps - self._begin, f"{speed}  score {metrics['score']}")
        return None if self._callback is None else self._callback(agent)


def shown_metrics(row: dict[str, float]) -> dict[str, str]:
    """The metrics that are shown while an agent learns."""
    found = {
        "score": f"{row['score_mean']:.4g} (variance {row['score_variance']:.3g})",
        "return": f"{row['return_mean']:.4g} (variance {row['return_variance']:.3g})",
        "KL": f"{row['kl']:.2g}",
    }
    if "penalty_share" in row:
        found["ψ"] = f"{row['psi']:.3g}"
        if "objective" in row:
            found["U"] = f"{row['objective']:.4g}"
        found["penalty ÷ advantage"] = f"{row['penalty_share']:.2g}"
    if "penalty_value" in row:
        found["measure"] = f"{row['penalty_value']:.4g}"
    if "measured_variance" in row:
        found["predicted ÷ measured"] = f"{row['predicted_variance'] / max(row['measured_variance'], 1e-30):.2f}"
    return found
