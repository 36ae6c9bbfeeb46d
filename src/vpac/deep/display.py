"""A live display of learning, on standard error."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from vpac.deep.agent import PPO

__all__ = ["Display", "numbers"]


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
