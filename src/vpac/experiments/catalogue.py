"""Every experiment, by name, in the order in which they are run and shown."""

from __future__ import annotations

from vpac.errors import UserError, suggestion
from vpac.experiments import (
    corrected,
    critics,
    forms,
    four_rooms,
    grid_search,
    mujoco,
    puddle_world,
    sensitivity,
    theorems,
)
from vpac.experiments.spec import Arm, Experiment, Figure

__all__ = ["EXPERIMENTS", "chosen"]

THEOREMS = Experiment(
    name="theorems",
    title="The theorems on trial",
    about="Every published gradient and every corrected one against the derivative itself, by exact linear algebra.",
    kind="theorems",
    runs=1,
    arms=tuple(Arm(label=world.name, settings={"world": world.name}) for world in theorems.WORLDS),
    figures=(Figure(kind="bars", title="Relative error of each formula in each world"),),
)
FRONTIER = Experiment(
    name="four-rooms/frontier",
    title="Four rooms: the exact frontier",
    about="The best stationary policy that the oracle finds for each price of variance: what learning could reach.",
    kind="frontier",
    env="vpac/FourRooms-v0",
    settings={
        "gamma": 0.99,
        "psis": [0.0, 0.001, 0.002, 0.003, 0.005, 0.007, 0.01, 0.015, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5],
    },
    runs=1,
    arms=(Arm(label="oracle"),),
    figures=(Figure(kind="curves", title="Mean and variance along the frontier"),),
)

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        THEOREMS,
        *four_rooms.EXPERIMENTS,
        *sensitivity.EXPERIMENTS,
        *puddle_world.EXPERIMENTS,
        *mujoco.EXPERIMENTS,
        FRONTIER,
        *critics.EXPERIMENTS,
        *forms.EXPERIMENTS,
        *corrected.EXPERIMENTS,
        *grid_search.EXPERIMENTS,
    )
}


def chosen(names: tuple[str, ...]) -> list[Experiment]:
    """The experiments of these names, or of a group of them (`four-rooms`); none: all but those run on demand."""
    if not names:
        return [experiment for experiment in EXPERIMENTS.values() if not experiment.on_demand]
    found: dict[str, Experiment] = {}
    for name in names:
        group = {key: e for key, e in EXPERIMENTS.items() if key == name or key.startswith(f"{name}/")}
        if not group:
            raise UserError(
                f"unknown experiment {name!r}{suggestion(name, EXPERIMENTS) or '; `vpac list experiments` shows them all'}"
            )
        found |= group
    return list(found.values())
