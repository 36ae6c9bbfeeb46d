"""The risk-neutral optimum by policy iteration."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, product

import numpy as np

from vpac.envs.finite_mdp import FiniteMDP, reachable
from vpac.oracle.linear import Chain, OracleError, backup
from vpac.oracle.moments import VarianceOf, average, check_gamma, evaluate
from vpac.oracle.occupancy import end_surely, endable, stays_forever, surely_ends
from vpac.oracle.policies import greedy, uniform
from vpac.typing import FloatArray, IntArray

MOST_ROUNDS = 1000


def optimal_policy(mdp: FiniteMDP, gamma: float) -> FloatArray:
    """A policy with the largest mean return from every state, [S, A].

    Policy iteration from the uniform policy. An action replaces the policy's own only if it is better by more than
    rounding, and among equally good actions the first is taken. With γ = 1 it is the best of the policies that surely
    end, wherever one does; a tie keeps what the policy did, because breaking it could make a policy that never ends.
    """
    gamma = check_gamma(gamma)
    policy, states = uniform(mdp), np.ones(mdp.n_states, bool)
    allowed = np.ones((mdp.n_states, mdp.n_actions), bool)
    if gamma == 1.0:
        states, allowed = endable(mdp)
        if (lost := (mdp.start > 0.0) & ~states).any():
            raise OracleError(f"with gamma = 1 no policy surely ends from the start state {int(np.argmax(lost))}")
        allowed |= (~states | mdp.terminal)[:, None]
        policy = allowed / allowed.sum(axis=-1, keepdims=True)
    for _ in range(MOST_ROUNDS):
        value, action_value = _values(mdp, policy, gamma)
        action_value = np.where(allowed, action_value, -np.inf)
        tolerance = 1e-12 * (1.0 + np.abs(value).max(initial=0.0))
        best = action_value.max(axis=-1, keepdims=True)
        better = best[:, 0] > value + tolerance
        if gamma < 1.0:
            better |= policy.max(axis=-1) < 1.0
        better &= ~mdp.terminal
        if not better.any():
            return policy
        policy = np.where(better[:, None], greedy(action_value >= best - tolerance), policy)
        if gamma == 1.0 and (stays_forever(mdp, policy) & states).any():
            raise OracleError("with gamma = 1 the mean return has no upper bound: there is a way round that pays")
    raise OracleError(f"policy iteration did not settle in {MOST_ROUNDS} rounds")


def _values(mdp: FiniteMDP, policy: FloatArray, gamma: float) -> tuple[FloatArray, FloatArray]:
    """V and Q; with γ = 1, zero in states from which nothing ends."""
    kept = surely_ends(mdp, policy) if gamma == 1.0 else None
    reward = backup(mdp, mdp.reward)
    value = Chain(mdp, policy).accumulate(gamma, average(policy, reward, kept), kept)
    action_value = reward + gamma * backup(mdp, value[mdp.successor])
    if kept is not None:
        action_value = np.where(kept[:, None], action_value, 0.0)
    return value, action_value


MOST_DETERMINISTIC = 100_000
"""Most deterministic policies that are all tried."""
BATCH = 4096
"""Number of policies that are evaluated at a time."""


def deterministic_policies(mdp: FiniteMDP) -> Iterator[IntArray]:
    """Every deterministic policy, in batches of action choices [N, S]; states that are never entered keep action 0."""
    free: IntArray = np.flatnonzero(reachable(mdp) & ~mdp.terminal)
    choices = product(range(mdp.n_actions), repeat=len(free))
    while batch := list(islice(choices, BATCH)):
        actions = np.zeros((len(batch), mdp.n_states), np.int64)
        actions[:, free] = batch
        yield actions


def every_deterministic(
    mdp: FiniteMDP, gamma: float, variance_of: VarianceOf
) -> tuple[IntArray, FloatArray, FloatArray] | None:
    """Actions, means and variances of all deterministic policies, or None if they are too many or may not end."""
    choices = int((reachable(mdp) & ~mdp.terminal).sum())
    if mdp.n_actions**choices > MOST_DETERMINISTIC:
        return None
    actions, means, variances = [], [], []
    for batch in deterministic_policies(mdp):
        policies = np.eye(mdp.n_actions)[batch]
        if gamma == 1.0:
            ends = end_surely(mdp, policies)
            batch, policies = batch[ends], policies[ends]
        if len(batch):
            moments = evaluate(mdp, policies, gamma)
            actions.append(batch)
            means.append(moments.mean)
            variances.append(moments.variance_of(variance_of))
    if not actions:
        return None
    return np.concatenate(actions), np.concatenate(means), np.concatenate(variances)
