"""The three networks of an agent, and how an iteration teaches them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from vpac.deep.assessment import Scene
from vpac.deep.making import make_critic, make_policy
from vpac.deep.networks import Critic, Policy
from vpac.deep.options import Options
from vpac.deep.ppo import Lesson, Optimiser, improve_policy, regress
from vpac.deep.spaces import Interface

__all__ = ["Brain", "Networks"]


class Networks(NamedTuple):
    """Everything that learns, with the optimisers' states. A new one is made in each iteration; old ones stay as they were."""

    policy: Policy
    value: Critic
    spread: Critic | None
    policy_state: Any
    value_state: Any
    spread_state: Any
    score: Critic | None = None
    """The value with the discount of the variance, where that is another one."""
    score_state: Any = None
    luck: Critic | None = None
    """The mean luck so far."""
    luck_state: Any = None


class Brain:
    """The networks. Only the policy is needed to act, so the critics learn in a thread of their own, one after the other: the
    first beside the policy, the second while the environments are stepped again.

    Args:
        interface: what they see and say.
        options: the settings.
        generators: random streams: "policy weights", "value weights" and "spread weights" for the first networks, "policy",
            "value" and "spread" for their minibatches; likewise for the critics below.
        critics: those beside the value's: "spread", "score" and "luck".
        context: numbers that critics see and the policy does not.
    """

    def __init__(
        self,
        interface: Interface,
        options: Options,
        generators: Mapping[str, np.random.Generator],
        critics: Collection[str] = (),
        context: int = 0,
    ) -> None:
        self.options, self._generators = options, generators
        self._actor = Optimiser(options.max_grad_norm, options.weight_decay, options.adam_eps)
        self._critic = Optimiser(options.critic_max_grad_norm, options.weight_decay, options.adam_eps)
        policy = make_policy(generators["policy weights"], interface, options)
        self._columns = policy.net.weights[0].shape[0]
        made: dict[str, Any] = {"spread": None, "spread_state": None}
        for name in ("value", *critics):
            critic = make_critic(generators[f"{name} weights"], interface, options, name == "spread", context)
            made |= {name: critic, f"{name}_state": self._critic.start(critic)}
        self.networks = Networks(policy=policy, policy_state=self._actor.start(policy), **made)
        self._before = self.networks
        rate = options.learning_rate or (2.5e-3 if interface.discrete_observations else 3e-4)
        self._entropy = (
            (0.1 if interface.discrete_observations else 0.0) if options.entropy is None else options.entropy
        )
        self._rates = rate, options.critic_learning_rate or rate
        self._thread = ThreadPoolExecutor(1, "critics")
        self._learning: dict[str, Future[Any]] = {}

    def improve(
        self, actions: Any, scene: Scene, weights: Any, targets: dict[str, Any], share: float
    ) -> dict[str, Any]:
        """Teach the policy, and let the critics begin to learn their `targets`; `share` is what is left of the rates.

        Returns the numbers of the policy's update.
        """
        o, old = self.options, self.networks
        seen, valid = _flat(scene.observations[:-1]), _flat(scene.valid)
        lesson = Lesson(
            seen[:, : self._columns], _flat(jnp.asarray(actions)), jnp.zeros_like(valid), _flat(weights), valid
        )
        rate, critic_rate = (jnp.float32(rate * share) for rate in self._rates)
        learn = partial(
            self._thread.submit, regress, observations=seen, valid=valid, rate=critic_rate, optimiser=self._critic
        )
        for name, target in targets.items():
            critic, state = getattr(old, name), getattr(old, f"{name}_state")
            self._learning[name] = learn(critic, state, targets=_flat(target), rows=self._rows(name, len(valid)))
        policy, policy_state, told = improve_policy(
            old.policy, old.policy_state, lesson, self._rows("policy", len(valid)), rate, jnp.float32(self._entropy * share**2),
            optimiser=self._actor, clip=o.clip, target_kl=o.target_kl, normalise=o.normalise_advantages,
        )  # fmt: skip
        self._before = old
        self.networks = old._replace(policy=policy, policy_state=policy_state)
        return {**told, "learning_rate": rate}

    def finish(self) -> dict[str, Any]:
        """Wait for the critics; returns the numbers of their updates."""
        told: dict[str, Any] = {}
        for name, learning in self._learning.items():
            critic, state, said = learning.result()
            self.networks = self.networks._replace(**{name: critic, f"{name}_state": state})
            told |= {f"{name}_{what}": number for what, number in said.items()}
        self._learning = {}
        return told

    def revert(self) -> None:
        """Be as before the last `improve`."""
        self.finish()
        self.networks = self._before

    def _rows(self, name: str, samples: int) -> Any:
        """Minibatches of this iteration, [gradient step, sample], from the network's own stream."""
        o, rng = self.options, self._generators[name]
        size = min(o.minibatch, samples)
        count = samples // size if o.minibatches is None else min(o.minibatches, samples // size)
        return jnp.asarray(
            np.concatenate([rng.permutation(samples)[: count * size].reshape(count, size) for _ in range(o.epochs)])
        )


def _flat(rows: Any) -> Any:
    """[time, environment, …] as [sample, …]."""
    return rows.reshape(-1, *rows.shape[2:])
