"""The variance penalty inside `stable_baselines3.PPO`; needs Stable-Baselines3, which brings PyTorch, and no JAX.

    model = VPACPPO("MlpPolicy", "CartPole-v1", psi=0.01).learn(100_000)

Stable-Baselines3 collects, clips, saves and loads as usual. After each rollout the advantages in its buffer become

    A_V − ψ · (γ^k · A_σ + 2 · luck · A_V)

with the same estimators as `vpac.deep` (equations (2) and (3) of docs/corrections.md; `weighting="start"`,
`variance_of="return"`), and two more networks learn the variance σ(s) and the mean luck of a state.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from vpac.errors import UserError
from vpac.typing import FloatArray

try:
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback, CallbackList
    from stable_baselines3.common.utils import obs_as_tensor
    from torch import nn
except ModuleNotFoundError as error:  # pragma: no cover
    raise UserError(f"vpac.sb3 needs {error.name}: pip install 'vpac[sb3]'") from None

__all__ = ["VPACPPO"]

WINDOW = 100.0
"""Approximate number of episodes in the mean return J."""


class Spread(NamedTuple):
    """Estimates of the variance penalty from a rollout, [time, environment]."""

    penalty: FloatArray
    """γ^k · A_σ + 2 · luck · A_V."""
    target: FloatArray
    """Target of the variance critic: λ-returns of δ²."""
    luck: FloatArray
    """D_k + V(S_0) − J, target of the luck critic."""
    carried: Carried


class Carried(NamedTuple):
    """Traces of episodes and the mean return, carried into the next rollout."""

    luck: FloatArray
    """D_k = Σ_{t<k} γ^t δ_t of the unfinished episode of each environment."""
    discount: FloatArray
    """γ^k."""
    start_value: FloatArray
    """V(S_0)."""
    ended: float
    """Number of finished episodes, about the last `WINDOW` of them."""
    total: float
    """The sum of their returns."""

    @staticmethod
    def first(n: int) -> Carried:
        """Traces at the start of an episode."""
        return Carried(np.zeros(n), np.ones(n), np.full(n, np.nan), 0.0, 0.0)


def advantages(error: FloatArray, running: FloatArray, discount: float, lam: float) -> FloatArray:
    """GAE: A_t = Σ_l (discount · λ)^l error_{t+l}, up to the end of the episode or of the rollout."""
    found, later = np.zeros_like(error), np.zeros_like(error[0])
    for t in reversed(range(len(error))):
        found[t] = later = error[t] + discount * lam * running[t] * later
    return found


def estimate_luck(delta: FloatArray, value: FloatArray, running: FloatArray, carried: Carried, gamma: float) -> tuple[
    FloatArray, FloatArray, Carried
]:  # fmt: skip
    """D_k + V(S_0) − J and γ^k at each step, and the traces to carry on; J is the mean return of recent episodes."""
    luck, discount = np.zeros_like(delta), np.zeros_like(delta)
    so_far, power, start = carried.luck.copy(), carried.discount.copy(), carried.start_value.copy()
    ended = total = 0.0
    for t in range(len(delta)):
        start = np.where(np.isnan(start), value[t], start)
        underway = start
        luck[t], discount[t] = so_far + start, power
        so_far, power = so_far + power * delta[t], power * gamma
        ends = running[t] == 0.0
        ended, total = ended + ends.sum(), total + (so_far + start)[ends].sum()
        so_far, power, start = np.where(ends, 0.0, so_far), np.where(ends, 1.0, power), np.where(ends, np.nan, start)
    count = ended + carried.ended
    mean = (total + carried.total) / count if count > 1e-3 else underway.mean()
    left = min(1.0, max(0.0, WINDOW - ended) / max(carried.ended, 1e-9))
    after = Carried(so_far, power, start, float(ended + left * carried.ended), float(total + left * carried.total))
    return luck - mean, discount, after


def estimate_penalty(
    delta: FloatArray, value: FloatArray, variance: FloatArray, next_variance: FloatArray, running: FloatArray,
    carried: Carried, gamma: float, lam: float, mean_luck: FloatArray | None = None,
) -> Spread:  # fmt: skip
    """The penalty of VPAC, corrected: γ^k · A_σ + 2 · luck · A_V, from δ_t = R + γ V(S') − V(S), V(S_t), σ(S_t) and σ(S_{t+1}).

    σ is 0 where the episode terminated, `running` where it terminated or was truncated. `mean_luck` is a critic's estimate of
    the luck, in place of the sampled luck.
    """
    advantage = advantages(delta, running, gamma, lam)
    error = delta**2 + gamma**2 * next_variance - variance
    variance_advantage = advantages(error, running, gamma**2, lam)
    luck, discount, after = estimate_luck(delta, value, running, carried, gamma)
    used = luck if mean_luck is None else mean_luck
    penalty = discount * variance_advantage + 2.0 * used * advantage
    return Spread(penalty, variance_advantage + variance, luck, after)


class _Cuts(BaseCallback):
    """Keeps the last observation of truncated episodes, for bootstrapping the variance."""

    def _on_rollout_start(self) -> None:
        self.found: list[tuple[int, int, Any]] = []
        self.step = 0

    def _on_step(self) -> bool:
        for number, info in enumerate(self.locals["infos"]):
            if self.locals["dones"][number] and info.get("TimeLimit.truncated"):
                self.found.append((self.step, number, info["terminal_observation"]))
        self.step += 1
        return True


class CriticNetworks(nn.Module):
    """σ(s) ≥ 0 and the mean luck, from the features of the policy's critic."""

    def __init__(self, inputs: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.variance, self.luck = (self._network(inputs, hidden) for _ in range(2))

    @staticmethod
    def _network(inputs: int, hidden: tuple[int, ...]) -> nn.Sequential:
        widths = (inputs, *hidden)
        layers = [part for n, m in pairwise(widths) for part in (nn.Linear(n, m), nn.Tanh())]
        return nn.Sequential(*layers, nn.Linear(widths[-1], 1))

    def forward(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """σ and the mean luck of each state."""
        return nn.functional.softplus(self.variance(features)[..., 0]), self.luck(features)[..., 0]


def _each(observations: Any, change: Callable[[Any], Any]) -> Any:
    """Observations, changed; of Dict ones every part."""
    return {k: change(v) for k, v in observations.items()} if isinstance(observations, dict) else change(observations)


class VPACPPO(PPO):
    """`stable_baselines3.PPO` that penalises the variance of the return with ψ.

    Args:
        policy: as for PPO, e.g. "MlpPolicy".
        env: as for PPO.
        psi: price of variance, per unit of the reward that the model gets (after `VecNormalize`, if it is used).
        psi_warm_up: share of `learn` in which ψ rises from 0.
        spread_net: widths of the hidden layers of the two additional critics.
        settings: all other arguments of PPO.
    """

    def __init__(
        self, policy: Any, env: Any, *, psi: float | None = None, psi_warm_up: float = 0.0,
        spread_net: tuple[int, ...] = (64, 64), **settings: Any,
    ) -> None:  # fmt: skip
        loading = settings.get("_init_setup_model", True) is False  # `load` restores what was saved
        if not loading and not (isinstance(psi, int | float) and 0.0 <= psi < np.inf):
            raise UserError(f"VPACPPO needs a price of variance psi, a number from 0 up in 1/reward, got {psi!r}")
        self.psi, self.psi_warm_up, self.spread_net = float(psi or 0.0), float(psi_warm_up), tuple(spread_net)
        super().__init__(policy, env, **settings)

    def _setup_model(self) -> None:
        super()._setup_model()
        with torch.random.fork_rng(devices=[]):  # with ψ = 0 all randomness is that of PPO
            torch.manual_seed(0 if self.seed is None else self.seed)
            self.critics = CriticNetworks(self.policy.features_dim, self.spread_net).to(self.device)
        self._order = torch.Generator().manual_seed(0 if self.seed is None else self.seed)
        self.critics_optimizer = torch.optim.Adam(self.critics.parameters(), lr=self.lr_schedule(1.0), eps=1e-5)
        self.carried = Carried.first(self.n_envs)

    def _excluded_save_params(self) -> list[str]:
        return [
            *super()._excluded_save_params(), "critics", "critics_optimizer", "carried", "_order", "_spread", "_features",
        ]  # fmt: skip

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        states, tensors = super()._get_torch_save_params()
        return [*states, "critics", "critics_optimizer"], tensors

    def _setup_learn(self, *arguments: Any, **named: Any) -> Any:
        found = super()._setup_learn(*arguments, **named)
        if self._last_episode_starts is not None and np.all(self._last_episode_starts):
            self.carried = Carried.first(self.n_envs)._replace(ended=self.carried.ended, total=self.carried.total)
        return found

    def _seen(self, observations: Any) -> torch.Tensor:
        """Features of observations for the policy's critic, which are learned with the policy."""
        extractor = getattr(self.policy, "vf_features_extractor", self.policy.features_extractor)
        return self.policy.extract_features(obs_as_tensor(observations, self.device), extractor).detach()

    def collect_rollouts(self, env: Any, callback: Any, rollout_buffer: Any, n_rollout_steps: int) -> bool:
        """Collect, then replace the advantages in the buffer by A_V − ψ · penalty."""
        cuts = _Cuts()
        cuts.init_callback(self)
        more = CallbackList([callback, cuts])
        more.model = self
        if not super().collect_rollouts(env, more, rollout_buffer, n_rollout_steps):
            return False
        buffer, gamma = rollout_buffer, float(self.gamma)
        starts = np.concatenate([buffer.episode_starts[1:], np.asarray(self._last_episode_starts)[None]])
        running = 1.0 - starts.astype(np.float64)
        values = buffer.values.astype(np.float64)
        with torch.no_grad():
            last = obs_as_tensor(self._last_obs, self.device)
            following = np.concatenate([values[1:], self.policy.predict_values(last).cpu().numpy().reshape(1, -1)])
            features = self._seen(_each(buffer.observations, lambda x: x.reshape(-1, *x.shape[2:])))
            variance, luck = (x.cpu().numpy().astype(np.float64).reshape(values.shape) for x in self.critics(features))
            behind = self.critics(self._seen(self._last_obs))[0].cpu().numpy()
            next_variance = running * np.concatenate([variance[1:], behind[None]])
            for step, number, seen in cuts.found:  # Stable-Baselines3 has added γ V to the reward there
                one = self._seen(_each(seen, lambda x: np.asarray(x)[None]))
                next_variance[step, number] = float(self.critics(one)[0])
        delta = buffer.rewards.astype(np.float64) + gamma * running * following - values
        self._spread = estimate_penalty(
            delta, values, variance, next_variance, running, self.carried, gamma, self.gae_lambda, luck
        )
        self._features, self.carried = features, self._spread.carried
        buffer.advantages -= (self._price() * self._spread.penalty).astype(np.float32)
        return True

    def _price(self) -> float:
        """The current ψ, which rises over the first part of `learn`."""
        done = 1.0 - self._current_progress_remaining
        return self.psi * min(1.0, done / self.psi_warm_up) if self.psi_warm_up else self.psi

    def train(self) -> None:
        """PPO's update, and that of the variance and luck critics."""
        super().train()
        spread, count = self._spread, self._spread.target.size
        target, luck = (
            torch.as_tensor(x.reshape(-1), dtype=torch.float32, device=self.device)
            for x in (spread.target, spread.luck)
        )
        for group in self.critics_optimizer.param_groups:
            group["lr"] = self.lr_schedule(self._current_progress_remaining)
        losses = []
        for _ in range(self.n_epochs):
            for rows in torch.randperm(count, generator=self._order).split(self.batch_size):
                found, mean = self.critics(self._features[rows])
                loss = nn.functional.mse_loss(found, target[rows]) + nn.functional.mse_loss(mean, luck[rows])
                self.critics_optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.critics.parameters(), self.max_grad_norm)
                self.critics_optimizer.step()
                losses.append(loss.item())
        self.logger.record("variance/psi", self._price())
        self.logger.record("variance/loss", float(np.mean(losses)))
        self.logger.record("variance/predicted", float(np.mean(spread.target)))
