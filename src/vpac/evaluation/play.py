"""The loop over a vector environment, right in every autoreset mode.

NEXT_STEP   the step after an episode's end resets and ignores the action: what it returns is no step of any episode
SAME_STEP   the last step resets, too: its reward belongs to the old episode, its observation to the new one
DISABLED    we reset what has ended, by `reset_mask`
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from vpac.envs.answers import checked_step, reward_array
from vpac.envs.check import check_before_use
from vpac.envs.finite_mdp import FiniteMDP
from vpac.envs.make import make_env, make_unflattened, name_of
from vpac.envs.remember import RememberReturn, memory_of
from vpac.errors import Diverged, UserError
from vpac.evaluation.actors import Actor
from vpac.typing import BoolArray, FloatArray, IntArray

__all__ = [
    "LONGEST",
    "Several",
    "as_remembered",
    "check_first",
    "is_users",
    "one_environment",
    "play",
    "seeds_from",
    "several",
]

LONGEST = 1_000_000
"""An episode of more steps than this is taken for one that never ends."""
LONG = 20_000
"""If the first episodes are longer than this, it is said that they may never end."""


def play(
    made: Several,
    actor: Actor,
    episodes: int,
    gamma: float,
    seed: np.random.SeedSequence,
    tell: Callable[[int], object],
) -> tuple[FloatArray, FloatArray, IntArray, BoolArray]:
    """Discounted return, sum of rewards, length, and whether it terminated, of each episode.

    Sub-environment i plays episodes i, i + n, i + 2n, … of n sub-environments.
    """
    n = made.env.num_envs
    env: Any = made.env  # which takes lists of seeds, whatever its base class says
    seeds = seeds_from(seed, -(-episodes // n) * n)
    discounted, plain = np.zeros(episodes), np.zeros(episodes)
    lengths, terminated = np.zeros(episodes, np.int64), np.zeros(episodes, bool)
    number = np.arange(n)  # the episode that each sub-environment is at; from `episodes` on nobody looks
    total, added, steps, discount = np.zeros(n), np.zeros(n), np.zeros(n, np.int64), np.ones(n)
    observations, _ = env.reset(seed=[int(s) for s in seeds[:n]] if made.ours else int(seeds[0]))
    fresh, resetting, done = np.ones(n, bool), np.zeros(n, bool), 0
    while done < episodes:
        observations, rewards, ends, cuts, _ = env.step(actor.actions(observations, fresh))
        rewards = reward_array(rewards, "the environment")
        counted = (number < episodes) & ~resetting
        if not np.isfinite(rewards[counted]).all():
            bad = int(np.flatnonzero(counted & ~np.isfinite(rewards))[0])
            raise Diverged(
                f"the environment's reward is {rewards[bad]} in step {steps[bad] + 1} of episode {number[bad]}: "
                "expected a finite number"
            )
        total += np.where(counted, discount * rewards, 0.0)
        added += np.where(counted, rewards, 0.0)
        steps += counted
        discount *= gamma
        over = (np.asarray(ends, bool) | np.asarray(cuts, bool)) & ~resetting
        fresh = resetting.copy() if made.mode is AutoresetMode.NEXT_STEP else over
        finished = over & counted
        if finished.any():
            which = number[finished]
            discounted[which], plain[which], lengths[which] = total[finished], added[finished], steps[finished]
            terminated[which] = np.asarray(ends, bool)[finished]
            done += int(finished.sum())
            tell(done)
        elif done == 0 and steps.max() == LONG:
            warnings.warn(
                f"no episode has ended within {LONG:,} steps; if none ever does, give the environment a limit "
                f"(max_episode_steps=…): after {LONGEST:,} this stops",
                stacklevel=2,
            )
        elif (steps > LONGEST).any():
            raise UserError(
                f"an episode did not end within {LONGEST:,} steps: give the environment a limit (max_episode_steps=…)"
            )
        number[finished] += n
        restarts = resetting if made.mode is AutoresetMode.NEXT_STEP else over
        for numbers, first in ((total, 0.0), (added, 0.0), (steps, 0), (discount, 1.0)):
            numbers[restarts | finished] = first
        if made.mode is AutoresetMode.NEXT_STEP:
            resetting = over
        elif made.mode is AutoresetMode.DISABLED and over.any() and done < episodes:
            observations, _ = env.reset(seed=_next_seeds(made, seeds, number, over), options={"reset_mask": over})
    return discounted, plain, lengths, terminated


def _next_seeds(made: Several, seeds: IntArray, number: IntArray, over: BoolArray) -> list[int | None] | None:
    """A seed for each sub-environment of ours that begins another episode; others go on with their own numbers."""
    if not made.ours:
        return None
    return [
        int(seeds[k]) if restart and k < len(seeds) else None for k, restart in zip(number.tolist(), over, strict=True)
    ]


def seeds_from(sequence: np.random.SeedSequence, count: int) -> IntArray:
    """Seeds below 2³¹, as every environment takes them."""
    return np.random.default_rng(sequence).integers(2**31, size=count)


COPIED = ("vpac.envs.", "gymnasium.envs.classic_control.", "gymnasium.envs.toy_text.")
"""Where environments come from whose deep copies are independent of them and keep what a user has changed."""


@dataclass(frozen=True)
class Several:
    """Sub-environments that are stepped together."""

    env: VectorEnv[Any, Any, Any]
    """The vector environment."""
    mode: AutoresetMode
    """What it does at the end of an episode."""
    ours: bool
    """Whether it was made here: then every episode gets a seed of its own, and it is closed at the end."""

    @property
    def first(self) -> Any:
        """Its first sub-environment, if it was made here."""
        return self.env.envs[0] if isinstance(self.env, SyncVectorEnv) else self.env


def several(env: Any, count: int, flat: bool) -> Several:
    """At most `count` sub-environments, their observations flattened or as they are.

    An object is copied if it comes from a family that is known to survive it; any other object is used itself, alone,
    because a copy might share a simulator with it.
    """
    if isinstance(env, VectorEnv):
        mode = env.metadata.get("autoreset_mode")
        if not isinstance(mode, AutoresetMode):
            raise UserError(
                f"{type(env).__name__} does not say what it does at the end of an episode: expected "
                f"metadata['autoreset_mode'] to be a gymnasium.vector.AutoresetMode, got {mode!r}"
            )
        return Several(env, mode, ours=False)
    made, name = _makers(env, count, flat), name_of(env)
    try:
        vector = SyncVectorEnv([_read(one, name) for one in made], autoreset_mode=AutoresetMode.DISABLED)
    except RuntimeError as error:
        raise UserError(f"the environments differ from one another: {error}") from None
    return Several(vector, AutoresetMode.DISABLED, ours=True)


class Read(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose answers are read before a vector environment, which would take text for a number, gets them."""

    def __init__(self, env: gymnasium.Env[Any, Any], name: str) -> None:
        super().__init__(env)
        self.name = name

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """A step of the environment."""
        return checked_step(self.env, action, self.name)


