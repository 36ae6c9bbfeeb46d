"""Numbers that change from episode to episode: the price ψ and the step sizes.

A high price put on a poor policy at once is best paid by standing still, so ψ is better raised after the policy has become
good; a proof of convergence wants step sizes that shrink. On the command line a schedule is a word and numbers with colons
between them, for example `warm-up:0.05:300:500`.
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
        """The schedule as the command line writes it; `as_schedule` reads it back."""
        return ":".join([self.word, *(repr(float(value)) for value in asdict(self).values())])


@dataclass(frozen=True)
class Constant(Schedule):
    """The same number always."""

    value: float
    """That number."""
    word: ClassVar[str] = "constant"

    def at(self, episode: FloatArray) -> FloatArray:
        """`value`."""
        return np.full_like(episode, self.value)


@dataclass(frozen=True)
class Linear(Schedule):
    """From one number to another in a straight line, then constant."""

    start: float
    """The number in episode 0."""
    end: float
    """The number from episode `episodes` on."""
    episodes: float
    """How long the change takes."""
    word: ClassVar[str] = "linear"

    def at(self, episode: FloatArray) -> FloatArray:
        """start + (end − start) · min(1, t / episodes)."""
        return self.start + (self.end - self.start) * np.clip(episode / max(self.episodes, 1.0), 0.0, 1.0)


@dataclass(frozen=True)
class WarmUp(Schedule):
    """Zero until a point, then rising in a straight line to its value."""

    value: float
    """The number in the end."""
    wait: float
    """How many episodes it is zero."""
    rise: float = 0.0
    """How many episodes it rises after that; 0: at once."""
    word: ClassVar[str] = "warm-up"

    def at(self, episode: FloatArray) -> FloatArray:
        """0 up to episode `wait`, then value · min(1, (t − wait) / rise)."""
        if self.rise == 0.0:
            return np.asarray(self.value * (episode >= self.wait), np.float64)
        return np.asarray(self.value * np.clip((episode - self.wait) / self.rise, 0.0, 1.0), np.float64)


@dataclass(frozen=True)
class Exponential(Schedule):
    """A number that is multiplied by the same factor in each episode."""

    start: float
    """The number in episode 0."""
    factor: float
    """What it is multiplied by."""
    word: ClassVar[str] = "exponential"

    def at(self, episode: FloatArray) -> FloatArray:
        """start · factor^t."""
        return np.asarray(self.start * np.power(self.factor, episode), np.float64)


@dataclass(frozen=True)
class RobbinsMonro(Schedule):
    """start / (1 + t/shift)^power: for ½ < power ≤ 1 its sum diverges and the sum of its squares does not.

    The proof of convergence (Appendix C) wants such rates for value, variance and policy, each vanishing against the one
    before it: take a larger power for each, for example 0.6, 0.8 and 1.
    """

    start: float
    """The rate in episode 0."""
    power: float = 1.0
    """How quickly it shrinks."""
    shift: float = 100.0
    """How many episodes pass before it shrinks in earnest."""
    word: ClassVar[str] = "robbins-monro"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.5 < self.power <= 1.0:
            raise UserError(f"power of a robbins-monro schedule must be above 1/2 and at most 1, got {self.power:g}")

    def at(self, episode: FloatArray) -> FloatArray:
        """start / (1 + t/shift)^power."""
        return np.asarray(self.start / (1.0 + episode / max(self.shift, 1e-12)) ** self.power, np.float64)


KINDS: dict[str, type[Schedule]] = {kind.word: kind for kind in (Constant, Linear, WarmUp, Exponential, RobbinsMonro)}


def as_schedule(value: Any, name: str = "schedule") -> Schedule:
    """A schedule from a number, from text such as "0.05" or "warm-up:0.05:300:500", or from a schedule."""
    if isinstance(value, Schedule):
        return value
    if isinstance(value, str):
        word, *numbers = value.split(":")
        if not numbers and word not in KINDS:
            word, numbers = "constant", [value]
        kind = KINDS[one_of(word, KINDS, f"schedule for {name}")]
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
