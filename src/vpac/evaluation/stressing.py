"""Stress tests: measure a policy in environments that differ from the one of training.

An arm is the environment with one change: an argument, noise on observations or actions, delayed or lost observations, other
start states. Every arm plays the seeds of the control arm, which changes nothing. Disturbances are drawn from a separate
generator, so that the environment's own random numbers stay the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import product
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from vpac.checks import not_negative, whole
from vpac.envs.noise import AnyEnv, AnyWrapper, RandomFirstSteps, StepResult
from vpac.envs.observations import MASK, read_mask
from vpac.errors import UserError
from vpac.evaluation.play import episode_seeds, evaluate_each
from vpac.risk.compare import PairedComparison, compare_paired
from vpac.risk.sample import ReturnSample
from vpac.typing import BoolArray, FloatArray

DISTURBANCES = {
    "noise": "observation noise", "action-noise": "action noise", "delay": "observations delayed, steps",
    "drop": "observations lost, share", "first-steps": "random first steps",
}  # fmt: skip
"""Changes other than arguments of the environment, and their names."""
DISTURBANCE_STREAM = 7_919
"""Separates the generator of a disturbance from those of environment and policy, which come from the same seed."""
WATCHED = 20
"""Episodes of the control arm that give the unit of observation noise."""


class Disturbed(AnyWrapper, RecordConstructorArgs):
    """Disturbs observations and actions. Masks of actions are neither delayed nor lost, and noisy actions stay within them.

    Args:
        env: any environment.
        noise: standard deviation of the noise on each number of a Box observation, in units of `scale`; for Discrete ones the
            probability of observing another one.
        action_noise: standard deviation of the noise on each number of a Box action, in units of half its range; for Discrete
            ones the probability of taking another one.
        delay: steps by which observations are delayed; the first is repeated until then.
        drop: probability that an observation is lost; the previous one is repeated.
        scale: unit of the noise on each number of the observation.
    """

    def __init__(
        self, env: AnyEnv, noise: float = 0.0, action_noise: float = 0.0, delay: int = 0, drop: float = 0.0,
        scale: Any = 1.0,
    ) -> None:  # fmt: skip
        given = {"noise": noise, "action_noise": action_noise, "delay": delay, "drop": drop, "scale": scale}
        RecordConstructorArgs.__init__(self, **given)
        gymnasium.Wrapper.__init__(self, env)
        self.noise, self.action_noise = not_negative(noise, "noise"), not_negative(action_noise, "action noise")
        self.delay, self.drop = whole(delay, "delay"), not_negative(drop, "drop")
        self.scale = np.asarray(scale, np.float64)
        self._own, self._seen = np.random.default_rng(0), deque[Any](maxlen=self.delay + 1)
        self._mask: BoolArray | None = None
        for name, space, share in (
            ("noise", env.observation_space, self.noise), ("action noise", env.action_space, self.action_noise),
        ):  # fmt: skip
            if share and not isinstance(space, spaces.Box | spaces.Discrete):
                raise UserError(f"{name} needs a Box or a Discrete space, got {space}")
            if share > 1.0 and isinstance(space, spaces.Discrete):
                raise UserError(f"{name} in {space} is a probability: expected at most 1, got {share:g}")
        if self.drop > 1.0:
            raise UserError(f"drop is a probability: expected at most 1, got {self.drop:g}")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset; the first observation is never lost or delayed."""
        observation, info = self.env.reset(seed=seed, options=options)
        if seed is not None:
            self._own = np.random.default_rng([DISTURBANCE_STREAM, seed])
        self._seen.clear()
        self._seen.append(self._noisy(observation))
        return self._shown(observation, info), info

    def step(self, action: Any) -> StepResult:
        """Take the disturbed action; return the disturbed observation."""
        observation, reward, terminated, truncated, info = self.env.step(self._moved(action))
        lost = self._own.random() < self.drop
        self._seen.append(self._seen[-1] if lost else self._noisy(observation))
        return self._shown(observation, info, terminated or truncated), reward, terminated, truncated, info

    def _shown(self, observation: Any, info: dict[str, Any], over: bool = False) -> Any:
        """The delayed or repeated observation, with the current mask."""
        if self.action_noise:
            self._mask = read_mask(self.env, observation, info, f"{self.env}:", over)
        late = self._seen[0]
        return late | {MASK: observation[MASK]} if isinstance(late, dict) and MASK in late else late

    def _noisy(self, observation: Any) -> Any:
        space = self.env.observation_space
        if isinstance(space, spaces.Discrete):
            return self._other(observation, space, self.noise)
        if not self.noise:
            return observation
        x = np.asarray(observation)
        return (x + self.noise * self.scale * self._own.standard_normal(x.shape)).astype(x.dtype)

    def _moved(self, action: Any) -> Any:
        space = self.env.action_space
        if not self.action_noise:
            return action
        if isinstance(space, spaces.Discrete):
            return self._other(action, space, self.action_noise, self._mask)
        assert isinstance(space, spaces.Box)
        width = 0.5 * (space.high.astype(np.float64) - space.low)
        width = np.where(np.isfinite(width), width, 1.0)
        moved = np.asarray(action) + self.action_noise * width * self._own.standard_normal(space.shape)
        return np.clip(moved, space.low, space.high).astype(space.dtype)

    def _other(self, value: Any, space: spaces.Discrete[Any], chance: float, allowed: BoolArray | None = None) -> Any:
        """Another (allowed) value of a Discrete space, with probability `chance`."""
        which, now = np.arange(space.n) if allowed is None else np.flatnonzero(allowed), int(value) - int(space.start)
        hit, step = self._own.random() < chance, int(self._own.integers(1, max(len(which), 2)))
        if not hit or now not in which:
            return value
        return type(value)(space.start + which[(int(np.searchsorted(which, now)) + step) % len(which)])


