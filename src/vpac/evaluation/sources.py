"""Sources of the variance of the return: start state, the policy's draws, the environment's randomness.

The definition is that of `vpac.oracle.sources`: the law of total variance, applied to the start, to every action given the
past, and to every response of the environment given past and action. It is estimated by a nested design. Each start is played
twice; the covariance of the two returns is the start's part, and half their mean squared difference is the rest. The first of
the two episodes is replayed, and in each of its steps the policy draws three more actions, which is cheap and finds rare ones.

    policy        of all pairs of different actions, one is picked; the episode is replayed to its step t;
                  d₁ = G(a) − G(a') with one continuation's random numbers, d₂ with another's;
    environment   of all steps whose response used random numbers, one is picked, and drawn twice; d₁, d₂ likewise.

½ E[d₁d₂] is the variance of the expected return over actions (responses), because the continuations are independent of one
another; within a pair they share random numbers, which leaves the mean unchanged and makes d small. Steps are picked with
probabilities in proportion to γ^{2t}; times the sum of these weights (over the number of pairs in a step) it estimates the sum
over the episode. The rest is a second estimate of the sum of both; the gap is divided between them by their uncertainty.

Few branches show rare actions, so the intervals are those of rare events (`vpac.risk.intervals`). An action that was never
drawn may matter as much as any that was: the upper end of the policy's part includes one such event, as large as the largest
difference of two episodes with the same start. So does that of the environment, if few of its responses differed. Intervals of
shares are intervals of the odds: on the log scale the errors of part and remainder are combined as √(d² + e² − 2ρde), with
their correlation ρ where it is negative; so a share lies between 0 and 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

from vpac.checks import MOST_EPISODES, whole
from vpac.envs.check import checked_step, restore_global_rng
from vpac.envs.make import name_of
from vpac.envs.worlds import FiniteMDPEnv
from vpac.errors import UserError
from vpac.evaluation.actors import Actor, gamma_of
from vpac.evaluation.play import check_first, collect, is_users, one_environment, walk
from vpac.oracle.moments import check_gamma
from vpac.oracle.policies import greedy
from vpac.oracle.sources import VarianceSources
from vpac.oracle.sources import variance_sources as exactly
from vpac.progress import shown
from vpac.risk.intervals import Interval, rare_mean_interval, student_quantile
from vpac.risk.sample import ReturnSample
from vpac.typing import FloatArray

VARIANCE_PARTS = ("start", "policy", "environment")
FEW_BRANCHES = 10
"""Number of branches that made a difference below which a part is known only roughly."""


class Estimate(NamedTuple):
    """Parts of a variance, by name; negative estimates are set to 0."""

    total: Interval
    parts: dict[str, Interval]
    shares: dict[str, Interval]
    """Shares of the variance, which add up to 1."""
    few: dict[str, int]
    """Number of branches that made a difference, for parts with few of them."""


def estimate(rows: FloatArray, level: float, silent: frozenset[str], draws: int) -> Estimate:
    """Parts with intervals.

    `rows` have, for each start, two returns, the policy's term, the environment's, and the number of steps from which the
    latter was picked. `silent` parts are known to be zero, and `draws` actions were drawn in each step.
    """
    one, two, chosen, answered, steps = rows.T
    n = len(rows)
    centre = rows[:, :2].mean()
    bessel = n / (n - 0.5)  # the common mean is estimated from 2n returns
    rest = 0.5 * (one - two) ** 2
    start = bessel * (one - centre) * (two - centre) + (bessel - 1.0) * rest
    apart = 2.0 * float(rest.max())  # the largest squared difference in the sample
    events = {"policy": apart / draws, "environment": 0.5 * apart * float(steps.mean())}
    events |= dict.fromkeys(("start", *silent), 0.0)
    gap = rest - chosen - answered  # has mean zero
    doubts = [_doubt(chosen, events["policy"]), _doubt(answered, events["environment"]), _doubt(rest, 0.5 * apart)]
    given = np.array(doubts) / (sum(doubts) or 1.0)
    terms = {"start": start, "policy": chosen + given[0] * gap, "environment": answered + given[1] * gap}
    seen = {"policy": int(np.count_nonzero(chosen)), "environment": int(np.count_nonzero(answered))}
    few = {name: count for name, count in seen.items() if events[name] > 0.0 and count < FEW_BRANCHES}
    unseen = events if "environment" in few else events | {"environment": 0.0}
    parts = {name: rare_mean_interval(term, event=unseen[name], level=level) for name, term in terms.items()}
    return Estimate(
        rare_mean_interval(np.sum(list(terms.values()), axis=0), level=level),
        {name: replace(part, estimate=max(part.estimate, 0.0)) for name, part in parts.items()},
        {name: _share(name, terms, parts, unseen, level) for name in VARIANCE_PARTS},
        few,
    )


def _doubt(term: FloatArray, event: float) -> float:
    """The variance of a term, including one unseen event."""
    largest = max(float(np.abs(term).max()), event) if event > 0.0 else 0.0
    return float(np.var(term)) + largest**2 / len(term)


def _share(
    name: str, terms: Mapping[str, FloatArray], parts: Mapping[str, Interval], unseen: Mapping[str, float], level: float
) -> Interval:
    part, others = parts[name], [other for other in VARIANCE_PARTS if other != name]
    remainder = np.sum([terms[other] for other in others], axis=0)
    left = rare_mean_interval(remainder, event=sum(unseen[other] for other in others), level=level)
    mine, rest = max(part.estimate, 0.0), sum(max(parts[other].estimate, 0.0) for other in others)
    if not mine + rest > 0.0:
        return Interval(np.nan, np.nan, np.nan)
    if mine == 0.0 or rest == 0.0:  # the odds are 0 or infinite: use the worst cases
        return Interval(mine / (mine + rest), _part_of(part.low, left.high), _part_of(part.high, left.low))
    together = np.std(terms[name]) * np.std(remainder)
    rho = min(float(np.cov(terms[name], remainder, ddof=0)[0, 1] / together), 0.0) if together > 0.0 else 0.0
    with np.errstate(divide="ignore"):
        down, up = (np.log(np.divide(mine, part.low)), np.log(np.divide(part.high, mine)))
        less, more = (np.log(np.divide(rest, left.low)), np.log(np.divide(left.high, rest)))
    odds = mine / rest
    low, high = odds * np.exp(-_added(down, more, rho)), odds * np.exp(_added(up, less, rho))
    return Interval(mine / (mine + rest), _part_of(low, 1.0), _part_of(high, 1.0))


def _added(one: float, other: float, rho: float) -> float:
    one, other = max(one, 0.0), max(other, 0.0)
    return float(np.inf if np.isinf(one + other) else np.sqrt(one**2 + other**2 - 2.0 * rho * one * other))


def _part_of(part: float, rest: float) -> float:
    if np.isinf(part):
        return 1.0
    return part / (part + rest) if part + rest > 0.0 else 0.0


class Way(NamedTuple):
    """A recorded episode."""

    actions: list[Any]
    rewards: list[float]
    total: float
    """Its return."""


class Walker:
    """One environment and one agent, controlled by seeds: of `reset`, of the randomness after it, and of the policy."""

    def __init__(self, agent: Any, env: Any, gamma: float, deterministic: bool) -> None:
        if isinstance(env, VectorEnv):
            raise UserError(
                "sources of variance need a single environment, or a way to make one, not a vector environment"
            )
        check_first(env, callable(getattr(agent, "act", None)))
        self.given, self.gamma = env, gamma
        self.env = one_environment(env, agent)
        self.actor = Actor(agent, self.env.observation_space, self.env.action_space, 1, deterministic)

    def close(self) -> None:
        """Close the environment, unless it is the user's."""
        if not is_users(self.env, self.given):
            self.env.close()

    def episode(self, begin: np.random.SeedSequence, noise: np.random.SeedSequence) -> Way:
        """Play an episode: `begin` determines the start, `noise` all that follows."""
        world, own = _two(noise)
        observation = self._reset(begin, world)
        self.actor.begin(own)
        actions: list[Any] = []
        rewards = self._follow(observation, actions)
        return Way(actions, rewards, self._discounted(rewards))

    def check(self, way: Way, begin: np.random.SeedSequence, noise: np.random.SeedSequence) -> None:
        """Reject an environment that does not repeat an episode with the same seeds and actions."""
        if self.actor.remembers:
            raise UserError("the agent carries a state along: sources of variance need an agent without a memory")
        self._reset(begin, _two(noise)[0])
        again = [self._step(action)[1] for action in way.actions]
        if again != way.rewards:
            raise UserError(
                "the environment does not repeat itself with the same seed and actions: some of its randomness obeys "
                "neither reset(seed=…) nor np_random, so its share cannot be separated from the others"
            )

    def look(
        self, way: Way, begin: Any, noise: Any, own: np.random.SeedSequence, fresh: int
    ) -> tuple[list[list[Any]], list[bool]]:
        """Replay an episode. For each step return the action taken there and `fresh` drawn ones, and whether the environment's
        response used random numbers."""
        observation = self._reset(begin, _two(noise)[0])
        self.actor.begin(own)
        drawn, noisy = [], []
        for action in way.actions:
            drawn.append([action, *(self.actor.action(observation) for _ in range(fresh))])
            before = self.env.unwrapped.np_random.bit_generator.state
            observation, *_ = self._step(action)
            noisy.append(bool(before != self.env.unwrapped.np_random.bit_generator.state))
        return drawn, noisy

    def branch(
        self, way: Way, begin: Any, noise: Any, t: int, action: Any, answer: Any, rest: np.random.SeedSequence
    ) -> float:
        """The return from step t of an episode on, after another action there.

        `answer` is the seed of the environment's response, by default the first draw of `rest`, the seed of all that follows.
        """
        self._reset(begin, _two(noise)[0])
        for earlier in way.actions[:t]:
            self._step(earlier)
        world, own = _two(rest)
        self._seed_noise(world if answer is None else answer)
        observation, reward, over = self._step(action)
        if answer is not None:
            self._seed_noise(world)
        self.actor.begin(own)
        rewards = [reward] if over else [reward, *self._follow(observation, [])]
        return self._discounted(rewards)

    def _reset(self, begin: np.random.SeedSequence, world: np.random.SeedSequence) -> Any:
        observation, _ = self.env.reset(seed=int(begin.generate_state(1)[0] >> 1))
        self._seed_noise(world)
        return observation

    def _seed_noise(self, world: np.random.SeedSequence) -> None:
        self.env.unwrapped.np_random = np.random.default_rng(world)

    def _follow(self, observation: Any, actions: list[Any]) -> list[float]:
        """Follow the policy to the end; records the actions and returns the rewards."""
        rewards = []
        for step in walk(self.env, observation, self.actor.action, name_of(self.given)):
            actions.append(step.action)
            rewards.append(_finite(step.reward))
        return rewards

    def _step(self, action: Any) -> tuple[Any, float, bool]:
        observation, reward, terminated, truncated, _ = checked_step(self.env, action, name_of(self.given))
        return observation, _finite(float(reward)), bool(terminated or truncated)

    def _discounted(self, rewards: list[float]) -> float:
        return float(self.gamma ** np.arange(len(rewards)) @ np.array(rewards))


