"""Logs of episodes with the probability of every action: a Parquet file, one row per step, or a data set of Minari.

| column | type | meaning |
|---|---|---|
| `episode` | whole number | which episode; any numbers |
| `step` | whole number | 0, 1, 2, … within the episode |
| `observation` | list of numbers | the observation before the action; for a Discrete space a list of one number |
| `action` | whole number or list of numbers | the action |
| `reward` | number | the reward |
| `terminated`, `truncated` | true or false | whether the episode terminated or was truncated with this step |
| `probability` | number | of the action under the policy that acted; for a Box action its density |
| `action_mask` | list of true or false | if there are masks: which actions were allowed |

Box actions are clipped to their space. A number on a bound has the probability of everything beyond the bound.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from vpac.envs.observations import MASK
from vpac.errors import UserError, suggestion
from vpac.files import as_parquet, read_input, write_bytes
from vpac.oracle.policies import softmax
from vpac.typing import BoolArray, FloatArray, IntArray

LOGGED = ("episode", "step", "observation", "action", "reward", "terminated", "truncated", "probability")
MINARI = "minari:"
"""Prefix of the name of a Minari data set."""
IN_INFOS = ("probability", "log_prob")
"""Names of the probability of an action in the infos of a Minari data set."""
PROBABILITY_ROUNDING = 1e-6
"""Largest excess of a probability over 1: files may hold 32-bit numbers."""


@dataclass(frozen=True, eq=False)
class Log:
    """Episodes of one policy, step by step; the steps of an episode are consecutive."""

    observation: FloatArray
    """[steps, numbers]."""
    action: Any
    """[steps] whole numbers, or [steps, numbers]."""
    reward: FloatArray
    """[steps]."""
    probability: FloatArray
    """Probability of each action under the policy that acted, [steps]."""
    first: IntArray
    """The first step of each episode, [episodes]."""
    terminated: BoolArray
    """Whether each episode terminated; otherwise it was truncated."""
    mask: BoolArray | None = None
    """Whether each action was allowed in each step, [steps, actions]; None: unknown."""

    def __len__(self) -> int:
        return len(self.first)

    @cached_property
    def lengths(self) -> IntArray:
        """Steps of each episode."""
        return np.diff(np.append(self.first, len(self.reward)))

    @cached_property
    def episode(self) -> IntArray:
        """Index of each step's episode, from 0."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @cached_property
    def time(self) -> IntArray:
        """Number of steps before each step, in its episode."""
        return np.arange(len(self.reward)) - self.first[self.episode]

    @cached_property
    def last(self) -> IntArray:
        """The last step of each episode."""
        return self.first + self.lengths - 1

    @property
    def discrete(self) -> bool:
        """Whether actions are whole numbers."""
        return bool(self.action.ndim == 1)

    def running(self, x: FloatArray, join: Callable[[FloatArray, FloatArray], FloatArray]) -> FloatArray:
        """Cumulative x within each episode: sums with np.add, products with np.multiply."""
        found = x.copy()
        by_length = np.argsort(-self.lengths, kind="stable")
        lengths, first = self.lengths[by_length], self.first[by_length]
        for t in range(1, int(lengths[0])):
            here = first[: np.searchsorted(-lengths, -t)] + t
            found[here] = join(found[here - 1], x[here])
        return found


def load_log(source: str | Path) -> Log:
    """Read and check a log: a .parquet file with the columns of docs/offline.md, or `minari:NAME`, a data set of Minari."""
    name = str(source)
    if name.startswith(MINARI):
        return _from_minari(name.removeprefix(MINARI))
    path = Path(source)
    if path.suffix != ".parquet":
        raise UserError(f"cannot read a log from {name!r}: expected a .parquet file or {MINARI}NAME")
    import polars as pl

    content = read_input(path)
    try:
        frame = pl.read_parquet(io.BytesIO(content))
    except (Exception, pl.exceptions.PanicException) as error:  # Polars has its own errors for every kind of damage
        raise UserError(f"{path} is not a Parquet file: {type(error).__name__}: {error!s:.80}") from None
    return from_columns({column.name: column for column in frame}, name)


