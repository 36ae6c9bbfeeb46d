"""Behaviour policies b and the importance ratios ρ = π/b of their actions."""

from __future__ import annotations

from typing import NamedTuple

from vpac.tabular.arrays import CLIPPED, EPSILON_GREEDY, TABLE, UNIFORM, Settings
from vpac.tabular.kernel.compiled import inlined
from vpac.tabular.kernel.generator import RngState, pick, uniform
from vpac.tabular.kernel.softmax import greedy_action
from vpac.typing import FloatArray, IntArray


class Choice(NamedTuple):
    """An action and its ratios; on-policy every ratio is 1."""

    action: int
    rho: float = 1.0
    """The critics' ratio, clipped or not."""
    actor_rho: float = 1.0
    """The actor's ratio, clipped or not."""
    excess: float = 0.0
    """(π/b − 1)⁺, the part that clipping removes; its mean over b's actions is Σ_a (π(a|s) − b(a|s))⁺."""


@inlined
def choose(
    settings: Settings, table: FloatArray, theta: FloatArray, active: IntArray, policy: FloatArray,
    behaviour: FloatArray, rng: RngState,
) -> Choice:  # fmt: skip
    """A ~ π(·|S), or off-policy A ~ b(·|S) with its ratios."""
    if settings.on_policy:
        return Choice(pick(policy, rng), 1.0, 1.0, 0.0)
    if settings.behaviour == UNIFORM:  # nothing to search
        action = int(uniform(rng) * len(behaviour))
        behaviour[action] = 1.0 / len(behaviour)
    else:
        fill_behaviour(settings, table, theta, active, policy, behaviour)
        action = pick(behaviour, rng)
    return ratios(settings, policy, behaviour, action)


@inlined
def fill_behaviour(
    settings: Settings, table: FloatArray, theta: FloatArray, active: IntArray, policy: FloatArray, behaviour: FloatArray
) -> None:  # fmt: skip
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
def ratios(settings: Settings, policy: FloatArray, behaviour: FloatArray, action: int) -> Choice:
    """An action with its ratios ρ = π/b, clipped at 1 where the settings say so."""
    if settings.on_policy:
        return Choice(action, 1.0, 1.0, 0.0)
    rho = policy[action] / behaviour[action]
    clipped = min(1.0, rho)
    critics = clipped if settings.ratios == CLIPPED else rho
    return Choice(action, critics, clipped if settings.clip_actor else rho, rho - clipped)
