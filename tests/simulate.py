"""Many episodes at once, for Monte-Carlo tests: plain sampling of a small MDP."""

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


def simulate(mdp, policy, n_episodes: int, n_steps: int, rng: np.random.Generator, *, whole: bool = True) -> Episodes:
    """So many steps of each episode; if not `whole`, none after all have ended, where nothing is paid."""
    p = mdp.transition
    p[mdp.terminal] = np.eye(mdp.n_states)[mdp.terminal][:, None, :]
    next_up_to, act_up_to = np.cumsum(p, axis=-1)[..., :-1], np.cumsum(policy, axis=-1)[..., :-1]
    mean, deviation = mdp.reward_mean, np.sqrt(mdp.reward_variance)
    state = rng.choice(mdp.n_states, n_episodes, p=mdp.start)
    states, actions, rewards, alive = [], [], [], []
    for _ in range(n_steps):
        action = _above(rng.random(n_episodes), act_up_to, state)
        after = _above(rng.random(n_episodes), next_up_to, state, action)
        reward = mean[state, action, after] + deviation[state, action, after] * rng.standard_normal(n_episodes)
        states.append(state)
        actions.append(action)
        rewards.append(reward)
        alive.append(~mdp.terminal[state])
        state = after
        if not whole and mdp.terminal[state].all():
            break
    return Episodes(np.array(states), np.array(actions), np.array(rewards), np.array(alive))


def _above(numbers: np.ndarray, bounds: np.ndarray, *place: np.ndarray) -> np.ndarray:
    """How many of the bounds of its place each number is above."""
    return sum((numbers > bounds[(*place, k)] for k in range(bounds.shape[-1])), np.zeros(len(numbers), dtype=np.intp))


def returns(episodes: Episodes, gamma: float) -> np.ndarray:
    return (gamma ** np.arange(len(episodes.reward)) @ episodes.reward).astype(float)


def score_sums(episodes: Episodes, weight: np.ndarray, policy: np.ndarray) -> np.ndarray:
    """Σ_k weight_k ∇θ log π(A_k|S_k) of each episode for softmax θ[s, a], [episodes, S, A]."""
    n_states, n_actions = policy.shape
    n_episodes = episodes.state.shape[1]
    each = np.arange(n_episodes)
    chosen, met = np.zeros(n_episodes * n_states * n_actions), np.zeros(n_episodes * n_states)
    for state, action, w, alive in zip(episodes.state, episodes.action, weight, episodes.alive, strict=True):
        w, pair = np.where(alive, w, 0.0), each * n_states + state
        met[pair] += w
        chosen[pair * n_actions + action] += w
    met = met.reshape(n_episodes, n_states, 1)
    return chosen.reshape(n_episodes, n_states, n_actions) - met * policy


def assert_mean(samples: np.ndarray, expected: np.ndarray, k: float = 5.0) -> None:
    """The mean over the first axis is `expected` within k standard errors, component by component."""
    error = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
    gap = np.abs(samples.mean(axis=0) - expected)
    assert np.all(gap <= k * error + 1e-12), f"off by {np.max(gap / np.maximum(error, 1e-300)):.1f} standard errors"