def from_columns(columns: Mapping[str, Any], name: str = "the log") -> Log:
    """A log from columns by name, as Polars or NumPy hold them; a `UserError` says what is wrong with them."""
    expected = f"expected the columns {', '.join(LOGGED)}"
    for found in columns:
        if found not in (*LOGGED, MASK):
            raise UserError(f"{name} has an unknown column {found!r}: {expected}{suggestion(found, LOGGED)}")
    if "probability" not in columns:
        raise UserError(
            f"{name} does not say how probable its actions were: expected a column 'probability'; without the probabilities "
            "of the policy that acted nothing can be said about another one"
        )
    if missing := [column for column in LOGGED if column not in columns]:
        raise UserError(f"{name} has no column {missing[0]!r}: {expected}")
    parts = {column: _numbers(columns[column], column, name) for column in LOGGED}
    mask = _numbers(columns[MASK], MASK, name) if MASK in columns else None
    if not len(parts["reward"]):
        raise UserError(f"{name} holds no episode")
    if len({len(part) for part in (*parts.values(), *(() if mask is None else (mask,)))}) > 1:
        raise UserError(f"the columns of {name} differ in length")
    for column in ("episode", "step", *(() if parts["action"].ndim > 1 else ("action",))):
        if (parts[column] != np.floor(parts[column])).any():
            raise UserError(f"{name}: {column} must be a whole number in every row")
    order = np.lexsort((parts["step"], parts["episode"]))
    episode, step, observation, action, reward, ended, cut, probability = (parts[column][order] for column in LOGGED)
    starts = np.append(True, episode[1:] != episode[:-1])
    first = np.flatnonzero(starts)
    _check_steps(episode, step, starts, first, (ended != 0.0) | (cut != 0.0), name)
    _check_probabilities(probability, action.ndim == 1, name)
    last = np.append(first[1:], len(reward)) - 1
    rows, action = observation.reshape(len(reward), -1), action.astype(np.int64) if action.ndim == 1 else action
    allowed = None if mask is None else _allowed(mask[order], name)
    return Log(rows, action, reward, probability, first, ended[last] != 0.0, allowed)


def _numbers(column: Any, what: str, name: str) -> FloatArray:
    """A column as finite numbers [rows] or [rows, numbers]."""
    try:
        nested = hasattr(column, "to_list") and str(column.dtype).startswith(("List", "Array"))
        found = np.asarray(column.to_list() if nested else column, np.float64)
    except (TypeError, ValueError):
        raise UserError(f"{name}: {what} must be a number, or a list of as many numbers, in every row") from None
    if found.ndim > (2 if what in ("observation", "action", MASK) else 1):
        raise UserError(f"{name}: {what} has {found.ndim - 1} dimensions: expected a number or a flat list of numbers")
    if not np.isfinite(found).all():
        raise UserError(f"{name}: {what} is missing or not finite in row {int(np.argwhere(~np.isfinite(found))[0][0])}")
    return found


def _allowed(mask: FloatArray, name: str) -> BoolArray:
    if mask.ndim != 2 or not np.isin(mask, (0.0, 1.0)).all() or not mask.any(axis=1).all():
        raise UserError(
            f"{name}: {MASK} must be a list of true or false, one for each action, with one true or more, in every row"
        )
    return np.asarray(mask != 0.0)


def _check_steps(
    episode: FloatArray, step: FloatArray, starts: BoolArray, first: IntArray, over: BoolArray, name: str
) -> None:
    """Check that every episode has the steps 0, 1, 2, … and ends with the last of them."""
    expected = np.arange(len(step)) - np.repeat(first, np.diff(np.append(first, len(step))))
    if (step != expected).any():
        bad = int(np.argmax(step != expected))
        raise UserError(
            f"{name}: episode {episode[bad]:g} has step {step[bad]:g} where step {expected[bad]} was expected: every episode "
            "has the steps 0, 1, 2, … once each"
        )
    ends = np.append(starts[1:], True)
    if (over & ~ends).any():
        bad = int(np.argmax(over & ~ends))
        raise UserError(f"{name}: episode {episode[bad]:g} goes on after step {step[bad]:g}, with which it has ended")
    if (~over & ends).any():
        bad = int(np.argmax(~over & ends))
        raise UserError(
            f"{name}: episode {episode[bad]:g} is cut in the middle: its last step {step[bad]:g} is neither terminated nor "
            "truncated; leave the episode out, or mark it as truncated if that is where the environment stops episodes"
        )


