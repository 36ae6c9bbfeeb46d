"""What the compiled loop needs to know, as numbers."""

from __future__ import annotations

from typing import NamedTuple

from vpac.learners.compiled import inlined

__all__ = ["Settings", "as_on_policy"]

DIRECT, INDIRECT, MONTE_CARLO = 0, 1, 2
"""Critics of the spread: σ̂ by TD (VPAC), M̂ by TD (VAAC_TD), M̂ from whole returns (VAAC)."""
PUBLISHED, CORRECTED = 0, 1
ACTION, STATE, RETURN = 0, 1, 2
CLIPPED, IMPORTANCE, EXPECTED = 0, 1, 2
"""Off-policy critics: ρ = min(1, π/b), plain ρ, or no ratios."""
UNIFORM, TABLE, EPSILON_GREEDY, TARGET = 0, 1, 2, 3
"""Behaviour policies."""


class Settings(NamedTuple):
    """The choices of a learner. Words are numbers here: the constants of this module."""

    critic: int
    """DIRECT, INDIRECT or MONTE_CARLO."""
    form: int
    """PUBLISHED or CORRECTED."""
    variance_of: int
    """ACTION, STATE or RETURN: which variance the corrected form penalises."""
    baseline: bool
    """Subtract state averages from the actor's weights."""
    gamma: float
    """Discount factor."""
    temperature: float
    """Of the softmax."""
    score: float
    """What 1[a] − π(a) is multiplied by: 1/temperature, or 1 as in the authors' code."""
    limit: int
    """Episodes are truncated after this many steps."""
    on_policy: bool
    """Whether actions are the target policy's own; then every ratio is one."""
    behaviour: int
    """UNIFORM, TABLE, EPSILON_GREEDY or TARGET."""
    epsilon: float
    """Of the ε-greedy behaviour policy."""
    ratios: int
    """Ratios of the critics: CLIPPED, IMPORTANCE or EXPECTED."""
    clip_actor: bool
    """Whether the actor's ratios are min(1, ρ)."""
    limited: bool = True
    """Whether `limit` is somebody's choice; otherwise an episode that reaches it is taken for one that never ends."""
    volatility: bool = False
    """Whether ψ is a price of the variance of a step's reward (MVPI): then the reward pays it, and the actor does not."""


@inlined
def as_on_policy(s: Settings) -> Settings:
    """Settings of an on-policy learner, in code that is compiled for nothing else."""
    return Settings(
        s.critic, s.form, s.variance_of, s.baseline, s.gamma, s.temperature, s.score, s.limit, True, TARGET, 0.0,
        CLIPPED, False, s.limited, s.volatility,
    )  # fmt: skip
