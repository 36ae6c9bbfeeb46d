"""Experiments for questions that the paper leaves open: forms by their frontiers, more runs, causes."""

from __future__ import annotations

from typing import Any

from vpac.lab.experiments import corrected, forms, four_rooms, puddle_world
from vpac.lab.experiments.spec import Arm, Experiment, Figure, claims, curves

Optima = tuple[tuple[float, float, float], ...]
ABOUT = (
    "Both forms swept over the price. At equal ψ they are optima of different objectives, so they are compared by their "
    "frontiers: by the area that the points dominate, and by U = mean − ψ · variance at every ψ of the grid, with the "
    "learner's own price chosen freely. "
)
AS_PAPER, BASELINE, CORRECTED_LABEL = "published, as in the paper", "published, with a baseline", "corrected"


def _sweep(
    of: Experiment, name: str, variants: dict[str, dict[str, Any]], psis: tuple[float, ...], oracle: Optima, **more: Any
) -> Experiment:
    """An experiment's world and settings with each variant along the price."""
    vpac = "off-policy-vpac" if "behaviour" in of.settings else "vpac"
    arms = tuple(
        Arm(
            label=f"{form}, ψ = {psi:g}", algorithm=vpac, settings={**given, "psi": psi}, at={"form": form, "ψ": psi},
        )
        for form, given in variants.items()
        for psi in psis
    )  # fmt: skip
    title = f"Forms by their frontiers: {name.replace('-', ' ')}"
    figures = (
        Figure(
            kind="frontiers", title=title, lines="form", x="ψ", oracle=oracle,
            caption="Averages over runs with 95 % intervals; numbers are prices ψ. Up and left is better.",
        ),
        Figure(kind="effect", title=f"{title}, along the price", lines="form", x="ψ", shows=("mean", "variance")),
    )  # fmt: skip
    changes: dict[str, Any] = {
        "name": f"evidence/forms-{name}", "title": title, "about": ABOUT + more.pop("about", ""), "paper": "", "claims": (),
        "algorithm": "", "arms": arms, "figures": figures, "on_demand": True, **more,
    }  # fmt: skip
    return of.model_copy(update=changes)


ON_POLICY_ARMS: dict[str, dict[str, Any]] = {
    BASELINE: {"baseline": True}, CORRECTED_LABEL: dict(corrected.ON_POLICY), AS_PAPER: {},
}  # fmt: skip
"""The others are compared with the first, which differs from the corrected form in the form alone."""
OFF_POLICY_ARMS: dict[str, dict[str, Any]] = {
    f"{BASELINE}, expected critics": {"baseline": True, "critics": "expected", "ratios": "clipped"},
    CORRECTED_LABEL: dict(corrected.OFF_POLICY), AS_PAPER: {},
}  # fmt: skip
EVEN_FORMS: dict[str, dict[str, Any]] = {"published": {"form": "published"}, CORRECTED_LABEL: {"form": "corrected"}}
ORACLE: dict[str, Optima] = {
    "four rooms": (
        (0.0, 45.8526, 125.882), (0.001, 45.8523, 122.403), (0.002, 45.8477, 119.621), (0.005, 45.8247, 112.04),
        (0.01, 45.5199, 71.2937), (0.015, 45.2524, 49.8125), (0.02, 45.0638, 38.8017), (0.03, 44.9531, 34.0227),
        (0.05, 44.8873, 31.9506),
    ),
    "puddle world": (
        (0.0, 46.685, 61.433), (0.0005, 46.685, 61.433), (0.001, 46.685, 61.433), (0.002, 46.685, 61.433),
        (0.005, 46.685, 61.433), (0.01, 46.44, 32.5036), (0.02, 46.3249, 23.7285), (0.05, 46.3013, 23.0609),
    ),
    "catch-up": (
        (0.0, 9.8011, 13.0872), (0.05, 9.8011, 13.0872), (0.1, 9.8011, 13.0872), (0.2, 9.8011, 13.0872),
        (0.3, 8.9079, 9.6957), (0.5, 8.4891, 8.5814), (1, 8.1581, 8.0863),
    ),
    "risky shortcut": (
        (0.0, 8.6719, 15.1348), (0.01, 8.6719, 15.1348), (0.02, 8.6719, 15.1348), (0.05, 8.6719, 15.1348),
        (0.1, 8.6719, 15.1348), (0.2, 8.6719, 15.1348), (0.5, 5.21, 0),
    ),
    "slippery cliff": (
        (0.0, -46.3527, 137.641), (0.002, -46.3527, 137.641), (0.005, -46.3527, 137.641), (0.01, -46.3527, 137.641),
        (0.02, -46.3527, 137.641), (0.05, -46.3527, 137.641),
    ),
}  # fmt: skip
"""ψ, mean and variance of the best stationary policy that the oracle finds (`vpac.oracle.frontier`, one restart)."""
FORMS = (
    _sweep(
        four_rooms.PERFORMANCE, "four-rooms", ON_POLICY_ARMS, (0.0, 0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05),
        ORACLE["four rooms"], runs=50, about=four_rooms.LIMIT,
    ),
    _sweep(
        puddle_world.DISCRETE, "puddle-world",
        {form: puddle_world.ALPHAS | given for form, given in OFF_POLICY_ARMS.items()},
        (0.0, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05), ORACLE["puddle world"], runs=50, every=2500,
        about="Off-policy, with the settings of Table 3; the greedy policy is measured, exactly.",
    ),
    _sweep(
        puddle_world.CONTINUOUS, "continuous-puddle-world",
        {form: puddle_world.FAST | given for form, given in OFF_POLICY_ARMS.items()}, (0.0, 0.001, 0.002, 0.005, 0.01, 0.02),
        (), runs=10, usual_runs=None, every=4000, about="There is no oracle; policies are measured by 800 rollouts.",
    ),
    _sweep(
        forms.CATCH_UP, "catch-up", EVEN_FORMS, (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0), ORACLE["catch-up"], every=60_000,
        about="Chance comes before the choice.",
    ),
    _sweep(
        forms.RISKY_SHORTCUT, "risky-shortcut", EVEN_FORMS, (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5), ORACLE["risky shortcut"],
        every=20_000, about="A choice between a risky way and a safe one.",
    ),
    _sweep(
        forms.CLIFF_WALKING, "cliff-walking", EVEN_FORMS, (0.0, 0.002, 0.005, 0.01, 0.02, 0.05), ORACLE["slippery cliff"],
        every=6_000, about="By the oracle the risk-neutral policy is the best at every price, which should do no harm.",
    ),
)  # fmt: skip