def _finite(reward: float) -> float:
    if not np.isfinite(reward):
        raise UserError(f"the environment's reward is {reward}: expected a finite number")
    return reward


def _two(seed: np.random.SeedSequence) -> list[np.random.SeedSequence]:
    """Streams for the environment and for the policy, the same at every call."""
    return [np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, k)) for k in range(2)]


def exact_sources(
    agent: Any, env: gymnasium.Env[Any, Any], gamma: float, deterministic: bool
) -> VarianceSources | None:
    """The exact parts, for a tabular learner in a finite MDP under wrappers that do not change it; else None."""
    theta = getattr(getattr(agent, "weights", None), "theta", None)
    if theta is None or agent.environment.n_active != 1:
        return None
    from vpac.tabular.environment import TRANSPARENT

    limit, inner = None, env
    while isinstance(inner, TRANSPARENT):
        limit = getattr(inner, "_max_episode_steps", limit)
        inner = inner.env
    if not isinstance(inner, FiniteMDPEnv) or theta.shape != (inner.mdp.n_states, inner.mdp.n_actions):
        return None
    return exactly(inner.mdp, greedy(theta) if deterministic else agent.policy(), gamma, limit)


FRESH = 3
"""Actions that are drawn in each step besides the one that was taken."""
PAIRS = (FRESH + 1) * FRESH // 2
"""Pairs of actions in each step."""
REPEATED = 10
"""Episodes that are repeated, to check that the environment obeys its seeds."""
NUMBERS = 6
"""Numbers of each start: those of `estimate`, and whether the environment drew random numbers after its reset."""
QUIET = (
    "after its reset the environment took nothing from its np_random: it is deterministic from there on, or its noise is fixed "
    "by the reset's seed and counted under start"
)


