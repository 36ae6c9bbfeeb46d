"""The tabular and linear learners: AC, and VPAC, VAAC, VAAC_TD and MVPI, which add to it; each on- and off-policy.

The paper's algorithms are in `update.py`. MVPI (Zhang, Liu, Whiteson 2021) is AC on the reward R − λ R² + 2 λ R y, with y the
mean reward of a step, (1 − γ) · mean return, estimated by a running mean that is updated after every episode.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import gymnasium
import numpy as np

from vpac.checks import MOST_EPISODES, positive_rows, seeds_of, whole
from vpac.envs.make import env_from_record, env_to_record, make_env, remake
from vpac.errors import Diverged, UserError
from vpac.oracle.policies import softmax
from vpac.progress import Bar
from vpac.risk.budget import Multiplier, PricePath, as_budget
from vpac.risk.measures import Law, measure_of
from vpac.risk.schedules import Constant, as_schedule
from vpac.saved import TABULAR_FORMAT, SavedAgent, frozen, reading, revived, write_agent
from vpac.tabular import arrays as codes
from vpac.tabular.arrays import History, Rates, Weights, Workspace
from vpac.tabular.budget import LEAST_RETURNS, LOOK_EVERY, LOOK_RETURNS, BudgetController, with_budget
from vpac.tabular.environment import open_environment
from vpac.tabular.kernel.generator import generator
from vpac.tabular.options import OffPolicyOptions, Options
from vpac.typing import FloatArray, IntArray

QUANTITIES = {
    codes.BAD_REWARD: "reward",
    codes.BAD_VALUE: "value critic's update",
    codes.BAD_SPREAD: "update of the critic of the spread",
    codes.BAD_ACTOR: "actor's update",
}


KNOTS = 200
"""Points of an influence function's table in addition to the returns."""


