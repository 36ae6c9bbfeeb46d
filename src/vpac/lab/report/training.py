"""A training as a table, a figure and files."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

from vpac.files import write_bytes
from vpac.interruption import held
from vpac.lab.kinds.tabular import Training
from vpac.lab.report.style import CORRECTED, INK, MUTED, PUBLISHED, figure_style, save_figure
from vpac.risk.intervals import mean_interval, not_negative
from vpac.tabular.agents import Learner
from vpac.typing import FloatArray

__all__ = ["as_dict", "table", "write"]


def as_dict(training: Training) -> dict[str, Any]:
    """The outcome as plain data; numbers that are not known become null."""

    def known(value: float) -> float | None:
        return value if np.isfinite(value) else None

    first = training.learners[0]
    final = {
        name: {"mean": known(interval.estimate), "low": known(interval.low), "high": known(interval.high)}
        for name, interval in training.final().items()
    }
    return {
        "algorithm": type(first).__name__, "env": first.environment.name, "runs": len(training.learners),
        "episodes": first.episodes, "policy": training.policy if training.curves else "training",
        "options": first.options.as_dict(), "diverged": [str(error) for error in training.diverged], **final,
        **({"budget": [report.as_dict() for report in training.budgets]} if training.budgets else {}),
    }  # fmt: skip


def table(training: Training) -> Any:
    """The outcome for the terminal."""
    from rich.table import Table

    first, runs = training.learners[0], len(training.learners)
    shown = Table(
        title=f"{type(first).__name__} on {first.environment.name}: {runs} × {first.episodes} episodes", title_justify="left"
    )
    shown.add_column(f"{training.policy} policy at the end" if training.curves else "last tenth of the episodes")
    shown.add_column("over runs", justify="right")
    shown.add_column("95 % interval", justify="right")
    for name, interval in training.final().items():
        known = np.isfinite(interval.low)
        ends = f"{interval.low:.5g} … {interval.high:.5g}" if known else "needs two runs"
        shown.add_row(f"{name} of the return", f"{interval.estimate:.5g}", ends)
    return shown


def write(training: Training, folder: Path) -> list[Path]:
    """`returns.parquet`, `curves.parquet`, `training.png` and each learner's folder `run-N`; removes those of an earlier
    training that this one does not replace.

    Off-policy, `returns.parquet` also says of each episode what the ratios did: its `effective` share of steps and its
    `clipped` mass (see `History`).
    """
    import polars as pl

    _remove_stale(training, folder)
    paths = []
    returns = pl.concat(
        [
            pl.DataFrame(
                {
                    "run": np.full(learner.episodes, number),
                    "episode": np.arange(learner.episodes),
                    "return": learner.returns,
                    "length": learner.history.lengths,
                    **_ratios(learner),
                }
            )
            for number, learner in enumerate(training.learners)
        ]
    )
    paths.append(write_bytes(folder / "returns.parquet", _parquet(returns)))
    if training.curves:
        curves = pl.concat(
            [
                pl.DataFrame(
                    {"run": np.full(len(c.mean), n), "episode": c.episodes, "mean": c.mean, "variance": c.variance}
                )
                for n, c in enumerate(training.curves)
            ]
        )
        paths.append(write_bytes(folder / "curves.parquet", _parquet(curves)))
    paths += [learner.save(folder / f"run-{number}") for number, learner in enumerate(training.learners)]
    with figure_style() as plt:
        paths.append(save_figure(_draw(plt, training), folder / "training.png"))
    return paths


@held()
def _parquet(frame: Any) -> bytes:
    """In memory, so that its size is known before it is written."""
    file = io.BytesIO()
    frame.write_parquet(file)
    return file.getvalue()


def _remove_stale(training: Training, folder: Path) -> None:
    if not training.curves:
        (folder / "curves.parquet").unlink(missing_ok=True)
    for old in folder.glob("run-*"):
        number = old.name.removeprefix("run-")
        if number.isdecimal() and int(number) >= len(training.learners) and not old.is_symlink():
            for name in ("agent.json", "weights.safetensors"):
                (old / name).unlink(missing_ok=True)
            if not any(old.iterdir()):  # nothing of somebody else's
                old.rmdir()


def _ratios(learner: Learner) -> dict[str, FloatArray]:
    history = learner.history
    return {} if learner.settings.on_policy else {"effective": history.effective, "clipped": history.clipped}


def _draw(plt: Any, training: Training) -> Any:
    """The learning curve, and mean and variance of the measured policy, with 95 % intervals over runs."""
    panels = (3 if training.curves else 1) + bool(training.budgets)
    figure, axes = plt.subplots(1, panels, figsize=(4.4 * panels, 3.4), layout="constrained", squeeze=False)
    returns = np.stack([learner.returns for learner in training.learners])
    width = max(1, returns.shape[1] // 100)
    smooth = returns[:, : returns.shape[1] // width * width].reshape(len(returns), -1, width).mean(axis=-1)
    _band(axes[0, 0], (np.arange(smooth.shape[1]) + 1) * width, smooth, MUTED)
    axes[0, 0].set_title("return of episodes")
    if training.curves:
        episodes = training.curves[0].episodes
        for axis, name, colour in ((axes[0, 1], "mean", CORRECTED), (axes[0, 2], "variance", PUBLISHED)):
            rows = np.stack([getattr(curve, name) for curve in training.curves])
            _band(axis, episodes, rows, colour, cut=name == "variance")
            axis.set_title(f"{name}, {training.policy} policy, exact" if training.learners[0].environment.mdp else name)
    if training.budgets:
        if training.curves:
            axes[0, 2].axhline(training.budgets[0].budget.variance, color=INK, linestyle="--", label="budget")
            axes[0, 2].legend()
        _price(axes[0, -1], training)
    for axis in axes.flat:
        axis.set_xlabel("episodes")
    first = training.learners[0]
    figure.suptitle(
        f"{type(first).__name__} on {first.environment.name}, {len(returns)} runs", x=0.01, ha="left", fontweight="bold"
    )
    return figure


def _price(axis: Any, training: Training) -> None:
    """The way of the multiplier in each run."""
    for learner in training.learners:
        axis.plot(learner.prices.at, learner.prices.psi, color=CORRECTED, linewidth=0.8, alpha=0.7)
    axis.set_title("the price ψ that holds the budget (1/reward)")


def _band(axis: Any, x: Any, rows: Any, colour: str, cut: bool = False) -> None:
    """Mean and 95 % interval over runs; `cut` at 0, if they cannot be below it."""
    intervals = [not_negative(mean_interval(column)) if cut else mean_interval(column) for column in rows.T]
    axis.plot(x, [i.estimate for i in intervals], color=colour)
    axis.fill_between(x, [i.low for i in intervals], [i.high for i in intervals], color=colour, alpha=0.2, linewidth=0)
