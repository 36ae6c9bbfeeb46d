"""The options of the tabular and linear learners, as users write them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np

from vpac.algorithms import DEFAULT_GAMMA
from vpac.checks import CheckedOptions, Positive, PositiveInt, Share, real
from vpac.errors import UserError, one_of
from vpac.risk.budget import Budget, as_budget
from vpac.risk.measures import measure_of
from vpac.risk.schedules import Schedule, as_schedule
from vpac.tabular.arrays import CODES, TABLE, Settings

Rate = float | str | Schedule
FAR_ON = 9_999
BEHAVIOURS = ("uniform", "epsilon-greedy", "target")


class StepSizeOrder(UserWarning):
    """The step sizes are not in the order that the proof of convergence needs.

    It needs α_θ < α_z < α_w. The paper's own settings have α_z = α_w, so equal ones pass. Schedules are checked in the first
    episode and in episode 10 000.
    """


@dataclass(frozen=True)
class Options(CheckedOptions):
    """Settings of all learners."""

    psi: Rate = 0.0
    """Price of variance ψ (μ in VAAC), in units of 1/reward: a number or a schedule, e.g. "warm-up:0.05:300:500"."""
    penalty: str = "variance"
    """The penalised measure: variance, std, semivariance:TARGET, cvar:SHARE, gini, mad, volatility or entropic:BETA
    (`vpac list penalties`). All but variance and volatility are learned from whole returns."""
    budget: Budget | str | Mapping[str, Any] | None = None
    """The largest variance of the return, e.g. Budget(max_std=2) or "std:2": ψ is then found automatically, and `variance_of`
    is "return" by default."""
    gamma: Share = DEFAULT_GAMMA
    """Discount factor."""
    alpha_theta: Rate = 0.01
    """Step size of the policy; a number or a schedule, as for the other step sizes."""
    alpha_w: Rate = 0.5
    """Step size of the value critic."""
    alpha_z: Rate = 0.5
    """Step size of the spread critic."""
    temperature: Positive = 1.0
    """Temperature of the softmax policy."""
    score: Literal["exact", "published"] = "exact"
    """"exact" divides the score by the temperature, as the derivative does; "published" does not, like the authors' code."""
    form: Literal["corrected", "published"] = "corrected"
    """The actor's weight: the gradient ("corrected"), or the paper's formula."""
    variance_of: Literal["action", "state", "return"] = "action"
    """The variance that the corrected form penalises: given the first state and action, given the first state, or of the whole
    return. The published form ignores it."""
    baseline: bool = True
    """Subtract state averages from the actor's weights: much less noise, and the same mean update on-policy or with plain
    ratios. With clipped ratios the mean update changes, because Σ_a b min(1, π/b) ∇log π is not zero."""
    remember: Literal["nothing", "return"] = "nothing"
    """"return": observations also have the step and the return so far (`vpac.envs.RememberReturn`), in finite MDPs on a grid.
    `predict` and `act` take such observations; `vpac.evaluate` adds both numbers."""
    max_episode_steps: PositiveInt | None = None
    """Truncate episodes after this many steps; default: the environment's own limit."""
    start_policy: Literal["zero", "uniform"] = "zero"
    """Policy parameters start at zero, or uniform in (0, 1) as in the paper's experiments."""
    start_critics: Literal["zero", "uniform"] = "zero"
    """Critics start at zero, or uniform in (0, 1)."""
    tilings: PositiveInt = 10
    """Tilings, for Box observations."""
    tiles: PositiveInt = 5
    """Tiles along each coordinate."""
    hash_size: PositiveInt | None = 1024
    """Number of features into which tiles are hashed; None: one for each tile."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "budget", as_budget(self.budget))
        if measure_of(self.penalty).name != "variance":
            for name, usual in (("form", "corrected"), ("budget", None)):
                if getattr(self, name) != usual:
                    what = "a budget" if name == "budget" else "the published form"
                    raise UserError(f"{what} is for the variance, got penalty={self.penalty!r}: leave out one of them")
        self._warn_of_order()

    def _warn_of_order(self) -> None:
        """Check the step sizes in the first episode and in a late one, because schedules may cross."""
        as_schedule(self.psi, "psi")
        rates = [as_schedule(getattr(self, name), name) for name in ("alpha_theta", "alpha_z", "alpha_w")]
        for episode in (0, FAR_ON):
            theta, z, w = (rate.values(1, episode)[0] for rate in rates)
            if not theta <= z <= w:
                warnings.warn(
                    "the proof of convergence wants α_θ < α_z < α_w (Algorithm 1, line 3), so that the value settles first "
                    f"and the policy last; got α_θ = {theta:g}, α_z = {z:g}, α_w = {w:g} in episode {episode}",
                    StepSizeOrder,
                    stacklevel=5,
                )
                return

    def as_dict(self) -> dict[str, Any]:
        """Plain data; schedules as text."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}

    def compile(self, critic: int, limit: int, limited: bool = True) -> Settings:
        """The options as numbers, for compiled code."""
        return Settings(
            critic=critic, form=CODES[self.form], variance_of=CODES[self.variance_of], baseline=bool(self.baseline),
            gamma=float(self.gamma), temperature=float(self.temperature),
            score=1.0 / self.temperature if self.score == "exact" else 1.0, limit=limit, limited=limited,
        )  # fmt: skip


