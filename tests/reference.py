"""A second implementation from the definitions, independent of the package: dense, slow, with complex numbers.

Moments come from the state-action systems Q = r + γ P_π Q and M = E[R²] + 2γ E[R Q'] + γ² P_π M; gradients from the
complex step, f(θ + ih)/h, which is exact to rounding because nothing is subtracted.
"""

from __future__ import annotations

import numpy as np

from vpac import FiniteMDP


def random_mdp(
    rng: np.random.Generator,
    n_states: int = 5,
    n_actions: int = 3,
    n_terminal: int = 1,
    noise: float = 0.0,
    density: float = 1.0,
) -> FiniteMDP:
    """Dirichlet transitions, some of them absent, normal mean rewards by transition, reward noise of the given size."""
    shape = (n_states, n_actions, n_states)
    weight = rng.gamma(0.7, size=shape) * (rng.random(shape) < density) + 1e-3 * np.eye(n_states)[:, None, :]
    terminal = np.arange(n_states) >= n_states - n_terminal
    if n_terminal:
        weight[:, :, -1] += 0.05
    transition = weight / weight.sum(axis=-1, keepdims=True)
    start = rng.dirichlet(np.ones(n_states - n_terminal))
    return FiniteMDP(
        transition,
        rng.normal(size=shape),
        noise * rng.gamma(1.0, size=shape),
        np.append(start, np.zeros(n_terminal)),
        terminal,
    )


def softmax(theta):
    weights = np.exp(theta - theta.real.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def action_moments(mdp, first, second, gamma):
    """Q and M of G = R + γ ρ' G' for the weights b·ρ and b·ρ², over state-action pairs."""
    p, r, v = mdp.transition, mdp.reward_mean, mdp.reward_variance
    n_states, n_actions, _ = p.shape
    pairs = n_states * n_actions

    def over_pairs(entries, weights):
        return np.einsum("sat,tb->satb", entries, weights).reshape(pairs, pairs)

    mean = (p * r).sum(-1).reshape(-1)
    q = np.linalg.solve(np.eye(pairs) - gamma * over_pairs(p, first), mean)
    square = (p * (r**2 + v)).sum(-1).reshape(-1) + 2 * gamma * over_pairs(p * r, first) @ q
    m = np.linalg.solve(np.eye(pairs) - gamma**2 * over_pairs(p, second), square)
    return q.reshape(n_states, n_actions), m.reshape(n_states, n_actions)


def objective(mdp, theta, gamma, psi, variance_of):
    """mean − ψ · variance of the softmax policy, from second moments."""
    pi = softmax(theta)
    q, m = action_moments(mdp, pi, pi, gamma)
    v, d0 = (pi * q).sum(-1), mdp.start
    mean = d0 @ v
    reference = {"action": d0 @ (pi * q**2).sum(-1), "state": d0 @ v**2, "return": mean**2}[variance_of]
    return mean - psi * (d0 @ (pi * m).sum(-1) - reference)


def importance_objective(mdp, theta, behaviour, gamma, psi):
    """mean − ψ · E[variance of the importance-weighted return given the first state and action]."""
    pi = softmax(theta)
    q, m = action_moments(mdp, pi, pi**2 / behaviour, gamma)
    return mdp.start @ (pi * (q - psi * (m - q**2))).sum(-1)


def complex_step(function, theta, step=1e-30):
    """The gradient of an analytic function of an array."""
    result = np.zeros(theta.shape)
    for index in np.ndindex(*theta.shape):
        nudged = theta.astype(complex)
        nudged[index] += 1j * step
        result[index] = function(nudged).imag / step
    return result
