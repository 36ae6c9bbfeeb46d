"""Numbers that change from episode to episode: ψ and the step sizes.

With a high ψ an untrained policy learns to stand still, so ψ is better raised after the policy is good; the proof of
convergence needs step sizes that shrink. On the command line a schedule is a word and numbers with colons between them, for
example `warm-up:0.05:300:500`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

import numpy as np

from vpac.checks import not_negative
from vpac.errors import UserError, one_of
from vpac.typing import FloatArray


@dataclass(frozen=True)
class Schedule(ABC):
    """A number for each episode."""

    word: ClassVar[str]
    """The schedule's name on the command line and in files."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            not_negative(value, f"{field.name} of the {self.word} schedule")

    @abstractmethod
    def at(self, episode: FloatArray) -> FloatArray:
        """The number in each of the given episodes, which count from 0."""

    def values(self, episodes: int, first: int = 0) -> FloatArray:
        """The numbers of `episodes` episodes, beginning with number `first`."""
        return np.asarray(self.at(np.arange(first, first + episodes, dtype=np.float64)), np.float64)

    def as_text(self) -> str:
        """The schedule as text for the command line, which `as_schedule` reads."""
        return ":".join([self.word, *(repr(float(value)) for value in asdict(self).values())])


@dataclass(frozen=True)
class Constant(Schedule):
    """A constant."""

    value: float
    """The constant."""
    word: ClassVar[str] = "constant"

    def at(self, episode: FloatArray) -> FloatArray:
        """`value`."""
        return np.full_like(episode, self.value)


@dataclass(frozen=True)
class Linear(Schedule):
    """Linear interpolation from one number to another, then constant."""

    start: float
    """The number in episode 0."""
    end: float
    """The number from episode `episodes` on."""
    episodes: float
    """Number of episodes that the change takes."""
    word: ClassVar[str] = "linear"

    def at(self, episode: FloatArray) -> FloatArray:
        """start + (end − start) · min(1, t / episodes)."""
        return self.start + (self.end - self.start) * np.clip(episode / max(self.episodes, 1.0), 0.0, 1.0)


@dataclass(frozen=True)
class WarmUp(Schedule):
    """Zero at first, then rising linearly to its value."""

    value: float
    """The final number."""
    wait: float
    """Episodes at zero."""
    rise: float = 0.0
    """Episodes of the rise after that; 0: at once."""
    word: ClassVar[str] = "warm-up"

    def at(self, episode: FloatArray) -> FloatArray:
        """0 up to episode `wait`, then value · min(1, (t − wait) / rise)."""
        if self.rise == 0.0:
            return np.asarray(self.value * (episode >= self.wait), np.float64)
        return np.asarray(self.value * np.clip((episode - self.wait) / self.rise, 0.0, 1.0), np.float64)


@dataclass(frozen=True)
class Exponential(Schedule):
    """Number that is multiplied by the same factor in each episode."""

    start: float
    """The number in episode 0."""
    factor: float
    """The factor."""
    word: ClassVar[str] = "exponential"

    def at(self, episode: FloatArray) -> FloatArray:
        """start · factor^t."""
        return np.asarray(self.start * np.power(self.factor, episode), np.float64)


@dataclass(frozen=True)
class RobbinsMonro(Schedule):
    """start / (1 + t/shift)^power: for ½ < power ≤ 1 its sum diverges and the sum of its squares does not.

    The proof of convergence (Appendix C) needs such rates for value, variance and policy, each vanishing relative to the one
    before it: use a larger power for each, for example 0.6, 0.8 and 1.
    """

    start: float
    """The rate in episode 0."""
    power: float = 1.0
    """The exponent of the decay."""
    shift: float = 100.0
    """The time scale of the decay, in episodes."""
    word: ClassVar[str] = "robbins-monro"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.5 < self.power <= 1.0:
            raise UserError(f"power of a robbins-monro schedule must be above 1/2 and at most 1, got {self.power:g}")

    def at(self, episode: FloatArray) -> FloatArray:
        """start / (1 + t/shift)^power."""
        return np.asarray(self.start / (1.0 + episode / max(self.shift, 1e-12)) ** self.power, np.float64)


BY_WORD: dict[str, type[Schedule]] = {kind.word: kind for kind in (Constant, Linear, WarmUp, Exponential, RobbinsMonro)}


def as_schedule(value: Any, name: str = "schedule") -> Schedule:
    """A schedule from a number, from text such as "0.05" or "warm-up:0.05:300:500", or from a schedule."""
    if isinstance(value, Schedule):
        return value
    if isinstance(value, str):
        word, *numbers = value.split(":")
        if not numbers and word not in BY_WORD:
            word, numbers = "constant", [value]
        kind = BY_WORD[one_of(word, BY_WORD, f"schedule for {name}")]
        try:
            return kind(*(float(number) for number in numbers))
        except UserError as error:
            raise UserError(f"{name}: {error}") from None
        except (TypeError, ValueError):
            form = ":".join([word, *(field.name.upper() for field in fields(kind))])
            raise UserError(f"cannot read {name} from {value!r}: expected a number or {form}") from None
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise UserError(f"{name} must be a number or a schedule, got {value!r}")
    return Constant(not_negative(value, name))
