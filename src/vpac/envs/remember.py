"""Environments whose observations include the step k and the discounted return collected so far, G_{0:k}.

Mean − ψ · variance is not time-consistent: the best policy depends on both. `RememberReturn` adds them to the observations of
an environment, `remembering` to the states of a finite MDP. With a grid, both round the return at random to one of two
neighbouring points and continue from there: they are the same process. Within the grid this keeps the mean of G_{0:k}. Rewards
are unchanged, so the moments of the return are those of the original MDP.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from vpac.checks import whole
from vpac.envs.finite_mdp import FiniteMDP
from vpac.envs.noise import AnyEnv
from vpac.envs.observations import MASK, choices, why_not_flat, without_mask
from vpac.errors import UserError
from vpac.typing import FloatArray, IntArray

MOST_REMEMBERED = 10_000_000
"""Larger MDPs are rejected: they would take gigabytes."""


@dataclass(frozen=True)
class ReturnGrid:
    """Grid points of G_{0:k} for k = 0 … horizon; after that the memory is constant."""

    gamma: float
    horizon: int
    low: float
    high: float
    bins: int

    def __post_init__(self) -> None:
        if not all(isinstance(x, int | float | np.number) for x in (self.gamma, self.low, self.high)):
            raise UserError(f"gamma, low and high must be numbers, got {self.gamma!r}, {self.low!r}, {self.high!r}")
        if not 0.0 <= self.gamma <= 1.0:
            raise UserError(f"gamma must be a number from 0 to 1, got {self.gamma!r}")
        whole(self.horizon, "horizon", 1)
        whole(self.bins, "bins", 2)
        if not (np.isfinite([self.low, self.high]).all() and self.low <= 0.0 <= self.high and self.low < self.high):
            raise UserError(f"expected low ≤ 0 ≤ high, for returns begin at 0, got low={self.low}, high={self.high}")

    @property
    def points(self) -> FloatArray:
        """The returns of the grid."""
        return np.linspace(self.low, self.high, self.bins)

    def below(self, collected: Any) -> tuple[IntArray, FloatArray]:
        """The point below each return and the weight of the one above it; returns outside are clipped."""
        place = np.clip((np.asarray(collected) - self.low) / (self.high - self.low), 0.0, 1.0) * (self.bins - 1)
        lower = np.minimum(np.floor(place), self.bins - 2)
        return lower.astype(np.int64), place - lower

    def index(self, step: Any, state: Any, point: Any, n_states: int) -> Any:
        """The index of (k, s, point) among the observations."""
        return (np.minimum(step, self.horizon) * n_states + state) * self.bins + point


def remembering(mdp: FiniteMDP, gamma: float, horizon: int, low: float, high: float, bins: int) -> FiniteMDP:
    """The MDP whose states are (k, s, point of G_{0:k}); state (k·S + s)·bins + point.

    Noise of rewards stays in the rewards; the return in the state is a sum of mean rewards. Its grid has `bins` points from
    `low` ≤ 0 to `high` ≥ 0. The MDP is not truncated at the horizon, but k and the return are constant from then on.
    """
    grid, n, times = ReturnGrid(gamma, horizon, low, high, bins), mdp.n_states, horizon + 1
    if (size := times * len(mdp.row) * bins) > MOST_REMEMBERED:
        raise UserError(
            f"to remember the return takes {size:,} transitions, expected at most {MOST_REMEMBERED:,}: use fewer bins or a "
            "shorter horizon"
        )
    k, entry, point = (x.ravel() for x in np.meshgrid(*map(np.arange, (times, len(mdp.row), bins)), indexing="ij"))
    state, action = divmod(mdp.row[entry], mdp.n_actions)
    lower, share = grid.below(grid.points[point] + gamma**k * mdp.reward[entry])
    still = k == horizon
    lower, share = np.where(still, point, lower), np.where(still, 0.0, share)
    here, there, upper = grid.index(k, state, point, n), mdp.successor[entry], np.minimum(lower + 1, bins - 1)
    first, rest = grid.below(0.0)
    start = np.zeros((times, n, bins))
    start[0, :, first], start[0, :, first + 1] = (1.0 - rest) * mdp.start, rest * mdp.start
    return FiniteMDP.from_transitions(
        times * n * bins, mdp.n_actions, np.tile(here, 2), np.tile(action, 2),
        np.concatenate([grid.index(k + 1, there, lower, n), grid.index(k + 1, there, upper, n)]),
        np.concatenate([mdp.probability[entry] * (1.0 - share), mdp.probability[entry] * share]),
        np.tile(mdp.reward[entry], 2), np.tile(mdp.noise[entry], 2), start.ravel(),
        np.repeat(np.tile(mdp.terminal, times), bins), goal=np.repeat(np.tile(mdp.goal, times), bins),
        action_names=mdp.action_names,
    )  # fmt: skip


def return_range(mdp: FiniteMDP, gamma: float, horizon: int) -> tuple[float, float]:
    """The smallest and the largest mean G_{0:k}, k ≤ horizon, of episodes that have not ended."""
    state, alive = mdp.row // mdp.n_actions, ~mdp.terminal[mdp.successor]
    most = np.where(mdp.start > 0.0, 0.0, -np.inf)
    least, low, high = -most, 0.0, 0.0
    for k in range(horizon):
        paid = gamma**k * mdp.reward
        reached = [np.full(mdp.n_states, sign * np.inf) for sign in (1.0, -1.0)]
        np.minimum.at(reached[0], mdp.successor[alive], (least[state] + paid)[alive])
        np.maximum.at(reached[1], mdp.successor[alive], (most[state] + paid)[alive])
        least, most = reached
        if not np.isfinite(least).any():
            break
        low, high = min(low, float(least.min())), max(high, float(most.max()))
    return low, high


class RememberReturn(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Adds the return collected so far and the elapsed steps to observations.

    Two numbers at the end of a vector (a Discrete observation becomes one-hot first): G_{0:k}, and k divided by the step limit
    if there is one. With `bins` a Discrete observation stays Discrete: it is the state that `remembering` describes.

    Args:
        env: an environment whose observations can be flattened.
        gamma: discount factor of the return; use the learner's.
        bins: points of the grid of returns.
        low: the smallest return on that grid.
        high: the largest.
        horizon: steps that are counted; default: the step limit.
    """

    def __init__(
        self, env: AnyEnv, gamma: float = 1.0, bins: int | None = None, low: float | None = None,
        high: float | None = None, horizon: int | None = None,
    ) -> None:  # fmt: skip
        self.arguments: dict[str, Any] = {"gamma": gamma}
        if bins is not None:
            self.arguments |= {"bins": bins, "low": low, "high": high, "horizon": horizon}
        RecordConstructorArgs.__init__(self, **self.arguments)
        gymnasium.Wrapper.__init__(self, env)
        seen: Any = env.observation_space
        self._masked = isinstance(seen, spaces.Dict) and MASK in seen.spaces and bool(choices(env.action_space))
        seen = without_mask(seen) if self._masked else seen
        if reason := why_not_flat(seen):
            raise UserError(reason)
        limit: Any = env.get_wrapper_attr("_max_episode_steps") if env.has_wrapper_attr("_max_episode_steps") else None
        self.grid: ReturnGrid | None = None
        self._seen, self._gamma, self._limit = seen, gamma, limit or 1
        if bins is None:
            if (low, high, horizon) != (None, None, None):
                raise UserError("low, high and horizon describe a grid of returns: give bins, too")
            ReturnGrid(gamma, 1, -1.0, 1.0, 2)  # checks gamma
            flat: Any = spaces.flatten_space(seen)
            ends = np.append(flat.low, [-np.inf, 0.0]), np.append(flat.high, [np.inf, 1.0 if limit else np.inf])
            dtype: Any = np.result_type(flat.dtype, np.float32)
            self.observation_space = spaces.Box(ends[0].astype(dtype), ends[1].astype(dtype), dtype=dtype)
            return
        if not isinstance(seen, spaces.Discrete) or low is None or high is None or (horizon is None and limit is None):
            raise UserError(
                f"a grid of returns needs Discrete observations, low, high, and a horizon or a step limit; got {seen}, "
                f"low={low}, high={high}, horizon={horizon}"
            )
        self.grid = ReturnGrid(gamma, horizon or limit, low, high, bins)
        self.observation_space = spaces.Discrete((self.grid.horizon + 1) * int(seen.n) * bins)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode with a return of 0."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._step, self._collected = 0, 0.0
        return self._observe(observation, 0.0), self._with_mask(observation, info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take an action, and add its reward to the return."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        paid = self._gamma**self._step * float(reward)
        self._step += 1
        return self._observe(observation, paid), reward, terminated, truncated, self._with_mask(observation, info)

    def _with_mask(self, observation: Any, info: dict[str, Any]) -> dict[str, Any]:
        """The `info` with the mask of actions that was in the observation."""
        return {**info, MASK: observation[MASK]} if self._masked else info

    def _observe(self, observation: Any, paid: float) -> Any:
        """The observation, after adding the reward."""
        if self.grid is None:
            self._collected += paid
            flat = spaces.flatten(self._seen, observation)
            both = np.append(np.asarray(flat, np.float64), [self._collected, self._step / self._limit])
            return both.astype(self.observation_space.dtype)
        if self._step <= self.grid.horizon:
            lower, share = self.grid.below(self._collected + paid)
            self._point = int(lower) + int(self.np_random.random() < share)
            self._collected = float(self.grid.points[self._point])
        state = int(observation) - int(self._seen.start)
        return np.int64(self.grid.index(self._step, state, self._point, int(self._seen.n)))

    def process(self, mdp: FiniteMDP) -> FiniteMDP | None:
        """The MDP of this wrapper around an MDP; None without a grid."""
        return None if self.grid is None else remembering(mdp, **asdict(self.grid))


def memory_of(env: AnyEnv) -> dict[str, Any] | None:
    """The arguments of the `RememberReturn` around an environment; None if there is none."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, RememberReturn):
            return env.arguments
        env = env.env
    return None
