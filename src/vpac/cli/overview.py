"""`vpac --help`: the verbs, each with an example."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Mapping

__all__ = ["overview", "summary"]

WIDTH = 80
OPTIONS = {
    "-h, --help": "Show this; vpac VERB --help shows the options of a verb.",
    "--version": "Show the version.",
    "--print-completion bash|zsh|fish": "Print a script that completes verbs, options and names in a shell.",
}


def summary(kind: type) -> str:
    """What a verb does, in a sentence or two."""
    return " ".join(_paragraphs(kind)[0].split())


def overview(verbs: Mapping[str, type]) -> str:
    """The whole text, 80 columns wide."""
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
