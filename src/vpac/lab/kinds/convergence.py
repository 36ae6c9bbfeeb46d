"""Runs that are compared with the oracle during learning: critics of a fixed policy, and the three timescales of Appendix C.

**Convergence.** With step sizes that satisfy Σα = ∞, Σα² < ∞, α_z/α_w → 0 and α_θ/α_z → 0 the theorem says

    ‖Q̂ − Q_π‖ → 0,        ‖σ̂ − σ_π‖ → 0,        ‖direction(θ)‖ → 0

where π is the current policy and the direction is the mean update of θ with exact critics. For the corrected form (and
at ψ = 0) it is ∇J, J = mean − ψ · variance; for the published form it is Theorem 2's field, whose zeros are not J's.

The critics' errors are mostly the noise of the last steps, so they shrink like √α_w and √α_z. If the policy becomes
deterministic, the softmax gradient shrinks like 1/Σα_θ, slowly. Every deterministic policy is a zero of both fields; the two
differ where one of them keeps the policy between actions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from vpac import algorithms
from vpac.checks import whole
from vpac.envs.finite_mdp import FiniteMDP
from vpac.errors import UserError, one_of
from vpac.lab.kinds.task import process_of
from vpac.lab.store.backend import Scratch
from vpac.lab.store.run import Run
from vpac.lab.store.store import Result
from vpac.oracle import evaluate, gradient, optimal_policy, softmax, uniform
from vpac.risk.schedules import Schedule
from vpac.tabular import Learner
from vpac.tabular.prediction import Prediction, log_spaced
from vpac.typing import FloatArray

CONVERGENCE_COLUMNS = (
    "episodes", "value_error", "variance_error", "direction_norm", "gradient_norm", "mean", "variance", "objective",
)  # fmt: skip


def predict(run: Run, _: Scratch) -> Result:
    """Evaluate a fixed policy with the direct and the indirect variance critic.

    The target policy is `greed` times the optimal one, the rest uniform; the behaviour policy likewise, with
    `behaviour_greed`, or the target itself. Errors are relative to the root mean square of the exact variance, and the noise
    of the value is in units of the root of the mean variance.
    """
    settings = dict(run.task["settings"])
    mdp, greed, behaviour_greed = process_of(run.task), settings.pop("greed"), settings.pop("behaviour_greed", None)
    best, even = optimal_policy(mdp, settings["gamma"]), uniform(mdp)
    target = greed * best + (1.0 - greed) * even
    behaviour = None if behaviour_greed is None else behaviour_greed * best + (1.0 - behaviour_greed) * even
    truth = Prediction(**(settings | {"value_noise": None})).truth(mdp, target, behaviour)
    if settings.get("value_noise") is not None:
        settings["value_noise"] *= float(np.sqrt((truth.shares * truth.action_variance).sum()))
    settings["steps"] = max(10, round(settings["steps"] * run.task.get("scale", 1.0)))
    metrics = Prediction(**settings).run(mdp, target, run.seed, behaviour, truth)
    size = truth.rms(truth.action_variance)
    for name in ("direct_error", "indirect_error", "direct_bias", "indirect_bias"):
        metrics[name] = metrics[name] / size
    late = {name: float(np.exp(np.log(metrics[f"{name}_error"][-5:]).mean())) for name in ("direct", "indirect")}
    final = {**late, "ratio": late["direct"] / late["indirect"]}
    return Result(metrics, {}, {name: value if np.isfinite(value) else None for name, value in final.items()})


def perform(run: Run, _: Scratch) -> Result:
    """Learn with the step sizes of the convergence theorem, and compare with the oracle."""
    task = run.task
    convergence = Convergence(algorithm=task["algorithm"], episodes=task["episodes"], **task["settings"])
    metrics = convergence.run(process_of(task), run.seed)
    return Result(metrics, {}, {name: float(column[-1]) for name, column in metrics.items() if name != "episodes"})


@dataclass(frozen=True)
class Convergence:
    """Settings of a run that is compared with the oracle during learning."""

    algorithm: Literal["ac", "vpac"] = "vpac"
    """Learner: risk-neutral, or with ψ."""
    form: Literal["corrected", "published"] = "corrected"
    """The actor's formula."""
    psi: float = 0.0
    """ψ; 0 for "ac"."""
    variance_of: Literal["action", "state", "return"] = "action"
    """The variance in J; the published form is meant for "action"."""
    gamma: float = 0.9
    """Discount factor."""
    alpha_w: float | str | Schedule = "robbins-monro:0.5:0.6:1000"
    """Step size of Q̂, the fastest; t counts episodes."""
    alpha_z: float | str | Schedule = "robbins-monro:0.25:0.75:1000"
    """Step size of σ̂."""
    alpha_theta: float | str | Schedule = "robbins-monro:0.05:0.9:1000"
    """Step size of θ, the slowest."""
    episodes: int = 1_000_000
    """Episodes of a run."""
    points: int = 60
    """Number of comparisons, evenly spaced in the logarithm of the number of episodes."""
    max_episode_steps: int | None = None
    """Truncate episodes after this many steps; the last step bootstraps, so the exact values do not change."""

    def __post_init__(self) -> None:
        one_of(self.algorithm, ("ac", "vpac"), "algorithm")
        for name in ("episodes", "points"):
            whole(getattr(self, name), name, 1)
        if self.algorithm == "ac" and self.psi != 0.0:
            raise UserError(f"AC has no price of variance: use vpac for psi={self.psi!r}")

    def run(self, mdp: FiniteMDP, seed: int = 0) -> dict[str, FloatArray]:
        """One run: columns of `points` numbers (fewer if `episodes` is small).

        `episodes`; relative errors `value_error` and `variance_error` of the critics, each pair weighted by the discounted
        visits of the current policy; `direction_norm`, the norm of the form's own mean update with exact critics;
        `gradient_norm`, that of ∇J; exact `mean`, `variance` and `objective` J of the current policy.
        """
        learner = algorithms.find(self.algorithm, algorithms.TABULAR).load()(
            mdp, seed=seed, psi=self.psi, form=self.form, variance_of=self.variance_of, gamma=self.gamma, alpha_w=self.alpha_w,
            alpha_z=self.alpha_z, alpha_theta=self.alpha_theta, max_episode_steps=self.max_episode_steps,
        )  # fmt: skip
        rows = []
        for until in log_spaced(self.episodes, self.points):
            learner.learn(until - learner.episodes)
            rows.append((float(until), *self._compared(mdp, learner)))
        return dict(zip(CONVERGENCE_COLUMNS, np.array(rows).T, strict=True))

    def _compared(self, mdp: FiniteMDP, learner: Learner) -> tuple[float, ...]:
        """The columns after `episodes`."""
        theta = learner.weights.theta
        moments = evaluate(mdp, softmax(theta), self.gamma)
        shares = np.where(mdp.terminal[:, None], 0.0, moments.visitation[:, None] * moments.policy)
        exact = gradient(mdp, theta, self.gamma, self.psi, "exact", self.variance_of)
        field = exact if self.form == "corrected" else gradient(mdp, theta, self.gamma, self.psi, "published")
        mean, variance = float(moments.mean), float(moments.variance_of(self.variance_of))
        return (
            _relative(learner.weights.w, moments.action_value, shares),
            _relative(learner.weights.z, moments.action_variance, shares), float(np.linalg.norm(field)),
            float(np.linalg.norm(exact)), mean, variance, mean - self.psi * variance,
        )  # fmt: skip


def _relative(found: FloatArray, exact: FloatArray, shares: FloatArray) -> float:
    """‖found − exact‖ / ‖exact‖ in the norm weighted by the shares."""
    return float(np.sqrt((shares * (found - exact) ** 2).sum() / (shares * exact**2).sum()))