def _check_probabilities(probability: FloatArray, discrete: bool, name: str) -> None:
    bad = ~(probability > 0.0) | (discrete & (probability > 1.0 + PROBABILITY_ROUNDING))
    if bad.any():
        row = int(np.argmax(bad))
        most = " and at most 1" if discrete else ""
        raise UserError(
            f"{name}: the probability of an action that was taken is {probability[row]:g} (row {row} of the sorted log): "
            f"expected above 0{most}"
        )


def _from_minari(name: str) -> Log:
    """Episodes of a Minari data set, whose infos must have probabilities."""
    whole_name = f"the data set {name!r} of Minari"
    try:
        import minari
    except ImportError:
        raise UserError(f"{MINARI}{name} needs Minari: pip install 'minari[hdf5]'") from None
    try:
        episodes = list(minari.load_dataset(name).iterate_episodes())
    except Exception as error:  # damaged files, and names of missing data sets
        raise UserError(f"cannot read {whole_name}: {type(error).__name__}: {error!s:.120}") from None
    parts: dict[str, list[Any]] = {column: [] for column in LOGGED}
    for number, one in enumerate(episodes):
        length, infos = len(one.rewards), one.infos if isinstance(one.infos, Mapping) else {}
        key = next((key for key in IN_INFOS if key in infos), None)
        if key is None:
            expected = f"expected {' or '.join(map(repr, IN_INFOS))} in the infos of every step"
            raise UserError(f"{whole_name} does not say how probable its actions were: {expected}")
        if any(isinstance(x, dict | tuple) for x in (one.observations, one.actions)):
            raise UserError(f"{whole_name} has Dict or Tuple spaces: expected Box or Discrete ones")
        said = np.asarray(infos[key], np.float64).reshape(-1)[-length:]  # the first of length + 1 is that of the reset
        probability = np.exp(said) if key == "log_prob" else said
        flat = np.asarray(one.actions, np.float64).reshape(length, -1)
        whole = np.asarray(one.actions).ndim == 1 and np.asarray(one.actions).dtype.kind in "iu"
        values = (
            np.full(length, number), np.arange(length), np.asarray(one.observations)[:length].reshape(length, -1),
            flat[:, 0] if whole else flat, one.rewards, one.terminations, one.truncations, probability,
        )  # fmt: skip
        for column, x in zip(LOGGED, values, strict=True):
            parts[column].append(np.asarray(x, np.float64))
    if not episodes:
        raise UserError(f"{whole_name} holds no episode")
    return from_columns({column: np.concatenate(values) for column, values in parts.items()}, f"{MINARI}{name}")