@dataclass(frozen=True)
class Sources:
    """Parts of the variance of the return, with intervals."""

    total: Interval
    """Var(G)."""
    parts: dict[str, Interval]
    """Parts "start", "policy" and "environment"; an estimate below 0 is set to 0, the others add up to the total."""
    shares: dict[str, Interval]
    """Shares of the parts, between 0 and 1."""
    exact: VarianceSources | None
    """The exact parts, if MDP and policy are known; else None."""
    starts: int
    """Number of starts."""
    gamma: float
    """The discount factor."""
    notes: tuple[str, ...]
    """Notes about this environment."""


def variance_sources(
    agent: Any, env: Any, starts: int = 500, *, seed: int = 0, gamma: float | None = None, deterministic: bool = False,
    level: float = 0.95, progress: bool | Callable[[int, int], object] = False,
    measured: Callable[[str, Callable[..., ReturnSample]], ReturnSample] = lambda name, play: play(),
) -> Sources:  # fmt: skip
    """Estimate the parts of the variance; for a tabular agent of vpac in a finite MDP, also compute the exact ones.

    A start is a seed of `reset`; later randomness comes from a generator that replaces the environment's `np_random` after the
    reset. Randomness from elsewhere cannot be separated from the start if `reset` seeds it; if nothing seeds it, the episode
    does not repeat, which is an error.

    Args:
        agent: as for `evaluate`, but without a memory.
        env: as for `evaluate`, but not a vector environment.
        starts: number of starts; each takes up to ten episodes.
        seed: seed of all randomness.
        gamma: discount factor; default: the agent's own, or 0.99.
        deterministic: the policy of the most likely actions instead of the sampled ones.
        level: the confidence of the intervals.
        progress: as for `evaluate`.
        measured: as for `certify`; the sample has the `NUMBERS` of every start as returns.
    """
    starts = whole(starts, "starts", 10, MOST_EPISODES)
    gamma = gamma_of(agent) if gamma is None else check_gamma(gamma)
    walker = Walker(agent, env, gamma, deterministic)
    student_quantile(level, starts - 1)  # raises if `level` is not a level
    seeds = np.random.SeedSequence(whole(seed, "seed")).spawn(starts)

    def play(before: ReturnSample | None = None, keep: Callable[[ReturnSample], object] | None = None) -> ReturnSample:
        found = [*before.returns.reshape(-1, NUMBERS)[:starts]] if before is not None and before.gamma == gamma else []
        done = len(found)

        def so_far() -> ReturnSample:
            row = np.concatenate(found)
            return ReturnSample(row, row, np.ones(len(row), int), np.ones(len(row), bool), gamma)

        work = (_one_start(walker, child, number < REPEATED) for number, child in enumerate(seeds[done:], done))
        with restore_global_rng(), shown(progress, starts, name_of(env)) as tell:
            collect(work, found, so_far, keep, lambda count: tell(done + count))
        return so_far()

    rows = measured("sources", play).returns.reshape(-1, NUMBERS)
    walker.close()
    noisy = bool(rows[:, -1].any())
    silent = {"environment": not noisy, "policy": deterministic and not walker.actor.decides_itself}
    found = estimate(rows[:, :-1], level, frozenset(name for name, so in silent.items() if so), FRESH + 1)
    exact = exact_sources(agent, walker.env, gamma, deterministic)
    notes = (*(() if noisy else (QUIET,)), *(_few(name, count, starts) for name, count in found.few.items()))
    return Sources(found.total, found.parts, found.shares, exact, starts, gamma, notes)


