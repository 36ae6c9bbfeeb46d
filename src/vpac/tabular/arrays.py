"""Numbers and arrays for compiled code: settings, weights, rates, buffers. Nothing here needs Numba."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vpac.typing import BoolArray, FloatArray, IntArray

DIRECT, INDIRECT, MONTE_CARLO = 0, 1, 2
"""Spread critics: σ̂ by TD (VPAC), M̂ by TD (VAAC_TD), M̂ from whole returns (VAAC)."""
PUBLISHED, CORRECTED = 0, 1
ACTION, STATE, RETURN = 0, 1, 2
CLIPPED, IMPORTANCE, EXPECTED = 0, 1, 2
"""Off-policy critics: ρ = min(1, π/b), plain ρ, or no ratios."""
UNIFORM, TABLE, EPSILON_GREEDY, TARGET = 0, 1, 2, 3
"""Behaviour policies."""
CODES = {
    "published": PUBLISHED, "corrected": CORRECTED, "action": ACTION, "state": STATE, "return": RETURN, "clipped": CLIPPED,
    "importance": IMPORTANCE, "expected": EXPECTED, "uniform": UNIFORM, "epsilon-greedy": EPSILON_GREEDY, "target": TARGET,
}  # fmt: skip
"""The names of these constants in options."""


class Settings(NamedTuple):
    """The settings of a learner as numbers: the constants of this module."""

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
    """Temperature of the softmax."""
    score: float
    """Factor of 1[a] − π(a): 1/temperature, or 1 as in the authors' code."""
    limit: int
    """Episodes are truncated after this many steps."""
    on_policy: bool = True
    """Whether actions are drawn from the target policy; then every ratio is one."""
    behaviour: int = TARGET
    """UNIFORM, TABLE, EPSILON_GREEDY or TARGET."""
    epsilon: float = 0.0
    """ε of the ε-greedy behaviour policy."""
    ratios: int = IMPORTANCE
    """Ratios of the critics: CLIPPED, IMPORTANCE or EXPECTED."""
    clip_actor: bool = False
    """Whether the actor's ratios are min(1, ρ)."""
    limited: bool = True
    """Whether the user or the environment set `limit`; otherwise it is an error to reach it."""
    volatility: bool = False
    """Whether ψ penalises the variance of the reward per step (MVPI), by changing the reward and not the actor's weight."""
    by_return: bool = False
    """Whether ψ penalises a measure of the whole return: the actor is updated when the episode has ended."""


GOOD, BAD_REWARD, BAD_VALUE, BAD_SPREAD, BAD_ACTOR, ENDLESS = 0, 1, 2, 3, 4, 5
"""Outcomes of a step: no error, the first quantity that is not finite, or an episode that does not end."""
LARGEST_NUMBER = 1e150
"""Estimates and updates beyond this count as infinite, so that weights and their squares stay finite."""


class Weights(NamedTuple):
    """Parameters of a learner."""

    theta: FloatArray
    """Policy parameters θ, [features, actions]."""
    w: FloatArray
    """Value critic Q̂."""
    z: FloatArray
    """Spread critic: σ̂ or M̂; for other measures the mean influence of returns, a baseline."""
    mean: FloatArray
    """Ĵ, the mean of V̂(S_0) over starts, [1]; in MVPI y = (1 − γ) · mean return, the mean reward of a step."""


class Rates(NamedTuple):
    """ψ and step sizes, one number for each episode."""

    psi: FloatArray
    alpha_theta: FloatArray
    alpha_w: FloatArray
    alpha_z: FloatArray
    alpha_mean: FloatArray
    """Step size of Ĵ."""


class EpisodeBuffer(NamedTuple):
    """A recorded episode, one row for each step: VAAC learns from whole episodes."""

    active: IntArray
    action: IntArray
    policy: FloatArray
    reward: FloatArray
    rho: FloatArray
    actor_rho: FloatArray
    product: FloatArray
    value_error: FloatArray
    moment_error: FloatArray

    @classmethod
    def make(cls, steps: int, n_active: int, n_actions: int) -> EpisodeBuffer:
        """Allocate arrays for `steps` steps."""
        active, action, policy = np.zeros((steps, n_active), np.int64), np.zeros(steps, np.int64), (steps, n_actions)
        return cls(active, action, np.zeros(policy), *(np.zeros(steps) for _ in range(6)))


class Workspace(NamedTuple):
    """Working arrays of the loop."""

    here: IntArray
    """Active features of S."""
    there: IntArray
    """Active features of S'."""
    policy: FloatArray
    policy_next: FloatArray
    behaviour: FloatArray
    """b(·|S)."""
    position: FloatArray
    """Current position: a state's index, or a point."""
    table: FloatArray
    """The behaviour policy b[s, a], if it is a table."""
    buffer: EpisodeBuffer
    influence: FloatArray
    """Influence function of a measure: ascending returns and their influences, [2, knots]."""

    @classmethod
    def make(cls, n_active: int, n_actions: int, table: FloatArray | None = None, recorded_steps: int = 0) -> Workspace:
        """Allocate arrays; `recorded_steps` is the longest episode that is recorded."""
        here, there = np.zeros(n_active, np.int64), np.zeros(n_active, np.int64)
        policy, policy_next, behaviour = np.zeros(n_actions), np.zeros(n_actions), np.zeros(n_actions)
        table = np.zeros((1, n_actions)) if table is None else table
        buffer = EpisodeBuffer.make(recorded_steps, n_active, n_actions)
        return cls(here, there, policy, policy_next, behaviour, np.zeros(2), table, buffer, np.zeros((2, 1)))


class History(NamedTuple):
    """Statistics of each episode."""

    returns: FloatArray
    """Discounted return."""
    lengths: IntArray
    """Steps."""
    terminated: BoolArray
    """Whether it terminated; otherwise it was truncated."""
    effective: FloatArray
    """Effective share of its steps off-policy, (Σ ρ_{0:k})² / (steps · Σ ρ_{0:k}²); 1 on-policy."""
    clipped: FloatArray
    """Clipped mass: the mean over its steps of (ρ_k − 1)⁺, with ρ_k = π(A_k|S_k) / b(A_k|S_k) before any clipping.

    Given the states, its expectation is the average of Σ_a (π(a|S_k) − b(a|S_k))⁺, the total variation between target and
    behaviour. 0 on-policy.
    """

    def until(self, episode: int) -> History:
        """The episodes before one."""
        return History(*(column[:episode] for column in self))  # type: ignore[arg-type]

    @classmethod
    def make(cls, episodes: int) -> History:
        """Allocate arrays for `episodes` episodes."""
        returns, effective, clipped = np.zeros(episodes), np.zeros(episodes), np.zeros(episodes)
        return cls(returns, np.zeros(episodes, np.int64), np.zeros(episodes, bool), effective, clipped)
