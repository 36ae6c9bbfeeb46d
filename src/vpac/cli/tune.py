"""`vpac tune`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from vpac.checks import whole
from vpac.cli.arguments import EnvName, EnvOptions, Folder, Pairs, Verb, key_values
from vpac.cli.output import next_step, note, plain_table, show


@dataclass(frozen=True)
class Tune(Verb):
    """Search settings of the PPO family for the best mean − psi · measure of risk.

    By Optuna. The same command goes on; a larger --trials adds to the study.

    Example: vpac tune CartPole-v1 --trials 30 --risk-aversion 0.3
    """

    env: EnvName
    """Gymnasium id, package.module:Name-v0 or package.module:Class."""
    trials: Annotated[int, tyro.conf.arg(metavar="N")] = 30
    """Finished trials of the study."""
    algorithm: Annotated[str, tyro.conf.arg(metavar="NAME")] = "vpac-ppo"
    """One of the PPO family with a price of variance."""
    penalty: Annotated[str, tyro.conf.arg(metavar="NAME")] = "variance"
    """What has the price: one of `vpac list penalties` but volatility, e.g. gini or cvar:0.1. For vpac-ppo."""
    psi: Annotated[float | None, tyro.conf.arg(metavar="PSI")] = None
    """Price; of variance in units of 1/reward."""
    risk_aversion: Annotated[float | None, tyro.conf.arg(metavar="R")] = None
    """The price without a unit: psi = R / standard deviation of the risk-neutral return, which is trained first."""
    steps: int = 100_000
    """Environment steps of each training."""
    seeds: int = 1
    """Trainings of each trial."""
    measure: int = 500
    """Episodes that each policy is measured in."""
    gamma: float = 0.99
    """Discount factor of what is measured, whatever a trial learns with."""
    seed: int = 0
    """Random seed."""
    option: Pairs = ()
    """Settings that all trials have, e.g. --option envs=8; what is given is not searched."""
    storage: Annotated[str | None, tyro.conf.arg(metavar="URL")] = None
    """Optuna's storage. Default: sqlite, search.db in the folder."""
    out: Folder = None
    """Where best.toml and plots.html go. Default: results/tune/ALGORITHM-ENV, with the penalty if it is no variance."""
    environment: EnvOptions = field(default_factory=EnvOptions)

    def run(self) -> int:
        """Search, write, show."""
        from vpac.envs.make import spec_of
        from vpac.files import hold, jsonable
        from vpac.lab.search import Search, finished, search, write_search

        fixed = dict(jsonable(key_values(self.option)))
        if self.penalty != "variance":
            fixed = {"penalty": self.penalty} | fixed
        name = " ".join([self.env, *self.environment.set, *self.environment.wrap])
        what = Search(
            name, self.algorithm, self.psi, self.risk_aversion, self.steps, self.seeds, self.measure, self.gamma,
            whole(self.seed, "--seed"), fixed,
        )  # fmt: skip
        what.check()
        whole(self.trials, "--trials", 1)
        self.environment.check(self.env)
        env = spec_of(self.env, self.environment.wrappers, **self.environment.arguments)
        kind = "" if self.penalty == "variance" else "-" + self.penalty.replace(":", "-")
        usual = f"{self.algorithm}-{re.split('[/:]', self.env)[-1]}{kind}"
        folder = self.out or Path("results") / "tune" / usual
        with hold(folder):
            storage = self.storage or f"sqlite:///{(folder / 'search.db').resolve().as_posix()}"
            study = search(what, env, self.trials, storage, lambda trial: note(_words(trial, self.trials)))
            best = write_search(study, what, folder)
        ranked = sorted((t for t in study.trials if t.value is not None), key=lambda t: t.value or 0.0, reverse=True)
        about = {"best": best, "U": study.best_value, "trials": finished(study), "psi": study.user_attrs["psi"]}
        show(
            {**about, "file": str(folder / "best.toml"), "storage": storage} if self.json else None,
            plain_table(f"best trials on {self.env}, psi = {about['psi']:.4g}", [_row(trial) for trial in ranked[:5]]),
        )
        self.say(f"wrote {folder}")
        next_step(self.json, "train", self.algorithm, self.env, "--settings", folder / "best.toml")
        return 0


def _row(trial: Any) -> dict[str, Any]:
    known = {"trial": trial.number, "U": f"{trial.value:.5g}", "mean": f"{trial.user_attrs['mean']:.5g}"}
    what = "measure" if "measure" in trial.user_attrs else "variance"
    known[what] = f"{trial.user_attrs[what]:.4g}"
    return known | {k: f"{v:.3g}" if isinstance(v, float) else str(v) for k, v in trial.params.items()}


def _words(trial: Any, trials: int) -> str:
    """A finished trial, as a line."""
    if trial.value is None:
        return f"trial {trial.number}: given up, its numbers were not finite"
    settings = "  ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in trial.params.items())
    return f"trial {trial.number} of {trials}: U {trial.value:.5g}  {settings}"
