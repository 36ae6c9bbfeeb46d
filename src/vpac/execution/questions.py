"""Whose frontier is asked for, and at which prices of variance: as data, and as a study of the store."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from vpac.envs.finite_mdp import FiniteMDP
from vpac.errors import UserError, suggestion
from vpac.execution.deep import DEEP
from vpac.execution.making import process_of, world_of
from vpac.execution.run import canonical
from vpac.execution.training import ALGORITHMS
from vpac.experiments.spec import Arm, Experiment, Figure
from vpac.learners.checks import MOST_EPISODES, MOST_STEPS, whole
from vpac.learners.options import Options

__all__ = ["PRICED", "Asked", "Question"]

PRICED = [name for name in (*ALGORITHMS, *DEEP) if name.removeprefix("off-policy-") not in ("ac", "ppo")]
"""Algorithms that have a price of variance."""
MOST_POINTS = 1000
"""Of a frontier."""
MOST_STATES = 300
"""Finite processes up to this size are solved exactly."""


@dataclass(frozen=True)
class Question:
    """Whose frontier: everything but the prices."""

    env: str
    """Gymnasium id or import path."""
    algorithm: str = "vpac-ppo"
    """One that has a price of variance."""
    env_settings: dict[str, Any] = field(default_factory=dict)
    """Arguments of the environment."""
    wrappers: tuple[tuple[str, dict[str, Any]], ...] = ()
    """Around it."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Of the learner, but for ψ."""
    length: int = 1000
    """Episodes of a run; of the PPO family, environment steps."""
    seeds: int = 3
    """Runs of each price."""
    measure: int = 1000
    """Episodes that each policy is measured in, where it is not measured exactly."""
    warm_up: float = 0.0
    """The share of training that is risk-neutral; ψ rises to its value over the same time again."""
    seed: int = 0
    """Of everything random."""

    def __post_init__(self) -> None:
        folded = self.algorithm.casefold().replace("_", "-")
        if folded not in PRICED:
            raise UserError(
                f"{self.algorithm!r} has no frontier: expected an algorithm with a price of variance, {', '.join(PRICED)}"
                f"{suggestion(folded, PRICED)}"
            )
        object.__setattr__(self, "algorithm", folded)
        if "psi" in self.settings:
            raise UserError("psi is what a frontier varies: name its values with --psi, or their number with --points")
        if not 0.0 <= self.warm_up <= 0.5:
            raise UserError(f"warm-up must be a share of the training from 0 to 0.5, got {self.warm_up!r}")
        for name in ("length", "seeds", "measure"):
            most = MOST_STEPS if name == "length" and self.deep else MOST_EPISODES
            whole(getattr(self, name), name, 2 if name == "measure" else 1, most)

    @property
    def deep(self) -> bool:
        """Whether it is one of the PPO family."""
        return self.algorithm in DEEP

    @property
    def outsider(self) -> Question:
        """The same question to MVPI, around the risk-neutral learner of the same family; it has no settings of variances."""
        settings = {k: v for k, v in self.settings.items() if k not in ("form", "variance_of", "weighting")}
        return replace(self, algorithm="mvpi-ppo" if self.deep else "mvpi", settings=settings)

    def price(self, psi: float) -> float | str:
        """ψ as the learner gets it."""
        wait = round(self.warm_up * self.length)
        return f"warm-up:{psi:g}:{wait}:{wait}" if wait and psi > 0.0 else psi

    def experiment(self, psis: Sequence[float]) -> Experiment:
        """The study of these prices; its name does not depend on them."""
        about = {key: value for key, value in vars(self).items() if key != "seeds"}
        digest = hashlib.sha256(canonical(about).encode()).hexdigest()[:8]
        world = re.sub(r"[^a-z0-9]+", "-", re.split("[/:]", self.env)[-1].casefold()).strip("-")[:32].strip("-")
        given: dict[str, Any] = {"steps": self.length, "episodes": self.measure}
        if not self.deep:
            every = max(1, -(-self.length // 40))
            given = {"episodes": self.length, "every": every, "policy": "softmax", "measure": self.measure}
            given["evaluate"] = "exact" if self._finite() else "episodes"
        return Experiment(
            name=f"frontier/{world or 'env'}-{self.algorithm}-{digest}",
            title=f"{self.env}: mean and spread along the price of variance",
            kind="deep" if self.deep else "training", env=self.env, env_settings=self.env_settings, wrappers=self.wrappers,
            algorithm=self.algorithm, settings=self.settings, runs=self.seeds, seed=self.seed, **given,
            arms=tuple(
                Arm(label=f"ψ = {psi:g}", settings={"psi": self.price(psi)}, at={"psi": psi}) for psi in sorted(psis)
            ),
            figures=(Figure(kind="effect", title="What a price on variance does", x="psi", shows=("mean", "variance")),),
        )  # fmt: skip

    def task(self) -> dict[str, Any]:
        """The part of its runs' tasks that says what the world is."""
        return {"env": self.env, "env_settings": self.env_settings, "wrappers": [list(w) for w in self.wrappers]}

    def _finite(self) -> bool:
        return isinstance(world_of(self.task())[0], FiniteMDP)

    def solvable(self) -> bool:
        """Whether the exact frontier can be drawn beneath."""
        return self._finite() and process_of(self.task()).n_states <= MOST_STATES

    @property
    def gamma(self) -> float:
        """The discount factor."""
        if self.deep:
            from vpac.deep.options import Options as DeepOptions

            return float(self.settings.get("gamma", DeepOptions.gamma))
        return float(self.settings.get("gamma", Options.gamma))


@dataclass(frozen=True)
class Asked:
    """Which prices: one of the three."""

    psis: tuple[float, ...] = ()
    """These."""
    aversions: tuple[float, ...] = ()
    """Those of these risk aversions: ψ = R / standard deviation of the risk-neutral return."""
    points: int = 8
    """So many, chosen where the curve bends."""

    def __post_init__(self) -> None:
        for name, values in (("psi", self.psis), ("risk aversion", self.aversions)):
            if not all(np.isfinite(value) and value >= 0.0 for value in values):
                raise UserError(
                    f"{name} must be finite numbers that are not negative, got {', '.join(map(str, values))}"
                )
        if not 2 <= self.points <= MOST_POINTS:
            raise UserError(f"points must be a whole number from 2 to {MOST_POINTS}, got {self.points!r}")

    @property
    def count(self) -> int:
        """How many points there will be, at most; ψ = 0 is always one of them."""
        given = self.psis or self.aversions
        return len({0.0, *given}) if given else self.points