class Recorder:
    """Collects the steps that `play` counts, and writes them as a log."""

    def __init__(self, agent: Any, path: str | Path, deterministic: bool) -> None:
        self.agent, self.path = agent, Path(path)
        if self.path.suffix != ".parquet":
            raise UserError(f"cannot write a log to {str(path)!r}: expected a .parquet file")
        if deterministic:
            raise UserError("a log is of actions that were drawn: leave deterministic out")
        if not callable(getattr(agent, "act", None)):
            raise UserError(f"{type(agent).__name__} does not say how probable its actions are: only agents of vpac do")
        check_loggable(agent)
        self._rows: list[tuple[Any, ...]] = []

    def record(self, counted: BoolArray, *columns: Any) -> None:
        """Add a step of each counted environment: episode, step, observation, action, reward, terminated, truncated."""
        episode, step, seen, *rest = columns
        rows, mask = (seen["vector"], seen[MASK]) if isinstance(seen, Mapping) else (seen, np.ones((len(counted), 0)))
        self._rows.append(tuple(np.array(column)[counted] for column in (episode, step, rows, mask, *rest)))

    def write(self) -> Path:
        """Write the log atomically."""
        import polars as pl

        columns = (np.concatenate(x) for x in zip(*self._rows, strict=True))
        episode, step, observation, mask, action, reward, ended, cut = columns
        rows = np.asarray(observation, np.float64).reshape(len(reward), -1)
        actions = np.asarray(action, np.int64 if action.ndim == 1 and action.dtype.kind in "iu" else np.float64)
        actions = actions if actions.ndim == 1 and actions.dtype == np.int64 else actions.reshape(len(reward), -1)
        masked = {MASK: mask.astype(bool)} if mask.size else {}
        chances = Chances.of(self.agent, rows, actions, masked.get(MASK))
        frame = pl.DataFrame(
            {
                "episode": episode, "step": step, "observation": rows.tolist(),
                "action": actions if actions.ndim == 1 else actions.tolist(), "reward": reward,
                "terminated": ended.astype(bool), "truncated": cut.astype(bool) & ~ended.astype(bool),
                "probability": chances.taken, **{name: x.tolist() for name, x in masked.items()},
            },
            schema_overrides={"observation": pl.List(pl.Float64)},
        ).sort("episode", "step")  # fmt: skip
        return write_bytes(self.path, as_parquet(frame))


def check_loggable(policy: Any) -> None:
    """Reject a policy whose probabilities depend on more than the columns of a log."""
    about = getattr(policy, "interface", None)
    for has, what in (("image", "images"), ("choices", "actions of several parts")):
        if getattr(about, has, None):
            raise UserError(f"this policy has {what}, for which a log has no column")


