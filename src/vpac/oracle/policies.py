"""Policies as arrays π[s, a], and how to make them."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from vpac.checks import not_negative
from vpac.envs.finite_mdp import SUM_TOLERANCE, FiniteMDP
from vpac.errors import UserError, one_of
from vpac.typing import FloatArray


def uniform(mdp: FiniteMDP) -> FloatArray:
    """Every action alike in every state."""
    return np.full((mdp.n_states, mdp.n_actions), 1.0 / mdp.n_actions)


def softmax(theta: ArrayLike, temperature: float = 1.0) -> FloatArray:
    """π(a|s) ∝ exp(θ(s, a) / temperature), over the last axis."""
    if not isinstance(temperature, int | float | np.number) or not (np.isfinite(temperature) and temperature > 0.0):
        raise UserError(f"temperature must be a positive number, got {temperature!r}")
    theta = _numbers(theta, "theta")
    if not np.isfinite(theta).all():
        raise UserError("policy parameters must be finite numbers")
    logits = theta / temperature
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True), np.float64)


def greedy(preferences: ArrayLike, ties: Literal["first", "uniform"] = "first") -> FloatArray:
    """The policy that takes the action with the largest preference (θ or Q).

    Ties go to the first of the best actions (`ties="first"`, as `argmax` does) or are shared among them
    (`ties="uniform"`). Only exactly equal preferences are ties.
    """
    one_of(ties, ("first", "uniform"), "way to break ties")
    preferences = _numbers(preferences, "preferences")
    if np.isnan(preferences).any():
        raise UserError("preferences must not be NaN")
    best = preferences == preferences.max(axis=-1, keepdims=True)
    if ties == "first":
        best &= np.cumsum(best, axis=-1) == 1
    return np.asarray(best / best.sum(axis=-1, keepdims=True), np.float64)


def check_theta(mdp: FiniteMDP, theta: ArrayLike) -> FloatArray:
    """Policy parameters as an array [S, A]."""
    found = _numbers(theta, "theta")
    if found.shape != (mdp.n_states, mdp.n_actions):
        raise UserError(f"theta must have shape [{mdp.n_states}, {mdp.n_actions}], got {list(found.shape)}")
    return found


def _numbers(values: ArrayLike, name: str) -> FloatArray:
    try:
        found = np.asarray(values)
    except ValueError as error:
        raise UserError(f"{name} must be an array of real numbers: {error}") from None
    if not (np.issubdtype(found.dtype, np.number) or found.dtype == np.bool_) or np.iscomplexobj(found):
        raise UserError(f"{name} must be an array of real numbers, got {found.dtype} of shape {list(found.shape)}")
    return found.astype(np.float64)


def check_price(psi: float) -> float:
    """A price of variance: a finite number that is not negative."""
    return not_negative(psi, "psi")


def check_policy(mdp: FiniteMDP, policy: ArrayLike, name: str = "policy") -> FloatArray:
    """The policy as an array [..., S, A] of distributions; rows of terminal states do not matter."""
    if not isinstance(mdp, FiniteMDP):
        raise UserError(f"expected a FiniteMDP, got {mdp!r:.60}; FiniteMDP.from_gymnasium makes one of an environment")
    found = _numbers(policy, name)
    if found.shape[-2:] != (mdp.n_states, mdp.n_actions) or not found.size:
        raise UserError(f"{name} must have shape [{mdp.n_states}, {mdp.n_actions}], got {list(found.shape)}")
    alive = ~mdp.terminal
    bad = ~(found >= 0.0) | ~np.isfinite(found)
    bad[..., mdp.terminal, :] = False
    if bad.any():
        *_, state, action = (int(i) for i in np.argwhere(bad)[0])
        raise UserError(f"{name} gives action {action} in state {state} a probability that is negative or not finite")
    sums = found.sum(axis=-1)
    wrong = (np.abs(sums - 1.0) > SUM_TOLERANCE) & alive
    if wrong.any():
        where = tuple(np.argwhere(wrong)[0])
        raise UserError(f"{name} probabilities of state {int(where[-1])} sum to {sums[where]:.10g}, expected 1")
    return np.where(mdp.terminal[:, None], 1.0 / mdp.n_actions, found)
