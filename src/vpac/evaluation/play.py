"""`vpac.evaluate`, and its loop: episodes of a fixed policy in several environments, correct in every autoreset mode.

NEXT_STEP   the step after an episode's end only resets and ignores the action: it belongs to no episode
SAME_STEP   the last step resets, too: its reward belongs to the old episode, its observation to the new one
DISABLED    `restart` resets finished environments with `reset_mask`
"""

from __future__ import annotations

import copy
import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import TimeLimit

from vpac.checks import LONGEST_EPISODE, MOST_EPISODES, whole
from vpac.envs.check import check_before_use, checked_step, restore_global_rng, reward_array
from vpac.envs.finite_mdp import FiniteMDP
from vpac.envs.make import make_unflattened, name_of
from vpac.errors import Diverged, UserError
from vpac.evaluation.actors import Actor, as_seen, gamma_of
from vpac.evaluation.log import Recorder
from vpac.oracle.moments import check_gamma
from vpac.progress import shown
from vpac.risk.budget import BudgetReport, LimitCheck, check_limits
from vpac.risk.intervals import Interval
from vpac.risk.sample import SAMPLE_COLUMNS, ReturnSample
from vpac.threads import one_blas_thread
from vpac.typing import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    from vpac.deep.policy import NumpyPolicy
    from vpac.envs.vector import Environments

KEEP_EVERY = 5.0
"""Seconds between two calls of `keep`."""
LONG = 20_000
"""Length of the first episodes above which a warning says that they may never end."""
ENDLESS_EPISODE = "an episode did not end within {:,} steps: give the environment a limit (max_episode_steps=…)"

Term = Callable[[FloatArray, IntArray, FloatArray], Any]
"""Term that a step adds to a sum over an episode, from rewards, numbers of earlier steps, and discounts."""


def play(
    envs: Vector | _Fast, act: Callable[[Any, BoolArray], Any], episodes: int, gamma: float, terms: Sequence[Term],
    tell: Callable[[int], object] = lambda done: None, record: Callable[..., object] | None = None,
) -> tuple[FloatArray, IntArray, BoolArray]:  # fmt: skip
    """Sums of the `terms` [terms, episodes], lengths, and whether each episode terminated.

    Environment i plays episodes i, i + n, i + 2n, … of n environments: stopping at the first that end would favour short
    episodes. `act` gets observations, and a mask of those that begin an episode; `tell` the number of finished episodes
    whenever it grows; `record`, at every step, which environments count, and their episodes, steps, observations, actions,
    rewards, terminations and truncations.
    """
    n = envs.n
    found, lengths = np.zeros((len(terms), episodes)), np.zeros(episodes, np.int64)
    terminated = np.zeros(episodes, bool)
    number = np.arange(n)  # the current episode of each environment; from `episodes` on none counts
    sums, steps, discount = np.zeros((len(terms), n)), np.zeros(n, np.int64), np.ones(n)
    observations = envs.reset()
    fresh, resetting, done = np.ones(n, bool), np.zeros(n, bool), 0
    while done < episodes:
        actions = act(observations, fresh)
        seen = None if record is None else copy.deepcopy(observations)  # environments may overwrite their observations
        observations, rewards, ends, cuts = envs.step(actions)
        counted = (number < episodes) & ~resetting
        if not np.isfinite(rewards[counted]).all():
            bad = int(np.flatnonzero(counted & ~np.isfinite(rewards))[0])
            raise Diverged(
                f"the environment's reward is {rewards[bad]} in step {steps[bad] + 1} of episode {number[bad]}: "
                "expected a finite number"
            )
        if record is not None:
            record(counted, number, steps, seen, actions, rewards, ends, cuts)
        for row, term in zip(sums, terms, strict=True):
            row += np.where(counted, term(rewards, steps, discount), 0.0)
        steps += counted
        discount *= gamma
        over = (np.asarray(ends, bool) | np.asarray(cuts, bool)) & ~resetting
        fresh = resetting.copy() if envs.resets_in_next_step else over
        finished = over & counted
        if finished.any():
            which = number[finished]
            found[:, which], lengths[which] = sums[:, finished], steps[finished]
            terminated[which] = np.asarray(ends, bool)[finished]
            done += int(finished.sum())
            tell(done)
        elif done == 0 and steps.max() == LONG:
            warnings.warn(
                f"no episode has ended within {LONG:,} steps; if none ever does, give the environment a limit "
                f"(max_episode_steps=…): after {LONGEST_EPISODE:,} this stops",
                stacklevel=2,
            )
        elif (steps > LONGEST_EPISODE).any():
            raise UserError(ENDLESS_EPISODE.format(LONGEST_EPISODE))
        number[finished] += n
        restarts = finished | (resetting if envs.resets_in_next_step else over)
        sums[:, restarts], steps[restarts], discount[restarts] = 0.0, 0, 1.0
        if envs.resets_in_next_step:
            resetting = over
        elif done < episodes:
            observations = envs.restart(observations, over, number)
    return found, lengths, terminated


