"""`vpac.evaluate`: episodes of an agent in an environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from vpac.envs.first_look import global_noise_kept
from vpac.evaluation.actors import Actor, gamma_of
from vpac.evaluation.environments import as_remembered, check_first, is_users, several, what_it_is
from vpac.evaluation.episodes import play
from vpac.evaluation.fitting import takes_vectors
from vpac.evaluation.progress import shown
from vpac.learners.checks import MOST_EPISODES, whole
from vpac.oracle.moments import check_gamma
from vpac.risk.sample import ReturnSample

__all__ = ["evaluate"]


def evaluate(
    agent: Any,
    env: Any,
    episodes: int = 1000,
    *,
    seed: int = 0,
    gamma: float | None = None,
    deterministic: bool = False,
    envs: int = 8,
    progress: bool | Callable[[int, int], object] = False,
) -> ReturnSample:
    """Returns of so many episodes. The same arguments give the same sample.

    Every sub-environment plays a number of episodes that is fixed beforehand, so that short episodes do not get in more
    often than long ones.

    Args:
        agent: one of ours, a model with `predict(observation, deterministic=…)` as those of Stable-Baselines3 have, or a
            function from an observation to an action. Box actions are clipped to their space.
        env: a Gymnasium id, a function that makes an environment, an environment, a `FiniteMDP`, or a
            `gymnasium.vector.VectorEnv` in any autoreset mode.
        episodes: how many.
        seed: of the environments and of the policy.
        gamma: discount factor; default: the agent's own, or 0.99.
        deterministic: measure the policy's most preferred actions instead of drawn ones.
        envs: sub-environments that are stepped together; a vector environment has its own number. It changes which
            random numbers go where, so it belongs to what decides the sample.
        progress: show a bar if it takes more than two seconds, or call this with episodes done and episodes in all.
    """
    episodes, envs, seed = whole(episodes, "episodes", 1, MOST_EPISODES), whole(envs, "envs", 1), whole(seed, "seed")
    gamma = gamma_of(agent) if gamma is None else check_gamma(gamma)
    check_first(env, callable(getattr(agent, "act", None)))
    made = several(as_remembered(env, agent), min(envs, episodes), takes_vectors(agent))
    about = {
        "agent": _name(agent), "env": what_it_is(env), "episodes": episodes, "seed": seed, "envs": made.env.num_envs,
        "deterministic": bool(deterministic),
    }  # fmt: skip
    noise, world = np.random.SeedSequence(seed).spawn(2)
    try:
        actor = Actor(
            agent, made.env.single_observation_space, made.env.single_action_space, made.env.num_envs, deterministic
        )
        with global_noise_kept(), shown(progress, episodes, what_it_is(env)) as tell:
            actor.begin(noise)
            columns = play(made, actor, episodes, gamma, world, tell)
    finally:
        if made.ours and not is_users(made.first, env):
            made.env.close()
    return ReturnSample(*columns, gamma=gamma, about=about)


def _name(agent: Any) -> str:
    plain = getattr(agent, "__name__", None)
    return str(plain) if isinstance(plain, str) else type(agent).__name__
