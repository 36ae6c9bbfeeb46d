"""Search for settings of the PPO family with Optuna, by the objective itself: U = mean − ψ · variance, or another measure.

Each trial trains with the settings that Optuna suggests and measures the policies in new episodes, always with one discount, so
that trials with different γ can be compared. The study is in Optuna's own storage, so a stopped search can be continued.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vpac import algorithms
from vpac.checks import whole
from vpac.errors import UserError, needs_extra
from vpac.evaluation.play import evaluate
from vpac.files import make_folder, write_text
from vpac.lab.kinds.frontier import priced_measure
from vpac.risk.frontier import psi_of

if TYPE_CHECKING:
    import optuna

NETWORKS = {"64,64": (64, 64), "128,128": (128, 128), "256,256": (256, 256), "64,64,64": (64, 64, 64)}
GAMMAS, LAMBDAS = (0.95, 0.97, 0.98, 0.99, 0.995, 0.998), (0.8, 0.9, 0.95, 0.98, 1.0)
FIRST_TRIAL = {"learning_rate": 3e-4, "entropy": 1e-3, "gamma": 0.99, "gae_lambda": 0.95, "hidden": "64,64"}
"""The first trial: nearly the defaults, so that the best trial is not worse than they are."""


@dataclass(frozen=True)
class Search:
    """The options of `vpac tune` that decide a search: stored with the study, which continues only with the same ones."""

    env: str
    algorithm: str
    psi: float | None
    risk_aversion: float | None
    steps: int
    seeds: int
    measure: int
    gamma: float
    seed: int
    settings: dict[str, Any]

    def check(self) -> None:
        """Reject a specification that cannot be searched."""
        found = algorithms.find(self.algorithm, algorithms.DEEP)
        found.check_settings(self.settings)
        if (self.psi is None) == (self.risk_aversion is None):
            raise UserError("a search needs either --psi PSI, in units of 1/reward, or --risk-aversion R, e.g. 0.3")
        if not found.priced:
            raise UserError(f"{self.algorithm} has no price of variance: search with vpac-ppo; --psi 0 is PPO")
        measure = priced_measure(self.algorithm, self.settings)
        if measure is not None and measure.name == "volatility":
            raise UserError("a search judges returns, and volatility is of single rewards: choose another --penalty")
        for name in ("steps", "seeds", "measure"):
            whole(getattr(self, name), name, 1)

    def suggested(self, trial: optuna.Trial) -> dict[str, Any]:
        """Settings of a trial."""
        found: dict[str, Any] = {}
        if "learning_rate" not in self.settings:
            found["learning_rate"] = trial.suggest_float("learning_rate", 3e-5, 5e-3, log=True)
        if "entropy" not in self.settings:
            found["entropy"] = trial.suggest_float("entropy", 1e-5, 3e-2, log=True)
        for name, choices in (("gamma", GAMMAS), ("gae_lambda", LAMBDAS), ("hidden", NETWORKS)):
            if name not in self.settings:
                chosen = trial.suggest_categorical(name, list(choices))
                found[name] = list(NETWORKS[str(chosen)]) if name == "hidden" else chosen
        return found


def search(
    what: Search, env: Any, trials: int, storage: str,
    tell: Callable[[optuna.trial.FrozenTrial], object] = lambda trial: None,
) -> optuna.Study:  # fmt: skip
    """Search until the study in `storage` (e.g. sqlite:///search.db) has `trials` finished trials."""
    try:
        import optuna
    except ModuleNotFoundError as error:
        raise needs_extra("a search", error, "tune") from None
    what.check()
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # otherwise it prints the traceback of a Ctrl-C
    study = optuna.create_study(
        study_name=f"{what.algorithm}-{what.env}", storage=storage, direction="maximize", load_if_exists=True
    )
    _same(study, what)
    if "psi" not in study.user_attrs:
        psi = what.psi if what.risk_aversion is None else psi_of(what.risk_aversion, _scale(what, env))
        study.set_user_attr("psi", psi)
        study.enqueue_trial({name: value for name, value in FIRST_TRIAL.items() if name not in what.settings})
    price = float(study.user_attrs["psi"])
    while (count := finished(study)) < trials:
        study.sampler = optuna.samplers.TPESampler(seed=what.seed + len(study.trials))
        study.optimize(lambda trial: _objective(trial, what, env, price), n_trials=1)
        tell(study.trials[-1])
        if finished(study) == count:
            raise UserError(f"trial {study.trials[-1].number} did not finish; the study keeps the others")
    return study


def _same(study: optuna.Study, what: Search) -> None:
    """Reject a study of another specification."""
    before, now = study.user_attrs.get("search"), asdict(what)
    if before is None:
        study.set_user_attr("search", now)
    elif before != now:
        differ = next(name for name in now if before.get(name) != now[name])
        begun = f"{differ} = {before.get(differ)!r}, not {now[differ]!r}"
        raise UserError(f"this study was started with {begun}: choose another --out")


def _trained(what: Search, env: Any, number: int, **settings: Any) -> Any:
    """The sample of a policy's returns, after training with these settings."""
    kind = algorithms.find(what.algorithm).load()
    agent = kind(env, seed=what.seed + number, **what.settings, **settings).learn(what.steps)
    return evaluate(agent.policy(), env, what.measure, seed=what.seed + 1_000_000 + number, gamma=what.gamma)


def _scale(what: Search, env: Any) -> float:
    """Risk aversion / ψ: the standard deviation of the risk-neutral return, or 1 for a measure in its units."""
    measure = priced_measure(what.algorithm, what.settings)
    return 1.0 if measure and measure.degree == 1 else float(_trained(what, env, 0, psi=0.0).std)


def _objective(trial: optuna.Trial, what: Search, env: Any, psi: float) -> float:
    """U, the mean over seeds; a training with numbers that are not finite is pruned."""
    import optuna

    from vpac.deep.diagnostics import NotFinite

    settings = what.suggested(trial)
    trial.set_user_attr("settings", settings)
    try:
        samples = [_trained(what, env, number, psi=psi, **settings) for number in range(what.seeds)]
    except NotFinite as error:
        raise optuna.TrialPruned(str(error)) from None
    means, variances = (np.array([getattr(sample, name) for sample in samples]) for name in ("mean", "variance"))
    trial.set_user_attr("mean", float(means.mean()))
    trial.set_user_attr("variance", float(variances.mean()))
    measure = priced_measure(what.algorithm, what.settings)
    if measure is not None:
        variances = np.array([measure.of_sample(sample.returns) for sample in samples])
        trial.set_user_attr("measure", float(variances.mean()))
    return float((means - psi * variances).mean())


def finished(study: optuna.Study) -> int:
    """Number of trials that finished or were pruned, without killed ones."""
    return sum(trial.state.name in ("COMPLETE", "PRUNED") for trial in study.trials)


def write_search(study: optuna.Study, what: Search, folder: Path) -> dict[str, Any]:
    """Write best.toml for `vpac train --settings`, and Optuna's plots on one page; returns the settings."""
    make_folder(folder)
    best = {"psi": study.user_attrs["psi"], **what.settings, **study.best_trial.user_attrs["settings"]}
    words = f"# U = {study.best_value:.6g}: the best of {finished(study)} trials on {what.env}"
    words += f", {what.steps} steps\n# vpac train {what.algorithm} {what.env} --settings {folder / 'best.toml'}\n"
    write_text(folder / "best.toml", words + "".join(f"{name} = {_toml(value)}\n" for name, value in best.items()))
    write_text(folder / "plots.html", _plots(study))
    return best


def _toml(value: Any) -> str:
    """A number, text, truth or list as TOML writes it."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    quoted = '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'
    return repr(value) if isinstance(value, int | float) else quoted


def _plots(study: optuna.Study) -> str:
    """Optuna's figures as one page that loads nothing."""
    import optuna.visualization as show
    from optuna.importance import PedAnovaImportanceEvaluator

    figures = [show.plot_optimization_history(study)]
    varied = len({tuple(trial.params.values()) for trial in study.best_trials + study.get_trials(deepcopy=False)}) > 3
    if varied and len({trial.value for trial in study.trials if trial.value is not None}) > 3:
        figures.append(show.plot_param_importances(study, evaluator=PedAnovaImportanceEvaluator()))
    figures += [show.plot_slice(study), show.plot_parallel_coordinate(study)]
    parts = [figure.to_html(full_html=False, include_plotlyjs=number == 0) for number, figure in enumerate(figures)]
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{study.study_name}</title>'
    return head + "\n".join(parts) + "</html>\n"
