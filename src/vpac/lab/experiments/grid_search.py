"""The search behind Tables 2 to 4: the best mean wins, and the least variance breaks ties.

The paper does not say which values it tried. These grids contain its choices.
"""

from __future__ import annotations

from typing import Any

from vpac.lab.experiments import four_rooms, puddle_world
from vpac.lab.experiments.spec import Arm, Experiment, Figure, arms_of_grid

RULE = (
    "The best mean wins; among means within two standard errors of the best, the least variance. The values that the paper "
    "tried are not published."
)
ON_POLICY_STEPS = {"alpha_theta": [0.001, 0.01, 0.1], "alpha_w": [0.05, 0.5], "alpha_z": [0.005, 0.05, 0.5]}
SEARCH_FIGURES = (
    Figure(
        kind="best",
        title="Every setting that was tried",
        caption="Mean against variance of the final policies, average over runs; the winner of each algorithm is named.",
    ),
)


def _arms(kind: str, steps: dict[str, list[Any]], **prices: list[float]) -> tuple[Arm, ...]:
    """The arms of AC's grid and of those of algorithms with a price, with the algorithm among the things that vary."""
    grids: dict[str, dict[str, list[Any]]] = {"AC": {key: steps[key] for key in ("alpha_theta", "alpha_w")}}
    grids |= {name: {"psi": psis, **steps} for name, psis in prices.items()}
    return tuple(
        arm.model_copy(update={"at": {"algorithm": name, **arm.at}})
        for name, grid in grids.items() for arm in arms_of_grid(grid, kind + name.lower().replace("_", "-"), name)
    )  # fmt: skip


ROOMS_SEARCH = Experiment(
    name="grid-search/four-rooms", title="Grid search in four rooms (Table 2)",
    about=f"{RULE} It chose α_θ = 0.01, α_w = 0.5 for AC; ψ = 0.015, α_θ = 0.01, α_w = α_z = 0.5 for VPAC; ψ = 0.01 and the "
    "same for VAAC_TD; ψ = 0.01, α_θ = 0.001, α_w = 0.05, α_z = 0.005 for VAAC.",
    paper="Table 2", runs=10, on_demand=True,
    arms=_arms("", ON_POLICY_STEPS, VPAC=[0.005, 0.01, 0.015, 0.02, 0.03], VAAC_TD=[0.005, 0.01, 0.015], VAAC=[0.005, 0.01]),
    figures=SEARCH_FIGURES, **four_rooms.ROOMS,
)  # fmt: skip

OFF_POLICY_STEPS = {"alpha_theta": [0.005, 0.05], "alpha_w": [0.01, 0.5], "alpha_z": [0.01, 0.25]}
PUDDLE_SEARCH = Experiment(
    name="grid-search/puddle-world", title="Grid search in the puddle world (Table 3)",
    about=f"{RULE} It chose α_θ = 0.05, α_w = 0.5 for AC; ψ = 0.002, α_θ = 0.05, α_w = 0.5, α_z = 0.25 for VPAC; ψ = 0.0015, "
    "α_θ = 0.005, α_w = α_z = 0.01 for VAAC.",
    paper="Table 3", runs=5, on_demand=True,
    arms=_arms("off-policy-", OFF_POLICY_STEPS, VPAC=[0.001, 0.002, 0.005], VAAC=[0.0015, 0.005]),
    figures=SEARCH_FIGURES, **puddle_world.PUDDLE,
)  # fmt: skip

LINEAR_STEPS = {"alpha_theta": [0.005, 0.1], "alpha_w": [0.05, 0.5], "alpha_z": [0.05, 0.25]}
CONTINUOUS_SEARCH = puddle_world.CONTINUOUS.model_copy(
    update={
        "name": "grid-search/continuous-puddle-world", "paper": "Table 4",
        "title": "Grid search in the continuous puddle world (Table 4)",
        "about": f"{RULE} It chose α_θ = 0.1, α_w = 0.5 for AC; ψ = 0.001 and 0.005, α_θ = 0.1, α_w = 0.5, α_z = 0.25 for "
        "VPAC; ψ = 0.0015, α_θ = 0.005, α_w = α_z = 0.05 for VAAC.",
        "runs": 3, "usual_runs": None, "every": 1000, "on_demand": True, "claims": (),
        "figures": SEARCH_FIGURES, "arms": _arms("off-policy-", LINEAR_STEPS, VPAC=[0.001, 0.005], VAAC=[0.0015]),
    }
)  # fmt: skip

EXPERIMENTS = (ROOMS_SEARCH, PUDDLE_SEARCH, CONTINUOUS_SEARCH)
