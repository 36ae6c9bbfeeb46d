"""Behaviour policies and importance ratios."""

from __future__ import annotations

from vpac.tabular.arrays import CLIPPED, EPSILON_GREEDY, TABLE, UNIFORM, Settings
from vpac.tabular.kernel.compiled import inlined
from vpac.tabular.kernel.generator import RngState, pick, uniform
from vpac.tabular.kernel.softmax import greedy_action
from vpac.typing import FloatArray, IntArray


@inlined
def fill_behaviour(
    settings: Settings,
    table: FloatArray,
    theta: FloatArray,
    active: IntArray,
    policy: FloatArray,
    behaviour: FloatArray,
) -> None:
    """b(a|s) into `behaviour`."""
    n_actions = len(behaviour)
    for action in range(n_actions):
        if settings.behaviour == UNIFORM:
            behaviour[action] = 1.0 / n_actions
        elif settings.behaviour == TABLE:
            behaviour[action] = table[active[0], action]
        elif settings.behaviour == EPSILON_GREEDY:
            behaviour[action] = settings.epsilon / n_actions
        else:
            behaviour[action] = policy[action]
    if settings.behaviour == EPSILON_GREEDY:
        behaviour[greedy_action(theta, active)] += 1.0 - settings.epsilon


@inlined
def ratios(settings: Settings, policy: FloatArray, behaviour: FloatArray, action: int) -> tuple[float, float, float]:
    """The critics' and the actor's ratio ρ = π/b of an action, clipped where that is asked for; also (ρ − 1)⁺.

    The last is what clipping takes away from ρ, or would; its mean over b's actions is Σ_a (π(a|s) − b(a|s))⁺.
    """
    if settings.on_policy:
        return 1.0, 1.0, 0.0
    rho = policy[action] / behaviour[action]
    clipped = min(1.0, rho)
    return (clipped if settings.ratios == CLIPPED else rho), (clipped if settings.clip_actor else rho), rho - clipped


@inlined
def act(
    settings: Settings,
    table: FloatArray,
    theta: FloatArray,
    active: IntArray,
    policy: FloatArray,
    behaviour: FloatArray,
    rng: RngState,
) -> int:
    """Draw an action: the policy's own, or the behaviour policy's."""
    if not settings.on_policy:
        if settings.behaviour == UNIFORM:  # nothing to search
            action = int(uniform(rng) * len(behaviour))
            behaviour[action] = 1.0 / len(behaviour)
            return action
        fill_behaviour(settings, table, theta, active, policy, behaviour)
        return pick(behaviour, rng)
    return pick(policy, rng)
