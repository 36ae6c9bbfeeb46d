"""Studies small enough for a test: a few episodes."""

from __future__ import annotations

from pathlib import Path

from vpac.lab.experiments.catalogue import EXPERIMENTS
from vpac.lab.experiments.spec import Arm, Experiment
from vpac.lab.store.store import Store
from vpac.lab.workers.pool import Serial
from vpac.lab.workers.study import carry_out_studies, plan

SCALES = {"training": 0.004, "convergence": 0.0002, "prediction": 0.01}


def small(name: str) -> Experiment:
    """An experiment of the catalogue; what has no scale is made smaller: points of the oracle's searches, steps of rollouts."""
    experiment = EXPERIMENTS[name]
    if name.startswith("evidence/forms"):  # two prices of each form
        prices = sorted({arm.at["ψ"] for arm in experiment.arms})[:2]
        arms = tuple(arm for arm in experiment.arms if arm.at["ψ"] in prices)
        experiment = experiment.model_copy(update={"arms": arms})
    if experiment.kind == "frontier":
        return experiment.model_copy(update={"settings": experiment.settings | {"psis": [0.0, 0.02]}})
    if (
        experiment.evaluate == "rollouts"
    ):  # of policies that learned nothing: they walk until the limit, a thousand episodes
        return experiment.model_copy(update={"settings": experiment.settings | {"max_episode_steps": 100}})
    if experiment.kind == "theorems":
        return experiment.model_copy(update={"arms": experiment.arms[-1:]})
    return experiment


def scale_of(experiment: Experiment) -> float:
    """So small that a run takes a moment."""
    return SCALES.get(experiment.kind, 1.0)


def study(root: Path, *names: str, runs: int = 2):
    """Carry out experiments at a tiny scale."""
    store = Store(root)
    experiments = [small(name) for name in names]
    plans = [plan(e, runs=runs, scale=scale_of(e)) for e in experiments]
    return store, plans, carry_out_studies(plans, store, Serial())


def little(runs: int = 6, episodes: int = 40, **changes) -> Experiment:
    """A study of two arms."""
    given = {
        "name": "little", "title": "A little study", "env": "vpac/RiskyShortcut-v0", "episodes": episodes, "every": 20,
        "settings": {"gamma": 0.95}, "runs": runs,
        "arms": (Arm(label="AC", algorithm="ac"), Arm(label="VPAC", algorithm="vpac", settings={"psi": 0.1})),
    }  # fmt: skip
    return Experiment(**(given | changes))


SPEC = """
name = "little"
env = "vpac/RiskyShortcut-v0"
algorithm = "vpac"
episodes = {episodes}
every = 20
runs = {runs}
settings = {{ gamma = 0.95, max_episode_steps = 100 }}
[grid]
psi = [0.0, 0.1]
"""
UNDRAWN = "figures = []" + SPEC
"""The same without a figure: to draw one takes longer than the runs."""


def contents(store: Store) -> dict[str, bytes]:
    """What was measured and learned, byte for byte."""
    return {
        f"{name}/{file}": store.backend.read(f"runs/{name}/{file}")
        for name in store.names()
        for file in ("metrics.parquet", "policy.safetensors")
    }
