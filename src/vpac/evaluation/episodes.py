"""The loop over a vector environment, right in every autoreset mode.

NEXT_STEP   the step after an episode's end resets and ignores the action: what it returns is no step of any episode
SAME_STEP   the last step resets, too: its reward belongs to the old episode, its observation to the new one
DISABLED    we reset what has ended, by `reset_mask`
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from vpac.envs.answers import as_numbers
from vpac.errors import Diverged, UserError
from vpac.evaluation.actors import Actor
from vpac.evaluation.environments import Several
from vpac.typing import BoolArray, FloatArray, IntArray

__all__ = ["LONGEST", "play", "seeds_from"]

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
        rewards = as_numbers(rewards, "the environment")
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
