"""What the learners have in common: learn, predict, evaluate, save, load."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from vpac.errors import Diverged, UserError
from vpac.learners import settings as codes
from vpac.learners import state
from vpac.learners.checks import MOST_EPISODES, positive_rows, whole
from vpac.learners.generator import generator
from vpac.learners.holding import EVERY, WINDOW, Holder, with_budget
from vpac.learners.monte_carlo import Tape
from vpac.learners.options import OffPolicyOptions, Options
from vpac.learners.progress import Bar
from vpac.learners.sight import Sight, look_at
from vpac.learners.state import History, Rates, Weights, Workspace
from vpac.oracle.policies import softmax
from vpac.risk.budget import as_budget
from vpac.risk.budget_report import PricePath
from vpac.risk.schedules import as_schedule
from vpac.typing import FloatArray, IntArray

__all__ = ["Diverged", "Learner"]

QUANTITIES = {
    state.BAD_REWARD: "reward",
    state.BAD_VALUE: "value critic's update",
    state.BAD_SPREAD: "update of the critic of the spread",
    state.BAD_ACTOR: "actor's update",
}


class Learner:
    """A tabular or linear actor-critic.

    Args:
        env: a Gymnasium environment, its id or its specification, or a `FiniteMDP`. Finite processes and the continuous
            puddle world of ours are compiled; any other environment with Discrete actions and Discrete or Box observations
            is stepped.
        seed: of everything random in it; the same seed gives the same result.
        settings: any of the fields of `Options` (off-policy learners: `OffPolicyOptions`).
    """

    critic: ClassVar[int] = codes.DIRECT
    volatility: ClassVar[bool] = False
    options_type: ClassVar[type[Options]] = Options
    defaults: ClassVar[dict[str, Any]] = {}

    def __init__(self, env: Any, *, seed: int = 0, **settings: Any) -> None:
        self.options = self.options_type.read(with_budget(self.defaults, settings))
        self.seed = whole(seed, "seed")
        self.sight: Sight = look_at(env, self.options)
        self.settings = self.options.compile(self.critic, self.sight.limit, self.sight.limited)._replace(
            volatility=self.volatility
        )
        start, learn, look, reset = np.random.SeedSequence(self.seed).spawn(4)
        self.weights = self._first_weights(np.random.default_rng(start))
        self._words, self._eyes, self._resets = generator(learn), generator(look), np.random.default_rng(reset)
        self._work = Workspace.make(self.sight.n_active, self.sight.n_actions)
        self._tape = Tape.make(self._tape_length(), self.sight.n_active, self.sight.n_actions)
        self._table = self._behaviour_table()
        self._past: list[tuple[History, FloatArray]] = []
        self._episodes = 0
        budget = as_budget(self.options.budget)
        self._holder = None if budget is None else Holder(self, budget)

    def _first_weights(self, rng: np.random.Generator) -> Weights:
        shape = (self.sight.n_features, self.sight.n_actions)
        theta, w, z = (rng.random(shape) for _ in range(3))
        if self.options.start_policy == "zero":
            theta[:] = 0.0
        if self.options.start_critics == "zero":
            w[:], z[:] = 0.0, 0.0
        return Weights(theta, w, z, np.zeros(1))

    def _tape_length(self) -> int:
        if self.critic != codes.MONTE_CARLO:
            return 0
        if not self.sight.limited:
            raise UserError(
                f"{self.sight.name} has no step limit, and VAAC records whole episodes: pass max_episode_steps=…"
            )
        return self.sight.limit

    def _behaviour_table(self) -> FloatArray:
        behaviour = getattr(self.options, "behaviour", "target")
        if isinstance(behaviour, str):
            return np.zeros((1, self.sight.n_actions))
        if self.sight.n_active != 1:
            raise UserError("a behaviour table needs Discrete observations")
        return positive_rows(behaviour, (self.sight.n_features, self.sight.n_actions))

    @property
    def episodes(self) -> int:
        """How many episodes it has learned from."""
        return self._episodes

    @property
    def returns(self) -> FloatArray:
        """The learning curve: discounted returns of the training episodes; off-policy, of one episode of the target policy
        after each of them. Environments that are not compiled are not stepped for that: theirs are the behaviour's returns.
        """
        return np.concatenate([target for _, target in self._past]) if self._past else np.zeros(0)

    @property
    def history(self) -> History:
        """What happened in each training episode."""
        if not self._past:
            return History.make(0)
        return History(*(np.concatenate(columns) for columns in zip(*(h for h, _ in self._past), strict=True)))

    @property
    def prices(self) -> PricePath:
        """With a budget: the multiplier ψ at each look and the variance that was seen; else nothing."""
        return PricePath.of([]) if self._holder is None else self._holder.path

    @property
    def psi(self) -> float:
        """The price of variance in the next episode."""
        return float(self._rates(1).psi[0])

    def learn(
        self,
        episodes: int,
        *,
        callback: Callable[[Self], bool | None] | None = None,
        every: int | None = None,
        progress: bool | Bar = False,
    ) -> Self:
        """Learn from so many more episodes.

        Args:
            episodes: how many.
            callback: called with the learner after every `every` episodes; learning stops if it returns False.
            every: default: once, at the end. How often it is called does not change the result.
            progress: show a progress bar, or tell the given one.
        """
        last = self.episodes + whole(episodes, "episodes", most=MOST_EPISODES)
        every = None if every is None else whole(every, "every", 1)
        if progress is True:
            with Bar(last, self.episodes) as bar:
                return self.learn(episodes, callback=callback, every=every, progress=bar)
        shown = max(1, episodes // 100) if progress else None
        while self.episodes < last:
            due = self.episodes + self._ahead(every, last)
            while self.episodes < due:
                self._learn(self._ahead(shown, due))
                if progress:
                    progress.tell(self)
            if callback is not None and callback(self) is False:
                break
        return self

    def _ahead(self, every: int | None, last: int) -> int:
        """Episodes up to the next multiple of `every`, or to the last."""
        left = last - self.episodes
        return left if every is None else min(every - self.episodes % every, left)

    def _rates(self, episodes: int) -> Rates:
        first = self.episodes

        def values(name: str) -> FloatArray:
            return as_schedule(getattr(self.options, name), name).values(episodes, first)

        psi, alpha_theta = values("psi"), values("alpha_theta")
        if self._holder is not None:
            psi, alpha_theta = psi + self._holder.state.psi, alpha_theta * self._holder.patience
        alpha_mean = np.maximum(1.0 / (1.0 + np.arange(first, first + episodes)), 0.01)
        return Rates(psi, alpha_theta, values("alpha_w"), values("alpha_z"), alpha_mean)

    def _learn(self, episodes: int) -> None:
        last = self.episodes + episodes
        while self.episodes < last:
            self._learn_block(self._ahead(None if self._holder is None else EVERY, last))
            if self._holder is not None and self.episodes % EVERY == 0:
                self._holder.look([target for _, target in self._past[-WINDOW:]])

    def _learn_block(self, episodes: int) -> None:
        history, rates = History.make(episodes), self._rates(episodes)
        target = history.returns
        shared = (rates, self._table, self._words)
        with np.errstate(all="ignore"):
            if self.sight.world is None:
                from vpac.learners.gymnasium_loop import train_gymnasium

                seeds = [int(s) for s in self._resets.integers(2**31, size=episodes)]
                found = train_gymnasium(
                    self.sight, self.settings, self.weights, *shared, self._work, self._tape, history, seeds
                )
            elif self.settings.on_policy:
                from vpac.learners.actor_critic import train

                found = train(
                    self.sight.world, self.settings, self.weights, self.weights.theta, *shared, self._work, self._tape,
                    history,
                )  # fmt: skip
            else:
                from vpac.learners.playing import train_and_look

                target = np.zeros(episodes)
                found = train_and_look(
                    self.sight.world, self.settings, self.weights, *shared, self._eyes, self._work, self._tape, history,
                    target,
                )  # fmt: skip
        self._check(found, history, target)

    def _check(self, found: tuple[int, int, int], history: History, target: FloatArray) -> None:
        code, episode, step = found
        done = history.until(episode)
        first = self.episodes
        self._past.append((done, target[:episode]))
        self._episodes += episode
        if code == state.ENDLESS:
            raise UserError(
                f"an episode of {self.sight.name} did not end within {self.sight.limit} steps: pass max_episode_steps=…"
            )
        if code != state.GOOD:
            what = QUANTITIES[code]
            theirs = what in ("reward", "observation")
            advice = "look at the environment's step" if theirs else "smaller step sizes or a smaller ψ may help"
            raise Diverged(
                f"the {what} is not finite in episode {first + episode}, step {step} (seed {self.seed}); "
                f"the learner keeps the weights it had before; {advice}"
            )

    def policy(self) -> FloatArray:
        """π(a|s) of every state, [features, actions]; for Discrete observations."""
        if self.sight.n_active != 1:
            raise UserError("a table of the policy needs Discrete observations; use predict(observation)")
        return softmax(self.weights.theta, self.options.temperature)

    def predict(self, observation: Any, deterministic: bool = True) -> tuple[int, None]:
        """The action for an observation, and None where others return a state.

        Args:
            observation: as the environment gives it.
            deterministic: the most preferred action (the first of equals), or one drawn from the policy.
        """
        preferences = self.weights.theta[self.sight.features(observation)].sum(axis=0)
        if deterministic:
            return int(np.argmax(preferences)) + self.sight.first_action, None
        chances = softmax(preferences, self.options.temperature)
        return int(self._resets.choice(self.sight.n_actions, p=chances)) + self.sight.first_action, None

    def act(self, observations: Any, generator: np.random.Generator, deterministic: bool = False) -> IntArray:
        """An action for each of several observations, drawn from the policy with the given random numbers.

        Args:
            observations: as a vector environment gives them, the first axis counting environments.
            generator: where the randomness comes from; one number an observation is taken from it.
            deterministic: the most preferred actions (the first of equals) instead; nothing is drawn.
        """
        features = np.stack([self.sight.features(one) for one in observations])
        preferences = self.weights.theta[features].sum(axis=1)
        if deterministic:
            return np.asarray(np.argmax(preferences, axis=1) + self.sight.first_action, np.int64)
        up_to = np.cumsum(softmax(preferences, self.options.temperature), axis=1)[:, :-1]
        drawn = (generator.random((len(features), 1)) >= up_to).sum(axis=1)
        return np.asarray(drawn + self.sight.first_action, np.int64)

    def save(self, path: str | Path) -> Path:
        """Write `agent.json` and `weights.safetensors` into the folder `path`."""
        from vpac.learners.storage import save

        return save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path, env: Any = None) -> Self:
        """Read a learner back; nothing in the files is run.

        Args:
            path: the folder it was saved to.
            env: the environment; default: a new one with the id and the arguments that were saved.
        """
        from vpac.learners.storage import load

        return load(cls, Path(path), env)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.sight.name}, {self.episodes} episodes, seed {self.seed})"


class OffPolicyLearner(Learner):
    """A learner whose actions come from a behaviour policy; its settings are those of `OffPolicyOptions`."""

    options_type = OffPolicyOptions
