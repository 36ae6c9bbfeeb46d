"""Experiment trackers beside TensorBoard: Weights & Biases, MLflow and Trackio, all as callbacks of `learn`.

    with closing(track("wandb", agent, "runs/hopper")) as log:
        agent.learn(1_000_000, callback=log)

Another tracker is a subclass of `vpac.deep.logs.Tracker` with `write` and `close`.
"""

from __future__ import annotations

import hashlib
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vpac.deep.logs import Tracker
from vpac.errors import UserError, one_of
from vpac.files import make_folder

if TYPE_CHECKING:
    from vpac.deep.ppo import PPO

PROJECT = "vpac"


def _configuration(agent: PPO) -> dict[str, Any]:
    """The settings of a run, for a tracker."""
    about = {"algorithm": type(agent).__name__, "env": agent.environments.name, "seed": agent.seed}
    return about | agent.options.as_dict()


def _identity(folder: Path) -> str:
    """An identifier that stays the same when a run in a folder is resumed."""
    whole = folder.resolve()
    return f"{whole.name[:60]}-{hashlib.sha256(str(whole).encode()).hexdigest()[:8]}"


class WeightsAndBiases(Tracker):
    """Needs the extra `wandb`. `WANDB_MODE=offline` writes into the folder, for `wandb sync`."""

    def __init__(self, agent: PPO, folder: Path) -> None:
        import wandb

        super().__init__(agent)
        make_folder(folder)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT), name=folder.resolve().name, id=_identity(folder),
            resume="allow", dir=str(folder), config=_configuration(agent),
        )  # fmt: skip

    def write(self, scalars: dict[str, float], step: int) -> None:
        """Log a step."""
        self._run.log(scalars, step=step)

    def close(self) -> None:
        """Flush and close."""
        self._run.finish()


class MLflow(Tracker):
    """Needs the extra `mlflow`. Writes to `MLFLOW_TRACKING_URI` or, without that, to mlflow.db in the folder."""

    def __init__(self, agent: PPO, folder: Path) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Metric

        super().__init__(agent)
        make_folder(folder)
        self._metric = Metric
        local = f"sqlite:///{(folder / 'mlflow.db').resolve().as_posix()}"
        self._client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI", local))
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        known = self._client.get_experiment_by_name(name)
        experiment = known.experiment_id if known else self._client.create_experiment(name)
        mine = f"tags.`vpac.run` = '{_identity(folder)}'"
        before = self._client.search_runs([experiment], mine, max_results=1) if agent.timesteps else []
        tags = {"vpac.run": _identity(folder)}
        run = before[0] if before else self._client.create_run(experiment, run_name=folder.resolve().name, tags=tags)
        self._id = run.info.run_id
        for key, value in _configuration(agent).items():
            self._client.log_param(self._id, key, str(value)[:500])

    def write(self, scalars: dict[str, float], step: int) -> None:
        """Log a step."""
        now = self.milliseconds()
        self._client.log_batch(self._id, [self._metric(name, value, now, step) for name, value in scalars.items()])

    def close(self) -> None:
        """Mark the run as ended."""
        self._client.set_terminated(self._id)


class Trackio(Tracker):
    """Needs the extra `trackio`. Writes to `TRACKIO_DIR`."""

    def __init__(self, agent: PPO, folder: Path) -> None:
        import trackio

        super().__init__(agent)
        with redirect_stdout(sys.stderr):  # standard output is reserved for results
            self._run = trackio.init(
                project=os.environ.get("TRACKIO_PROJECT", PROJECT), name=_identity(folder), resume="allow",
                config=_configuration(agent), embed=False,
            )  # fmt: skip
        self._finish = trackio.finish

    def write(self, scalars: dict[str, float], step: int) -> None:
        """Log a step."""
        self._run.log(scalars, step=step)

    def close(self) -> None:
        """Flush and close."""
        with redirect_stdout(sys.stderr):
            self._finish()


TRACKERS: dict[str, type[Any]] = {"wandb": WeightsAndBiases, "mlflow": MLflow, "trackio": Trackio}


def track(name: str, agent: PPO, folder: Path | str) -> Tracker:
    """A tracker by name, wandb, mlflow or trackio: call it after every iteration, and `close` it."""
    one_of(name, tuple(TRACKERS), "tracker")
    try:
        made: Tracker = TRACKERS[name](agent, Path(folder))
    except ModuleNotFoundError as error:
        why = "" if error.name == name else f" ({error})"
        raise UserError(f"the tracker {name} needs its extra{why}: pip install 'vpac[{name}]'") from None
    return made
