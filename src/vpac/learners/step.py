"""One transition of an algorithm with TD critics: the same function in compiled worlds and in any Gymnasium environment."""

from __future__ import annotations

import math

import numpy as np

from vpac.learners.compiled import inlined
from vpac.learners.critics import td_errors
from vpac.learners.penalty import actor_weight
from vpac.learners.settings import PUBLISHED, Settings
from vpac.learners.softmax import add_score, mean_value, value
from vpac.learners.state import BAD_ACTOR, BAD_REWARD, BAD_SPREAD, BAD_VALUE, GOOD, LARGEST, Weights
from vpac.learners.trace import Trace, advance
from vpac.typing import FloatArray, IntArray

__all__ = ["learn_step", "move_actor"]


@inlined
def learn_step(
    settings: Settings,
    weights: Weights,
    ascent: FloatArray,
    trace: Trace,
    psi: float,
    alpha_theta: float,
    alpha_w: float,
    alpha_z: float,
    here: IntArray,
    action: int,
    policy: FloatArray,
    reward: float,
    terminated: bool,
    there: IntArray,
    next_action: int,
    policy_next: FloatArray,
    rho_next: float,
    actor_rho_next: float,
) -> tuple[int, Trace]:
    """Critics, actor, trace. Returns what it found, and the next trace; a number that is not finite is not learned."""
    w, z = weights.w, weights.z
    q, s = value(w, here, action), value(z, here, action)
    delta, delta_bar = td_errors(settings, w, z, reward, terminated, q, s, there, next_action, rho_next, policy_next)
    q_after, s_after = (
        q + len(here) * alpha_w * delta,
        s + len(here) * alpha_z * delta_bar,
    )  # what they are about to become
    good = abs(q_after) + abs(s_after) < LARGEST
    if len(here) > 1:  # a sum may hide large parts that cancel
        good = good and abs(alpha_w * delta) + abs(alpha_z * delta_bar) < LARGEST
    if not good:
        if not math.isfinite(reward):
            return BAD_REWARD, trace
        return (BAD_SPREAD if abs(q_after) + abs(alpha_w * delta) < LARGEST else BAD_VALUE), trace
    delta_v = 0.0
    if settings.baseline and settings.form != PUBLISHED:
        ahead = 0.0 if terminated else settings.gamma * mean_value(w, there, policy_next)
        delta_v = reward + ahead - mean_value(w, here, policy)
    for index in range(len(here)):
        feature, column = np.uint64(here[index]), np.uint64(action)
        w[feature, column] += alpha_w * delta
        z[feature, column] += alpha_z * delta_bar
    found = move_actor(settings, weights, ascent, trace, psi, alpha_theta, here, action, policy, q_after, s_after)
    return found, advance(settings, trace, reward, delta, delta_v, rho_next, actor_rho_next)


@inlined
def move_actor(
    settings: Settings,
    weights: Weights,
    ascent: FloatArray,
    trace: Trace,
    psi: float,
    alpha_theta: float,
    here: IntArray,
    action: int,
    policy: FloatArray,
    q: float,
    s: float,
) -> int:
    """θ ← θ + α_θ ∇log π(A|S) · weight, with Q̂(S,A) and the spread's estimate as they are now."""
    v = s_mean = 0.0
    if settings.baseline:
        v = mean_value(weights.w, here, policy)
        if settings.form == PUBLISHED:
            s_mean = mean_value(weights.z, here, policy)
    weight = actor_weight(settings, trace, psi, q, v, s, s_mean)
    amount = alpha_theta * settings.score * weight
    if not abs(amount) < LARGEST:
        return BAD_ACTOR
    add_score(ascent, here, policy, action, amount)
    return GOOD
