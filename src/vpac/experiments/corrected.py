"""The paper's experiments again, with the corrected forms: the same arms, prices and step sizes, one change."""

from __future__ import annotations

from typing import Any

from vpac.experiments import four_rooms, puddle_world, sensitivity
from vpac.experiments.spec import Arm, Claim, Experiment

__all__ = ["EXPERIMENTS", "corrected"]

ON_POLICY: dict[str, Any] = {"form": "corrected", "baseline": True, "variance_of": "return"}
OFF_POLICY: dict[str, Any] = {**ON_POLICY, "critics": "expected", "ratios": "clipped"}


def corrected(experiment: Experiment, **changes: Any) -> Experiment:
    """The same with the corrected gradient of mean − ψ · variance of the return, and with baselines, for AC too."""
    off_policy = "critics" in experiment.settings
    return experiment.model_copy(
        update={
            "name": f"{experiment.name}-corrected",
            "title": f"{experiment.title}, corrected",
            "about": f"As {experiment.name}, but with the exact gradient of the objective and state-value baselines, for AC "
            "too; the variance is that of the return over start states as well"
            + (", and the critics are expected ones, without ratios." if off_policy else "."),
            "paper": "",
            "settings": experiment.settings | (OFF_POLICY if off_policy else ON_POLICY),
            "arms": tuple(_without_paper(arm) for arm in experiment.arms),
            "claims": tuple(_ours(claim) for claim in experiment.claims),
            **changes,
        }
    )


def _without_paper(arm: Arm) -> Arm:
    return arm.model_copy(update={"paper": {}})


def _ours(claim: Claim) -> Claim:
    return claim.model_copy(update={"where": f"{claim.where}, with the corrected form"})


EXPERIMENTS = (
    *(corrected(experiment) for experiment in (*four_rooms.EXPERIMENTS, *sensitivity.EXPERIMENTS)),
    corrected(puddle_world.DISCRETE),
    corrected(puddle_world.CONTINUOUS, usual_runs=4),
)