@dataclass(frozen=True, eq=False)
class Chances:
    """Probabilities of a policy's actions in the steps of a log."""

    taken: FloatArray
    """Probability, or density, of the action that was taken, [steps]."""
    every: FloatArray | None
    """Probability of every action, [steps, actions]; None: actions are not Discrete."""
    action: IntArray | None
    """Index of the action that was taken."""
    finite: bool
    """Whether observations are Discrete."""

    @classmethod
    def of(cls, policy: Any, observations: FloatArray, actions: Any, mask: BoolArray | None = None) -> Chances:
        """Query a policy: an agent of vpac, a table π[s, a], or a function from observations [n, numbers] to π [n, actions].

        `mask` is for policies trained with masks.
        """
        from vpac.deep.policy import NumpyPolicy
        from vpac.deep.spaces import Interface

        if isinstance(getattr(policy, "interface", None), Interface):
            found = policy if isinstance(policy, NumpyPolicy) else policy.policy()
            return cls._of_network(found, observations, actions, mask)
        if hasattr(policy, "environment") and hasattr(policy, "weights"):
            return cls._of_learner(policy, observations, actions)
        if isinstance(policy, np.ndarray | list | tuple):
            table = np.asarray(policy, np.float64)
            if table.ndim != 2:
                raise UserError(f"a table of a policy must have the shape [states, actions], got {list(table.shape)}")
            states = _whole(observations, 0, len(table))
            return cls._discrete(table[states], actions, 0, True)
        if callable(policy):
            return cls._discrete(np.asarray(policy(observations), np.float64), actions, 0, False)
        raise UserError(
            f"{type(policy).__name__} does not say how probable its actions are: expected an agent of vpac, a table of "
            "probabilities [states, actions], or a function from observations [n, numbers] to probabilities [n, actions]"
        )

    @classmethod
    def _of_learner(cls, learner: Any, observations: FloatArray, actions: Any) -> Chances:
        env = learner.environment
        if env.n_active == 1:
            states = _whole(observations, env.first, env.n_features)
            return cls._discrete(learner.policy()[states], actions, env.first_action, True)
        features = np.stack([env.features(one) for one in observations])
        preferences = learner.weights.theta[features].sum(axis=1)
        return cls._discrete(softmax(preferences, learner.options.temperature), actions, env.first_action, False)

    @classmethod
    def _of_network(cls, policy: Any, observations: FloatArray, actions: Any, mask: BoolArray | None) -> Chances:
        about = policy.interface
        check_loggable(policy)
        finite = about.discrete_observations
        if about.masked:
            if mask is None or mask.shape[1] != about.actions:
                has = "no column of that name" if mask is None else f"{mask.shape[1]}"
                raise UserError(
                    f"this policy has masks: expected {about.actions} numbers of {MASK!r} in the log, which has {has}"
                )
            several = len(np.unique(np.hstack([observations, mask]), axis=0)) > len(np.unique(observations, axis=0))
            finite &= not several  # a state with several masks is not one state
        if about.discrete_observations:
            _whole(observations, about.first_observation, about.inputs)
            seen: Any = observations[:, 0].astype(np.int64)
        elif (n := observations.shape[1]) != about.inputs:
            raise UserError(f"the log's observations have {n} numbers; this policy takes {about.inputs}")
        else:
            seen = observations
        rows = about.rows({"vector": seen, MASK: mask} if about.masked else seen)
        outputs = policy.outputs(policy.view(rows)).astype(np.float64)
        if about.discrete_actions:
            return cls._discrete(softmax(outputs, 1.0), actions, about.first_action, finite)
        if about.integers or actions.ndim != 2 or actions.shape[1] != about.actions:
            raise UserError(f"the log's actions are not the {about.actions} numbers of a Box that this policy gives")
        return cls(_clipped_density(actions, outputs, policy), None, None, about.discrete_observations)

    @classmethod
    def _discrete(cls, every: FloatArray, actions: Any, first: int, finite: bool) -> Chances:
        if np.ndim(actions) != 1:
            raise UserError("the log's actions are lists of numbers; this policy chooses one of a few")
        if every.shape[:1] != actions.shape or every.ndim != 2:
            found = list(every.shape)
            raise UserError(f"the policy's probabilities have shape {found}: expected [{len(actions)}, actions]")
        sums = every.sum(axis=1)
        if not (np.isfinite(every).all() and (every >= 0.0).all() and np.abs(sums - 1.0).max() < PROBABILITY_ROUNDING):
            raise UserError("the policy's probabilities must not be negative, and sum to 1 over the actions")
        action = actions - first
        if action.min() < 0 or action.max() >= every.shape[1]:
            bad = int(actions[np.argmax((action < 0) | (action >= every.shape[1]))])
            last = first + every.shape[1] - 1
            raise UserError(f"the log has action {bad}; this policy's are the whole numbers from {first} to {last}")
        return cls(every[np.arange(len(action)), action], every, action, finite)


def _whole(observations: FloatArray, first: int, count: int) -> IntArray:
    """Discrete observations as numbers from 0."""
    found = observations[:, 0] - first
    if observations.shape[1] != 1 or (found != np.floor(found)).any() or found.min() < 0 or found.max() >= count:
        expected = f"one whole number from {first} to {first + count - 1}"
        raise UserError(f"the log's observations do not fit: this policy takes {expected}")
    return found.astype(np.int64)


def _clipped_density(actions: FloatArray, mean: FloatArray, policy: Any) -> FloatArray:
    """Π over an action's numbers of the normal density or, on a bound, of the probability of lying beyond."""
    from scipy.special import log_ndtr

    spread = np.exp(np.asarray(policy.log_std, np.float64))
    bounds = policy.interface.low, policy.interface.high
    low, high = (np.asarray(side, np.float32).astype(np.float64) for side in bounds)
    inside = -0.5 * ((actions - mean) / spread) ** 2 - np.log(spread * np.sqrt(2.0 * np.pi))
    found = np.where(actions <= low, log_ndtr((low - mean) / spread), inside)
    found = np.where(actions >= high, log_ndtr((mean - high) / spread), found)
    return np.asarray(np.exp(found.sum(axis=1)), np.float64)