def _plain(value: Any) -> Any:
    if isinstance(value, Schedule):
        return value.as_text()
    return value.as_dict() if isinstance(value, Budget) else value


@dataclass(frozen=True)
class OffPolicyOptions(Options):
    """Settings of learners with a behaviour policy."""

    behaviour: Any = "uniform"
    """"uniform", "epsilon-greedy" (of the target policy), "target" (the target policy itself), or a table b[s, a]."""
    epsilon: float = 0.1
    """ε of the ε-greedy behaviour policy."""
    critics: Literal["expected", "importance", "clipped"] = "expected"
    """"expected": moments of the target policy's own return, without ratios; "importance": of the importance-weighted
    return (Theorem 3); "clipped": with ρ = min(1, π/b), as published, which the paper calls Retrace."""
    ratios: Literal["clipped", "plain"] = "clipped"
    """The actor's ratios with expected critics. Products of plain ratios are unbiased but grow without bound in long episodes;
    clipped ones are biased and bounded. Other critics determine their own ratios and ignore this."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.behaviour, str):
            one_of(self.behaviour, BEHAVIOURS, "behaviour policy")
        if not 0.0 < real(self.epsilon, "epsilon", "a number above 0 and at most 1") <= 1.0:
            raise UserError(
                f"epsilon must be above 0 and at most 1, got {self.epsilon!r}: the behaviour must cover the target"
            )
        if self.critics != "expected" and self.form == "corrected" and self.variance_of != "action":
            raise UserError(
                f"{self.critics} critics define the variance given the first action only: use variance_of='action', "
                f"or critics='expected' for variance_of={self.variance_of!r}"
            )

    def as_dict(self) -> dict[str, Any]:
        """Plain data; schedules as text, a behaviour table as lists."""
        plain = super().as_dict()
        if not isinstance(self.behaviour, str):
            plain["behaviour"] = np.asarray(self.behaviour).tolist()
        return plain

    def compile(self, critic: int, limit: int, limited: bool = True) -> Settings:
        """The options as numbers, for compiled code."""
        plain, named = super().compile(critic, limit, limited), isinstance(self.behaviour, str)
        clip_actor = self.critics == "clipped" or (self.critics == "expected" and self.ratios == "clipped")
        return plain._replace(
            on_policy=False, behaviour=CODES[self.behaviour] if named else TABLE, epsilon=float(self.epsilon),
            ratios=CODES[self.critics], clip_actor=clip_actor,
        )  # fmt: skip
