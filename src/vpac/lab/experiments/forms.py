"""Published against corrected form in worlds where chance comes before the choice."""

from __future__ import annotations

from typing import Any

from vpac.lab.experiments.spec import Arm, Experiment, Figure, claim

EVEN: dict[str, Any] = {"baseline": True, "variance_of": "return", "start_policy": "zero", "start_critics": "zero"}


def _arms(psi: float, begin: int, length: int) -> tuple[Arm, ...]:
    warm_up = f"warm-up:{psi:g}:{begin}:{length}"
    priced = [
        Arm(label=form + tail, algorithm="vpac", settings={"psi": price, "form": form})
        for form in ("published", "corrected") for price, tail in ((psi, ""), (warm_up, ", warm-up"))
    ]  # fmt: skip
    return (Arm(label="AC", algorithm="ac"), *priced)


def _figures(what: str) -> tuple[Figure, ...]:
    return (
        Figure(
            kind="curves", log_y=what == "Catch-up", title=f"{what}: mean and variance along learning",
            caption="Exact; the warm-up is 0 for the first third of the episodes and rises over the second. By then the policy "
            "is nearly deterministic, so the price changes little.",
            shows=("mean", "variance"),
        ),
        Figure(kind="bars", title=f"{what}: final policies", shows=("mean", "variance")),
    )  # fmt: skip


RISKY_SHORTCUT = Experiment(
    name="forms/risky-shortcut", title="Risky shortcut: both forms leave the risky way",
    about="ψ = 0.5. The published form ignores the variance that the policy's own randomness causes; at this price it may "
    "stand still instead of taking the safe way.",
    env="vpac/RiskyShortcut-v0", settings={**EVEN, "gamma": 0.95, "alpha_theta": 0.01, "alpha_w": 0.2, "alpha_z": 0.2},
    episodes=20_000, every=500, horizon=200, runs=20, arms=_arms(0.5, 6_667, 6_667), figures=_figures("Risky shortcut"),
    claims=(
        claim("variance: published / AC < 0.1", "at a high price the published form leaves the risky way"),
        claim("variance: corrected / AC < 0.1", "at a high price the corrected form leaves the risky way"),
        claim("mean: corrected - published > 0", "the corrected form keeps more of the mean than the published one"),
    ),
)  # fmt: skip

CATCH_UP = Experiment(
    name="forms/catch-up", title="Catch-up: only the corrected form hedges",
    about="ψ = 1. Which choice lowers the variance depends on what happened before it; the published form ignores that.",
    env="vpac/CatchUp-v0", settings={**EVEN, "gamma": 0.95, "alpha_theta": 0.01, "alpha_w": 0.05, "alpha_z": 0.05},
    episodes=60_000, every=1500, policy="softmax", horizon=200, runs=20, arms=_arms(1.0, 20_000, 20_000),
    figures=_figures("Catch-up"),
    claims=(
        claim("variance: corrected / AC < 1", "the corrected form ends below the risk-neutral variance"),
        claim("variance: published / AC > 1", "the published form ends above it"),
    ),
)  # fmt: skip

CLIFF_WALKING = Experiment(
    name="forms/cliff-walking", title="Slippery cliff walking: a price where there is nothing to trade",
    about="Gymnasium's CliffWalkingSlippery-v1 as a finite process, ψ = 0.02, γ = 0.99, episodes of at most 300 steps. By the "
    "oracle the risk-neutral policy (mean −46.4, variance 137.6) is the best one for prices up to at least 0.05: a "
    "policy that keeps away from the cliff also has the better mean. A price should do no harm here.",
    env="CliffWalkingSlippery-v1",
    settings={**EVEN, "gamma": 0.99, "alpha_theta": 0.01, "alpha_w": 0.2, "alpha_z": 0.2, "max_episode_steps": 300},
    episodes=6_000, every=200, horizon=300, runs=20, arms=_arms(0.02, 2_000, 2_000),
    figures=(
        *_figures("Slippery cliff walking"),
        Figure(
            kind="maps", title="Slippery cliff walking: visits and the policy's arrows", shows=("visits",),
            caption="The final greedy policy of the first run; visits over 10 000 trajectories.",
            arms=("AC", "published", "corrected"),
        ),
    ),
    claims=(
        claim("mean: corrected - AC > -1", "the corrected form does no harm: its mean is not lower than AC's by 1 or more"),
        claim(
            "mean: published - AC > -1", "the published form does no harm: its mean is not lower than AC's by 1 or more",
            explanation="The published direction is not the gradient of the objective: it pays for a variance that it does not "
            "lower.",
        ),
    ),
)  # fmt: skip

