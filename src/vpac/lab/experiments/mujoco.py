"""The paper's MuJoCo experiments: VPAC inside PPO, with its baselines, published and corrected."""

from __future__ import annotations

from typing import Any, Literal

from vpac.lab.experiments.spec import Arm, Claim, Experiment, Figure, claim

MILLION = 1_000_000
PER_ITERATION = 8 * 2048
PaperNumbers = dict[str, tuple[float, float]]
TASKS: tuple[tuple[str, str, int, float, PaperNumbers], ...] = (
    ("halfcheetah", "HalfCheetah-v5", 1500, 0.15, {"PPO": (1557, 1.6e5), "VAAC": (1525, 0.8e5), "VPAC": (1373, 0.1e5)}),
    ("hopper", "Hopper-v5", 1500, 0.2, {"PPO": (1944, 6.6e5), "VAAC": (1991, 6.5e5), "VPAC": (1624, 4.0e5)}),
    ("walker2d", "Walker2d-v5", 2500, 0.15, {"PPO": (3058, 12.1e5), "VAAC": (3102, 12.5e5), "VPAC": (2625, 9.2e5)}),
)
"""Name, environment, iterations, VPAC's price, and the paper's (mean, variance) of each algorithm."""
SCALED = 100.0
"""The paper's rewards are multiplied by 0.01, so its prices are a hundred times those of the raw reward."""
PRICE = 0.25
"""Share of PPO's mean that a lower variance may cost; the paper's own prices are 12 to 17 %."""
PRICES = 0.005, 0.015, 0.05
"""ψ of the runs of the noisy cheetah."""
TRAINING_FIGURES = (
    Figure(
        kind="curves",
        title="Scores and returns of training episodes",
        caption="Last 100 finished episodes, average over runs with 95 % intervals. The variance has three sources: "
        "start states, the policy's noise and its progress; the figures below measure the last policy alone. Steps are "
        "those of all environments together; the paper's axis counts an eighth of them.",
        shows=("score_mean", "score_variance", "return_variance"),
    ),
    Figure(
        kind="boxes",
        title="Variance of the last policy, run by run",
        caption="First as the paper measures it (one fixed start state, 100 episodes, undiscounted), where only the "
        "policy's own noise is left; then with random start states, 512 episodes, undiscounted; last the discounted "
        "returns of the same episodes, which the objective uses. The axes are logarithmic. Dotted lines, where "
        "there are any, are the paper's averages.",
        shows=("fixed_variance", "variance", "discounted_variance"),
        log_y=True,
    ),
    Figure(
        kind="bars",
        title="Mean and variance of the last policy",
        caption="Averages over runs with 95 % intervals, as the paper measures (one start state) and with random start states.",
        shows=("fixed_mean", "fixed_variance", "mean", "variance", "discounted_mean", "discounted_variance"),
    ),
)
PROTOCOLS = (
    "The last policy is measured twice, acting with its noise: as in the paper, 100 episodes from one fixed start state, "
    "undiscounted; and 512 episodes with random start states, undiscounted and discounted. "
)
DEVIATIONS = (
    "Deviations from the paper's code: Gymnasium's v5 tasks; time limits truncate, and both critics bootstrap there; actions "
    "are clipped to their bounds, and the learner uses the unclipped ones; the variance critic ends in a softplus, so it is "
    "never negative; VAAC's collected reward is accumulated, as in its formula; only the policy's gradient is clipped; every "
    "reward of an evaluation episode counts, including the last one."
)


def _arms(psi: float, vaac: float, paper: PaperNumbers) -> tuple[Arm, ...]:
    def numbers(label: str) -> dict[str, float]:
        return dict(zip(("fixed_mean", "fixed_variance"), paper.get(label, ()), strict=False))

    published = {"form": "published"}
    return (
        Arm(label="PPO", algorithm="ppo", paper=numbers("PPO")),
        Arm(label="VAAC", algorithm="vaac-ppo", settings={"psi": vaac, **published}, paper=numbers("VAAC")),
        Arm(label="VPAC", algorithm="vpac-ppo", settings={"psi": psi, **published}, paper=numbers("VPAC")),
        Arm(label="VPAC corrected", algorithm="vpac-ppo", settings={"psi": psi, "form": "corrected"}),
    )


def _claims_of_paper(paper: PaperNumbers) -> tuple[Claim, ...]:
    """VPAC varies less than PPO and than VAAC, at a price; the same of the corrected form."""
    mean, _ = paper["PPO"]
    price = PRICE * mean
    claims = []
    for arm, whose, published in (("VPAC", "VPAC", True), ("VPAC corrected", "corrected VPAC", False)):
        of: Literal["paper", "corrected"] = "paper" if published else "corrected"
        claims += [
            claim(
                f"fixed_variance: {arm} / {other} < 1", f"{whose}'s scores vary less than {other}'s", "Table 1, Figure 5",
                f"{paper['VPAC'][1] / paper[other][1]:.2g}" if published else "", of=of,
            )
            for other in ("PPO", "VAAC")
        ]  # fmt: skip
        difference = f"{paper['VPAC'][0] - mean:.0f}".replace("-", "−") if published else ""
        text = f"and {whose} costs at most a quarter of the mean that PPO has in the paper ({price:.0f} points)"
        claims.append(claim(f"fixed_mean: {arm} - PPO > {-price}", text, "Table 1, Figure 12", difference, of=of))
    return tuple(claims)


