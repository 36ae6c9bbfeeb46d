"""Episodes of a policy that stays as it is."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vpac.deep.policy import NumpyPolicy
from vpac.deep.vector import Environments
from vpac.liveness import advance, watched
from vpac.threads import one_blas_thread
from vpac.typing import FloatArray

__all__ = ["Played", "play"]


class Played(NamedTuple):
    """One number for each episode."""

    scores: FloatArray
    """Undiscounted returns."""
    returns: FloatArray
    """Discounted returns."""
    lengths: FloatArray
    squares: FloatArray
    """Sums of squared rewards."""

    @property
    def volatility(self) -> float:
        """Standard deviation of the reward of a step, all steps alike."""
        steps = self.lengths.sum()
        mean = self.scores.sum() / steps
        return float(np.sqrt(max(self.squares.sum() / steps - mean**2, 0.0)))


@watched()
def play(
    policy: NumpyPolicy,
    envs: Environments,
    episodes: int,
    seed: np.random.SeedSequence,
    gamma: float,
    deterministic: bool = False,
) -> Played:
    """Play so many episodes, the same number in each environment but for one: to stop at the first that end would count short
    episodes more often than long ones."""
    wanted = np.full(envs.n, episodes // envs.n) + (np.arange(envs.n) < episodes % envs.n)
    starts, acts = seed.spawn(2)
    seen, generator = envs.reset(starts.generate_state(envs.n).tolist()), np.random.default_rng(acts)
    found: list[list[FloatArray]] = [[] for _ in range(envs.n)]
    sums, over = np.zeros((4, envs.n)), np.zeros(envs.n, bool)
    score, total, length, square = sums
    left = int(wanted.sum())
    with one_blas_thread():
        while left:
            step = envs.step(policy.act(seen, generator, deterministic))
            advance()
            valid = ~over
            score += step.rewards * valid
            total += gamma**length * step.rewards * valid
            square += step.rewards**2 * valid
            length += valid
            seen, ended = step.observations, step.terminated | step.truncated
            for i in np.flatnonzero(ended):
                if len(found[i]) < wanted[i]:
                    found[i].append(sums[:, i].copy())
                    left -= 1
                sums[:, i] = 0.0
            if not envs.same_step:
                over = ended
    return Played(*np.array([episode for each in found for episode in each]).reshape(-1, 4).T)
