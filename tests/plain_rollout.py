"""Estimates of a rollout with explicit loops over the steps of one environment, to test `vpac.deep.estimate`.

Sums are written as MATH defines them, from the list of an episode's past steps in raw units; nothing is carried but that list.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Row(NamedTuple):
    """A step, in units of the scaled reward."""

    reward: float
    value: float
    next_value: float
    spread: float
    next_spread: float
    continues: float
    running: float
    valid: float


@dataclass
class Past:
    """An episode so far, in units of the raw reward."""

    deltas: list[float] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    start_value: float = 0.0


def delta_of(row: Row, gamma: float) -> float:
    """R + γ V' − V."""
    return row.reward + gamma * row.continues * row.next_value - row.value


def gae(rows: list[Row], errors: list[float], t: int, discount: float, lam: float) -> float:
    """Σ_l (discount · λ)^l error_{t+l}, to the end of the episode or of the rows."""
    total = 0.0
    for later in range(t, len(rows)):
        total += (discount * lam) ** (later - t) * errors[later]
        if rows[later].running == 0.0:
            break
    return total


def first_rows(past: Past, rows: list[Row]) -> list[int]:
    """Where episodes begin."""
    found, begun = [], bool(past.deltas)
    for t, row in enumerate(rows):
        if row.valid and not begun:
            found.append(t)
        begun = bool(row.valid and row.running)
    return found


def walk(past: Past, rows: list[Row], scale: float, gamma: float) -> list[tuple[float, float, float] | None]:
    """(D_k, D_{k+1}, V(S_0)) of each step, raw; None where nothing was done."""
    found: list[tuple[float, float, float] | None] = []
    deltas, start = list(past.deltas), past.start_value
    for row in rows:
        if not row.valid:
            found.append(None)
            deltas = []
            continue
        start = start if deltas else row.value / scale
        before = sum(gamma**j * d for j, d in enumerate(deltas))
        deltas.append(delta_of(row, gamma) / scale)
        found.append((before, sum(gamma**j * d for j, d in enumerate(deltas)), start))
        if not row.running:
            deltas = []
    return found


def ended(past: Past, rows: list[Row], scale: float, gamma: float) -> list[tuple[float, float]]:
    """(G, V(S_0)) of each episode that ends here, raw. G is V(S_0) and the discounted TD errors: V stands for what is cut."""
    steps = zip(rows, walk(past, rows, scale, gamma), strict=True)
    return [(step[2] + step[1], step[2]) for row, step in steps if step is not None and not row.running]


def assess(
    past: Past, rows: list[Row], *, scale, psi, kind, form, weighting, gamma, lam, target_lam, mean_return=None, surplus=0.0,
    used_luck=None, advantage=None,
) -> tuple[Past, list[dict[str, float] | None]]:  # fmt: skip
    """The episode that is underway after these rows, and the numbers of each row; None where nothing was done.

    Args:
        past: of the episode underway.
        rows: the steps.
        scale: of the rewards now.
        psi: price per unit of the scaled reward; a number, or one for each row.
        mean_return: J in scaled units, if the start state counts as luck.
        surplus: J less the mean of V(S_0) in scaled units, if it does not.
        used_luck: of each row, in place of the luck itself.
        advantage: of each row, A_V with the discount of the mean; None: the discount is the same.
    """
    deltas = [delta_of(row, gamma) for row in rows]
    errors = []
    for row, delta in zip(rows, deltas, strict=True):
        if kind == "variance":
            errors.append(delta**2 + gamma**2 * row.continues * row.next_spread - row.spread)
        else:
            square = row.reward**2
            if row.continues:
                square += 2 * gamma * row.reward * row.next_value + gamma**2 * row.next_spread
            errors.append(square - row.spread)
    found: list[dict[str, float] | None] = []
    for t, row in enumerate(rows):
        if not row.valid:
            found.append(None)
            past = Past()
            continue
        k = len(past.deltas)
        if k == 0:
            past.start_value = row.value / scale
        n = sum(gamma**j for j in range(k + 1))
        m = [sum(gamma ** (2 * i) for i in range(j + 1)) for j in range(k + 1)]
        if weighting == "start":
            luck = scale * sum(gamma**j * past.deltas[j] for j in range(k))
            luck += -surplus if mean_return is None else scale * past.start_value - mean_return
            share = gamma**k
        else:
            luck = scale * sum(gamma ** (k - j) * m[j] * past.deltas[j] for j in range(k)) / n
            share = m[k] / n
        mine = gae(rows, deltas, t, gamma, lam)
        spread_advantage = gae(rows, errors, t, gamma**2, lam)
        used = luck if used_luck is None else used_luck[t]
        target = row.spread + gae(rows, errors, t, gamma**2, target_lam)
        if form == "corrected":
            of_variance = spread_advantage if kind == "variance" else spread_advantage - 2 * row.value * mine
            penalty = share * of_variance + 2 * used * mine
        elif kind == "variance":
            penalty = spread_advantage
        else:
            collected = scale * sum(gamma ** (2 * j) * past.rewards[j] for j in range(k))
            penalty = spread_advantage + 2 * gamma * collected * mine - 2 * past.start_value * scale * mine
            target = (row.value + gae(rows, deltas, t, gamma, 1.0)) ** 2
        price = psi[t] if isinstance(psi, list) else psi
        front = mine if advantage is None else advantage[t]
        found.append(
            {
                "weight": front - price * penalty, "target": target, "luck": luck, "penalty": price * penalty,
                "advantage": front, "reversed": float(form == "corrected" and 2 * price * used > 1),
                "value_target": row.value + gae(rows, deltas, t, gamma, target_lam),
            }
        )  # fmt: skip
        past.deltas.append(deltas[t] / scale)
        past.rewards.append(row.reward / scale)
        if not row.running:
            past = Past()
    return past, found