def _claims_of_ours() -> tuple[Claim, ...]:
    """Claims for both forms with random start states: less variance of the score and of the discounted return."""
    claims = []
    for arm, whose in (("VPAC", "published VPAC"), ("VPAC corrected", "corrected VPAC")):
        for prefix, what in (("", "scores"), ("discounted_", "discounted returns")):
            text = f"and the mean of its {what} is at least three quarters of PPO's"
            claims += [
                claim(f"{prefix}variance: {arm} / PPO < 1", f"{whose}'s {what} vary less than PPO's"),
                claim(f"{prefix}mean: {arm} / PPO > {1.0 - PRICE}", text),
            ]
    return tuple(claims)


def _common(name: str, env: str) -> dict[str, Any]:
    return {
        "name": f"mujoco/{name}", "kind": "deep", "env": env, "episodes": 512, "on_demand": True,
        "fixed_start": {"reset_noise_scale": 0.0}, "figures": TRAINING_FIGURES,
    }  # fmt: skip


def _as_published(name: str, env: str, iterations: int, psi: float, paper: PaperNumbers) -> Experiment:
    return Experiment(
        title=f"{env}: VPAC inside PPO, the paper's settings",
        about="VPAC and VAAC as penalties inside PPO, with the paper's networks, rates, scaled rewards and prices: the preset "
        f"`paper`, field by field in the documentation, with ψ = {psi:g} for VPAC and 0.15 for VAAC per unit of reward × 0.01. "
        + PROTOCOLS
        + DEVIATIONS,
        paper="Table 1, Figures 5 (box plots) and 12 (learning curves)", settings={"preset": "paper"},
        steps=iterations * PER_ITERATION, runs=20, arms=_arms(psi, 0.15, paper), claims=_claims_of_paper(paper),
        **_common(name, env),
    )  # fmt: skip


def _today(name: str, env: str, psi: float) -> Experiment:
    return Experiment(
        title=f"{env}: VPAC inside PPO, today's settings",
        about="The same prices, per unit of the raw reward, with current good practice: orthogonal initialisation, "
        "normalised observations, rewards and advantages, rates that decay, minibatches over all samples (the default preset). "
        + PROTOCOLS,
        steps=MILLION, runs=5, arms=_arms(psi / SCALED, 0.15 / SCALED, {}), claims=_claims_of_ours(),
        **_common(f"{name}-today", env),
    )  # fmt: skip


def _noisy() -> Experiment:
    """A task whose noise is in one region, which a policy can avoid."""
    ppo, _, published, corrected = _arms(0.05, 0.0, {})
    return Experiment(
        title="HalfCheetah-v5 with noise beyond x = 5: where the variance has a place",
        about="Rewards of steps that end beyond x = 5 m get noise with a standard deviation of 10, ten times what a step pays. "
        "Running on pays on average; a risk-averse policy stops before that line. At ψ = 0.05 a step beyond the line costs "
        "more than it pays. " + PROTOCOLS.replace("512", "256"),
        steps=300_000, runs=5, arms=(ppo, published, corrected),
        claims=tuple(one for one in _claims_of_ours() if one.below is not None),
        **{**_common("halfcheetah-noisy", "vpac/NoisyHalfCheetah-v0"), "episodes": 256},
    )  # fmt: skip


def _prices() -> Experiment:
    """The noisy cheetah at several ψ, in both forms."""
    arms = [
        Arm(label=f"{one}, ψ = {psi:g}", algorithm="vpac-ppo", settings={"psi": psi, "form": one}, at={"form": one, "ψ": psi})
        for one in ("published", "corrected") for psi in PRICES
    ]  # fmt: skip
    middle = f"corrected, ψ = {PRICES[1]:g}"
    return Experiment(
        title="HalfCheetah-v5 with noise beyond x = 5: which price, which form",
        about="As `mujoco/halfcheetah-noisy`, at smaller prices; it shares the runs without a price and at ψ = 0.05. "
        + PROTOCOLS.replace("512", "256"),
        steps=300_000, runs=5, arms=(Arm(label="PPO", algorithm="ppo", at={"form": "none (PPO)", "ψ": 0.0}), *arms),
        claims=(
            claim(
                f"variance: {middle} / PPO < 1", "at the price in the middle the corrected form's scores vary less than PPO's",
            ),
            claim(f"discounted_variance: {middle} / PPO < 1", "and so do its discounted returns"),
            claim(f"cvar: {middle} - PPO > 0", "and its worst tenth of the scores is not worse"),
        ),
        **{
            **_common("halfcheetah-prices", "vpac/NoisyHalfCheetah-v0"), "episodes": 256,
            "figures": (
                Figure(
                    kind="effect", title="Scores and discounted returns along the price", x="ψ", lines="form",
                    shows=("mean", "variance", "cvar", "discounted_mean", "discounted_variance"),
                    caption="The last policy with random start states; averages over runs with 95 % intervals.",
                ),
            ),
        },
    )  # fmt: skip


def _horizon() -> Experiment:
    """A larger γ, so that falls of the hopper affect the penalised return."""
    return Experiment(
        title="Hopper-v5 with γ = 0.999: a horizon that reaches the falls",
        about="With γ = 0.99 a fall after 500 steps costs less than one step pays. So the discounted return hardly varies, and "
        "a price of its variance changes nothing, even if the score varies. Here γ = 0.999; everything else, including the "
        "price, is as in `mujoco/hopper-today`. " + PROTOCOLS,
        settings={"gamma": 0.999}, steps=MILLION, runs=5, arms=_arms(0.2 / SCALED, 0.15 / SCALED, {}),
        claims=_claims_of_ours(), **_common("hopper-horizon", "Hopper-v5"),
    )  # fmt: skip


EXPERIMENTS = (
    *(_as_published(*task) for task in TASKS),
    *(_today(name, env, psi) for name, env, _, psi, _ in TASKS),
    _noisy(),
    _prices(),
    _horizon(),
)