@dataclass(frozen=True)
class Axis:
    """A quantity that is changed, and its values."""

    name: str
    """One of `DISTURBANCES`, or an argument of the environment."""
    values: tuple[Any, ...]
    """Values, without that of the control arm."""

    @property
    def label(self) -> str:
        """Its name for readers."""
        return DISTURBANCES.get(self.name, self.name)


def arms_of(axes: Sequence[Axis]) -> list[dict[str, Any]]:
    """The changes of each arm, the control arm first: one axis at a time; with two axes also all combinations."""
    alone = [{axis.name: value} for axis in axes for value in axis.values]
    both = [dict(zip((a.name for a in axes), pair, strict=True)) for pair in product(*(a.values for a in axes))]
    return [{}, *alone, *(both if len(axes) == 2 else [])]


@dataclass(frozen=True)
class StressTest:
    """The returns of every arm, played with the same seeds."""

    axes: tuple[Axis, ...]
    """The changed quantities."""
    arms: tuple[Mapping[str, Any], ...]
    """The changes of each arm; the first is the control arm."""
    samples: tuple[ReturnSample, ...]
    """The returns of each arm."""
    level: float = 0.95
    """The confidence of each interval."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """The policy, the environment and how they were measured, as plain data."""

    def compared(self, number: int) -> PairedComparison:
        """An arm against the control arm."""
        return compare_paired(self.samples[number].returns, self.samples[0].returns, level=self.level)

    def worst_first(self) -> list[int]:
        """The arms except the control arm, beginning with the one that lowers the mean most."""
        return sorted(range(1, len(self.arms)), key=lambda k: self.samples[k].mean)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, the arms in the order of `worst_first` after the control arm."""
        return {
            "axes": [{"name": axis.name, "label": axis.label, "values": list(axis.values)} for axis in self.axes],
            "level": self.level, "episodes": len(self.samples[0]), **self.about,
            "arms": [
                {
                    "change": dict(self.arms[k]),
                    **{name: asdict(self.samples[k].interval(name, self.level)) for name in ("mean", "std", "cvar")},
                    "against_control": self.compared(k).as_dict() if k else None,
                }
                for k in (0, *self.worst_first())
            ],
        }  # fmt: skip


