"""Exact policy gradients of mean − ψ · variance, and the vector fields that the paper publishes instead.

Every algorithm of the paper updates θ along Σ_k weight_k ∇log π(A_k|S_k). The oracle computes its mean from the total weight
Ω(s,a) of state s and action a in an episode. The gradient of a softmax policy follows,

    ∂/∂θ(s,a) = (Ω(s,a) − π(a|s) Σ_a' Ω(s,a')) / temperature.

Derivations, and the proof that the "exact" forms are the gradient and the published ones are not: docs/corrections.md.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from vpac.envs.finite_mdp import FiniteMDP, closed_classes
from vpac.errors import UserError, one_of
from vpac.oracle.linear import Chain, OracleError, backup
from vpac.oracle.moments import VARIANCES, Moments, VarianceOf, check_gamma, evaluate
from vpac.oracle.occupancy import visits as visits_of
from vpac.oracle.occupancy import without_unmet
from vpac.oracle.off_policy import CRITICS, Critics, check_behaviour, ratio_weights
from vpac.oracle.policies import check_policy, check_price, check_theta, softmax
from vpac.typing import FloatArray

Form = Literal["exact", "published"]
Family = Literal["vpac", "vaac"]


def gradient(
    mdp: FiniteMDP, theta: ArrayLike, gamma: float, psi: float, form: Form = "exact", variance_of: VarianceOf = "action",
    *, algorithm: Family = "vpac", temperature: float = 1.0, behaviour: ArrayLike | None = None,
    critics: Critics = "importance", ratios: Literal["plain", "clipped"] = "plain",
) -> FloatArray:  # fmt: skip
    """The mean update direction of an algorithm with exact critics; `form="exact"`: ∇θ of mean − ψ · variance, [S, A].

    Args:
        mdp: the process.
        theta: parameters of the softmax policy, [S, A].
        gamma: discount factor in [0, 1].
        psi: price of variance, not negative.
        form: "exact" is the gradient; "published" is the paper's formula (Theorem 2, Theorem 4, Algorithm 2), which has
            one meaning and does not read `variance_of`.
        variance_of: the variance that is penalised: "action" E[σ(S0,A0)], "state" E[Var(G|S0)], "return" Var(G).
        algorithm: "vpac" (direct variance σ) or "vaac" (second moment M); their exact forms are the same gradient.
        temperature: of the softmax.
        behaviour: the behaviour policy [S, A]; None: on-policy.
        critics: off-policy, what Q and σ stand for; see `vpac.oracle.off_policy`. "importance" and "clipped" define
            the variance of an importance-weighted return given the first action, so they take `variance_of="action"`.
            The published VAAC is stated for the target policy's own moments, so "vaac" does not read it.
        ratios: off-policy with expected critics, the actor's ratios: "plain" ρ, or "clipped" min(1, ρ), whose mean
            update is a vector field and not a gradient. The other critics bring their own ratios.
    """
    one_of(form, ("exact", "published"), "form")
    one_of(variance_of, VARIANCES, "variance_of")
    one_of(algorithm, ("vpac", "vaac"), "algorithm")
    one_of(critics, CRITICS, "kind of critics")
    one_of(ratios, ("plain", "clipped"), "kind of ratios")
    gamma = check_gamma(gamma)
    psi = check_price(psi)
    policy = check_policy(mdp, softmax(check_theta(mdp, theta), temperature))
    if gamma == 1.0:
        mdp = without_unmet(mdp)
    if behaviour is None:
        total = on_policy_weights(evaluate(mdp, policy, gamma), policy, psi, form, variance_of, algorithm)
    else:
        from vpac.oracle.off_policy import off_policy_weights

        behaviour = check_behaviour(mdp, policy, behaviour)
        if algorithm == "vaac" or critics == "expected":
            first, second = ratio_weights(policy, behaviour, "importance" if ratios == "plain" else "clipped")
            moments = evaluate(mdp, policy, gamma)
            total = on_policy_weights(moments, first, psi, form, variance_of, algorithm, second)
        else:
            total = off_policy_weights(mdp, policy, behaviour, gamma, psi, form, variance_of, critics)
    total = np.where(mdp.terminal[:, None], 0.0, total)
    return np.asarray((total - policy * total.sum(axis=-1, keepdims=True)) / temperature, np.float64)


def on_policy_weights(
    moments: Moments, weights: FloatArray, psi: float, form: Form, variance_of: VarianceOf, algorithm: Family = "vpac",
    squared: FloatArray | None = None,
) -> FloatArray:  # fmt: skip
    """Ω(s,a) with the critics of the policy itself.

    `weights` is π on-policy. Off-policy it is b·ρ, because the corrected update then has the factor ρ_{0:k}; `squared` is b·ρ²,
    which only published forms use.
    """
    mdp, gamma = moments.mdp, moments.gamma
    chain = Chain(mdp, weights)
    if algorithm == "vaac":
        per_visit = _vaac_published if form == "published" else _vaac_exact
        return per_visit(moments, chain, psi, variance_of, squared)
    if form == "published":
        if squared is not None:
            from vpac.oracle.off_policy import theorem_4

            return theorem_4(mdp, weights, squared, gamma, psi, moments.action_value, moments.action_variance)
        return _theorem_2(moments, chain, psi)
    return chain.weights * slopes(moments, chain, psi, variance_of)


def _theorem_2(moments: Moments, chain: Chain, psi: float) -> FloatArray:
    """Theorem 2 as published: γ^k Q_k − ψ γ^{2k} σ_k."""
    gamma, start = moments.gamma, moments.mdp.start
    visits, visits_bar = chain.flow(gamma, start), chain.flow(gamma**2, start)
    per_visit = visits[:, None] * moments.action_value - psi * visits_bar[:, None] * moments.action_variance
    return chain.weights * per_visit


def slopes(
    moments: Moments, chain: Chain, psi: float, variance_of: VarianceOf, reference: float | None = None
) -> FloatArray:
    """∂(mean − ψ · variance)/∂π(a|s), less a baseline: γ^k A_k − ψ [γ^{2k} (σ_k + A_k²) + 2 γ^k (D_k + V(S_0) − c) A_k].

    D_k = Σ_{t<k} γ^t δ^V_t is the sum of TD errors so far; the reference c says which variance is meant. For "action" c is
    Q(S_0, A_0), and the penalty at k = 0 is σ_0 alone. For "return" c is the mean or `reference`, and the penalty E(G − c)².
    """
    mdp, gamma, start = moments.mdp, moments.gamma, moments.mdp.start
    value, advantage = moments.value, moments.action_value - moments.value[:, None]
    visits, visits_bar = chain.flow(gamma, start), chain.flow(gamma**2, start)
    error = mdp.reward + gamma * value[mdp.successor] - value[mdp.row // mdp.n_actions]
    past_errors = gamma * chain.push(visits_bar[:, None] * chain.weights, error)
    later_visits = visits_bar
    if variance_of == "action":
        past_errors = past_errors - gamma * chain.push(start[:, None] * chain.weights * advantage)
        later_visits = visits_bar - start
    elif variance_of == "return":
        past_errors = past_errors + start * (value - (moments.mean if reference is None else reference))
    past_errors = chain.flow(gamma, past_errors)
    penalty = (
        visits_bar[:, None] * moments.action_variance
        + later_visits[:, None] * advantage**2
        + 2.0 * past_errors[:, None] * advantage
    )
    return visits[:, None] * advantage - psi * penalty


def _vaac_exact(
    moments: Moments, chain: Chain, psi: float, variance_of: VarianceOf, _squared: FloatArray | None
) -> FloatArray:
    """Corrected VAAC: γ^k Q_k − μ [γ^{2k} M_k + 2 γ^k (G_{0:k} − c) Q_k]."""
    mdp, gamma, start = moments.mdp, moments.gamma, moments.mdp.start
    visits, visits_bar = chain.flow(gamma, start), chain.flow(gamma**2, start)
    collected = gamma * chain.push(visits_bar[:, None] * chain.weights, mdp.reward)
    second_moment = visits_bar[:, None] * moments.action_second_moment
    if variance_of == "action":
        collected = collected - gamma * chain.push(start[:, None] * chain.weights * moments.action_value)
        second_moment = second_moment - start[:, None] * moments.action_value**2
    else:
        collected = collected - start * (moments.value if variance_of == "state" else moments.mean)
    surplus = chain.flow(gamma, collected)
    penalty = second_moment + 2.0 * surplus[:, None] * moments.action_value
    return chain.weights * (visits[:, None] * moments.action_value - psi * penalty)


def _vaac_published(
    moments: Moments, chain: Chain, psi: float, _variance_of: VarianceOf, squared: FloatArray | None
) -> FloatArray:
    """Published VAAC: γ^k Q_k − μ [γ^{2k} M_k + 2 γ^{k+1} Ḡ_k Q_k − 2 γ^k V(S_0) Q_k], Ḡ_k = Σ_{t<k} γ^{2t} R_{t+1}.

    Off-policy all of it has the factor ρ_{0:k}, and the rewards in Ḡ_k the factor ρ_{0:t} once more.
    """
    mdp, gamma, start = moments.mdp, moments.gamma, moments.mdp.start
    visits, visits_bar = chain.flow(gamma, start), chain.flow(gamma**2, start)
    twice = chain if squared is None else Chain(mdp, squared)
    mass = twice.flow(gamma**3, start)[:, None] * twice.weights
    collected = chain.flow(gamma, gamma * chain.push(mass, mdp.reward))
    reference = chain.flow(gamma, start * moments.value)
    penalty = (
        visits_bar[:, None] * moments.action_second_moment
        + 2.0 * (gamma * collected - reference)[:, None] * moments.action_value
    )
    return chain.weights * (visits[:, None] * moments.action_value - psi * penalty)


def state_critic_gradient(
    mdp: FiniteMDP, theta: ArrayLike, gamma: float, psi: float, form: Form = "exact",
    weighting: Literal["uniform", "start"] = "uniform", temperature: float = 1.0,
) -> FloatArray:  # fmt: skip
    """The mean direction of A_V − ψ A_σ (published) or of its correction, with exact critics of states (PPO), [S, A].

    With W(s,a) = E[(δ^V)² + γ² Var(G|S') | s,a] and A_σ = W − Var(G|s):

        weighting "start":    step k has the factor γ^k, from the start distribution on
            published   γ^k A_V − ψ γ^{2k} A_σ
            exact       γ^k A_V − ψ (γ^{2k} A_σ + 2 γ^k D_k A_V)              the gradient of mean − ψ E[Var(G|S_0)]
        weighting "uniform":  every visited state has the same weight
            published   A_V − ψ A_σ, averaged over the visited states
            exact       n_k A_V − ψ (m_k A_σ + 2 E_k A_V),  n_k = 1 + γ n_{k−1},  m_k = 1 + γ² m_{k−1},
                        E_k = γ (E_{k−1} + m_{k−1} δ^V_{k−1}),  n_0 = m_0 = 1,  E_0 = 0

    Let x(s) be how often s is visited. The exact "uniform" form is the gradient of Σ_s x(s) [V(s) − ψ Var(G|s)] with x held
    fixed, that is, the "start" form from x in place of the start distribution. In a process that ends, x counts the expected
    visits of an episode. In one that never ends, x is the stationary distribution and the gradient is multiplied by 1−γ: n_k
    and m_k have reached their limits, and the weight is A_V − ψ/(1+γ) (A_σ + 2 E_k A_V) with E_k = γ (E_{k−1} + δ^V_{k−1}).

    Args:
        mdp: the process; for "uniform" one that never ends, or one that surely ends under the policy.
        theta: parameters of the softmax policy, [S, A].
        gamma: discount factor in [0, 1].
        psi: price of variance.
        form: "exact" or "published".
        weighting: "start" weights step k with γ^k; "uniform" gives every visited state the same weight.
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
    expected = backup(mdp, error**2 + mdp.noise + gamma**2 * variance[mdp.successor])
    variance_advantage = expected - variance[:, None]

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
        state = int(np.argmax(np.isinf(found)))
        raise OracleError(f"the policy can reach state {state} and never ends from there: visits have no mean")
    return found


def stationary_distribution(mdp: FiniteMDP, policy: ArrayLike) -> FloatArray:
    """The long-run share of time in each state under a policy that never ends and is ergodic, [S]."""
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
