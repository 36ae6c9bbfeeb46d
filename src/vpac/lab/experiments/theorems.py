"""Tests of the paper's theorems: every published and every corrected gradient against the exact derivative."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SEED = 2021


@dataclass(frozen=True)
class TrialWorld:
    """A world in which formulas are tested, at several random policies."""

    name: str
    """Name as it is shown."""
    env: str | None
    """A Gymnasium id, or None for random processes."""
    gamma: float
    """Discount factor."""
    policies: int = 3
    """Number of policies (for random processes: of processes with a policy each) that are drawn."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the environment; for random processes those of `random_process`."""


@dataclass(frozen=True)
class Formula:
    """A formula of the paper that is tested."""

    key: str
    """Short name."""
    title: str
    """Title as it is shown."""
    claim: str
    """The paper's claim in a sentence."""


TRIAL_WORLDS = (
    TrialWorld("four rooms", "vpac/FourRooms-v0", 0.99),
    TrialWorld("puddle world", "vpac/PuddleWorld-v0", 0.99),
    TrialWorld("risky shortcut", "vpac/RiskyShortcut-v0", 0.95),
    TrialWorld("catch-up", "vpac/CatchUp-v0", 0.95),
    TrialWorld("slippery cliff", "CliffWalkingSlippery-v1", 0.99),
    TrialWorld("frozen lake", "FrozenLake-v1", 0.99),
    TrialWorld("random, quiet", None, 0.9, policies=10, kwargs={"noise": 0.0}),
    TrialWorld("random, noisy", None, 0.9, policies=10, kwargs={"noise": 100.0}),
    TrialWorld("random, endless", None, 0.9, policies=10, kwargs={"noise": 0.0, "ends": False}),
)

FORMULAS = (
    Formula("theorem-1", "Theorem 1", "σ(s,a) obeys a Bellman equation with δ² as its reward (on-policy)"),
    Formula("theorem-3", "Theorem 3", "σ(s,a) of the importance-weighted return does so off-policy"),
    Formula("theorem-2", "Theorem 2", "the on-policy gradient of the variance is Σ γ^2k σ ∇log π"),
    Formula("theorem-4", "Theorem 4", "the off-policy one is Σ (1 + 1[k≥1]) T̄ σ ∇log π"),
    Formula("vaac", "VAAC actor", "Algorithms 2 and 3 follow the gradient of Var(G|S0)"),
    Formula("ppo", "PPO form", "A_V − ψ A_σ follows the gradient of mean − ψ variance"),
)
