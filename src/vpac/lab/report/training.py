"""Results that `vpac train` shows and writes: of tabular and linear learners, and of the PPO family."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vpac.files import as_parquet, jsonable, write_bytes
from vpac.lab.report.chart import Chart, Line, Lines, Panel, Reference, Table
from vpac.lab.report.draw import write
from vpac.lab.report.results import over_runs

if TYPE_CHECKING:
    from vpac.deep.ppo import PPO
    from vpac.lab.kinds.tabular import Training
    from vpac.risk.budget import BudgetReport

AVERAGED_POINTS = 100
"""Points of the curve of returns, each an average over as many episodes."""
LAST_NUMBERS = {
    "score_mean": "mean score of recent episodes", "score_variance": "variance of their scores",
    "return_mean": "mean of their discounted returns", "start_value": "the value critic predicts at the start",
    "return_variance": "variance of their discounted returns", "start_variance": "the spread critic predicts at the start",
    "penalty_value": "measure that is penalised, of their returns", "objective": "U, the objective",
    "length_mean": "steps of an episode", "predicted_variance": "variance from visited states, predicted",
    "measured_variance": "variance from visited states, measured",
}  # fmt: skip
"""The numbers of the last iteration of the PPO family that are shown at the end."""


@dataclass(frozen=True)
class TrainingSummary:
    """Several runs of a tabular or linear learner."""

    training: Training

    def as_dict(self) -> dict[str, Any]:
        """The outcome; unknown numbers are None."""
        training, first = self.training, self.training.learners[0]
        found = {name: (x.estimate, x.low, x.high) for name, x in training.final().items()}
        final = {name: jsonable(dict(zip(("mean", "low", "high"), x, strict=True))) for name, x in found.items()}
        return {
            "algorithm": type(first).__name__, "env": first.environment.name, "runs": len(training.learners),
            "episodes": first.episodes, "policy": training.policy if training.curves else "training",
            "options": first.options.as_dict(), "diverged": [str(error) for error in training.diverged], **final,
            **({"budget": [report.as_dict() for report in training.budgets]} if training.budgets else {}),
        }  # fmt: skip

    def tables(self) -> list[Table]:
        """Mean and variance of the final policies."""
        training, first = self.training, self.training.learners[0]
        what = f"{training.policy} policy at the end" if training.curves else "last tenth of the episodes"
        rows = []
        for name, interval in training.final().items():
            ends = f"{interval.low:.5g} … {interval.high:.5g}" if np.isfinite(interval.low) else "needs two runs"
            rows.append((f"{name} of the return", f"{interval.estimate:.5g}", ends))
        name = f"{type(first).__name__} on {first.environment.name}"
        title = f"{name}: {len(training.learners)} × {first.episodes} episodes"
        return [Table.of((what, "over runs", "95 % interval"), rows, title)]

    def charts(self) -> list[Chart]:
        """The learning curve, and mean and variance of the measured policy, with 95 % intervals over runs."""
        training, first = self.training, self.training.learners[0]
        returns = np.stack([learner.returns for learner in training.learners])
        width = max(1, returns.shape[1] // AVERAGED_POINTS)
        smooth = returns[:, : returns.shape[1] // width * width].reshape(len(returns), -1, width).mean(axis=-1)
        episodes = (np.arange(smooth.shape[1]) + 1) * width
        panels: list[Panel] = [Lines([band(episodes, smooth, "return")], "episodes", "return", "return of episodes")]
        limit = [Reference(report.budget.variance, "budget") for report in training.budgets[:1]]
        for name in ("mean", "variance") if training.curves else ():
            curves = training.curves or ()
            line = band(curves[0].episodes, np.stack([getattr(curve, name) for curve in curves]), name)
            title = f"{name}, {training.policy} policy, exact" if first.environment.mdp else name
            panels.append(Lines([line], "episodes", name, title, references=limit if name == "variance" else []))
        if training.budgets:
            lines = [Line("", learner.prices.at, learner.prices.psi, style=0) for learner in training.learners]
            panels.append(Lines(lines, "episodes", "ψ (1/reward)", "the price that holds the budget"))
        runs = f"{len(returns)} run{'s' * (len(returns) != 1)}"
        foot = "Bands are 95 % intervals over runs." if len(returns) > 1 else "One run; no intervals."
        title = f"{type(first).__name__} on {first.environment.name}, {runs}"
        return [Chart("training", title, foot, panels, columns=len(panels), foot=foot)]

    def write(self, folder: Path) -> None:
        """Write `returns.parquet`, `curves.parquet`, `training.png` and each learner's folder `run-N`.

        Off-policy, `returns.parquet` also has each episode's importance ratios: its `effective` share of steps and its
        `clipped` mass (see `History`).
        """
        training = self.training
        if not training.curves:
            (folder / "curves.parquet").unlink(missing_ok=True)
        returns = []
        for number, learner in enumerate(training.learners):
            history = learner.history
            ratios = {} if learner.settings.on_policy else {"effective": history.effective, "clipped": history.clipped}
            returns.append({"run": np.full(learner.episodes, number), "episode": np.arange(learner.episodes),
                            "return": learner.returns, "length": history.lengths, **ratios})  # fmt: skip
        write_bytes(folder / "returns.parquet", _parquet(returns))
        if training.curves:
            curves = [
                {"run": np.full(len(c.mean), n), "episode": c.episodes, "mean": c.mean, "variance": c.variance}
                for n, c in enumerate(training.curves)
            ]
            write_bytes(folder / "curves.parquet", _parquet(curves))
        for number, learner in enumerate(training.learners):
            learner.save(folder / f"run-{number}")
        write(self.charts()[0], folder, ("png",))


def _parquet(tables: list[dict[str, Any]]) -> bytes:
    """The tables below one another."""
    import polars as pl

    return as_parquet(pl.concat([pl.DataFrame(table) for table in tables]))


def band(x: Any, rows: Any, quantity: str) -> Line:
    """The mean over runs [runs, points] with its 95 % interval."""
    found = [over_runs(column, quantity) for column in rows.T]
    low, high = ([i.low for i in found], [i.high for i in found]) if len(rows) > 1 else (None, None)
    return Line("", x, [i.estimate for i in found], low, high, style=0)


@dataclass(frozen=True)
class DeepTrainingSummary:
    """A training of the PPO family."""

    agent: PPO
    budget: BudgetReport | None = None
    """Whether it holds its budget."""

    def as_dict(self) -> dict[str, Any]:
        """The outcome; unknown numbers are None."""
        agent, last = self.agent, self.agent.history[-1]
        return {
            "algorithm": type(agent).__name__, "env": agent.environments.name, "timesteps": agent.timesteps,
            "episodes": agent.episodes, "seed": agent.seed, "options": agent.options.as_dict(),
            **{name: jsonable(last[name]) for name in LAST_NUMBERS if name in last},
            **({} if self.budget is None else {"budget": self.budget.as_dict()}),
        }  # fmt: skip

    def tables(self) -> list[Table]:
        """The last iteration's numbers."""
        agent, last = self.agent, self.agent.history[-1]
        rows = [(words, f"{last[name]:.5g}") for name, words in LAST_NUMBERS.items() if name in last]
        title = f"{type(agent).__name__} on {agent.environments.name}: {agent.timesteps:,} steps"
        return [Table.of(("at the end of training", ""), rows, title)]

    def charts(self) -> list[Chart]:
        """Scores, the variance of the return, the calibration of its critic, and the price that holds a budget."""
        agent = self.agent
        known = [name for name in agent.history[-1] if all(name in row for row in agent.history)]
        column = {name: np.array([row[name] for row in agent.history]) for name in known}
        steps, score, spread = column["timesteps"], column["score_mean"], np.sqrt(column["score_variance"])
        # files of earlier versions have one discount only
        priced = Line("", steps, column.get("priced_variance", column["return_variance"]))
        limit = None if agent.controller is None else agent.controller.budget
        limited = limit is not None and limit.limits_variance
        budget = (Reference(limit.variance, f"budget: {limit.in_words}"),) if limit and limited else ()
        what = "scores" if agent.variance_gamma == 1.0 else "discounted returns"
        scores = Line("", steps, score, score - spread, score + spread)
        panels: list[Panel] = [
            Lines([scores], "steps", "score", "score of recent episodes"),
            Lines([priced], "steps", "variance", f"variance of recent {what}", references=budget),
        ]
        if "measured_variance" in column:
            lines = [Line(name, steps, column[f"{name}_variance"]) for name in ("predicted", "measured")]
            panels.append(Lines(lines, "steps", "variance", "variance of the return: the critic's calibration"))
        if "penalty_value" in column:
            name, line = agent.options.penalty, Line("", steps, column["penalty_value"])
            panels.append(Lines([line], "steps", name, f"{name} of recent {what}"))
        if limit:
            prices = Line("", steps, agent.prices.psi)
            panels.append(Lines([prices], "steps", "ψ (1/reward)", "the price that holds the budget"))
        foot = "Recent: the last 100 episodes of training. The band is one standard deviation."
        return [Chart("training", f"{type(agent).__name__} on {agent.environments.name}", foot, panels, foot=foot)]
