"""Records of training: metrics.jsonl, TensorBoard files with the tags of Stable-Baselines3, the history, a live display.

Long runs keep every second, fourth, … iteration. Which ones depends only on the number of iterations, so a resumed run writes
the same files as an undisturbed one.
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
"""TensorBoard tags of our metrics; the first eight, and those written below, are Stable-Baselines3's."""

MOST_LINES = 8192
"""Most lines of metrics.jsonl, some 6 MB; a long run has at least half as many."""
MOST_HISTORY_ROWS = 4096
"""Most rows of a history; a long run has at least half as many."""


class MetricsHistory(list[dict[str, float]]):
    """A row of metrics for each iteration; when there are more than `MOST_HISTORY_ROWS`, every second one is dropped.

    The last row is always that of the last iteration.
    """

    every: int = 1
    """Iterations between rows, except before the last row."""
    last: int = 0
    """Iteration of the last row."""

    @classmethod
    def read(cls, rows: Iterable[dict[str, float]], every: int, last: int) -> Self:
        """Restore a stored history."""
        if every < 1:
            raise ValueError(f"rows of every {every} iterations")
        found = cls(rows)
        found.every, found.last = every, last
        return found

    def add(self, iteration: int, row: dict[str, float]) -> None:
        """Add the metrics of the next iteration; the first one is number 1."""
        if self and self.last % self.every:
            self.pop()
        self.append(row)
        self.last = iteration
        if len(self) > MOST_HISTORY_ROWS:
            self[:-1] = self[1:-1:2]
            self.every *= 2


def spacing(iteration: int) -> int:
    """Iterations between written ones when this one is the last: 1 for the first `MOST_LINES`, then 2, 4, …"""
    every = 1
    while iteration > MOST_LINES * every:
        every *= 2
    return every


class JsonLines:
    """Writes a line for each iteration, at most `MOST_LINES`, also of a resumed run.

    Rows of an agent's history are written first; where the history has gaps, existing lines up to its last row are kept.
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
                self._file.truncate(before)  # no partial line
            raise unwritable(self._path, error, len(line)) from None

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _replace(self, lines: list[bytes]) -> None:
        write_bytes(self._path, b"".join(lines))
        self._file = os.fdopen(_open_file(self._path, os.O_WRONLY | os.O_APPEND), "ab", buffering=0)

    def _lines(self, agent: PPO) -> dict[int, bytes]:
        """Existing lines that stay, by iteration: none after the agent's last iteration, and `spacing` apart."""
        every, found = spacing(agent.iteration), {}
        unreadable = (OSError, ValueError, TypeError, KeyError, OverflowError)
        with suppress(*unreadable), open(self._path, "rb", opener=_open_file) as file:
            for line in file:
                iteration = round(json.loads(line)["timesteps"] * agent.iteration / agent.timesteps)
                if iteration <= agent.iteration and iteration % every == 0:
                    found[iteration] = line
        return found


def _line(row: dict[str, float]) -> bytes:
    """A row as one line of JSON; unknown numbers are null."""
    known = {name: value if math.isfinite(value) else None for name, value in row.items()}
    return f"{json.dumps(known, allow_nan=False)}\n".encode()


def _open_file(path: Path | str, flags: int) -> int:
    """Open a regular file, no link (which may lead anywhere) and no pipe (which may block)."""
    return os.open(path, flags | NOFOLLOW | NONBLOCK | BINARY, 0o666)


class Tracker:
    """A callback of `learn` that forwards the metrics of an iteration, with the tags of Stable-Baselines3.

    A subclass has `write` and `close`. In long runs iterations are `spacing` apart.
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
        """Flush and close."""

    @staticmethod
    def milliseconds() -> int:
        """The current time in milliseconds."""
        return int(time.time() * 1000)


class TensorBoard(Tracker):
    """Writes files for TensorBoard; needs the extra `tensorboard`. Earlier events stay."""

    def __init__(self, folder: Path, agent: PPO) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        super().__init__(agent)
        make_folder(folder)
        self._folder, self._writer = folder, EventFileWriter(str(folder))
        if agent.timesteps:  # ignore events that a killed run wrote after its last checkpoint
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
        """Flush and close."""
        try:
            self._writer.close()
        except OSError as error:
            raise unwritable(self._folder, error) from None


class Speed:
    """Steps per second since creation; not per iteration, because the next rollout is collected during an update."""

    def __init__(self, agent: PPO) -> None:
        self._begun, self._already = time.monotonic(), agent.timesteps

    def __call__(self, agent: PPO) -> float:
        """The speed now."""
        return (agent.timesteps - self._already) / max(time.monotonic() - self._begun, 1e-9)


class ProgressDisplay:
    """A callback of `learn`: a bar with steps per second and the time left, and below it metrics of recent episodes.

    `callback` is also called; `already` of the `steps` were taken before this training.
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
        if not self._live.console.is_terminal:  # without a terminal the last line has no line break
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
    """The metrics of the live display."""
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
