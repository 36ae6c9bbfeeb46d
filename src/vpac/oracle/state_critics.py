"""Mean update directions of actor-critics whose critics know states only (VPAC inside PPO).

With W(s,a) = E[(δ^V)² + γ² Var(G|S') | s,a] and A_σ = W − Var(G|s):

    weighting "start":    every step counts γ^k, from the start distribution on
        published   γ^k A_V − ψ γ^{2k} A_σ
        exact       γ^k A_V − ψ (γ^{2k} A_σ + 2 γ^k D_k A_V)              the gradient of mean − ψ E[Var(G|S_0)]
    weighting "uniform":  every visited state counts alike
        published   A_V − ψ A_σ, averaged over the visited states
        exact       n_k A_V − ψ (m_k A_σ + 2 E_k A_V),  n_k = 1 + γ n_{k−1},  m_k = 1 + γ² m_{k−1},
                    E_k = γ (E_{k−1} + m_{k−1} δ^V_{k−1}),  n_0 = m_0 = 1,  E_0 = 0

Let x(s) be how often s is visited. The exact "uniform" form is the gradient of Σ_s x(s) [V(s) − ψ Var(G|s)] with x held
fixed, that is, the "start" form from x in place of the start distribution. In a process that ends, x counts the expected
visits of an episode. In one that never ends, x is the stationary distribution and the gradient is multiplied by 1−γ: n_k
and m_k have reached their limits, and the weight is A_V − ψ/(1+γ) (A_σ + 2 E_k A_V) with E_k = γ (E_{k−1} + δ^V_{k−1}).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from vpac.envs.finite_mdp import FiniteMDP, closed_classes
from vpac.errors import UserError, one_of
from vpac.oracle.linear import Chain, OracleError, backup
from vpac.oracle.moments import check_gamma, evaluate
from vpac.oracle.occupancy import visits as visits_of
from vpac.oracle.occupancy import without_unmet
from vpac.oracle.policies import check_policy, check_price, check_theta, softmax
from vpac.typing import FloatArray


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
        mdp: the process; for "uniform" one that never ends, or one that surely ends under the policy.
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

    chain, price, ends = Chain(mdp, policy), psi, bool(mdp.terminal.any())
    origin = mdp.start if weighting == "start" else visited(mdp, policy)
    visits = visits_bar = origin
    if weighting == "start" or (form == "exact" and ends):
        visits, visits_bar = chain.flow(gamma, origin), chain.flow(gamma**2, origin)
    elif form == "exact":
        price = psi / (1.0 + gamma)
    penalty = visits_bar[:, None] * variance_advantage
    if form == "exact":
        past_errors = chain.flow(gamma, gamma * chain.push(visits_bar[:, None] * policy, error))
        penalty = penalty + 2.0 * past_errors[:, None] * advantage
    total = policy * (visits[:, None] * advantage - price * penalty)
    return np.asarray((total - policy * total.sum(axis=-1, keepdims=True)) / temperature, np.float64)


def visited(mdp: FiniteMDP, policy: FloatArray) -> FloatArray:
    """Expected visits of an episode or, if there are no terminal states, the stationary distribution, [S]."""
    if not mdp.terminal.any():
        return stationary_distribution(mdp, policy)
    found = visits_of(mdp, policy, 1.0, None)
    if not np.isfinite(found).all():
        raise OracleError(
            f"the policy can reach state {int(np.argmax(np.isinf(found)))} and never ends from there: visits have no mean"
        )
    return found


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
