"""Episodes that can be led to the same point again and go on differently from there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

from vpac.envs.answers import five
from vpac.envs.gym_env import FiniteMDPEnv
from vpac.errors import UserError
from vpac.evaluation.actors import Actor
from vpac.evaluation.environments import as_remembered, check_first, is_users, one_environment, what_it_is
from vpac.evaluation.episodes import LONGEST
from vpac.evaluation.fitting import takes_vectors
from vpac.learners.learner import Learner
from vpac.learners.sight import TRANSPARENT
from vpac.oracle.policies import greedy
from vpac.oracle.sources import VarianceSources
from vpac.oracle.sources import variance_sources as exactly

__all__ = ["Walker", "Way", "exact_sources"]

NEW_EPISODE = np.zeros(1, bool)


@dataclass(frozen=True)
class Way:
    """An episode that was walked."""

    actions: list[Any]
    """What was done."""
    rewards: list[float]
    """What it brought."""
    total: float
    """Its return."""


class Walker:
    """One environment and one agent, under control of seeds: `reset`'s, the noise after it, and the policy's."""

    def __init__(self, agent: Any, env: Any, gamma: float, deterministic: bool) -> None:
        if isinstance(env, VectorEnv):
            raise UserError(
                "sources of variance need a single environment, or a way to make one, not a vector environment"
            )
        check_first(env, callable(getattr(agent, "act", None)))
        self.given, self.gamma = env, gamma
        self.env = one_environment(as_remembered(env, agent), takes_vectors(agent))
        self.seen, self.acts = self.env.observation_space, self.env.action_space
        self.actor = Actor(agent, self.seen, self.acts, 1, deterministic)
        self._room = create_empty_array(self.seen, 1)
        self._answers = batch_space(self.acts, 1)
        self.noisy = False
        """Whether the environment has taken random numbers after a reset."""

    def close(self) -> None:
        """Close the environment, unless it is the user's."""
        if not is_users(self.env, self.given):
            self.env.close()

    def notes(self) -> tuple[str, ...]:
        """What to know about this environment."""
        if self.noisy:
            return ()
        return (
            "after its reset the environment took nothing from its np_random: it is deterministic from there on, or its "
            "noise is fixed by the reset's seed and counted under start",
        )

    def episode(self, begin: np.random.SeedSequence, noise: np.random.SeedSequence) -> Way:
        """A whole episode: `begin` decides the start, `noise` all that follows."""
        world, own = _two(noise)
        observation = self._reset(begin, world)
        self.actor.begin(own)
        actions: list[Any] = []
        rewards = self._go_on(observation, actions)
        return Way(actions, rewards, self._discounted(rewards))

    def check(self, way: Way, begin: np.random.SeedSequence, noise: np.random.SeedSequence) -> None:
        """Refuse an environment that does not do the same again with the same seeds and actions."""
        if self.actor.remembers:
            raise UserError(
                "the agent carries a state from step to step: sources of variance need an agent without a memory"
            )
        self._reset(begin, _two(noise)[0])
        again = [self._step(action)[1] for action in way.actions]
        if again != way.rewards:
            raise UserError(
                "the environment does not repeat itself with the same seed and actions: some of its randomness obeys "
                "neither reset(seed=…) nor np_random, so its share cannot be told from the others"
            )

    def look(
        self, way: Way, begin: Any, noise: Any, own: np.random.SeedSequence, fresh: int
    ) -> tuple[list[list[Any]], list[bool]]:
        """Go the way again. In each step the policy's actions there, the one that was taken and `fresh` ones, and whether the
        environment takes random numbers for its answer."""
        observation = self._reset(begin, _two(noise)[0])
        self.actor.begin(own)
        drawn, noisy = [], []
        for action in way.actions:
            drawn.append([action, *(self._choose(observation) for _ in range(fresh))])
            before = self.env.unwrapped.np_random.bit_generator.state
            observation, *_ = self._step(action)
            noisy.append(bool(before != self.env.unwrapped.np_random.bit_generator.state))
        self.noisy |= any(noisy)
        return drawn, noisy

    def branch(
        self, way: Way, begin: Any, noise: Any, t: int, action: Any, answer: Any, rest: np.random.SeedSequence
    ) -> float:
        """Return from step t on, after another action there.

        Args:
            way: the episode.
            begin: its start's seed.
            noise: the seed of its noise.
            t: the step.
            action: what is done there.
            answer: seed of the environment's answer; None: it is the first draw of `rest`.
            rest: seed of all that follows.
        """
        self._lead(way, begin, noise, t)
        world, own = _two(rest)
        self._seed_noise(world if answer is None else answer)
        observation, reward, over = self._step(action)
        if answer is not None:
            self._seed_noise(world)
        self.actor.begin(own)
        rewards = [reward] if over else [reward, *self._go_on(observation, [])]
        return self._discounted(rewards)

    def _reset(self, begin: np.random.SeedSequence, world: np.random.SeedSequence) -> Any:
        observation, _ = self.env.reset(seed=int(begin.generate_state(1)[0] >> 1))
        self._seed_noise(world)
        return observation

    def _seed_noise(self, world: np.random.SeedSequence) -> None:
        self.env.unwrapped.np_random = np.random.default_rng(world)

    def _lead(self, way: Way, begin: Any, noise: Any, t: int) -> Any:
        """Lead the environment to step t of the way."""
        observation = self._reset(begin, _two(noise)[0])
        for action in way.actions[:t]:
            observation, *_ = self._step(action)
        return observation

    def _go_on(self, observation: Any, actions: list[Any]) -> list[float]:
        """Follow the policy to the end; notes the actions and returns the rewards."""
        rewards: list[float] = []
        over = False
        while not over:
            actions.append(self._choose(observation))
            observation, reward, over = self._step(actions[-1])
            rewards.append(reward)
            if len(rewards) > LONGEST:
                raise UserError(
                    f"an episode did not end within {LONGEST:,} steps: give the environment a limit (max_episode_steps=…)"
                )
        return rewards

    def _choose(self, observation: Any) -> Any:
        one = concatenate(self.seen, [observation], self._room)  # type: ignore[arg-type]
        return next(iter(iterate(self._answers, self.actor.actions(one, NEW_EPISODE))))

    def _step(self, action: Any) -> tuple[Any, float, bool]:
        observation, reward, terminated, truncated, _ = five(self.env, action, what_it_is(self.given))
        if not np.isfinite(float(reward)):
            raise UserError(f"the environment's reward is {reward}: expected a finite number")
        return observation, float(reward), bool(terminated or truncated)

    def _discounted(self, rewards: list[float]) -> float:
        return float(self.gamma ** np.arange(len(rewards)) @ np.array(rewards))


def _two(seed: np.random.SeedSequence) -> list[np.random.SeedSequence]:
    """Streams for the environment and for the policy; asking again gives the same ones."""
    return [np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, k)) for k in range(2)]


def exact_sources(
    agent: Any, env: gymnasium.Env[Any, Any], gamma: float, deterministic: bool
) -> VarianceSources | None:
    """The exact parts, for a tabular learner in a finite process under wrappers that do not change it; else None."""
    limit, inner = None, env
    while isinstance(inner, TRANSPARENT):
        limit = getattr(inner, "_max_episode_steps", limit)
        inner = inner.env
    if not isinstance(inner, FiniteMDPEnv) or not isinstance(agent, Learner) or agent.sight.n_active != 1:
        return None
    theta = agent.weights.theta
    if theta.shape != (inner.mdp.n_states, inner.mdp.n_actions):
        return None
    return exactly(inner.mdp, greedy(theta) if deterministic else agent.policy(), gamma, limit)
