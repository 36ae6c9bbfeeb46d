"""Shell completion: scripts that know the verbs, their options, and the names of algorithms, environments and experiments.

The scripts are made from the verbs' dataclasses and run no Python, so that the tab key costs nothing. What is neither a
verb, an option nor a known name is completed as a file.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any, get_args, get_type_hints

import tyro

from vpac.errors import one_of

__all__ = ["SHELLS", "completion", "overview", "summary", "with_hints"]

SHELLS = ("bash", "zsh", "fish")
HEAD = "# Completes vpac; made by `vpac --print-completion {}`."


@dataclass(frozen=True)
class Verb:
    """What can follow a verb."""

    name: str
    about: str
    flags: dict[str, list[str] | None]
    """Each option with the words its value can be; empty: none are known; None: it takes no value."""
    slots: list[list[str]]
    """For each argument without a name, the words it can be."""


def completion(shell: str, verbs: Mapping[str, type]) -> str:
    """The script for a shell."""
    known = _names()
    found = [_verb(name, kind, known) for name, kind in verbs.items()]
    if one_of(shell, SHELLS, "shell") == "fish":
        lines = [HEAD.format(shell), *_fish(found)]
    else:  # zsh reads completions of bash
        start = ["autoload -U +X compinit bashcompinit && compinit && bashcompinit"] if shell == "zsh" else []
        lines = [HEAD.format(shell), *start, *_bash(found)]
    return "\n".join(lines)


def _names() -> dict[str, list[str]]:
    """What an argument can be, by the word that stands for it in the help."""
    from vpac.cli.listing import algorithms, environments
    from vpac.lab.experiments.catalogue import EXPERIMENTS

    trained, worlds = ([row["name"] for row in rows()] for rows in (algorithms, environments))
    worlds += [name for name in _gymnasium_ids() if name not in worlds]
    groups = {name.partition("/")[0] for name in EXPERIMENTS}
    return {
        "ALGORITHM": trained,
        "--algorithm": trained,
        "ENV": worlds,
        "--env": worlds,
        "[NAME …]": sorted({*groups, *EXPERIMENTS}),
        "[WHAT]": ["all", "environments", "algorithms", "experiments"],
    }


def _gymnasium_ids() -> list[str]:
    """Gymnasium's own environments, each in its newest version; they are in the registry, and nothing is imported for it."""
    import gymnasium

    newest: dict[str, Any] = {}
    for spec in gymnasium.registry.values():
        own = str(spec.entry_point).startswith("gymnasium.envs.")
        if (
            own
            and spec.namespace is None
            and (spec.version or 0) >= (newest[spec.name].version or 0 if spec.name in newest else 0)
        ):
            newest[spec.name] = spec
    return sorted(spec.id for spec in newest.values())


def _verb(name: str, kind: Any, known: Mapping[str, list[str]]) -> Verb:
    flags: dict[str, list[str] | None] = {"--help": None}
    slots = []
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        described = get_args(hints[field.name])[1:]
        metavar = next((str(part.metavar) for part in described if getattr(part, "metavar", None)), "")
        if tyro.conf.Positional in described:
            slots.append(known.get(metavar, []))
            continue
        flag = "--" + field.name.replace("_", "-")
        choices = [word for word in metavar.split("|") if word.islower()] if "|" in metavar else []
        flags[flag] = None if field.type in (bool, "bool") else known.get(flag, choices)
    return Verb(name, summary(kind), flags, [slot for slot in slots if slot])


def _bash(verbs: Sequence[Verb]) -> Iterator[str]:
    yield from (
        "_vpac() {",
        '  local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" verb="${COMP_WORDS[1]}"',
        '  local words="" seen="" i',
        "  COMPREPLY=()",
        '  if [[ "$COMP_CWORD" -eq 1 ]]; then',
        f'    words="{" ".join([*(verb.name for verb in verbs), *GENERAL])}"',
        "  else",
        '    case "$verb $prev" in',
        f'      "--print-completion --print-completion") words="{" ".join(SHELLS)}" ;;',
    )
    for verb in verbs:
        for flag, words in verb.flags.items():
            if words is not None:
                yield f'      "{verb.name} {flag}") words="{" ".join(words)}" ;;'
    yield "      *)"
    yield '        case "$verb" in'
    for verb in verbs:
        yield from (f"          {verb.name})", *_slots(verb), "            ;;")
    yield from (
        "        esac",
        "        ;;",
        "    esac",
        "  fi",
        '  COMPREPLY=($(compgen -W "$words" -- "$cur"))',
        "}",
        "complete -o default -F _vpac vpac",
    )


def _slots(verb: Verb) -> Iterator[str]:
    """Options after a dash, else the words of the first argument that is not there yet."""
    yield f'            if [[ "$cur" == -* ]]; then words="{" ".join(verb.flags)}"'
    for number, slot in enumerate(verb.slots[:-1]):
        yield "            else"
        yield "              for ((i = 2; i < COMP_CWORD; i++)); do"
        yield f'                case "${{COMP_WORDS[i]}}" in {"|".join(slot)}) seen="$seen {number}" ;; esac'
        yield "              done"
        yield f'              if [[ "$seen" != *" {number}"* ]]; then words="{" ".join(slot)}"'
    for slot in verb.slots[-1:]:
        yield f'              else words="{" ".join(slot)}"'
    yield from ("              fi" for _ in verb.slots[:-1])
    yield "            fi"


def _fish(verbs: Sequence[Verb]) -> Iterator[str]:
    first = "complete -c vpac -n __fish_use_subcommand"
    for verb in verbs:
        yield f"{first} -f -a {verb.name} -d {_quoted(verb.about)}"
    yield f"{first} -l help -d {_quoted('Show the verbs')}"
    yield f"{first} -l version -d {_quoted('Show the version')}"
    yield f"{first} -l print-completion -x -a {_quoted(' '.join(SHELLS))}"
    for verb in verbs:
        there = f"__fish_seen_subcommand_from {verb.name}"
        for flag, words in verb.flags.items():
            value = "" if words is None else f" -x -a {_quoted(' '.join(words))}" if words else " -r"
            yield f"complete -c vpac -n {_quoted(there)} -l {flag[2:]}{value}"
        before = there
        for slot in verb.slots:
            offered = " ".join(slot)
            yield f"complete -c vpac -n {_quoted(before)} -a {_quoted(offered)}"
            before = f"{before}; and __fish_seen_subcommand_from {offered}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "’") + "'"


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
