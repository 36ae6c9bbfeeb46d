"""Evaluate a policy that stays as it is, with the direct and the indirect critic of the variance."""

from __future__ import annotations

import numpy as np

from vpac.lab.kinds.task import process_of
from vpac.lab.store.backend import Scratch
from vpac.lab.store.run import Run
from vpac.lab.store.store import Result
from vpac.oracle import optimal_policy, uniform
from vpac.tabular.prediction import Prediction


def perform(run: Run, _: Scratch) -> Result:
    """Measure both critics along a run.

    The target policy is `greed` times the optimal one, the rest uniform; the behaviour policy likewise, with
    `behaviour_greed`, or the target itself. Errors are relative to the root mean square of the exact variance, and the noise
    of the value is in units of the root of the mean variance.
    """
    settings = dict(run.task["settings"])
    mdp, greed, behaviour_greed = process_of(run.task), settings.pop("greed"), settings.pop("behaviour_greed", None)
    best, even = optimal_policy(mdp, settings["gamma"]), uniform(mdp)
    target = greed * best + (1.0 - greed) * even
    behaviour = None if behaviour_greed is None else behaviour_greed * best + (1.0 - behaviour_greed) * even
    truth = Prediction(**(settings | {"value_noise": None})).truth(mdp, target, behaviour)
    if settings.get("value_noise") is not None:
        settings["value_noise"] *= float(np.sqrt((truth.shares * truth.action_variance).sum()))
    settings["steps"] = max(10, round(settings["steps"] * run.task.get("scale", 1.0)))
    metrics = Prediction(**settings).run(mdp, target, run.seed, behaviour, truth)
    size = truth.rms(truth.action_variance)
    for name in ("direct_error", "indirect_error", "direct_bias", "indirect_bias"):
        metrics[name] = metrics[name] / size
    late = {name: float(np.exp(np.log(metrics[f"{name}_error"][-5:]).mean())) for name in ("direct", "indirect")}
    final = {**late, "ratio": late["direct"] / late["indirect"]}
    return Result(metrics, {}, {name: value if np.isfinite(value) else None for name, value in final.items()})
