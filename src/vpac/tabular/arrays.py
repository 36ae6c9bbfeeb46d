"""Numbers and arrays that compiled code works on: settings, weights, rates, buffers. Nothing here needs Numba."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vpac.typing import BoolArray, FloatArray, IntArray

DIRECT, INDIRECT, MONTE_CARLO = 0, 1, 2
"""Critics of the spread: σ̂ by TD (VPAC), M̂ by TD (VAAC_TD), M̂ from whole returns (VAAC)."""
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
"""The words of the options."""


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
    on_policy: bool = True
    """Whether actions are the target policy's own; then every ratio is one."""
    behaviour: int = TARGET
    """UNIFORM, TABLE, EPSILON_GREEDY or TARGET."""
    epsilon: float = 0.0
    """Of the ε-greedy behaviour policy."""
    ratios: int = IMPORTANCE
    """Ratios of the critics: CLIPPED, IMPORTANCE or EXPECTED."""
    clip_actor: bool = False
    """Whether the actor's ratios are min(1, ρ)."""
    limited: bool = True
    """Whether the user or the environment set `limit`; otherwise an episode that reaches it counts as endless."""
    volatility: bool = False
    """Whether ψ is a price of the variance of a step's reward (MVPI): then the reward pays it, and the actor does not."""
    by_return: bool = False
    """Whether ψ is the price of a measure of the whole return: then the actor pays it once the episode has ended."""


GOOD, BAD_REWARD, BAD_VALUE, BAD_SPREAD, BAD_ACTOR, ENDLESS = 0, 1, 2, 3, 4, 5
"""Outcomes of a step: fine, the first quantity that is not finite, or an episode that does not end."""
LARGEST = 1e150
"""Estimates and updates beyond this count as infinite: what has been learned stays finite, and so do its squares."""


class Weights(NamedTuple):
    """What a learner learns."""

    theta: FloatArray
    """Policy parameters θ, [features, actions]."""
    w: FloatArray
    """Value critic Q̂."""
    z: FloatArray
    """Critic of the spread: σ̂ or M̂; of another measure the mean influence of returns, a baseline."""
    mean: FloatArray
    """Ĵ, the mean of V̂(S_0) over starts, [1]; in MVPI y = (1 − γ) · mean return, the mean reward of a step."""


class Rates(NamedTuple):
    """Prices and step sizes, one number for each episode."""

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
        """Room for so many steps."""
        active, action, policy = np.zeros((steps, n_active), np.int64), np.zeros(steps, np.int64), (steps, n_actions)
        return cls(active, action, np.zeros(policy), *(np.zeros(steps) for _ in range(6)))


class Workspace(NamedTuple):
    """Arrays that the loop works in."""

    here: IntArray
    """Active features of S."""
    there: IntArray
    """Active features of S'."""
    policy: FloatArray
    policy_next: FloatArray
    behaviour: FloatArray
    """b(·|S)."""
    position: FloatArray
    """Where the world is: a state's number, or a point."""
    table: FloatArray
    """The behaviour policy b[s, a], if it is a table."""
    buffer: EpisodeBuffer
    influence: FloatArray
    """IF of a measure: returns, ascending, and their influences, [2, knots]."""

    @classmethod
    def make(cls, n_active: int, n_actions: int, table: FloatArray | None = None, recorded_steps: int = 0) -> Workspace:
        """For so many active features and actions; `recorded_steps` is the longest episode that is recorded."""
        here, there = np.zeros(n_active, np.int64), np.zeros(n_active, np.int64)
        policy, policy_next, behaviour = np.zeros(n_actions), np.zeros(n_actions), np.zeros(n_actions)
        table = np.zeros((1, n_actions)) if table is None else table
        buffer = EpisodeBuffer.make(recorded_steps, n_active, n_actions)
        return cls(here, there, policy, policy_next, behaviour, np.zeros(2), table, buffer, np.zeros((2, 1)))


class History(NamedTuple):
    """What happened in each episode."""

    returns: FloatArray
    """Discounted return."""
    lengths: IntArray
    """Steps."""
    terminated: BoolArray
    """Whether it ended by itself; otherwise it was cut off."""
    effective: FloatArray
    """Off-policy, the effective share of its steps, (Σ ρ_{0:k})² / (steps · Σ ρ_{0:k}²); 1 on-policy."""
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
        """Room for so many episodes."""
        returns, effective, clipped = np.zeros(episodes), np.zeros(episodes), np.zeros(episodes)
        return cls(returns, np.zeros(episodes, np.int64), np.zeros(episodes, bool), effective, clipped)
