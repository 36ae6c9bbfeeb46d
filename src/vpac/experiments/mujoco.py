"""The paper's MuJoCo experiments: VPAC inside PPO, with its baselines, published and corrected."""

from __future__ import annotations

from typing import Any

from vpac.experiments.spec import Arm, Experiment, Figure

__all__ = ["EXPERIMENTS"]

MILLION = 1_000_000
PER_ITERATION = 8 * 2048
TASKS: tuple[tuple[str, str, int, float, dict[str, tuple[float, float]]], ...] = (
    ("halfcheetah", "HalfCheetah-v5", 1500, 0.15, {"PPO": (1557, 1.6e5), "VAAC": (1525, 0.8e5), "VPAC": (1373, 0.1e5)}),
    ("hopper", "Hopper-v5", 1500, 0.2, {"PPO": (1944, 6.6e5), "VAAC": (1991, 6.5e5), "VPAC": (1624, 4.0e5)}),
    ("walker2d", "Walker2d-v5", 2500, 0.15, {"PPO": (3058, 12.1e5), "VAAC": (3102, 12.5e5), "VPAC": (2625, 9.2e5)}),
)
"""Name, environment, iterations, VPAC's price, and the paper's (mean, variance) of each algorithm."""


SCALED = 100.0
"""The paper's rewards are multiplied by 0.01, so its prices are a hundred times those of the raw reward."""
FIGURES = (
    Figure(
        kind="curves",
        title="Scores of training episodes",
        shows=("score_mean", "score_variance", "return_variance"),
    ),
)


def _arms(psi: float, vaac: float, paper: dict[str, tuple[float, float]]) -> tuple[Arm, ...]:
    def numbers(label: str) -> dict[str, float]:
        return dict(zip(("fixed_mean", "fixed_variance"), paper.get(label, ()), strict=False))

    published = {"form": "published"}
    return (
        Arm(label="PPO", algorithm="ppo", paper=numbers("PPO")),
        Arm(label="VAAC", algorithm="vaac-ppo", settings={"psi": vaac, **published}, paper=numbers("VAAC")),
        Arm(label="VPAC", algorithm="vpac-ppo", settings={"psi": psi, **published}, paper=numbers("VPAC")),
        Arm(label="VPAC corrected", algorithm="vpac-ppo", settings={"psi": psi, "form": "corrected"}),
    )


def _common(name: str, env: str) -> dict[str, Any]:
    return {
        "name": f"mujoco/{name}", "kind": "deep", "env": env, "episodes": 512, "usual_runs": 5, "on_demand": True,
        "fixed_start": {"reset_noise_scale": 0.0}, "figures": FIGURES,
    }  # fmt: skip


def _as_published(
    name: str, env: str, iterations: int, psi: float, paper: dict[str, tuple[float, float]]
) -> Experiment:
    return Experiment(
        title=f"{env}: VPAC inside PPO, the paper's settings",
        paper="Table 1, Figures 8 and 9",
        settings={"preset": "paper"},
        steps=iterations * PER_ITERATION,
        runs=20,
        arms=_arms(psi, 0.15, paper),
        **_common(name, env),
    )


def _today(name: str, env: str, psi: float) -> Experiment:
    return Experiment(
        title=f"{env}: VPAC inside PPO, today's settings",
        steps=MILLION,
        runs=5,
        arms=_arms(psi / SCALED, 0.15 / SCALED, {}),
        **_common(f"{name}-today", env),
    )


EXPERIMENTS = (
    *(_as_published(*task) for task in TASKS),
    *(_today(name, env, psi) for name, env, _, psi, _ in TASKS),
)
