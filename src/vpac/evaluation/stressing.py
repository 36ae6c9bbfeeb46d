"""What becomes of a policy when its world is not quite the one it learned in.

An arm is the environment with something changed: an argument, noise on what the policy sees or does, observations that come
late or get lost, other starts. Every arm plays the seeds of the control arm, which changes nothing. What disturbs the policy is
drawn from a generator of its own, so that the environment's own random numbers stay the same.
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
from vpac.envs.noise import AnyEnv, AnyWrapper, RandomFirstSteps, Step
from vpac.envs.observations import MASK, read_mask
from vpac.errors import UserError
from vpac.evaluation.play import episode_seeds, evaluate_each
from vpac.risk.compare import PairedComparison, compare_paired
from vpac.risk.sample import ReturnSample
from vpac.typing import BoolArray, FloatArray

KINDS = {
    "noise": "observation noise", "action-noise": "action noise", "delay": "observations delayed, steps",
    "drop": "observations lost, share", "first-steps": "random first steps",
}  # fmt: skip
"""What can be changed beside arguments of the environment, and how it is called."""
STREAM = 7_919
"""Keeps the generator of a disturbance apart from those of environment and policy, which come from the same seed."""
WATCHED = 20
"""Episodes of the control arm whose observations say what a unit of noise is."""


class Disturbed(AnyWrapper, RecordConstructorArgs):
    """Disturbs what the policy sees and does. Masks of actions stay right: they are neither late nor lost, and noise does
    only what they allow.

    Args:
        env: any environment.
        noise: standard deviation of the noise on each number of a Box observation, in units of `scale`; of Discrete ones the
            probability of seeing any other.
        action_noise: standard deviation of the noise on each number of a Box action, in units of half its range; of Discrete
            ones the probability of doing any other.
        delay: steps by which observations come late; the first is seen until then.
        drop: probability that an observation is lost; the one before is seen again.
        scale: of each number of the observation.
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
        """Start; the first observation is never lost or late."""
        observation, info = self.env.reset(seed=seed, options=options)
        if seed is not None:
            self._own = np.random.default_rng([STREAM, seed])
        self._seen.clear()
        self._seen.append(self._noisy(observation))
        return self._shown(observation, info), info

    def step(self, action: Any) -> Step:
        """Take the action that noise makes of this one; see what gets through."""
        observation, reward, terminated, truncated, info = self.env.step(self._moved(action))
        lost = self._own.random() < self.drop
        self._seen.append(self._seen[-1] if lost else self._noisy(observation))
        return self._shown(observation, info, terminated or truncated), reward, terminated, truncated, info

    def _shown(self, observation: Any, info: dict[str, Any], over: bool = False) -> Any:
        """What gets through, with the mask of now."""
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
        """Any other value of a Discrete space, or of those that are allowed, by chance."""
        which, now = np.arange(space.n) if allowed is None else np.flatnonzero(allowed), int(value) - int(space.start)
        hit, step = self._own.random() < chance, int(self._own.integers(1, max(len(which), 2)))
        if not hit or now not in which:
            return value
        return type(value)(space.start + which[(int(np.searchsorted(which, now)) + step) % len(which)])


@dataclass(frozen=True)
class Axis:
    """Something that is changed, and the values that it takes."""

    name: str
    """One of `KINDS`, or an argument of the environment."""
    values: tuple[Any, ...]
    """Without that of the control arm."""

    @property
    def label(self) -> str:
        """For readers."""
        return KINDS.get(self.name, self.name)


def arms_of(axes: Sequence[Axis]) -> list[dict[str, Any]]:
    """What each arm changes, the control arm first: one thing at a time; of two axes also both together."""
    alone = [{axis.name: value} for axis in axes for value in axis.values]
    both = [dict(zip((a.name for a in axes), pair, strict=True)) for pair in product(*(a.values for a in axes))]
    return [{}, *alone, *(both if len(axes) == 2 else [])]


@dataclass(frozen=True)
class StressTest:
    """The returns of every arm, played with the same seeds."""

    axes: tuple[Axis, ...]
    """What was changed."""
    arms: tuple[Mapping[str, Any], ...]
    """What each arm changes; the first is the control arm."""
    samples: tuple[ReturnSample, ...]
    """The returns of each."""
    level: float = 0.95
    """The confidence of each interval."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """The policy, the environment and how they were measured, as plain data."""

    def compared(self, number: int) -> PairedComparison:
        """An arm against the control arm."""
        return compare_paired(self.samples[number].returns, self.samples[0].returns, level=self.level)

    def worst_first(self) -> list[int]:
        """The arms but the control arm: what lowers the mean most first."""
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
        make: makes the environment with these arguments beside its own.
        axes: what is changed.
        episodes: of each arm.
        seed: of everything random.
        gamma: discount factor; default: the agent's own, or 0.99.
        deterministic: the policy's most preferred actions instead of drawn ones.
        undiscounted: the sum of rewards instead of the discounted return.
        level: the confidence of each interval.
        measured: called with the name of an arm and what measures it, to keep or to find it.
        tell: called with the name of an arm when it begins.
    """
    if not axes:
        raise UserError("expected something to change: arguments of the environment, noise, delay, drop, other starts")
    if len({axis.name for axis in axes}) < len(axes):
        raise UserError("every axis can be given once")
    seeds = episode_seeds(seed, whole(episodes, "episodes", 10))
    scale = _scale(agent, make({}), seeds[:WATCHED], deterministic) if "noise" in {a.name for a in axes} else 1.0
    arms, samples = arms_of(axes), []
    for arm in arms:  # a mistake in the last is named before the first is measured
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
    """An arm in words: `demand = 5, observation noise = 0.1`; the one that changes nothing is the control arm."""
    return ", ".join(f"{KINDS.get(name, name)} = {value}" for name, value in arm.items()) or "control"


def changed(make: Callable[[Mapping[str, Any]], AnyEnv], arm: Mapping[str, Any], scale: Any = 1.0) -> AnyEnv:
    """The environment of an arm."""
    env = make({name: value for name, value in arm.items() if name not in KINDS})
    if "first-steps" in arm:
        env = RandomFirstSteps(env, arm["first-steps"])
    others = KINDS.keys() - {"first-steps"}
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

    def step(self, action: Any) -> Step:
        found = self.env.step(action)
        self.seen.append(np.array(found[0]))
        return found
