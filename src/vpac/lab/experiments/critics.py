"""Tests of the paper's premise and of its theorem of convergence.

The premise, after Sherstan et al. (2018): a direct estimate of the variance (σ̂ from δ²) is better than an indirect one
(M̂ − Q̂²) with noisy values, large steps, traces and off-policy data.
"""

from __future__ import annotations

from typing import Any

from vpac.lab.experiments.spec import Arm, Claim, Experiment, Figure, claim, claims

CRITIC_WORLDS: dict[str, tuple[str, dict[str, Any], dict[str, Any], float]] = {
    "four rooms":
        ("vpac/FourRooms-v0", {}, {"gamma": 0.99, "greed": 0.9, "max_episode_steps": 500, "steps": 300_000}, 0.5),
    "catch-up": ("vpac/CatchUp-v0", {}, {"gamma": 0.95, "greed": 0.5, "max_episode_steps": 200, "steps": 100_000}, 0.0),
    "random, ends": ("random-process", {"seed": 1, "noise": 1.0}, {"gamma": 0.9, "greed": 0.5, "steps": 100_000}, 0.0),
    "random, endless":
        ("random-process", {"seed": 2, "ends": False}, {"gamma": 0.9, "greed": 0.5, "steps": 100_000}, 0.3),
}  # fmt: skip
"""Environment, its arguments, settings, and how greedy the behaviour policy is off-policy."""
EQUAL: dict[str, Any] = {"alpha_w": 0.05, "alpha_z": 0.05}
CASES: dict[str, dict[str, Any]] = {
    "equal small steps": EQUAL, "large steps": {"alpha_w": 0.5, "alpha_z": 0.5},
    "slow variance": {"alpha_w": 0.1, "alpha_z": 0.01}, "slow value": {"alpha_w": 0.01, "alpha_z": 0.1},
    "value with traces, λ = 0.9": {**EQUAL, "lambda_w": 0.9},
    "all with traces, λ = 0.9": {**EQUAL, "lambda_w": 0.9, "lambda_z": 0.9}, "noisy value, 0.1": {**EQUAL, "value_noise": 0.1},
    "noisy value, 1": {**EQUAL, "value_noise": 1.0}, "off-policy, importance": {**EQUAL, "critics": "importance"},
    "off-policy, clipped": {**EQUAL, "critics": "clipped"}, "off-policy, expected": {**EQUAL, "critics": "expected"},
}  # fmt: skip
"""Settings of the estimators; noise is in units of the return's standard deviation."""


def _arm(world: str, case: str) -> Arm:
    env, arguments, common, behaviour = CRITIC_WORLDS[world]
    off_policy = {"behaviour_greed": behaviour} if case.startswith("off-policy") else {}
    return Arm(
        label=f"{world}, {case}", env=env, env_settings=arguments, settings={**common, **off_policy, **CASES[case]},
        at={"world": world, "case": case},
    )  # fmt: skip


def _premise(case: str, text: str, **more: Any) -> Claim:
    return claim(
        f"ratio: four rooms, {case} < 1", f"{text}, the direct critic errs less in four rooms",
        "Related work, after Sherstan et al. 2018", "said in words",
        explanation="With equal step sizes and no traces the errors of M̂ and Q̂² move together and mostly cancel, while δ² "
        "counts fluctuations of Q̂ as risk; the direct critic is better where these errors do not cancel.",
    ).model_copy(update=more)  # fmt: skip


OURS = {"of": "ours", "where": "ours", "paper": ""}
PREMISE = Experiment(
    name="critics/direct-and-indirect", title="Direct against indirect critics of the variance",
    about="Evaluation of a fixed policy: error of σ̂ and of M̂ − Q̂², relative to the exact variance, "
    "root mean square over visited pairs, at the end of the run (geometric mean of the last five measurements). Below 1 the "
    "direct critic is better. With a noisy value, Q̂ is the exact value plus noise.",
    kind="prediction", runs=20, arms=tuple(_arm(world, case) for world in CRITIC_WORLDS for case in CASES),
    figures=(
        Figure(
            kind="effect", title="Which critic of the variance errs less", shows=("ratio",), x="case", lines="world",
            log_y=True, sideways=True, joined=False,
            caption="Error of the direct critic divided by that of the indirect one at the end of the run: left of the "
            "line the direct one is better. 95 % intervals over runs.",
        ),
        Figure(
            kind="errors", title="Errors along the run in four rooms", shows=("direct_error", "indirect_error"),
            arms=tuple(f"four rooms, {case}" for case in ("equal small steps", "large steps", "slow variance",
                       "value with traces, λ = 0.9", "noisy value, 0.1", "off-policy, clipped")),
            x="relative error", log_x=True, log_y=True, caption="Mean over runs with 95 % intervals.",
        ),
    ),
    claims=(
        _premise("noisy value, 0.1", "with a slightly wrong value"),
        _premise("value with traces, λ = 0.9", "with traces in the value"),
        _premise("off-policy, clipped", "off-policy with clipped ratios"),
        _premise("large steps", "with large step sizes", **OURS),
        _premise("slow variance", "with a variance critic ten times slower than the value's", **OURS),
    ),
)  # fmt: skip

