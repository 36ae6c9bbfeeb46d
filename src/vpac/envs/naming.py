"""Which import paths this process' user has named. An import path is code, and a file must not say what is imported."""

from __future__ import annotations

import importlib
import inspect

import gymnasium

__all__ = ["allow_import", "is_named_by_user", "is_wrapper_named"]

NAMED: set[str] = set()
"""Import paths of environments and wrappers that were named; what is read from files does not get here."""


def allow_import(path: str) -> None:
    """Note that the user has named this; of what has no module in it nothing needs to be noted."""
    if ":" in path:
        NAMED.add(path)


def is_named_by_user(path: str) -> bool:
    """Whether an environment that a file names may be made: a registered id, or an import path that the user named, too.

    An import path is code: `os:system` is one. A file must not say what is imported.
    """
    return ":" not in path or path in NAMED


def is_wrapper_named(path: str) -> bool:
    """Whether a wrapper that a file names may be used: one of ours, one that the user named, or a class of wrappers that is
    written in a module from which the user named something."""
    if is_named_by_user(path):
        return True
    module, _, attribute = path.rpartition(":")
    if module not in {named.partition(":")[0] for named in NAMED}:
        return False
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except ImportError:  # which making the environment will say in full
        return False
    return inspect.isclass(found) and issubclass(found, gymnasium.Wrapper) and found.__module__ == module
