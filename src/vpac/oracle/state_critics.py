"""Mean update directions of actor-critics whose critics know states only (VPAC inside PPO).

With W(s,a) = E[(δ^V)² + γ² Var(G|S') | s,a] and A_σ = W − Var(G|s):

    weighting "start":    every step counts γ^k, from the start distribution on
        published   γ^k A_V − ψ γ^{2k} A_σ
        exact       γ^k A_V − ψ (γ^{2k} A_σ + 2 γ^k D_k A_V)              the gradient of mean − ψ E[Var(G|S_0)]
    weighting "uniform":  every visited state counts alike; for processes that never end
        published   A_V − ψ A_σ
        exact       A_V − ψ/(1+γ) (A_σ + 2 E_k A_V),  E_k = γ (E_{k−1} + δ^V_{k−1})
                    (1−γ) times the gradient for a start distribution that is the stationary one, held fixed
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from vpac.envs.finite_mdp import FiniteMDP
from vpac.envs.graph import closed_classes
from vpac.errors import UserError, one_of
from vpac.oracle.ending import without_unmet
from vpac.oracle.linear import Chain, OracleError, backup
from vpac.oracle.moments import check_gamma, evaluate
from vpac.oracle.policies import check_policy, check_price, check_theta, softmax
from vpac.typing import FloatArray

__all__ = ["state_critic_gradient", "stationary_distribution"]


def state_critic_gradient(
    mdp: FiniteMDP,
    theta: ArrayLike,
    gamma: float,
    psi: float,
    form: Literal["exact", "published"] = "exact",
    weighting: Literal["uniform", "start"] = "uniform",
    temperature: float = 1.0,
) -> FloatArray:
    """The mean direction of A_V − ψ A_σ (published) or of its correction, with exact state critics, [S, A].

    Args:
        mdp: the process; for "uniform" one that never ends.
        theta: parameters of the softmax policy, [S, A].
        gamma: discount factor in [0, 1].
        psi: price of variance.
        form: "exact" or "published".
        weighting: "start" counts step k with γ^k; "uniform" counts every visited state alike.
        temperature: of the softmax.
    """
    one_of(form, ("exact", "published"), "form")
    one_of(weighting, ("uniform", "start"), "weighting")
    gamma = check_gamma(gamma)
    psi = check_price(psi)
    policy = check_policy(mdp, softmax(check_theta(mdp, theta), temperature))
    if gamma == 1.0:
        mdp = without_unmet(mdp)
    moments = evaluate(mdp, policy, gamma)
    value, variance = moments.value, moments.variance
    advantage = moments.action_value - value[:, None]
    error = mdp.reward + gamma * value[mdp.successor] - value[mdp.row // mdp.n_actions]
    ahead = backup(mdp, error**2 + mdp.noise + gamma**2 * variance[mdp.successor])
    variance_advantage = ahead - variance[:, None]

    chain = Chain(mdp, policy)
    if weighting == "uniform":
        visits = visits_bar = stationary_distribution(mdp, policy)
        price = psi / (1.0 + gamma) if form == "exact" else psi
    else:
        visits, visits_bar, price = chain.flow(gamma, mdp.start), chain.flow(gamma**2, mdp.start), psi
    penalty = visits_bar[:, None] * variance_advantage
    if form == "exact":
        luck = chain.flow(gamma, gamma * chain.push(visits_bar[:, None] * policy, error))
        penalty = penalty + 2.0 * luck[:, None] * advantage
    total = policy * (visits[:, None] * advantage - price * penalty)
    return np.asarray((total - policy * total.sum(axis=-1, keepdims=True)) / temperature, np.float64)


def stationary_distribution(mdp: FiniteMDP, policy: ArrayLike) -> FloatArray:
    """The long-run share of time in each state under a policy that never ends and forgets its start, [S]."""
    chain = Chain(mdp, check_policy(mdp, policy), sparse=False)
    if mdp.terminal.any():
        raise UserError("a process with terminal states has no stationary distribution")
    tails, heads = np.nonzero(chain.matrix)
    label, closed = closed_classes(tails, heads, mdp.n_states)
    if len(np.unique(label[closed])) > 1:
        raise OracleError("the policy can end up in several separate sets of states: no single stationary distribution")
    system = np.vstack([chain.matrix.T - np.eye(mdp.n_states), np.ones(mdp.n_states)])
    shares, *_ = np.linalg.lstsq(system, np.append(np.zeros(mdp.n_states), 1.0), rcond=None)
    return np.maximum(np.asarray(shares, np.float64), 0.0)