def _few(name: str, count: int, starts: int) -> str:
    what = {"policy": "two draws of the policy", "environment": "two answers of the environment"}[name]
    return (
        f"in only {count} of {starts} episodes {what} made a difference: the share of the {name} is known roughly at best; "
        "more episodes tell more"
    )


def _one_start(walker: Walker, seed: np.random.SeedSequence, check: bool) -> FloatArray:
    """Returns of two episodes, the terms of policy and environment, the number of random responses, and if there were any."""
    begin, first, second, pick, *more = seed.spawn(9)
    way = walker.episode(begin, first)
    again = walker.episode(begin, second)
    if check:
        walker.check(way, begin, first)
    rng = np.random.default_rng(pick)
    drawn, noisy = walker.look(way, begin, first, more[0], FRESH)
    weights: FloatArray = np.power(walker.gamma, 2.0 * np.arange(len(drawn)), dtype=np.float64)

    def branch(t: int, action: Any, answer: np.random.SeedSequence | None, rest: np.random.SeedSequence) -> float:
        return walker.branch(way, begin, first, t, action, answer, rest)

    chosen = answered = 0.0
    pairs = [
        (t, one, other)
        for t, actions in enumerate(drawn)
        for one, other in combinations(actions, 2)
        if not np.array_equal(one, other)
    ]
    here = weights[[t for t, *_ in pairs]]
    if here.any():
        t, one, other = pairs[_picked(rng, here)]
        gaps = [branch(t, one, None, rest) - branch(t, other, None, rest) for rest in more[1:3]]
        chosen = 0.5 * float(here.sum()) / PAIRS * gaps[0] * gaps[1]
    here = weights * noisy
    if here.any():
        t, answers = _picked(rng, here), more[3:5]
        rests = np.random.SeedSequence(int(more[3].generate_state(1)[0])).spawn(2)
        taken = way.actions[t]
        gaps = [branch(t, taken, answers[0], rest) - branch(t, taken, answers[1], rest) for rest in rests]
        answered = 0.5 * float(here.sum()) * gaps[0] * gaps[1]
    return np.array([way.total, again.total, chosen, answered, float(weights @ noisy), float(any(noisy))])


def _picked(rng: np.random.Generator, weights: FloatArray) -> int:
    return int(rng.choice(len(weights), p=weights / weights.sum()))