def discounted(rewards: FloatArray, steps: IntArray, discount: FloatArray) -> FloatArray:
    """The discounted return."""
    return discount * rewards


def plain(rewards: FloatArray, steps: IntArray, discount: FloatArray) -> FloatArray:
    """The sum of rewards."""
    return rewards


class Step(NamedTuple):
    """A step of a single environment."""

    action: Any
    observation: Any
    """The observation after it."""
    reward: float
    ended: str
    """"terminated", "truncated", or empty if the episode continues."""


def walk(env: Any, observation: Any, choose: Callable[[Any], Any], name: str) -> Iterator[Step]:
    """The steps of an episode of a single environment, from an observation to its end."""
    for _ in range(LONGEST_EPISODE):
        action = choose(observation)
        observation, reward, terminated, truncated, _ = checked_step(env, action, name)
        ended = "terminated" if terminated else "truncated" if truncated else ""
        yield Step(action, observation, float(reward), ended)
        if ended:
            return
    raise UserError(ENDLESS_EPISODE.format(LONGEST_EPISODE))


class Played(NamedTuple):
    """One number for each episode of a policy of the PPO family."""

    scores: FloatArray
    """Undiscounted returns."""
    returns: FloatArray
    """Discounted returns."""
    lengths: FloatArray
    squares: FloatArray
    """Sums of squared rewards."""

    @property
    def volatility(self) -> float:
        """Standard deviation of the reward per step, all steps weighted equally."""
        steps = self.lengths.sum()
        mean = self.scores.sum() / steps
        return float(np.sqrt(max(self.squares.sum() / steps - mean**2, 0.0)))


@dataclass
class _Fast:
    """The environments of the PPO family, which reset by themselves, from seeds given once."""

    envs: Environments
    seeds: list[int]

    def __post_init__(self) -> None:
        self.n, self.resets_in_next_step = self.envs.n, not self.envs.same_step

    def reset(self) -> Any:
        return self.envs.reset(self.seeds)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any]:
        return self.envs.step(actions)[:4]

    def restart(self, observations: Any, over: BoolArray, number: IntArray) -> Any:
        return observations


def play_policy(
    policy: NumpyPolicy, envs: Environments, episodes: int, seed: np.random.SeedSequence, gamma: float,
    deterministic: bool = False,
) -> Played:  # fmt: skip
    """Episodes of a policy of the PPO family, ordered by environment."""
    starts, acts = seed.spawn(2)
    rng = np.random.default_rng(acts)
    terms = plain, lambda rewards, steps, _: gamma**steps * rewards, lambda rewards, *_: rewards**2
    with one_blas_thread():
        sums, lengths, _ = play(
            _Fast(envs, starts.generate_state(envs.n).tolist()),
            lambda observations, _: policy.act(observations, rng, deterministic),
            episodes, gamma, terms,
        )  # fmt: skip
    order = np.argsort(np.arange(episodes) % envs.n, kind="stable")
    scores, returns, squares = sums[:, order]
    return Played(scores, returns, lengths[order].astype(np.float64), squares)


def seeds_from(sequence: np.random.SeedSequence, count: int) -> IntArray:
    """Seeds below 2³¹, which every environment accepts."""
    return np.random.default_rng(sequence).integers(2**31, size=count)


COPIED = ("vpac.envs.", "gymnasium.envs.classic_control.", "gymnasium.envs.toy_text.")
"""Modules of environments whose deep copies are independent and keep the user's changes."""


