"""Policy evaluation: the direct and the indirect critic of the variance side by side, on the same experience.

The policy is held fixed. One walk of the behaviour policy teaches Q̂ and, from it, both critics (Sherstan et al., 2018):

    Q̂ ← Q̂ + α_w δ e          δ = R + γ ρ' Q̂' − Q̂
    σ̂ ← σ̂ + α_z δ̄ ē          δ̄ = δ² + γ² ρ'² σ̂' − σ̂                     direct, VPAC
    M̂ ← M̂ + α_z δ̄ ē          δ̄ = R² + 2 γ R ρ' Q̂' + γ² ρ'² M̂' − M̂       indirect, VAAC_TD: M̂ − Q̂² is the variance

The errors are computed by `critics.py`, the learners' own. Traces accumulate; at step t, before α is applied,

    e ← γ λ_w c e + 1[S_t, A_t]       ē ← γ² λ_z c̄ ē + 1[S_t, A_t]

σ and M are sums discounted by γ², hence ē's decay. As their errors carry ρ and ρ², the traces carry c = ρ_t and c̄ = ρ_t²;
with expected critics both are min(1, ρ_t), as in Retrace(λ) (Munos et al., 2016). A trace depends on the past only, and at the
fixed point the mean error of every pair is zero: λ does not move it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vpac.learners.behaviour import ratios
from vpac.learners.compiled import compiled, inlined
from vpac.learners.critics import td_errors
from vpac.learners.generator import Words, pick
from vpac.learners.settings import EXPECTED, Settings
from vpac.learners.worlds import World, first_place, move, see
from vpac.typing import FloatArray, IntArray

__all__ = ["Estimates", "Walk", "walk_on"]


class Estimates(NamedTuple):
    """What is learned, and its traces; each [S, A]."""

    value: FloatArray
    """Q̂."""
    variance: FloatArray
    """σ̂, direct."""
    moment: FloatArray
    """M̂, indirect."""
    trace: FloatArray
    """e."""
    trace_bar: FloatArray
    """ē, of both σ̂ and M̂."""

    @classmethod
    def make(cls, shape: tuple[int, ...]) -> Estimates:
        """All zero."""
        return cls(*(np.zeros(shape) for _ in range(5)))


class Walk(NamedTuple):
    """Where the walk is between two measurements."""

    place: FloatArray
    here: IntArray
    there: IntArray
    clock: IntArray
    """The next action, and the steps of the episode so far; none of them: a new episode begins."""

    @classmethod
    def make(cls) -> Walk:
        """Before the first episode."""
        return cls(np.zeros(2), np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(2, np.int64))


@compiled
def walk_on(
    world: World,
    direct: Settings,
    indirect: Settings,
    policy: FloatArray,
    behaviour: FloatArray,
    lambda_w: float,
    lambda_z: float,
    alpha_w: FloatArray,
    alpha_z: FloatArray,
    estimates: Estimates,
    walk: Walk,
    words: Words,
) -> None:
    """As many steps as there are step sizes."""
    q, sigma, moment = estimates.value, estimates.variance, estimates.moment
    place, here, there = walk.place, walk.here, walk.there
    action, age = walk.clock[0], walk.clock[1]
    for step in range(len(alpha_w)):
        if age == 0:
            first_place(world, place, words)
            see(world, place, here)
            action = pick(behaviour[here[0]], words)
            _fade(estimates.trace, lambda_w, 0.0)
            _fade(estimates.trace_bar, lambda_z, 0.0)
        state = here[0]
        rho, _, _ = ratios(direct, policy[state], behaviour[state], action)
        reward, terminated = move(world, place, action, words)
        see(world, place, there)
        next_policy, next_action, rho_next = policy[there[0]], action, 1.0
        if not terminated:
            next_action = pick(behaviour[there[0]], words)
            rho_next, _, _ = ratios(direct, next_policy, behaviour[there[0]], next_action)
        before = q[state, action]
        delta, delta_direct = td_errors(
            direct, q, sigma, reward, terminated, before, sigma[state, action], there, next_action, rho_next,
            next_policy,
        )  # fmt: skip
        _, delta_indirect = td_errors(
            indirect, q, moment, reward, terminated, before, moment[state, action], there, next_action, rho_next,
            next_policy,
        )  # fmt: skip
        expected = direct.ratios == EXPECTED
        kept, kept_bar = (min(1.0, rho), min(1.0, rho)) if expected else (rho, rho * rho)
        _fade(estimates.trace, lambda_w, direct.gamma * kept)
        _fade(estimates.trace_bar, lambda_z, direct.gamma * direct.gamma * kept_bar)
        estimates.trace[state, action] += 1.0
        estimates.trace_bar[state, action] += 1.0
        _move(q, estimates.trace, lambda_w, state, action, alpha_w[step] * delta)
        _move(sigma, estimates.trace_bar, lambda_z, state, action, alpha_z[step] * delta_direct)
        _move(moment, estimates.trace_bar, lambda_z, state, action, alpha_z[step] * delta_indirect)
        age += 1
        if terminated or age == direct.limit:
            age = 0
        here[0], action = there[0], next_action
    walk.clock[0], walk.clock[1] = action, age


@inlined
def _fade(trace: FloatArray, lam: float, factor: float) -> None:
    """trace ← λ · factor · trace; without traces nobody reads it."""
    if lam > 0.0:
        flat = trace.reshape(trace.size)  # one loop, for vector instructions
        for pair in range(len(flat)):
            flat[pair] *= lam * factor


@inlined
def _move(estimate: FloatArray, trace: FloatArray, lam: float, state: int, action: int, amount: float) -> None:
    """estimate ← estimate + amount · trace; without traces the pair alone moves."""
    if lam > 0.0:
        every, each = estimate.reshape(estimate.size), trace.reshape(trace.size)
        for pair in range(len(every)):
            every[pair] += amount * each[pair]
    else:
        estimate[state, action] += amount