class Learner:
    """A tabular or linear actor-critic.

    Args:
        env: a Gymnasium environment, its id or its specification, or a `FiniteMDP`. Finite MDPs and vpac's continuous
            puddle world are compiled; any other environment with Discrete actions and Discrete or Box observations is
            stepped from Python.
        seed: seed of all randomness; the same seed gives the same result.
        settings: any of the fields of `Options` (off-policy learners: `OffPolicyOptions`).
    """

    critic: ClassVar[int] = codes.DIRECT
    volatility: ClassVar[bool] = False
    options_type: ClassVar[type[Options]] = Options
    defaults: ClassVar[dict[str, Any]] = {}
    """Settings that differ from those of `options_type`; algorithms with a price of variance have one of `psi`."""

    def __init__(self, env: Any, *, seed: int = 0, **settings: Any) -> None:
        if "psi" not in self.defaults:
            self._refuse_price(settings)
        self.options = self.options_type.read(with_budget(self.defaults, settings))
        self.seed = whole(seed, "seed")
        self._env = env
        self.environment = open_environment(env, self.options)
        limits = self.environment.limit, self.environment.limited
        volatility, by_return = self._penalty()
        compiled = self.options.compile(self.critic, *limits)
        self.settings = compiled._replace(volatility=volatility, by_return=by_return)
        start, learn, rollout, reset = np.random.SeedSequence(self.seed).spawn(4)
        self.weights = self._first_weights(np.random.default_rng(start))
        self._rng, self._rollout_rng, self._resets = generator(learn), generator(rollout), np.random.default_rng(reset)
        self._work = Workspace.make(
            self.environment.n_active, self.environment.n_actions, self._behaviour_table(), self._buffer_length()
        )
        self._past: list[tuple[History, FloatArray]] = []
        self._episodes = 0
        budget = as_budget(self.options.budget)
        self._controller = None if budget is None else BudgetController(self, budget)

    def _refuse_price(self, settings: dict[str, Any]) -> None:
        name = type(self).__name__
        if settings.get("budget") is not None:
            instead = name.replace("AC", "VPAC")
            raise UserError(f"{name} has no price of variance and cannot hold a budget: use {instead}")
        if as_schedule(settings.get("psi", 0.0), "psi") != Constant(0.0):
            raise UserError(f"{name} has no price of variance: use VPAC for psi={settings['psi']!r}")

    def _penalty(self) -> tuple[bool, bool]:
        """Whether the penalty is subtracted from rewards (MVPI), and whether from whole returns (all measures but variance)."""
        measure, name = measure_of(self.options.penalty), type(self).__name__
        usual = "volatility" if self.volatility else "variance"
        choice = "psi" in self.defaults and self.critic == codes.DIRECT and not self.volatility
        if measure.name not in ("variance", usual) and (not choice or isinstance(self.options, OffPolicyOptions)):
            own = "an influence function needs returns of the policy itself"
            why = own if choice else "it has no choice of penalties"
            raise UserError(f"{name} cannot have penalty={self.options.penalty!r}, {why}: use VPAC")
        volatility = self.volatility or measure.name == "volatility"
        return volatility, not volatility and measure.name != "variance"

    def _first_weights(self, rng: np.random.Generator) -> Weights:
        shape = (self.environment.n_features, self.environment.n_actions)
        theta, w, z = (rng.random(shape) for _ in range(3))
        if self.options.start_policy == "zero":
            theta[:] = 0.0
        if self.options.start_critics == "zero":
            w[:], z[:] = 0.0, 0.0
        return Weights(theta, w, z, np.zeros(1))

    def _buffer_length(self) -> int:
        if self.critic != codes.MONTE_CARLO and not self.settings.by_return:
            return 0
        if not self.environment.limited:
            who = f"penalty={self.options.penalty!r}" if self.settings.by_return else "VAAC"
            why = f"{self.environment.name} has no step limit, and {who} records whole episodes"
            raise UserError(f"{why}: pass max_episode_steps=…")
        return self.environment.limit

    def _behaviour_table(self) -> FloatArray | None:
        behaviour = getattr(self.options, "behaviour", "target")
        if isinstance(behaviour, str):
            return None
        if self.environment.n_active != 1:
            raise UserError("a behaviour table needs Discrete observations")
        return positive_rows(behaviour, (self.environment.n_features, self.environment.n_actions))

    @property
    def episodes(self) -> int:
        """Number of episodes learned from so far."""
        return self._episodes

    @property
    def returns(self) -> FloatArray:
        """The learning curve: discounted returns of the training episodes. Off-policy: of one episode of the target policy
        after each of them or, if the environment is not compiled, of the behaviour policy's episodes.
        """
        return np.concatenate([target for _, target in self._past]) if self._past else np.zeros(0)

    @property
    def history(self) -> History:
        """Return, length and ratios of each training episode."""
        if not self._past:
            return History.make(0)
        return History(*(np.concatenate(columns) for columns in zip(*(h for h, _ in self._past), strict=True)))

    @property
    def prices(self) -> PricePath:
        """ψ and the measured variance at each measurement, with a budget; otherwise empty."""
        return PricePath.of([]) if self._controller is None else self._controller.path

    @property
    def psi(self) -> float:
        """ψ in the next episode."""
        return float(self._rates(1).psi[0])

    def learn(
        self, episodes: int, *, callback: Callable[[Self], bool | None] | None = None, every: int | None = None,
        progress: bool | Bar = False,
    ) -> Self:  # fmt: skip
        """Learn for `episodes` more episodes.

        Args:
            episodes: number of episodes.
            callback: called with the learner after every `every` episodes; learning stops if it returns False.
            every: default: once, at the end. How often it is called does not change the result.
            progress: show a progress bar, or update the given one.
        """
        last = self.episodes + whole(episodes, "episodes", most=MOST_EPISODES)
        every = None if every is None else whole(every, "every", 1)
        if progress is True:
            with Bar(last, self.episodes) as bar:
                return self.learn(episodes, callback=callback, every=every, progress=bar)
        shown = max(1, episodes // 100) if progress else None
        while self.episodes < last:
            due = self.episodes + self._up_to_multiple(every, last)
            while self.episodes < due:
                self._learn(self._up_to_multiple(shown, due))
                if progress:
                    progress.update(self)
            if callback is not None and callback(self) is False:
                break
        return self

    def _up_to_multiple(self, every: int | None, last: int) -> int:
        """Episodes up to the next multiple of `every`, or to the last."""
        left = last - self.episodes
        return left if every is None else min(every - self.episodes % every, left)

    def _rates(self, episodes: int) -> Rates:
        first = self.episodes

        def values(name: str) -> FloatArray:
            return as_schedule(getattr(self.options, name), name).values(episodes, first)

        psi, alpha_theta = values("psi"), values("alpha_theta")
        if self._controller is not None:
            psi, alpha_theta = psi + self._controller.state.psi, alpha_theta * self._controller.step_scale
        alpha_mean = np.maximum(1.0 / (1.0 + np.arange(first, first + episodes)), 0.01)
        return Rates(psi, alpha_theta, values("alpha_w"), values("alpha_z"), alpha_mean)

    def _learn(self, episodes: int) -> None:
        last = self.episodes + episodes
        while self.episodes < last:
            if self.settings.by_return:
                self._work = self._work._replace(influence=self._influence())
            looks = self._controller is not None or self.settings.by_return
            self._learn_block(self._up_to_multiple(LOOK_EVERY if looks else None, last))
            if self._controller is not None and self.episodes % LOOK_EVERY == 0:
                self._controller.update([target for _, target in self._past[-LOOK_RETURNS:]])

    def _influence(self) -> FloatArray:
        """The influence function at the distribution of the last returns, as a table; zero while there are too few returns.

        Beyond the smallest and the largest return it continues for one range of the returns, and then is constant.
        """
        last = np.concatenate([np.zeros(0), *(target for _, target in self._past[-LOOK_RETURNS - LOOK_EVERY :])])
        sample = last[: len(last) - self.episodes % LOOK_EVERY][-LOOK_RETURNS:]  # wherever learning was interrupted
        if len(sample) < LEAST_RETURNS:
            return np.zeros((2, 1))
        low, high = sample.min(), sample.max()
        knots = np.unique(np.append(sample, np.linspace(2.0 * low - high, 2.0 * high - low, KNOTS)))
        return np.stack([knots, measure_of(self.options.penalty).influence(knots, Law.of(sample))])

    def _learn_block(self, episodes: int) -> None:
        history, rates = History.make(episodes), self._rates(episodes)
        world, shared = self.environment.world, (rates, self._rng, self._work, history)
        target = np.full(0 if self.settings.on_policy else episodes, np.nan)
        with np.errstate(all="ignore"):
            if world is None:
                from vpac.tabular.gymnasium_loop import train_gymnasium

                target, seeds = target[:0], [int(s) for s in self._resets.integers(2**31, size=episodes)]
                found = train_gymnasium(self.environment, self.settings, self.weights, *shared, seeds)
            else:
                from vpac.tabular.loop import train

                given = (world, self.settings, self.weights, self.weights.theta, *shared, self._rollout_rng, target)
                found = train(*given)
        self._check(found, history, target if len(target) else history.returns)

    def _check(self, found: tuple[int, int, int], history: History, target: FloatArray) -> None:
        """Keep the finished episodes; raise an error if the last one failed."""
        code, episode, step = found
        at = self.episodes + episode
        self._past.append((history.until(episode), target[:episode]))
        self._episodes += episode
        if code == codes.ENDLESS:
            name, limit = self.environment.name, self.environment.limit
            raise UserError(f"an episode of {name} did not end within {limit} steps: pass max_episode_steps=…")
        if code != codes.GOOD:
            theirs = code == codes.BAD_REWARD
            advice = "look at the environment's step" if theirs else "smaller step sizes or a smaller ψ may help"
            raise Diverged(
                f"the {QUANTITIES[code]} is not finite in episode {at}, step {step} (seed {self.seed}); "
                f"the learner keeps the weights it had before; {advice}"
            )

    def policy(self) -> FloatArray:
        """π(a|s) of every state, [features, actions]; for Discrete observations."""
        if self.environment.n_active != 1:
            raise UserError("a table of the policy needs Discrete observations; use predict(observation)")
        return softmax(self.weights.theta, self.options.temperature)

    def predict(self, observation: Any, deterministic: bool = True) -> tuple[int, None]:
        """The action for an observation, and None, where SB3 returns a state.

        Args:
            observation: an observation of the environment.
            deterministic: the most probable action (the first of equals), or one drawn from the policy.
        """
        preferences = self.weights.theta[self.environment.features(observation)].sum(axis=0)
        if deterministic:
            return int(np.argmax(preferences)) + self.environment.first_action, None
        chances = softmax(preferences, self.options.temperature)
        return int(self._resets.choice(self.environment.n_actions, p=chances)) + self.environment.first_action, None

    def act(self, observations: Any, generator: np.random.Generator, deterministic: bool = False) -> IntArray:
        """An action for each of several observations, drawn from the policy.

        Args:
            observations: a batch, as a vector environment returns it.
            generator: source of randomness; one number per observation is drawn.
            deterministic: the most probable actions (the first of equals) instead; nothing is drawn.
        """
        features = np.stack([self.environment.features(one) for one in observations])
        preferences = self.weights.theta[features].sum(axis=1)
        if deterministic:
            return np.asarray(np.argmax(preferences, axis=1) + self.environment.first_action, np.int64)
        up_to = np.cumsum(softmax(preferences, self.options.temperature), axis=1)[:, :-1]
        drawn = (generator.random((len(features), 1)) >= up_to).sum(axis=1)
        return np.asarray(drawn + self.environment.first_action, np.int64)

    def export(self, path: str | Path) -> Path:
        """Export a tabular policy for programs without Python: .onnx (extra `export`), or .h, a C header."""
        from vpac.deep.policy import NumpyPolicy
        from vpac.deep.spaces import Interface

        if self.environment.n_active != 1:
            raise UserError("only a table can be exported, and this learner has tiles: policies of vpac-ppo can")
        theta, env = (self.weights.theta / self.options.temperature).astype(np.float32), self.environment
        interface = Interface(env.n_features, env.first, env.n_actions, env.first_action, (), (), ())
        zeros, ones = np.zeros(env.n_features, np.float32), np.ones(env.n_features, np.float32)
        shared = None, zeros, ones, False, float(self.options.gamma)
        biases = [np.zeros(env.n_actions, np.float32)]
        return NumpyPolicy(interface, [theta], biases, "tanh", *shared, memory=env.memory).export(path)

    def save(self, path: str | Path) -> Path:
        """Write `agent.json` and `weights.safetensors` into the folder `path`; the previous files stay valid until then."""
        arrays = self.weights._asdict() | {"words": self._rng.view(np.int64), "eyes": self._rollout_rng.view(np.int64)}
        arrays["returns"] = self.returns
        arrays |= {f"history.{name}": column for name, column in self.history._asdict().items()}
        data = {
            "format": TABULAR_FORMAT, "algorithm": type(self).__name__,
            **env_to_record(self.environment.name, self.environment.recipe), "seed": self.seed,
            "options": self.options.as_dict(), "resets": self._resets.bit_generator.state,
        }  # fmt: skip
        if self._controller is not None:
            arrays |= {f"prices.{name}": column for name, column in self.prices._asdict().items()}
            data["multiplier"] = self._controller.state.as_dict()
        return write_agent(Path(path), data, arrays, indent=1, default=int)

    @classmethod
    def load(cls, path: str | Path, env: Any = None) -> Self:
        """Load a learner; runs no stored code.

        Args:
            path: the folder it was saved to.
            env: the environment; default: a new one with the id and the arguments that were saved.
        """
        return cls.restore(SavedAgent.read(Path(path)), env)

    @classmethod
    def restore(cls, saved: SavedAgent, env: Any = None) -> Self:
        """The learner of a saved folder."""
        saved.check_class(cls.__name__)
        data, numbers = saved.data, saved.weights()
        with reading(saved.folder):
            made, arguments = env_from_record(data, env, saved.folder, cls.__name__)
            learner = cls(make_env(made, **arguments) if arguments else made, seed=data["seed"], **data["options"])
            learner._read(data, numbers, saved.folder)
        return learner

    def _read(self, data: dict[str, Any], numbers: dict[str, Any], folder: Path) -> None:
        for name in (*Weights._fields, "words", "eyes", "returns"):
            if name not in numbers:
                raise UserError(f"{folder} does not hold an agent: weights.safetensors lacks {name!r}")
        for name, mine in self.weights._asdict().items():
            _check_shape(numbers[name], mine.shape, np.float64, f"{folder}: {name}")
            if not np.isfinite(numbers[name]).all():
                raise UserError(f"{folder}: {name} holds a number that is not finite")
            mine[...] = numbers[name]
        wrong = f"{folder} does not hold an agent"
        for name, state in (("words", self._rng), ("eyes", self._rollout_rng)):
            _check_shape(numbers[name], state.shape, np.int64, f"{wrong}: {name}")
            state[...] = numbers[name].view(np.uint64)
        self._resets.bit_generator.state = data["resets"]
        count = numbers["returns"].shape[:1]
        _check_shape(numbers["returns"], count, np.float64, f"{wrong}: returns")
        unknown = np.full(count, np.nan)  # columns that older versions did not record
        columns = [numbers.get(f"history.{name}", unknown) for name in History._fields]
        for name, column in zip(History._fields, columns, strict=True):
            _check_shape(column, count, column.dtype, f"{wrong}: history.{name}")
        self._past = [(History(*columns), numbers["returns"])]
        self._episodes = len(numbers["returns"])
        if self._controller is not None:
            numbers.setdefault("prices.error", np.full_like(numbers["prices.at"], np.nan))  # likewise
            path = zip(*(numbers[f"prices.{name}"].tolist() for name in PricePath._fields), strict=True)
            self._controller.rows = [(float(at), float(psi), float(v), float(e)) for at, psi, v, e in path]
            self._controller.state = Multiplier.read(data["multiplier"])

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy what `save` writes; an environment without a name is pickled itself."""
        return revived, (type(self), frozen(self), self.environment.recipe is None and self._env)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.environment.name}, {self.episodes} episodes, seed {self.seed})"


class AC(Learner):
    """Actor-critic: maximises the mean return. It is VPAC at ψ = 0, bit for bit."""


class VPAC(AC):
    """Variance-penalized actor-critic (Algorithm 1): maximises mean − ψ · variance of the return."""

    defaults: ClassVar[dict[str, Any]] = {"psi": 0.015}


class VAAC(AC):
    """Variance-adjusted actor-critic with Monte-Carlo critics (Algorithm 2)."""

    critic = codes.MONTE_CARLO
    defaults: ClassVar[dict[str, Any]] = {"psi": 0.01, "alpha_theta": 0.001, "alpha_w": 0.05, "alpha_z": 0.005}


class VAACTD(AC):
    """Variance-adjusted actor-critic with TD critics (Algorithm 3)."""

    critic = codes.INDIRECT
    defaults: ClassVar[dict[str, Any]] = {"psi": 0.01}


class MVPI(AC):
    """Mean-variance policy iteration with AC: `psi` penalises the variance of the reward per step, not of the return.

    With psi = 0 it is AC, bit for bit. The variance is that of the normalised discounted occupancy, in which an episode that
    has ended pays 0 for ever (`vpac.oracle.step_reward`).
    """

    volatility = True
    defaults: ClassVar[dict[str, Any]] = {"psi": 0.015}


class OffPolicyLearner(Learner):
    """A learner with a behaviour policy; its settings are those of `OffPolicyOptions`."""

    options_type = OffPolicyOptions


class OffPolicyAC(OffPolicyLearner):
    """Off-policy actor-critic: maximises the mean return of the target policy from a behaviour policy's experience."""


class OffPolicyVPAC(OffPolicyAC):
    """Off-policy VPAC (Appendix D)."""

    defaults: ClassVar[dict[str, Any]] = {"psi": 0.015}


class OffPolicyVAAC(OffPolicyAC):
    """VAAC with importance sampling, Monte-Carlo critics. Whole returns carry ratios: there are no expected critics."""

    critic = codes.MONTE_CARLO
    defaults: ClassVar[dict[str, Any]] = {
        "psi": 0.0015, "alpha_theta": 0.005, "alpha_w": 0.01, "alpha_z": 0.01, "critics": "importance",
    }  # fmt: skip

    def __init__(self, env: Any, *, seed: int = 0, **settings: Any) -> None:
        if settings.get("critics") == "expected":
            raise UserError(
                "OffPolicyVAAC learns from whole returns, which carry ratios: its critics are 'importance' or 'clipped'; "
                "OffPolicyVAACTD has expected ones"
            )
        super().__init__(env, seed=seed, **settings)


class OffPolicyVAACTD(OffPolicyAC):
    """Off-policy VAAC_TD, which the paper leaves out because its derivation "was not straightforward"."""

    critic = codes.INDIRECT
    defaults: ClassVar[dict[str, Any]] = {"psi": 0.01}


def _check_shape(array: Any, shape: tuple[int, ...], kind: Any, what: str) -> None:
    """Check an array before it is passed to compiled code, which checks nothing."""
    if array.shape != shape or array.dtype != kind:
        found, needed = f"{list(array.shape)} of {array.dtype}", f"{list(shape)} of {np.dtype(kind)}"
        raise UserError(f"{what} has shape {found}, the environment needs {needed}")


L = TypeVar("L", bound=Learner)


def learn_many(
    kind: type[L], env: Any, seeds: Iterable[int], episodes: int, *, threads: int | None = None,
    callback: Callable[[L], bool | None] | None = None, every: int | None = None, progress: bool = False,
    diverged: list[Diverged] | None = None, **settings: Any,
) -> list[L]:  # fmt: skip
    """Train one learner for each seed; the result of a run depends on its seed only.

    Compiled code releases the GIL, so threads use all cores.

    Args:
        kind: the algorithm, e.g. `VPAC`.
        env: the environment, its id or its specification. If it is not compiled, every run makes its own from the
            specification.
        seeds: one for each run.
        episodes: number of episodes of each run.
        threads: number of runs at a time; default: one for each core.
        callback: as for `Learner.learn`, called from the run's own thread.
        every: as for `Learner.learn`.
        progress: show a progress bar.
        diverged: a list to collect the errors of runs that diverge, which are then missing from the result; default: the
            first such error is raised.
        settings: of the algorithm.
    """
    chosen = seeds_of(seeds)
    workers = os.cpu_count() if threads is None else whole(threads, "threads", 1)

    def run(learner: L) -> L | Diverged:
        try:
            return learner.learn(episodes, callback=callback, every=every, progress=bar or False)
        except Diverged as error:
            if diverged is None:
                raise
            return error

    def make(seed: int) -> L:
        advice = ": pass its id or its specification, so that every run has its own"
        return kind(remake(env.spec, advice) if stepped else env, seed=seed, **settings)

    first = kind(env, seed=chosen[0], **settings)
    stepped = isinstance(env, gymnasium.Env) and first.environment.world is None and len(chosen) > 1
    first = make(chosen[0]) if stepped else first
    bar = Bar(whole(episodes, "episodes") * len(chosen)) if progress else None
    with bar or nullcontext():
        found = [run(first)]  # compile before the threads start
        with ThreadPoolExecutor(workers) as pool:
            found += pool.map(lambda seed: run(make(seed)), chosen[1:])
    if diverged is not None:
        diverged += [result for result in found if isinstance(result, Diverged)]
    return [result for result in found if not isinstance(result, Diverged)]