@dataclass
class Vector:
    """A vector environment, and the seeds of its episodes."""

    env: Any
    """The `VectorEnv`, which accepts lists of seeds, whatever its base class says."""
    mode: AutoresetMode
    """Behaviour at the end of an episode."""
    ours: bool
    """Whether it was made here: then every episode gets its own seed, and it is closed at the end."""
    seeds: IntArray = field(default_factory=lambda: np.zeros(1, np.int64))
    """Seeds of the episodes, by number."""

    @property
    def n(self) -> int:
        """Number of sub-environments."""
        return int(self.env.num_envs)

    @property
    def resets_in_next_step(self) -> bool:
        """Whether the step after an episode's end only resets."""
        return self.mode is AutoresetMode.NEXT_STEP

    @property
    def first(self) -> Any:
        """Its first sub-environment, if it was made here."""
        return self.env.envs[0] if isinstance(self.env, SyncVectorEnv) else self.env

    def seed(self, sequence: np.random.SeedSequence, episodes: int) -> None:
        """Choose the seeds of `episodes` episodes."""
        self.seeds = seeds_from(sequence, -(-episodes // self.n) * self.n)

    def reset(self) -> Any:
        """Begin the first episodes."""
        seeds = self.seeds.tolist()
        return self.env.reset(seed=seeds[: self.n] if self.ours else seeds[0])[0]

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any]:
        """Step all sub-environments."""
        observations, rewards, terminated, truncated, _ = self.env.step(actions)
        return observations, reward_array(rewards, "the environment"), terminated, truncated

    def restart(self, observations: Any, over: BoolArray, number: IntArray) -> Any:
        """Reset finished environments, if they do not reset themselves; those made elsewhere keep their own random numbers."""
        if self.mode is not AutoresetMode.DISABLED or not over.any():
            return observations
        seeds = [
            int(self.seeds[k]) if restart and k < len(self.seeds) else None
            for k, restart in zip(number.tolist(), over, strict=True)
        ]
        return self.env.reset(seed=seeds if self.ours else None, options={"reset_mask": over})[0]


def vectorised(env: Any, count: int, agent: Any) -> Vector:
    """A vector of at most `count` sub-environments, with observations as the agent takes them.

    An object is copied if it comes from a module whose copies are known to be independent; any other object is used itself,
    alone, because a copy might share a simulator with it.
    """
    if isinstance(env, VectorEnv):
        mode = env.metadata.get("autoreset_mode")
        if not isinstance(mode, AutoresetMode):
            raise UserError(
                f"{type(env).__name__} does not say what it does at the end of an episode: expected "
                f"metadata['autoreset_mode'] to be a gymnasium.vector.AutoresetMode, got {mode!r}"
            )
        return Vector(env, mode, ours=False)
    made = [partial(CheckedSteps, make, name_of(env)) for make in _makers(env, count, agent)]
    try:
        vector = SyncVectorEnv(made, autoreset_mode=AutoresetMode.DISABLED)
    except RuntimeError as error:
        raise UserError(f"the environments differ from one another: {error}") from None
    return Vector(vector, AutoresetMode.DISABLED, ours=True)


class CheckedSteps(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Checks an environment's results before a vector environment, which would take text for a number, gets them."""

    def __init__(self, make: Callable[[], gymnasium.Env[Any, Any]], name: str) -> None:
        super().__init__(make())
        self.name = name

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """A step of the environment."""
        return checked_step(self.env, action, self.name)


def check_first(env: Any, learning: bool) -> None:
    """Check an environment before it is used, unless it is known (`vpac.envs.check`)."""
    if isinstance(env, str | EnvSpec | gymnasium.Env) or (callable(env) and not isinstance(env, FiniteMDP | VectorEnv)):
        check_before_use(env, lambda: make_unflattened(env), learning=learning)


def _makers(env: Any, count: int, agent: Any) -> list[Callable[[], gymnasium.Env[Any, Any]]]:
    if isinstance(env, str | EnvSpec | FiniteMDP) or (callable(env) and not isinstance(env, gymnasium.Env)):
        return [lambda: one_environment(env, agent)] * count
    first = one_environment(env, agent)
    if type(first.unwrapped).__module__.startswith(COPIED) and count > 1:
        return [lambda: copy.deepcopy(first)] * count
    return [lambda: first]


def one_environment(env: Any, agent: Any) -> gymnasium.Env[Any, Any]:
    """A single environment, with observations and memory as the agent takes them; an object is used itself, or wrapped."""
    return as_seen(make_unflattened(env), agent)


def is_users(env: gymnasium.Env[Any, Any], given: Any) -> bool:
    """Whether an environment is the user's own object, which must not be closed here."""
    return isinstance(given, gymnasium.Env) and env.unwrapped is given.unwrapped


def evaluate(
    agent: Any, env: Any, episodes: int = 1000, *, seed: int = 0, gamma: float | None = None, deterministic: bool = False,
    envs: int = 8, progress: bool | Callable[[int, int], object] = False, log: str | Path | None = None,
) -> ReturnSample:  # fmt: skip
    """Play episodes and return a sample of their returns. The same arguments give the same sample.

    Every sub-environment plays a fixed number of episodes, so that short episodes are not favoured.

    Args:
        agent: an agent of vpac, a model with `predict(observation, deterministic=…)` like those of Stable-Baselines3, or a
            function from an observation to an action. Box actions are clipped to their space.
        env: a Gymnasium id, a function that makes an environment, an environment, a `FiniteMDP`, or a
            `gymnasium.vector.VectorEnv` in any autoreset mode.
        episodes: number of episodes.
        seed: seed of the environments and of the policy.
        gamma: discount factor; default: the agent's own, or 0.99.
        deterministic: measure the policy of the most likely actions instead of the sampled ones.
        envs: sub-environments that are stepped together; a vector environment has its own number. The sample depends on it,
            because it changes which random numbers each episode gets.
        progress: show a bar if it takes more than two seconds, or call this with the number of finished and of all episodes.
        log: a .parquet file for every step with the probability of its action (`vpac.offline` reads it); for agents of vpac.
    """
    gamma = gamma_of(agent) if gamma is None else check_gamma(gamma)
    recorder = None if log is None else Recorder(agent, log, deterministic)
    (returns, scores), lengths, terminated, about = measure(
        agent, env, (discounted, plain), episodes, seed=seed, gamma=gamma, deterministic=deterministic, envs=envs,
        progress=progress, record=None if recorder is None else recorder.record,
    )  # fmt: skip
    if recorder is not None:
        recorder.write()
    return ReturnSample(returns, scores, lengths, terminated, gamma=gamma, about=about)


def measure(
    agent: Any, env: Any, terms: Sequence[Term], episodes: int, *, seed: int, gamma: float, deterministic: bool,
    envs: int = 8, progress: bool | Callable[[int, int], object] = False, record: Callable[..., object] | None = None,
) -> tuple[FloatArray, IntArray, BoolArray, dict[str, Any]]:  # fmt: skip
    """Play the episodes of `evaluate` and sum the `terms` over each; returns the result of `play`, and a description."""
    episodes, envs, seed = whole(episodes, "episodes", 1, MOST_EPISODES), whole(envs, "envs", 1), whole(seed, "seed")
    check_first(env, callable(getattr(agent, "act", None)))
    made = vectorised(env, min(envs, episodes), agent)
    about = {
        "agent": agent_name(agent), "env": name_of(env), "episodes": episodes, "seed": seed, "envs": made.n,
        "deterministic": bool(deterministic),
    }  # fmt: skip
    noise, world = np.random.SeedSequence(seed).spawn(2)
    made.seed(world, episodes)
    with _acting(agent, made, env, deterministic) as actor, shown(progress, episodes, name_of(env)) as tell:
        actor.begin(noise)
        return *play(made, actor.actions, episodes, gamma, terms, tell, record), about


@contextmanager
def _acting(agent: Any, made: Vector, env: Any, deterministic: bool) -> Iterator[Actor]:
    """The agent in a vector environment, which is closed afterwards if it was made here from `env`."""
    try:
        actor = Actor(agent, made.env.single_observation_space, made.env.single_action_space, made.n, deterministic)
        with restore_global_rng():
            yield actor
    finally:
        if made.ours and not is_users(made.first, env):
            made.env.close()


def evaluate_each(
    agent: Any, env: Any, seeds: Sequence[int], *, gamma: float | None = None, deterministic: bool = False,
    progress: bool | Callable[[int, int], object] = False, before: ReturnSample | None = None,
    keep: Callable[[ReturnSample], object] | None = None,
) -> ReturnSample:  # fmt: skip
    """One episode for each seed: the one that `evaluate(agent, env, 1, seed=seed)` plays, so that any of them can be repeated.

    Two policies with the same seeds get the same random numbers. `before` are episodes of the first seeds that were played
    earlier; `keep` is called with the episodes so far every few seconds, at the end, and on an interruption.
    """
    gamma = gamma_of(agent) if gamma is None else check_gamma(gamma)
    check_first(env, callable(getattr(agent, "act", None)))
    made = vectorised(env, 1, agent)
    found = [] if before is None else [tuple(getattr(before, name)[: len(seeds)] for name in SAMPLE_COLUMNS.values())]
    done = len(found[0][0]) if found else 0

    def so_far() -> ReturnSample:
        returns, scores, lengths, terminated = (np.concatenate(column) for column in zip(*found, strict=True))
        about = {
            "agent": agent_name(agent), "env": name_of(env), "episodes": len(returns), "deterministic": bool(deterministic)
        }  # fmt: skip
        return ReturnSample(returns, scores, lengths, terminated, gamma=gamma, about=about)

    def one(seed: int) -> tuple[Any, ...]:
        noise, world = np.random.SeedSequence(whole(seed, "seed")).spawn(2)
        made.seed(world, 1)
        actor.begin(noise)
        (returns, scores), lengths, terminated = play(made, actor.actions, 1, gamma, (discounted, plain))
        return returns, scores, lengths, terminated

    with _acting(agent, made, env, deterministic) as actor, shown(progress, len(seeds), name_of(env)) as tell:
        collect(map(one, seeds[done:]), found, so_far, keep, lambda count: tell(done + count))
    return so_far()


def collect(
    work: Iterable[Any], found: list[Any], so_far: Callable[[], ReturnSample],
    keep: Callable[[ReturnSample], object] | None, tell: Callable[[int], object],
) -> None:  # fmt: skip
    """Append results to those found; `keep` all of them every few seconds, at the end, and on an interruption."""
    due, new = time.monotonic() + KEEP_EVERY, 0
    try:
        for one in work:
            found.append(one)
            new += 1
            tell(new)
            if keep is not None and time.monotonic() > due:
                keep(so_far())
                due = time.monotonic() + KEEP_EVERY
    finally:
        if keep is not None and new:
            keep(so_far())


def episode_seeds(seed: int, episodes: int) -> list[int]:
    """Seeds of `episodes` episodes, derived from one; a longer list begins with a shorter one."""
    count = whole(episodes, "episodes", 1, MOST_EPISODES)
    return [int(one) for one in seeds_from(np.random.SeedSequence(whole(seed, "seed")), count)]


def agent_name(agent: Any) -> str:
    """An agent's name: that of a function, or of its class."""
    plain = getattr(agent, "__name__", None)
    return str(plain) if isinstance(plain, str) else type(agent).__name__


def budget_report(
    agent: Any, env: Any = None, *, episodes: int = 1000, seed: int = 0, level: float = 0.95
) -> BudgetReport:
    """Whether an agent trained with a budget keeps it, with intervals and an explanation in words.

    The policy that samples its actions is measured. The return has the discount of the limited variance: with
    `variance_gamma=1` mean and variance are those of the score.

    Args:
        agent: a learner or an agent of the PPO family with a budget.
        env: the environment, as for `vpac.evaluate`; not needed for a small finite MDP, where the numbers are exact.
        episodes: number of episodes.
        seed: seed of these episodes.
        level: the confidence of the intervals.
    """
    budget = getattr(getattr(agent, "options", None), "budget", None)
    if budget is None:
        raise UserError(f"{type(agent).__name__} was not trained with a budget: pass budget=… when it is made")
    deep = hasattr(agent, "variance_gamma")
    discount = agent.variance_gamma if deep else agent.options.gamma
    limits: tuple[LimitCheck, ...] = ()
    closest = [math.nan, math.nan]
    if not deep and (exact := _exact(agent)) is not None:
        mean, variance = (Interval(x, x, x) for x in exact)
        count = None
    elif env is None:
        raise UserError("the variance is measured in episodes of the environment: pass it, budget_report(agent, env)")
    else:
        limit = None if deep else agent.options.max_episode_steps
        if limit is not None and not isinstance(env, VectorEnv):
            given = env
            env = (
                TimeLimit(env, limit)
                if isinstance(env, gymnasium.Env)
                else lambda: TimeLimit(make_unflattened(given), limit)
            )
        sample = evaluate(agent, env, episodes, seed=seed, gamma=discount)
        mean, variance, count = sample.interval("mean", level), sample.interval("variance", level), len(sample)
        if budget.limits:
            state, now = agent.controller.state, float(agent.timesteps)
            limits, *closest = check_limits(budget, sample.returns, state, agent.looks, level, now)
    smallest, at, looks = agent.prices.smallest(level)
    if not smallest.estimate < variance.estimate:
        smallest, at, looks = variance, float(agent.timesteps if deep else agent.episodes), 1
    counted = "steps" if deep else "episodes"
    return BudgetReport(
        budget, mean, variance, agent.psi, smallest, at, counted, count, looks, limits, closest[0], closest[1], discount
    )


def _exact(learner: Any) -> tuple[float, float] | None:
    """Exact mean and variance of a learner's policy; None if they are not available."""
    from vpac.tabular.budget import exact_now, is_exact

    return exact_now(learner) if is_exact(learner) else None


def held_budget(agent: Any, env: Any) -> BudgetReport:
    """Whether a trained agent keeps its budget, in episodes that its seed determines."""
    return budget_report(agent, env, seed=int(np.random.SeedSequence([agent.seed, 2]).generate_state(1)[0]))
