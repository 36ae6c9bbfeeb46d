"""Help texts that read well: no default is shown where there is none, or where the text says it in words."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Annotated, Any, get_type_hints

import tyro

__all__ = ["with_hints"]

SILENT = ("None", "False", "")
"""Defaults that say nothing: an option that is not given."""


@cache
def with_hints(kind: Any) -> Any:
    """A verb whose options have such hints, for tyro. They are added once: each time more would take longer to read."""
    described = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        if field.name in described:
            hint: Any = tyro.conf.arg(help_behavior_hint=_hint)
            kind.__annotations__[field.name] = Annotated[described[field.name], hint]
    return kind


def _hint(default: str) -> str:
    return "" if default in SILENT else f"(default: {default})"