def stress(
    agent: Any, make: Callable[[Mapping[str, Any]], gymnasium.Env[Any, Any]], axes: Sequence[Axis], episodes: int = 200,
    *, seed: int = 0, gamma: float | None = None, deterministic: bool = False, undiscounted: bool = False,
    level: float = 0.95, measured: Callable[[str, Callable[..., ReturnSample]], ReturnSample] = lambda name, play: play(),
    tell: Callable[..., object] = lambda what: None,
) -> StressTest:  # fmt: skip
    """Measure a policy in every arm, on common random numbers.

    Args:
        agent: as for `evaluate`.
        make: makes the environment with these arguments in addition to its own.
        axes: the quantities that are changed.
        episodes: episodes of each arm.
        seed: seed of all randomness.
        gamma: discount factor; default: the agent's own, or 0.99.
        deterministic: the policy of the most likely actions instead of the sampled ones.
        undiscounted: the sum of rewards instead of the discounted return.
        level: the confidence of each interval.
        measured: called with the name of an arm and a function that measures it, to store it or to load it.
        tell: called with the name of an arm when it begins.
    """
    if not axes:
        raise UserError("expected something to change: arguments of the environment, noise, delay, drop, other starts")
    if len({axis.name for axis in axes}) < len(axes):
        raise UserError("every axis can be given once")
    seeds = episode_seeds(seed, whole(episodes, "episodes", 10))
    scale = _scale(agent, make({}), seeds[:WATCHED], deterministic) if "noise" in {a.name for a in axes} else 1.0
    arms, samples = arms_of(axes), []
    for arm in arms:  # report an error in the last arm before the first is measured
        changed(make, arm, scale).close()
    for arm in arms:
        tell(arm_name(arm))
        env = changed(make, arm, scale)
        try:
            play = partial(evaluate_each, agent, env, seeds, gamma=gamma, deterministic=deterministic)
            sample = measured(arm_name(arm), play)
        finally:
            env.close()
        samples.append(sample.undiscounted if undiscounted else sample)
    return StressTest(tuple(axes), tuple(arms), tuple(samples), level)


def arm_name(arm: Mapping[str, Any]) -> str:
    """The name of an arm: `demand = 5, observation noise = 0.1`, or the control arm."""
    return ", ".join(f"{DISTURBANCES.get(name, name)} = {value}" for name, value in arm.items()) or "control"


def changed(make: Callable[[Mapping[str, Any]], AnyEnv], arm: Mapping[str, Any], scale: Any = 1.0) -> AnyEnv:
    """The environment of an arm."""
    env = make({name: value for name, value in arm.items() if name not in DISTURBANCES})
    if "first-steps" in arm:
        env = RandomFirstSteps(env, arm["first-steps"])
    others = DISTURBANCES.keys() - {"first-steps"}
    disturbance = {name.replace("-", "_"): value for name, value in arm.items() if name in others}
    return Disturbed(env, **disturbance, scale=scale) if disturbance else env


def _scale(agent: Any, env: AnyEnv, seeds: Iterable[int], deterministic: bool) -> FloatArray | float:
    """The standard deviation of each number of a Box observation over episodes of the control arm; 1 where it does not vary."""
    if not isinstance(env.observation_space, spaces.Box):
        return 1.0
    watched = _Watched(env)
    evaluate_each(agent, watched, list(seeds), deterministic=deterministic)
    env.close()
    spread = np.std(np.asarray(watched.seen, np.float64), axis=0)
    return np.asarray(np.where(spread > 0.0, spread, 1.0))


class _Watched(AnyWrapper):
    """Keeps every observation."""

    def __init__(self, env: AnyEnv) -> None:
        super().__init__(env)
        self.seen: list[Any] = []

    def reset(self, **how: Any) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(**how)
        self.seen.append(np.array(observation))
        return observation, info

    def step(self, action: Any) -> StepResult:
        found = self.env.step(action)
        self.seen.append(np.array(found[0]))
        return found
