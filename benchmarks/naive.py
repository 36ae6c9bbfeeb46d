"""Algorithm 1 (VPAC) in straightforward NumPy, for comparison in benchmarks/tabular.py."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vpac.envs import FiniteMDP

__all__ = ["vpac"]


def vpac(
    mdp: FiniteMDP,
    episodes: int,
    limit: int,
    gamma: float,
    psi: float,
    alpha_theta: float,
    alpha_w: float,
    alpha_z: float,
    seed: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
    """One run of so many episodes; returns θ, the returns of the episodes, and how many steps they took."""
    rng = np.random.default_rng(seed)
    shape = (mdp.n_states, mdp.n_actions)
    theta, w, z = rng.random(shape), rng.random(shape), rng.random(shape)
    returns, steps = np.zeros(episodes), 0

    def softmax(state: int) -> NDArray[np.float64]:
        powers = np.exp(theta[state] - theta[state].max())
        return np.asarray(powers / powers.sum())

    for episode in range(episodes):
        state = rng.choice(mdp.n_states, p=mdp.start)
        action = rng.choice(mdp.n_actions, p=softmax(state))
        i_q = i_sigma = 1.0
        for _ in range(limit):
            row = state * mdp.n_actions + action
            entries = np.arange(mdp.indptr[row], mdp.indptr[row + 1])
            entry = rng.choice(entries, p=mdp.probability[entries])
            reward = rng.normal(mdp.reward[entry], np.sqrt(mdp.noise[entry]))
            next_state = mdp.successor[entry]
            terminated = mdp.terminal[next_state]
            next_action = rng.choice(mdp.n_actions, p=softmax(next_state))
            q_next = 0.0 if terminated else w[next_state, next_action]
            sigma_next = 0.0 if terminated else z[next_state, next_action]
            delta = reward + gamma * q_next - w[state, action]
            delta_bar = delta**2 + gamma**2 * sigma_next - z[state, action]
            w[state, action] += alpha_w * delta
            z[state, action] += alpha_z * delta_bar
            score = np.eye(mdp.n_actions)[action] - softmax(state)
            theta[state] += alpha_theta * score * (i_q * w[state, action] - psi * i_sigma * z[state, action])
            returns[episode] += i_q * reward
            i_q, i_sigma, steps = i_q * gamma, i_sigma * gamma**2, steps + 1
            state, action = next_state, next_action
            if terminated:
                break
    return theta, returns, steps
