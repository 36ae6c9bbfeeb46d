"""Shell completion: scripts that know the verbs, their options, and the names of algorithms, environments and experiments.

tyro's own completion has no words for positional arguments, which the names of algorithms, environments and experiments
are, and its script for zsh cannot be evaluated. These scripts run no Python. Everything else is completed as a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Any, get_args, get_type_hints

import tyro

from vpac.cli.help import GENERAL, summary
from vpac.cli.train import with_learner_options
from vpac.errors import one_of

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
    found = [_verb(name, with_learner_options(()) if name == "train" else kind, known) for name, kind in verbs.items()]
    if one_of(shell, SHELLS, "shell") == "fish":
        lines = [HEAD.format(shell), *_fish(found)]
    else:  # zsh reads completions of bash
        start = ["autoload -U +X compinit bashcompinit && compinit && bashcompinit"] if shell == "zsh" else []
        lines = [HEAD.format(shell), *start, *_bash(found)]
    return "\n".join(lines)


def _names() -> dict[str, list[str]]:
    """What an argument can be, by the word that stands for it in the help."""
    from vpac.cli.list import algorithms, environments
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
    """Gymnasium's own environments, each in its newest version."""
    import gymnasium

    newest: dict[str, tuple[int, str]] = {}
    for spec in gymnasium.registry.values():
        own = str(spec.entry_point).startswith("gymnasium.envs.")
        if own and spec.namespace is None and (spec.version or 0) >= newest.get(spec.name, (0, ""))[0]:
            newest[spec.name] = spec.version or 0, spec.id
    return sorted(name for _, name in newest.values())


def _verb(name: str, kind: Any, known: Mapping[str, list[str]]) -> Verb:
    flags: dict[str, list[str] | None] = {"--help": None}
    slots = []
    for option, hint in _options(kind):
        described = get_args(hint)[1:]
        metavar = next((str(part.metavar) for part in described if getattr(part, "metavar", None)), "")
        if tyro.conf.Positional in described:
            slots.append(known.get(metavar, []))
        else:
            flag = "--" + option.replace("_", "-")
            choices = [word for word in metavar.split("|") if word.islower()] if "|" in metavar else []
            flags[flag] = None if bool in (hint, *get_args(hint)) else known.get(flag, choices)
    return Verb(name, summary(kind), flags, [slot for slot in slots if slot])


def _options(kind: Any) -> Iterator[tuple[str, Any]]:
    """Name and annotation of each option, those of groups included."""
    for name, hint in get_type_hints(kind, include_extras=True).items():
        yield from _options(hint) if is_dataclass(hint) else [(name, hint)]


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
