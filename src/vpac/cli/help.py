"""Help: the overview of the verbs, and hints of defaults for the help of a verb, which tyro prints."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Annotated, Any, get_args, get_type_hints

import tyro

WIDTH = 80
OPTIONS = {
    "-h, --help": "Show this; vpac VERB --help shows the options of a verb.",
    "--version": "Show the version.",
    "--print-completion bash|zsh|fish": "Print a script that completes verbs, options and names in a shell.",
}
GENERAL = [part for option in OPTIONS for part in re.findall(r"--[\w-]+", option)]


def summary(kind: type) -> str:
    """What a verb does, in a sentence or two."""
    return " ".join(_paragraphs(kind)[0].split())


def overview(verbs: Mapping[str, type]) -> str:
    """The text of `vpac --help`, 80 columns wide."""
    lines = ["usage: vpac VERB …", "", "Reinforcement learning that cares how much its results vary.", "", "verbs:"]
    indent = 4 + max(map(len, verbs))
    for verb, kind in verbs.items():
        example = next(text for text in _paragraphs(kind) if text.startswith("Example:"))
        lines += _wrapped(f"  {verb}".ljust(indent), summary(kind), indent)
        lines += _wrapped(" " * indent, " ".join(example.split()), indent + 2)
    lines += ["", "options:"]
    for option, about in OPTIONS.items():
        short = len(option) < indent - 2
        lines += [] if short else [f"  {option}"]
        lines += _wrapped(f"  {option}".ljust(indent) if short else " " * indent, about, indent)
    return "\n".join([*lines, "", "New here? vpac solve vpac/FourRooms-v0 --policy greedy"])


def _paragraphs(kind: type) -> list[str]:
    return (inspect.getdoc(kind) or "").split("\n\n")


def _wrapped(first: str, text: str, indent: int) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
        break_long_words=False,
    )


SILENT = ("None", "False", "")
"""Defaults that are not shown: the option is not given."""


@cache
def with_hints(kind: Any) -> Any:
    """The class of a verb, whose options no longer show `SILENT` defaults. Annotations are changed once, so the cache."""
    described = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        if is_dataclass(described[field.name]):
            with_hints(described[field.name])
        elif not any(getattr(part, "help_behavior_hint", None) for part in get_args(described[field.name])):
            hint: Any = tyro.conf.arg(help_behavior_hint=_hint)
            kind.__annotations__[field.name] = Annotated[described[field.name], hint]
    return kind


def _hint(default: str) -> str:
    return "" if default in SILENT else f"(default: {default})"
