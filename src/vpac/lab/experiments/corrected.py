"""The paper's experiments with the corrected forms: the same arms, prices and step sizes."""

from __future__ import annotations

from typing import Any

from vpac.lab.experiments import four_rooms, puddle_world
from vpac.lab.experiments.spec import Experiment

ON_POLICY: dict[str, Any] = {"form": "corrected", "baseline": True, "variance_of": "return"}
OFF_POLICY: dict[str, Any] = {**ON_POLICY, "critics": "expected", "ratios": "clipped"}
WHOLE_RETURNS: dict[str, Any] = {"critics": "clipped", "variance_of": "action"}
"""Off-policy VAAC learns from returns that are weighted by ratios, so it has no expected critics."""


STANDING_STILL = (
    "The exact gradient includes the variance that the policy's own randomness causes. At a high price from the start, "
    "standing still is the quickest way to a low variance, and the policy stays there; a warm-up of the price avoids that "
    "(forms/warm-up)."
)
EXPLANATIONS = {
    "VPAC's mean return is on par with AC's (not lower by 1 or more)": "With a baseline AC learns better than as published "
    "(about 45.7, near the oracle's 45.9), and a lower variance costs mean: at ψ = 0.015 the oracle's best policy gives up 0.6 "
    "of the mean for 60 % less variance, the learned one about 1.1.",
    "a higher price, ψ = 0.03, lowers it further": STANDING_STILL,
    "up to ψ = 0.03 the mean is kept (not lower by 1 or more)": STANDING_STILL,
    "and the variance grows beyond that of no price": "The mean collapses to near zero, and the variance with it. "
    + STANDING_STILL,
    "and costs some of the mean": "Four runs of each are too few to tell.",
}
"""Reasons why claims of the paper do not hold of the corrected forms."""
VAAC_TOO = (
    " VAAC learns from whole returns, which have no expected kind: its critics keep the clipped ratios, and its variance is "
    "the one given the first action."
)


def corrected(experiment: Experiment, **changes: Any) -> Experiment:
    """The same with the corrected gradient of mean − ψ · variance of the return, and with baselines, for AC too."""
    off_policy = "critics" in experiment.settings
    whole = [arm for arm in experiment.arms if arm.algorithm == "off-policy-vaac"]
    return experiment.model_copy(
        update={
            "name": f"{experiment.name}-corrected",
            "title": f"{experiment.title}, corrected",
            "about": f"As {experiment.name}, but with the exact gradient of the objective and state-value baselines, for AC "
            "too; the variance is that of the return over start states as well"
            + (", and the critics are expected ones, without ratios." if off_policy else ".")
            + (VAAC_TOO if whole else ""),
            "paper": "",
            "settings": experiment.settings | (OFF_POLICY if off_policy else ON_POLICY),
            "arms": tuple(
                arm.model_copy(update={"paper": {}, "settings": arm.settings | (WHOLE_RETURNS if arm in whole else {})})
                for arm in experiment.arms
            ),
            "claims": tuple(
                one.model_copy(update={"of": "corrected", "paper": "", "explanation": EXPLANATIONS.get(one.text, "")})
                for one in experiment.claims
            ),
            **changes,
        }
    )


EXPERIMENTS = (
    *map(corrected, four_rooms.EXPERIMENTS),
    corrected(puddle_world.DISCRETE),
    corrected(puddle_world.CONTINUOUS, usual_runs=4),
)
