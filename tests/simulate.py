"""Many episodes at once, for Monte-Carlo tests: plain sampling of a small process, nothing clever."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass
class Episodes:
    """Arrays [steps, episodes]; after the end an episode stays in its terminal state with `alive` false."""

    state: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    alive: np.ndarray


def simulate(mdp, policy, n_episodes: int, n_steps: int, rng: np.random.Generator) -> Episodes:
    p = mdp.transition
    p[mdp.terminal] = np.eye(mdp.n_states)[mdp.terminal][:, None, :]
    next_up_to, act_up_to = np.cumsum(p, axis=-1), np.cumsum(policy, axis=-1)
    mean, deviation = mdp.reward_mean, np.sqrt(mdp.reward_variance)
    state = rng.choice(mdp.n_states, n_episodes, p=mdp.start)
    states, actions, rewards, alive = [], [], [], []
    for _ in range(n_steps):
        action = np.minimum((rng.random((n_episodes, 1)) > act_up_to[state]).sum(1), mdp.n_actions - 1)
        after = np.minimum((rng.random((n_episodes, 1)) > next_up_to[state, action]).sum(1), mdp.n_states - 1)
        reward = mean[state, action, after] + deviation[state, action, after] * rng.standard_normal(n_episodes)
        states.append(state)
        actions.append(action)
        rewards.append(reward)
        alive.append(~mdp.terminal[state])
        state = after
    return Episodes(np.array(states), np.array(actions), np.array(rewards), np.array(alive))


def returns(episodes: Episodes, gamma: float) -> np.ndarray:
    return (gamma ** np.arange(len(episodes.reward)) @ episodes.reward).astype(float)


def score_sums(episodes: Episodes, weight: np.ndarray, policy: np.ndarray) -> np.ndarray:
    """Σ_k weight_k ∇θ log π(A_k|S_k) of each episode for softmax θ[s, a], [episodes, S, A]."""
    n_states, n_actions = policy.shape
    total = np.zeros((episodes.state.shape[1], n_states, n_actions))
    each = np.arange(episodes.state.shape[1])
    for state, action, w, alive in zip(episodes.state, episodes.action, weight, episodes.alive, strict=True):
        w = np.where(alive, w, 0.0)
        total[each, state] -= w[:, None] * policy[state]
        total[each, state, action] += w
    return total


def assert_mean(samples: np.ndarray, expected: np.ndarray, k: float = 5.0) -> None:
    """The mean over the first axis is `expected` within k standard errors, component by component."""
    error = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
    gap = np.abs(samples.mean(axis=0) - expected)
    assert np.all(gap <= k * error + 1e-12), f"off by {np.max(gap / np.maximum(error, 1e-300)):.1f} standard errors"
