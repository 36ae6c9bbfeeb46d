"""Critics from whole returns (VAAC, Algorithm 2): an episode is recorded and learned from when it is over.

    G_t = R_{t+1} + γ G_{t+1},     Q̂ ← Q̂ + α_w (G_t − Q̂_i),     M̂ ← M̂ + α_z (G_t² − M̂_i)          lines 11–14

where Q̂_i and M̂_i are the critics as they were when the episode began. An episode that was cut off goes on with the critics'
own estimates. The paper keeps V(S_0) as one number for all starts; it stands for the value of *this* episode's start in the
derivation, so it is Σ_a π(a|S_0) Q̂(S_0,a) here.

Off-policy the returns carry ratios: G_t = R_{t+1} + γ ρ_{t+1} G_{t+1} in the corrected form; in the published one every reward
carries the ratios from the episode's start on, Σ_j γ^{j−t} ρ_{0:j} R_{j+1}.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from vpac.tabular.arrays import BAD_REWARD, BAD_SPREAD, BAD_VALUE, GOOD, LARGEST, PUBLISHED, Settings, Weights
from vpac.tabular.kernel.compiled import inlined, shared
from vpac.tabular.kernel.softmax import mean_value, value
from vpac.tabular.update import advance, begin, move_actor
from vpac.typing import FloatArray, IntArray


class EpisodeBuffer(NamedTuple):
    """A recorded episode, one row a step."""

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
    def make(cls, limit: int, n_active: int, n_actions: int) -> EpisodeBuffer:
        """Room for so many steps; none for algorithms that learn as they go."""
        columns = (np.zeros(limit) for _ in range(6))
        return cls(
            np.zeros((limit, n_active), np.int64), np.zeros(limit, np.int64), np.zeros((limit, n_actions)), *columns
        )


@inlined
def record(
    buffer: EpisodeBuffer,
    step: int,
    here: IntArray,
    action: int,
    policy: FloatArray,
    reward: float,
    rho: float,
    actor_rho: float,
) -> int:
    """Write a step down."""
    for index in range(len(here)):
        buffer.active[step, index] = here[index]
    for index in range(len(policy)):
        buffer.policy[step, index] = policy[index]
    buffer.action[step], buffer.reward[step] = action, reward
    buffer.rho[step], buffer.actor_rho[step] = rho, actor_rho
    return GOOD if math.isfinite(reward) else BAD_REWARD


@shared
def learn_from_episode(
    settings: Settings,
    weights: Weights,
    ascent: FloatArray,
    psi: float,
    alpha_theta: float,
    alpha_w: float,
    alpha_z: float,
    buffer: EpisodeBuffer,
    steps: int,
    rho_after: float,
    ahead: float,
    ahead_square: float,
) -> tuple[int, int]:
    """Critics first, then the actor, over the whole episode. `ahead` is what the critics expect after a cut.

    Returns what it found, and at which step; a number that is not finite is not learned.
    """
    from_start = settings.form == PUBLISHED and not settings.on_policy
    product = 1.0
    for step in range(steps):
        product *= buffer.rho[step]
        buffer.product[step] = product
    rest, rest_square = ahead, ahead_square
    rho_next = product * rho_after if from_start else rho_after
    for back in range(steps):
        step = steps - 1 - back
        here, action, reward = buffer.active[step], buffer.action[step], buffer.reward[step]
        discount = settings.gamma * (rho_next if back == 0 or not from_start else 1.0)
        paid = reward * buffer.product[step] if from_start else reward
        rest_square = paid * paid + 2.0 * paid * discount * rest + discount * discount * rest_square
        rest = paid + discount * rest
        buffer.value_error[step] = rest - value(weights.w, here, action)
        buffer.moment_error[step] = rest_square - value(weights.z, here, action)
        rho_next = buffer.rho[step]
        if not abs(alpha_w * buffer.value_error[step]) + abs(rest) < LARGEST:
            return BAD_VALUE, step
        if not abs(alpha_z * buffer.moment_error[step]) + abs(rest_square) < LARGEST:
            return BAD_SPREAD, step
    for step in range(steps):
        here, action = buffer.active[step], buffer.action[step]
        for index in range(len(here)):
            weights.w[here[index], action] += alpha_w * buffer.value_error[step]
            weights.z[here[index], action] += alpha_z * buffer.moment_error[step]

    first, action = buffer.active[0], buffer.action[0]
    state_value = mean_value(weights.w, first, buffer.policy[0])
    q = value(weights.w, first, action)
    trace = begin(settings, q, state_value, weights.mean[0], buffer.rho[0], buffer.actor_rho[0])
    for step in range(steps):
        here, action, policy = buffer.active[step], buffer.action[step], buffer.policy[step]
        q, s = value(weights.w, here, action), value(weights.z, here, action)
        found = move_actor(settings, weights, ascent, trace, psi, alpha_theta, here, action, policy, q, s)
        if found != GOOD:
            return found, step
        if step + 1 < steps:
            there, policy_next = buffer.active[step + 1], buffer.policy[step + 1]
            rho, actor_rho, reward = buffer.rho[step + 1], buffer.actor_rho[step + 1], buffer.reward[step]
            q, q_next = value(weights.w, here, action), value(weights.w, there, buffer.action[step + 1])
            delta_v = (
                reward
                + settings.gamma * mean_value(weights.w, there, policy_next)
                - mean_value(weights.w, here, policy)
            )
            delta = reward + settings.gamma * rho * q_next - q
            trace = advance(settings, trace, reward, delta, delta_v, rho, actor_rho)
    return GOOD, steps
