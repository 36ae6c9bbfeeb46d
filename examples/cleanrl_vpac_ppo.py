"""PPO with a variance penalty in one file, in the manner of CleanRL: PyTorch, Gymnasium and nothing of vpac.

    python examples/cleanrl_vpac_ppo.py --env-id CartPole-v1 --psi 0.01

Lines that end in `# VPAC` are what PPO does not have. Every iteration it

1. estimates A_V, the GAE of δ_t = r + γ V(s') − V(s), as PPO does;
2. estimates A_σ, the GAE of δ̄_t = δ_t² + γ² σ(s') − σ(s), where σ(s) is a critic of the variance of the return;
3. follows the luck of each episode, D_k = Σ_{t<k} γ^t δ_t, which is the return so far against what was expected;
4. improves the policy with A_V − ψ · (γ^k A_σ + 2 (D_k + V(s_0) − J) A_V), J being the mean return.

The last line is the gradient of mean − ψ · variance of the return (docs/corrections.md has the proof).
"""

from __future__ import annotations

import random
import time
from collections import deque
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
import tyro
from torch import nn
from torch.distributions import Categorical, Normal


@dataclass
class Args:
    """Settings."""

    env_id: str = "CartPole-v1"
    """the environment"""
    psi: float = 0.01  # VPAC
    """price of variance, in units of 1/reward"""
    psi_warm_up: float = 0.0  # VPAC
    """share of training in which psi rises from 0"""
    total_timesteps: int = 100_000
    """environment steps"""
    learning_rate: float = 3e-4
    """of Adam; it falls to 0"""
    num_envs: int = 8
    """environments side by side"""
    num_steps: int = 128
    """steps of an iteration in each of them"""
    gamma: float = 0.99
    """discount factor"""
    gae_lambda: float = 0.95
    """lambda of advantages"""
    num_minibatches: int = 8
    """minibatches of an epoch"""
    update_epochs: int = 10
    """epochs of an iteration"""
    clip_coef: float = 0.2
    """clipping of the ratio"""
    ent_coef: float = 0.0
    """bonus for entropy"""
    max_grad_norm: float = 0.5
    """clipping of the gradient"""
    seed: int = 1
    """random seed"""


def make_env(env_id: str) -> gym.Env:
    """An environment with the statistics of its episodes."""
    env = gym.wrappers.FlattenObservation(gym.make(env_id))
    if isinstance(env.action_space, gym.spaces.Box):
        env = gym.wrappers.ClipAction(env)
    return gym.wrappers.RecordEpisodeStatistics(env)


def network(inputs: int, outputs: int, last_gain: float) -> nn.Sequential:
    """Two hidden layers, orthogonal weights."""
    layers = [nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs)]
    for layer, gain in ((layers[0], 2**0.5), (layers[2], 2**0.5), (layers[4], last_gain)):
        nn.init.orthogonal_(layer.weight, gain)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers)


class Agent(nn.Module):
    """A policy, a critic of the value, a critic of the variance and one of the luck."""

    def __init__(self, envs: gym.vector.VectorEnv) -> None:
        super().__init__()
        inputs = int(np.prod(envs.single_observation_space.shape))
        self.discrete = isinstance(envs.single_action_space, gym.spaces.Discrete)
        outputs = int(envs.single_action_space.n if self.discrete else np.prod(envs.single_action_space.shape))
        self.actor = network(inputs, outputs, 0.01)
        self.log_std = nn.Parameter(torch.zeros(outputs))
        self.critic = network(inputs, 1, 1.0)
        self.variance_critic = network(inputs, 1, 1.0)  # VPAC
        self.luck_critic = network(inputs, 1, 1.0)  # VPAC

    def policy(self, x: torch.Tensor) -> Categorical | Normal:
        """The distribution of actions."""
        out = self.actor(x)
        return Categorical(logits=out) if self.discrete else Normal(out, self.log_std.exp().expand_as(out))

    def log_prob(self, policy: Categorical | Normal, action: torch.Tensor) -> torch.Tensor:
        """log π(a|s)."""
        return policy.log_prob(action) if self.discrete else policy.log_prob(action).sum(-1)

    def value(self, x: torch.Tensor) -> torch.Tensor:
        """V(s)."""
        return self.critic(x)[..., 0]

    def variance(self, x: torch.Tensor) -> torch.Tensor:  # VPAC
        """σ(s), never negative."""
        return nn.functional.softplus(self.variance_critic(x)[..., 0])

    def luck(self, x: torch.Tensor) -> torch.Tensor:  # VPAC
        """The mean luck of those who come to s."""
        return self.luck_critic(x)[..., 0]


def gae(errors: torch.Tensor, running: torch.Tensor, discount: float, lam: float) -> torch.Tensor:
    """A_t = Σ_l (discount · λ)^l errors_{t+l}, up to the end of the episode."""
    found, later = torch.zeros_like(errors), torch.zeros_like(errors[0])
    for t in reversed(range(len(errors))):
        found[t] = later = errors[t] + discount * lam * running[t] * later
    return found