def _more_runs(of: Experiment, labels: tuple[str, ...], runs: int) -> Experiment:
    """An experiment's undecided claims with more runs of the arms they compare; its own runs are among them."""
    claims = tuple(
        one.model_copy(update={"where": f"{one.where}, with {runs} runs"})
        for one in of.claims
        if one.explanation and one.arm in labels and one.against in labels
    )
    return of.model_copy(
        update={
            "name": f"evidence/{of.name.replace('/', '-')}", "title": f"{of.title}: what was undecided", "runs": runs,
            "about": f"The claims of `{of.name}` that its own number of runs does not decide. {of.about}", "on_demand": True,
            "arms": tuple(arm for arm in of.arms if arm.label in labels), "claims": claims,
            "figures": (Figure(kind="bars", title=f"{of.title}: final policies", shows=("mean", "variance")),),
        }
    )  # fmt: skip


DECIDED = (
    _more_runs(four_rooms.PERFORMANCE, ("AC", "VPAC"), 400),
    _more_runs(four_rooms.PSI_CURVES, ("ψ = 0.01", "ψ = 0.03"), 400),
    _more_runs(puddle_world.DISCRETE, ("AC", "VPAC"), 400),
)

PRINTED: dict[str, Any] = {"alpha_w": 0.005, "alpha_z": 0.05}
"""Algorithm 2 as printed gives the value critic the step size α_z and the second moment α_w; the table lists them by name."""
PAPER_VAAC: dict[float, dict[str, float]] = {0.0: {"mean": 32, "variance": 473}, 0.01: {"mean": 34, "variance": 325}}
VAAC_STUDY = Experiment(
    name="evidence/vaac", title="Four rooms: why VAAC learns faster here than in the paper",
    about="VAAC with and without its price: the step sizes as Table 2 names them, and as Algorithm 2 prints them, which gives "
    "the value critic a tenth (α_z = 0.005); with the step limit of the others, and with one so high that it hardly matters. "
    "Mean and variance at episodes 1000, 4500 and 6000 are in the curve's data. " + four_rooms.LIMIT,
    algorithm="vaac", runs=100, on_demand=True,
    arms=tuple(
        Arm(
            label=f"μ = {psi:g}, {how}{words}", settings={**four_rooms.SLOW, **given, **limit, "psi": psi},
            paper=PAPER_VAAC[psi] if given and limit else {},
        )
        for how, given in (("step sizes as named", {}), ("as printed", PRINTED))
        for words, limit in (("", {}), (", no limit", {"max_episode_steps": 100_000}))
        for psi in (0.0, 0.01)
    ),
    figures=curves("VAAC by step sizes and step limit", four_rooms.GREEDY),
    claims=claims(
        "ours",
        ("mean: μ = 0, as printed - μ = 0, step sizes as named < -5",
         "with the step sizes as Algorithm 2 prints them VAAC learns slower (a mean lower by more than 5 at the end)", ""),
        ("variance: μ = 0.01, as printed, no limit / μ = 0, as printed, no limit < 1",
         "with them and without a step limit, VAAC's variance falls as μ rises", ""),
    ),
    **(four_rooms.ROOMS | {"episodes": 6000, "every": 500}),
)  # fmt: skip

EXPERIMENTS = (*FORMS, *DECIDED, VAAC_STUDY)