WARM_UP = Experiment(
    name="forms/warm-up", title="Four rooms: a warm-up repairs the collapse",
    about="ψ = 0.05, the price at which VPAC collapses: from the start, or with a warm-up. The warm-up is 0 for the first 500 "
    "episodes and rises linearly to 0.05 at episode 1000; 500 more episodes follow.",
    env="vpac/FourRooms-v0",
    settings={
        "start_policy": "uniform", "start_critics": "uniform", "gamma": 0.99, "alpha_theta": 0.01, "alpha_w": 0.5,
        "alpha_z": 0.5, "variance_of": "return",
    },
    episodes=1500, every=50, horizon=300, runs=50,
    arms=(
        Arm(label="AC", algorithm="ac", settings={"baseline": False}),
        *(
            Arm(label=form + tail, algorithm="vpac", settings={"psi": psi, "form": form, "baseline": form == "corrected"})
            for form in ("published", "corrected")
            for psi, tail in ((0.05, ""), ("warm-up:0.05:500:500", ", warm-up"))
        ),
    ),
    figures=(Figure(kind="curves", title="A high price with and without a warm-up", shows=("mean", "variance")),),
    claims=(
        claim(
            "mean: published, warm-up - AC > -1", "as published, a warm-up repairs the collapse: the mean is within 1 of AC's",
        ),
        claim("mean: corrected - AC < -10", "the corrected form collapses at that price, too: it stands still"),
        claim("mean: corrected, warm-up - AC > -1", "and a warm-up repairs it, too"),
        claim("variance: published, warm-up / AC < 1", "and the variance is below AC's"),
    ),
)  # fmt: skip

OFF_POLICY_CRITICS = Experiment(
    name="puddle-world/critics", title="Puddle world: expected critics against clipped ones",
    about="VPAC with the paper's step sizes. With clipped ratios the critics estimate the moments of no policy; expected "
    "critics estimate those of the target policy's return, without ratios.",
    env="vpac/PuddleWorld-v0",
    settings={
        "gamma": 0.99, "behaviour": "uniform", "score": "published", "temperature": 100.0, "start_policy": "uniform",
        "start_critics": "zero", "psi": 0.002, "alpha_theta": 0.05, "alpha_w": 0.5, "alpha_z": 0.25,
    },
    episodes=2500, every=50, horizon=500, algorithm="off-policy-vpac", runs=50,
    arms=(
        *(
            Arm(label=f"{form}, {kind}", settings={"form": form, "baseline": form == "corrected", "critics": kind})
            for form in ("published", "corrected") for kind in ("clipped", "expected")
        ),
        Arm(
            label="corrected, expected, of the return",
            settings={"form": "corrected", "baseline": True, "critics": "expected", "variance_of": "return"},
        ),
    ),
    figures=(
        Figure(kind="curves", title="Learning curves by kind of critic", shows=("mean", "variance")),
        Figure(kind="bars", title="Final policies by kind of critic", shows=("mean", "variance", "risky")),
    ),
)  # fmt: skip

EXPERIMENTS = (RISKY_SHORTCUT, CATCH_UP, CLIFF_WALKING, WARM_UP, OFF_POLICY_CRITICS)
