"""Errors in the user's input: what was wrong, what was expected, the nearest right spelling."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """A mistake in the input. The command line prints its message and exits with code 2."""


class Diverged(UserError):
    """Learning met a number that is not finite, or beyond 1e150; the state before it is kept."""


class Newer(UserError):
    """A file that a later version of vpac wrote: it is neither read nor changed."""


def needs_extra(what: str, missing: ModuleNotFoundError, extra: str, more: str = "") -> UserError:
    """The error about a package that is not installed."""
    return UserError(f"{what} needs {missing.name}, of the extra `{extra}`: pip install 'vpac[{extra}]'{more}")


def suggestion(name: str, known: Iterable[str]) -> str:
    """`"; did you mean 'x'?"` for the known name nearest to `name`, or an empty string if none is near."""
    by_folded = {candidate.casefold(): candidate for candidate in known}
    near = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.55)
    return f"; did you mean {by_folded[near[0]]!r}?" if near else ""


def one_of(value: str, known: Iterable[str], what: str) -> str:
    """Return `value` if it is one of the `known` names of `what`, else raise a `UserError` that lists them."""
    known = tuple(known)
    if value not in known:
        choices = ", ".join(repr(name) for name in known)
        raise UserError(f"unknown {what} {value!r}: expected one of {choices}{suggestion(str(value), known)}")
    return value
