"""What learning leaves for others to read: JSON lines, and TensorBoard files with the tags of Stable-Baselines3."""

from __future__ import annotations

import errno
import json
import math
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vpac.files import make_folder, unwritable, write_bytes

if TYPE_CHECKING:
    from vpac.deep.agent import PPO

__all__ = ["LINES", "TAGS", "JsonLines", "TensorBoard", "as_json", "spacing"]

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