class Luck:  # VPAC
    """The luck of the episodes underway, which go on from one iteration to the next, and the mean return J."""

    def __init__(self, n: int, gamma: float) -> None:
        self.gamma, self.returns = gamma, deque(maxlen=100)
        self.luck, self.discount, self.start = torch.zeros(n), torch.ones(n), torch.full((n,), torch.nan)

    def follow(
        self, delta: torch.Tensor, value: torch.Tensor, running: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """D_k + V(s_0) − J and γ^k of each step."""
        lucks, discounts = torch.zeros_like(delta), torch.zeros_like(delta)
        for t in range(len(delta)):
            self.start = torch.where(self.start.isnan(), value[t], self.start)
            lucks[t], discounts[t] = self.luck + self.start, self.discount
            self.luck, self.discount = self.luck + self.discount * delta[t], self.discount * self.gamma
            ends = running[t] == 0
            self.returns.extend((self.luck + self.start)[ends].tolist())
            self.luck, self.discount = self.luck.masked_fill(ends, 0.0), self.discount.masked_fill(ends, 1.0)
            underway, self.start = self.start, self.start.masked_fill(ends, torch.nan)
        mean = float(np.mean(self.returns)) if self.returns else float(underway.mean())
        return lucks - mean, discounts


def train(args: Args) -> tuple[Agent, deque[float]]:
    """Learn; returns the agent and the scores of the last episodes."""
    random.seed(args.seed)
    torch.set_num_threads(1)  # small networks; more threads wait for each other on a busy machine
    torch.manual_seed(args.seed)
    envs = gym.vector.SyncVectorEnv(
        [lambda: make_env(args.env_id)] * args.num_envs, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP
    )
    agent = Agent(envs)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)
    luck_of, scores, begun = Luck(args.num_envs, args.gamma), deque(maxlen=100), time.time()
    per_iteration = args.num_envs * args.num_steps
    iterations = max(1, args.total_timesteps // per_iteration)
    observation = torch.as_tensor(envs.reset(seed=args.seed)[0], dtype=torch.float32)

    for iteration in range(iterations):
        done_share = iteration / iterations
        optimizer.param_groups[0]["lr"] = args.learning_rate * (1.0 - done_share)
        psi = args.psi * min(1.0, done_share / args.psi_warm_up) if args.psi_warm_up else args.psi  # VPAC
        steps = []
        for _ in range(args.num_steps):
            with torch.no_grad():
                policy = agent.policy(observation)
                action = policy.sample()
                log_prob = agent.log_prob(policy, action)
            following, reward, terminated, truncated, info = envs.step(action.numpy())
            final = np.array(following, np.float32)
            for i in np.flatnonzero(terminated | truncated):
                final[i] = info["final_obs"][i]
                scores.append(float(info["final_info"]["episode"]["r"][i]))
            numbers = (reward, ~terminated, ~(terminated | truncated))
            seen = [torch.as_tensor(x, dtype=torch.float32) for x in (final, *numbers)]
            steps.append((observation, action, log_prob, *seen))
            observation = torch.as_tensor(following, dtype=torch.float32)
        obs, actions, log_probs, next_obs, rewards, continues, running = map(torch.stack, zip(*steps, strict=True))

        with torch.no_grad():
            value, next_value = agent.value(obs), agent.value(next_obs)
            delta = rewards + args.gamma * continues * next_value - value
            advantage = gae(delta, running, args.gamma, args.gae_lambda)
            variance, next_variance = agent.variance(obs), agent.variance(next_obs)  # VPAC
            error = delta**2 + args.gamma**2 * continues * next_variance - variance  # VPAC
            variance_advantage = gae(error, running, args.gamma**2, args.gae_lambda)  # VPAC
            luck, discount = luck_of.follow(delta, value, running)  # VPAC
            penalty = discount * variance_advantage + 2.0 * agent.luck(obs) * advantage  # VPAC
            weights = advantage - psi * penalty  # VPAC
            targets = (advantage + value, variance_advantage + variance, luck)  # VPAC

        flat_obs, flat_actions = obs.flatten(0, 1), actions.flatten(0, 1)
        flat_old, flat_weights = log_probs.flatten(), weights.flatten()
        flat_targets = [target.flatten() for target in targets]
        for _ in range(args.update_epochs):
            for rows in torch.randperm(per_iteration).chunk(args.num_minibatches):
                policy = agent.policy(flat_obs[rows])
                ratio = (agent.log_prob(policy, flat_actions[rows]) - flat_old[rows]).exp()
                w = flat_weights[rows]
                w = (w - w.mean()) / (w.std() + 1e-8)
                clipped = ratio.clamp(1.0 - args.clip_coef, 1.0 + args.clip_coef)
                loss = -torch.min(w * ratio, w * clipped).mean() - args.ent_coef * policy.entropy().mean()
                critics = (agent.value, agent.variance, agent.luck)
                for critic, target in zip(critics, flat_targets, strict=True):  # VPAC: PPO has the first one only
                    loss = loss + 0.5 * (critic(flat_obs[rows]) - target[rows]).pow(2).mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
                optimizer.step()
        if scores:
            taken, speed = (iteration + 1) * per_iteration, (iteration + 1) * per_iteration / (time.time() - begun)
            print(f"{taken} steps  score {np.mean(scores):.1f}  variance {np.var(scores):.1f}  {speed:.0f} steps/s")
    envs.close()
    return agent, scores


if __name__ == "__main__":
    train(tyro.cli(Args))
