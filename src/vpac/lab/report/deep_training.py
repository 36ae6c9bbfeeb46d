"""A training of the PPO family as a table and a figure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vpac.lab.report.chart import Chart, Line, Lines, Reference

if TYPE_CHECKING:
    from vpac.deep.ppo import PPO
    from vpac.risk.budget import BudgetReport

__all__ = ["as_dict", "chart_of", "table", "write"]

SHOWN = {
    "score_mean": "mean score of recent episodes", "score_variance": "variance of their scores",
    "return_mean": "mean discounted return", "return_variance": "variance of it", "length_mean": "steps of an episode",
    "predicted_variance": "variance ahead, predicted", "measured_variance": "variance ahead, measured",
}  # fmt: skip
"""The numbers of the last iteration that are shown at the end."""


def as_dict(agent: PPO, held: BudgetReport | None = None) -> dict[str, Any]:
    """The outcome as plain data, with what came of a budget; numbers that are not known become null."""
    last = agent.history[-1]
    return {
        "algorithm": type(agent).__name__, "env": agent.environments.name, "timesteps": agent.timesteps,
        "episodes": agent.episodes, "seed": agent.seed, "options": agent.options.as_dict(),
        **{name: last[name] if np.isfinite(last[name]) else None for name in SHOWN if name in last},
        **({} if held is None else {"budget": held.as_dict()}),
    }  # fmt: skip


def table(agent: PPO) -> Any:
    """The outcome for the terminal."""
    from rich.table import Table

    shown = Table(
        title=f"{type(agent).__name__} on {agent.environments.name}: {agent.timesteps:,} steps", title_justify="left"
    )
    shown.add_column("at the end of training")
    shown.add_column("", justify="right")
    for name, words in SHOWN.items():
        if name in agent.history[-1]:
            shown.add_row(words, f"{agent.history[-1][name]:.5g}")
    return shown


def chart_of(agent: PPO) -> Chart:
    """Scores with a band of one standard deviation, the variance of the return, and what the critic says of it."""

    def column(name: str) -> Any:
        return np.array([row[name] for row in agent.history])

    steps, score, spread = column("timesteps"), column("score_mean"), np.sqrt(column("score_variance"))
    # old files know one discount only
    limited = "priced_variance" if "priced_variance" in agent.history[-1] else "return_variance"
    panels = [
        Lines([Line("", steps, score, score - spread, score + spread)], "steps", "score", "score of recent episodes"),
        Lines(
            [Line("", steps, column(limited))], "steps", "variance",
            f"variance of recent {'scores' if agent.variance_gamma == 1.0 else 'discounted returns'}", references=_limit(agent),
        ),
    ]  # fmt: skip
    if "measured_variance" in agent.history[-1]:
        lines = [Line(name, steps, column(f"{name}_variance")) for name in ("predicted", "measured")]
        panels.append(Lines(lines, "steps", "variance", "variance of the return ahead: the critic's calibration"))
    if agent.holder is not None:
        panels.append(
            Lines([Line("", steps, agent.prices.psi)], "steps", "ψ (1/reward)", "the price that holds the budget")
        )
    caption = "Recent: the last 100 episodes of training. The band is one standard deviation."
    return Chart("training", f"{type(agent).__name__} on {agent.environments.name}", caption, panels)


def _limit(agent: PPO) -> list[Reference]:
    """The budget, as a line across."""
    if agent.holder is None:
        return []
    budget = agent.holder.budget
    return [Reference(budget.variance, f"budget: {budget.in_words}")]


def write(agent: PPO, folder: Path) -> list[Path]:
    """`training.png`."""
    from vpac.lab.report.draw import write as draw

    return draw(chart_of(agent), folder, ("png",))