ACTORS = Experiment(
    name="critics/actors", title="The same corrected actor with each critic",
    about="Corrected VPAC (σ̂) and corrected VAAC_TD (M̂ − Q̂²) in four rooms: one actor, one price, two critics, for three "
    "pairs of step sizes.",
    env="vpac/FourRooms-v0",
    settings={
        "form": "corrected", "baseline": True, "variance_of": "return", "psi": 0.015, "gamma": 0.99, "alpha_theta": 0.01,
        "start_policy": "uniform", "start_critics": "uniform",
    },
    horizon=300, runs=50,
    arms=tuple(
        Arm(
            label=f"{name}, α_w = {w:g}, α_z = {z:g}", algorithm=key, settings={"alpha_w": w, "alpha_z": z},
            at={"critic": name, "step sizes": f"{w:g}, {z:g}"},
        )
        for w, z in ((0.5, 0.5), (0.5, 0.05), (0.1, 0.01))
        for name, key in (("direct", "vpac"), ("indirect", "vaac-td"))
    ),
    figures=(
        Figure(
            kind="effect", title="Final policies by critic and step sizes (α_w, α_z)", shows=("mean", "variance", "sharpe"),
            x="step sizes", lines="critic", joined=False,
        ),
        Figure(kind="curves", title="Learning curves by critic and step sizes", shows=("mean", "variance")),
    ),
    claims=tuple(
        claim(
            f"variance: direct, {steps} / indirect, {steps} < 1",
            f"with {words} the direct critic's actor ends with the lower variance",
        )
        for steps, words in (("α_w = 0.5, α_z = 0.5", "equal step sizes"), ("α_w = 0.5, α_z = 0.05", "a slow variance critic"))
    ),
)  # fmt: skip

CONVERGENCE = Experiment(
    name="convergence", title="Three timescales",
    about="Step sizes of the convergence theorem: α_w decays slowest, α_θ fastest. Errors of Q̂ and σ̂ against the oracle's "
    "values for the current policy, the norm of the form's mean update, and that of the exact gradient of mean − ψ · "
    "variance. A random process of 4 states with ψ = 0.5, chosen because the published form stops between actions there; "
    "where policies become deterministic both norms go to zero.",
    paper="Appendix C", kind="convergence", env="random-process",
    env_settings={"seed": 35, "n_states": 4, "n_actions": 2, "noise": 0.0},
    settings={
        "gamma": 0.9, "alpha_w": "robbins-monro:0.5:0.6:1000", "alpha_z": "robbins-monro:0.25:0.75:1000",
        "alpha_theta": "robbins-monro:0.05:0.9:1000", "points": 40,
    },
    episodes=1_000_000, runs=10,
    arms=(
        Arm(label="AC", algorithm="ac"),
        Arm(label="VPAC, published", algorithm="vpac", settings={"psi": 0.5, "form": "published"}),
        Arm(label="VPAC, corrected", algorithm="vpac", settings={"psi": 0.5, "form": "corrected"}),
    ),
    figures=(
        Figure(
            kind="errors", title="Errors of the critics and norms of the gradients along learning",
            shows=("value_error", "variance_error", "direction_norm", "gradient_norm"), x="error or norm", log_x=True,
            log_y=True, caption="Mean over runs with 95 % intervals.",
        ),
    ),
    claims=(
        *claims(
            "Appendix C",
            ("value_error: VPAC, published < 0.1", "the value critic converges (relative error below 0.1)", "a theorem"),
            ("variance_error: VPAC, published < 0.1", "the variance critic converges (relative error below 0.1)", "a theorem"),
            ("gradient_norm: VPAC, published < 0.01",
             "the policy converges to a local optimum of the objective: the exact gradient vanishes (below 0.01)", "a theorem",
             "The published field is not the gradient of the objective: it vanishes where the gradient does not."),
        ),
        claim("gradient_norm: VPAC, corrected < 0.01", "with the corrected form the exact gradient vanishes (below 0.01)"),
    ),
)  # fmt: skip

EXPERIMENTS = (PREMISE, ACTORS, CONVERGENCE)