def _read(make: Callable[[], gymnasium.Env[Any, Any]], name: str) -> Callable[[], gymnasium.Env[Any, Any]]:
    return lambda: Read(make(), name)


def check_first(env: Any, learning: bool) -> None:
    """Look whether something can be measured in an environment, as far as it is not known (`vpac.envs.check`)."""
    if isinstance(env, str | EnvSpec | gymnasium.Env) or (callable(env) and not isinstance(env, FiniteMDP | VectorEnv)):
        check_before_use(env, lambda: one_environment(env, False), learning=learning)


def _makers(env: Any, count: int, flat: bool) -> list[Callable[[], gymnasium.Env[Any, Any]]]:
    if isinstance(env, str | EnvSpec | FiniteMDP) or (callable(env) and not isinstance(env, gymnasium.Env)):
        return [lambda: one_environment(env, flat)] * count
    first = one_environment(env, flat)
    if type(first.unwrapped).__module__.startswith(COPIED) and count > 1:
        return [lambda: copy.deepcopy(first)] * count
    return [lambda: first]


def one_environment(env: Any, flat: bool) -> gymnasium.Env[Any, Any]:
    """A single environment, its observations flattened or as they are; an object is used itself, perhaps in a wrapper."""
    return make_env(env) if flat else make_unflattened(env)


def is_users(env: gymnasium.Env[Any, Any], given: Any) -> bool:
    """Whether an environment is the user's own object, which is not ours to close."""
    return isinstance(given, gymnasium.Env) and env.unwrapped is given.unwrapped


def as_remembered(env: Any, agent: Any) -> Any:
    """The environment with the memory of a learner that remembers its return; itself if it has one or needs none."""
    memory = getattr(getattr(agent, "environment", agent), "memory", None)
    if memory is None or isinstance(env, VectorEnv):
        return env

    def wrapped(made: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
        return made if memory_of(made) is not None else RememberReturn(made, **memory)

    return wrapped(env) if isinstance(env, gymnasium.Env) else lambda: wrapped(make_unflattened(env))
