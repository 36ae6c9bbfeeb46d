"""Checks of numbers and options from users; compiled code checks nothing itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, Self, get_args, get_origin, get_type_hints

import numpy as np

from vpac.errors import UserError, one_of, suggestion
from vpac.typing import FloatArray

MOST_EPISODES, MOST_TRAINING_STEPS = 10**9, 10**13
"""Limits of one learner: sixteen gigabytes of returns and lengths."""
LONGEST_EPISODE = 1_000_000
"""Longer episodes, in an environment without a limit, count as endless."""


def whole(value: Any, name: str, least: int = 0, most: int | None = None) -> int:
    """A whole number from `least` up, to `most` if that is given."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise UserError(f"{name} must be a whole number from {least} up, got {value!r}")
    if most is not None and value > most:
        raise UserError(f"{name} must be a whole number from {least} to {most:,}, got {value:,}")
    return int(value)


def real(value: Any, name: str, expected: str, least: float = -np.inf, most: float = np.inf) -> float:
    """A finite number from `least` to `most`; `expected` is what the message says it should be."""
    number = not isinstance(value, bool) and isinstance(value, int | float | np.number)
    if not number or not np.isfinite(value) or not least <= value <= most:
        raise UserError(f"{name} must be {expected}, got {value!r}")
    return float(value)


class Allowed(NamedTuple):
    """The range of a numerical option, and its description in messages."""

    low: float
    high: float
    words: str

    def read(self, name: str, value: Any, kind: type) -> Any:
        """A value in the range, as `kind`, int or float; 1e3 is a whole number."""
        number = real(value, name, self.words, self.low, self.high)
        if kind is int and number != int(number):
            raise UserError(f"{name} must be {self.words}, got {value!r}")
        return int(number) if kind is int else value


Share = Annotated[float, Allowed(0.0, 1.0, "a number from 0 to 1")]
FROM_ONE = Allowed(1, 1e9, "a whole number from 1 up")
PositiveInt = Annotated[int, FROM_ONE]
Positive = Annotated[float, Allowed(1e-300, 1e300, "a positive number")]
NotNegative = Annotated[float, Allowed(0.0, 1e300, "a number that is not negative")]
Finite = Annotated[float, Allowed(-1e300, 1e300, "a finite number")]


@dataclass(frozen=True)
class CheckedOptions:
    """Base of the dataclasses of options, whose types check them: words (`Literal`), numbers (`Allowed`), true or false."""

    def __post_init__(self) -> None:
        options: Any = type(self)
        for name, (kind, optional) in _types_of(options).items():
            value = getattr(self, name)
            if optional and value is None:
                continue
            if get_origin(kind) is Literal:
                one_of(value, get_args(kind), name)
            elif kind is bool and not isinstance(value, bool | np.bool_):
                raise UserError(f"{name} must be true or false, got {value!r}")
            elif get_origin(kind) is Annotated:
                object.__setattr__(self, name, kind.__metadata__[0].read(name, value, kind.__origin__))

    @classmethod
    def read(cls, given: dict[str, Any]) -> Self:
        """Options from keywords; the error for an unknown one names the nearest known one."""
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                near = suggestion(name, known) or ": expected " + ", ".join(known)
                raise UserError(f"unknown setting {name!r}{near}")
        return cls(**given)


@cache
def _types_of(options: type) -> dict[str, tuple[Any, bool]]:
    """The type of each option without None, and whether it may be None."""
    found = {}
    for name, hint in get_type_hints(options, include_extras=True).items():
        kinds = [kind for kind in get_args(hint) if kind is not type(None)]
        optional = type(None) in get_args(hint)
        found[name] = (kinds[0] if optional and len(kinds) == 1 else hint, optional)
    return found


def not_negative(value: Any, name: str) -> float:
    """A finite number that is not negative."""
    return real(value, name, "a finite number that is not negative", 0.0)


def share(value: float, name: str) -> float:
    """A share between 0 and 1."""
    return real(value, name, "between 0 and 1", 0.0, 1.0)


def chance(value: Any, name: str) -> float:
    """A probability."""
    if not isinstance(value, int | float | np.number) or not 0.0 <= value <= 1.0:
        raise UserError(f"{name} must be a probability from 0 to 1, got {value!r}")
    return float(value)


def seeds_of(seeds: Iterable[Any]) -> list[int]:
    """Seeds from any iterable, at least one."""
    try:
        found = list(seeds)
    except TypeError:
        raise UserError(f"seeds must be whole numbers, one for each run, got {seeds!r}") from None
    if not found:
        raise UserError("expected at least one seed, got none")
    return [whole(seed, "seed") for seed in found]


def positive_rows(table: Any, shape: tuple[int, int]) -> FloatArray:
    """A behaviour table b[s, a]: each row is a distribution with a positive probability of every action."""
    try:
        found = np.asarray(table, np.float64)
    except (TypeError, ValueError):
        raise UserError(f"a behaviour policy must be a table of numbers of shape {list(shape)}") from None
    if found.shape != shape:
        raise UserError(f"the behaviour policy must have shape {list(shape)}, got {list(found.shape)}")
    if not (np.isfinite(found).all() and np.allclose(found.sum(axis=1), 1.0, rtol=0.0, atol=1e-6)):
        raise UserError("the behaviour policy must hold probabilities: the sum over actions must be 1 in every state")
    if not (found > 0.0).all():
        raise UserError(
            "the behaviour policy does not cover the target policy, which takes every action: expected positive "
            f"probabilities of shape {list(shape)}"
        )
    return found
