"""Help: the overview of the verbs, defaults in the help of a verb, which tyro prints, and shell completion.

tyro's own completion starts Python at every press of the tab key and does not know our algorithms and environments. The scripts
here run no Python: they contain the verbs, their options, and the names of algorithms, environments and experiments.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import tyro

from vpac.algorithms import ALGORITHMS
from vpac.cli.train import with_learner_options
from vpac.errors import UserError, one_of

HELP_WIDTH = 80
GENERAL_OPTIONS = {
    "-h, --help": "Show this; vpac VERB --help shows the options of a verb.",
    "--version": "Show the version.",
    "--print-completion bash|zsh|fish": "Print a script that completes verbs, options and names in a shell.",
}
SHELLS = ("bash", "zsh", "fish")
UNSHOWN = ("None", "False", "", "''")
"""Defaults that are not shown, because they mean that the option is not given."""


def overview(verbs: Mapping[str, type]) -> str:
    """The text of `vpac --help`, 80 columns wide."""
    lines = ["usage: vpac VERB …", "", "Reinforcement learning that cares how much its results vary.", "", "verbs:"]
    indent = 4 + max(map(len, verbs))
    for verb, kind in verbs.items():
        example = next(text for text in _paragraphs(kind) if text.startswith("Example:"))
        lines += _wrapped(f"  {verb}".ljust(indent), _paragraphs(kind)[0], indent)
        lines += _wrapped(" " * indent, example, indent + 2)
    lines += ["", "options:"]
    for option, about in GENERAL_OPTIONS.items():
        short = len(option) < indent - 2
        lines += [] if short else [f"  {option}"]
        lines += _wrapped(f"  {option}".ljust(indent) if short else " " * indent, about, indent)
    return "\n".join([*lines, "", "New here? vpac solve vpac/FourRooms-v0 --policy greedy"])


def _paragraphs(kind: type) -> list[str]:
    return [" ".join(text.split()) for text in (inspect.getdoc(kind) or "").split("\n\n")]


def _wrapped(first: str, text: str, indent: int) -> list[str]:
    how: Any = {"break_on_hyphens": False, "break_long_words": False}
    return textwrap.wrap(text, HELP_WIDTH, initial_indent=first, subsequent_indent=" " * indent, **how)


@cache
def with_hints(kind: Any) -> Any:
    """The class of a verb, with `UNSHOWN` defaults hidden in its help. Cached, because annotations are changed only once."""
    described = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        if is_dataclass(described[field.name]):
            with_hints(described[field.name])
        elif not any(getattr(part, "help_behavior_hint", None) for part in get_args(described[field.name])):
            hint: Any = tyro.conf.arg(help_behavior_hint=lambda text: "" if text in UNSHOWN else f"(default: {text})")
            kind.__annotations__[field.name] = Annotated[described[field.name], hint]
    return kind


class _Words(NamedTuple):
    """Words that can follow a verb."""

    about: str
    flags: dict[str, list[str] | None]
    """Possible values of each option; empty: unknown; None: it takes no value."""
    slots: list[str]
    """Possible values of each positional argument."""


def completion(shell: str, verbs: Mapping[str, type]) -> str:
    """The script for a shell."""
    known = _names()
    kinds: dict[str, type] = {**verbs, "train": with_learner_options(())}
    found = {name: _words(kind, known) for name, kind in kinds.items()}
    script = _fish if one_of(shell, SHELLS, "shell") == "fish" else _bash
    # zsh reads completions of bash
    start = ["autoload -U +X compinit bashcompinit && compinit && bashcompinit"] if shell == "zsh" else []
    return "\n".join([f"# Completes vpac; made by `vpac --print-completion {shell}`.", *start, *script(found)])


def _names() -> dict[str, list[str]]:
    """Possible values of an argument, by its metavar."""
    from vpac.cli.list import LISTS, environments
    from vpac.lab.experiments.catalogue import EXPERIMENTS

    worlds = list(dict.fromkeys([row["name"] for row in environments()] + _gymnasium_ids()))
    return {
        "ALGORITHM": [*ALGORITHMS], "--algorithm": [*ALGORITHMS], "ENV": worlds, "--env": worlds,
        "[NAME …]": sorted({*EXPERIMENTS, *(name.partition("/")[0] for name in EXPERIMENTS)}),
        "[WHAT]": ["all", *LISTS],
    }  # fmt: skip


def _gymnasium_ids() -> list[str]:
    """Gymnasium's own environments, each in its newest version."""
    import gymnasium

    specs = [s for s in gymnasium.registry.values() if str(s.entry_point).startswith("gymnasium.envs.")]
    newest = {spec.name: spec.id for spec in sorted(specs, key=lambda s: s.version or 0) if spec.namespace is None}
    return sorted(newest.values())


def _words(kind: Any, known: Mapping[str, list[str]]) -> _Words:
    flags: dict[str, list[str] | None] = {"--help": None}
    slots = []
    for option, hint in options_of(kind):
        described = get_args(hint)[1:]
        metavar = next((str(part.metavar) for part in described if getattr(part, "metavar", None)), "")
        if tyro.conf.Positional in described:
            slots.append(" ".join(known.get(metavar, [])))
        else:
            flag = "--" + option.replace("_", "-")
            choices = [word for word in metavar.split("|") if word.islower()] if "|" in metavar else []
            flags[flag] = None if bool in (hint, *get_args(hint)) else known.get(flag, choices)
    return _Words(_paragraphs(kind)[0], flags, list(filter(None, slots)))


def options_of(kind: Any) -> Iterator[tuple[str, Any]]:
    """Name and annotation of each option, including those of groups."""
    for name, hint in get_type_hints(kind, include_extras=True).items():
        yield from options_of(hint) if is_dataclass(hint) else [(name, hint)]


def readable(verb: str, kind: Any, words: Sequence[str]) -> list[str]:
    """Words that tyro can parse: 1e5 becomes a whole number; options of learners give an error that names `--option`."""
    hints = {"--" + name.replace("_", "-"): hint for name, hint in options_of(kind)}
    whole = {flag for flag, hint in hints.items() if _is_whole(hint)}
    found, before = list[str](), ""
    for word in words:
        flag, equals, value = word.partition("=")
        if flag in whole and equals:
            word = f"{flag}={_whole(value)}"
        elif before in whole:
            word = _whole(word)
        _point_to_option(verb, hints, flag.replace("_", "-"), value)
        found.append(word)
        before = word
    return found


def _is_whole(hint: Any) -> bool:
    base = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return base is int or int in get_args(base)


def _whole(text: str) -> str:
    """ "1e5" → "100000"; anything else unchanged."""
    scientific = re.fullmatch(r"[0-9]+(\.[0-9]+)?[eE]\+?[0-9]{1,2}", text)
    return str(int(float(text))) if scientific and float(text).is_integer() else text


def _point_to_option(verb: str, known: Mapping[str, Any], flag: str, value: str) -> None:
    """Raise a `UserError` if this is not an option of the verb but one of learners, which `--option` takes."""
    name = flag.removeprefix("--").replace("-", "_")
    if not flag.startswith("--") or flag in known or "--option" not in known:
        return
    if any(name in algorithm.options for algorithm in ALGORITHMS.values()):
        raise UserError(f"{flag} is an option of the learner: vpac {verb} … --option {name}={value or 'VALUE'}")


BASH = """_vpac() {
  local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" verb="${COMP_WORDS[1]}"
  local words="" flags="" first="" second="" i
  COMPREPLY=()
  case "$verb" in
%s
  esac
  if [[ "$COMP_CWORD" -eq 1 ]]; then words="%s"
  else
    case "$verb $prev" in
%s
      *)
        words="$first"
        for ((i = 2; i < COMP_CWORD; i++)); do
          if [[ " $first " == *" ${COMP_WORDS[i]} "* ]]; then words="$second"; fi
        done
        if [[ "$cur" == -* ]]; then words="$flags"; fi
        ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -o default -F _vpac vpac"""
"""Offers options after a dash, otherwise the values of the first positional argument and then of the second."""


def _bash(verbs: Mapping[str, _Words]) -> Iterator[str]:
    general = [flag for option in GENERAL_OPTIONS for flag in re.findall(r"--[\w-]+", option)]
    slots = {name: [*verb.slots, *verb.slots[-1:], "", ""] for name, verb in verbs.items()}
    arguments = [
        f'    {name}) flags="{" ".join(verb.flags)}" first="{slots[name][0]}" second="{slots[name][1]}" ;;'
        for name, verb in verbs.items()
    ]
    values = {"--print-completion --print-completion": SHELLS} | {
        f"{name} {flag}": words for name, verb in verbs.items() for flag, words in verb.flags.items() if words is not None
    }  # fmt: skip
    cases = [f'      "{place}") words="{" ".join(words)}" ;;' for place, words in values.items()]
    yield BASH % ("\n".join(arguments), " ".join([*verbs, *general]), "\n".join(cases))


def _fish(verbs: Mapping[str, _Words]) -> Iterator[str]:
    def offer(where: str, what: str, about: str = "") -> str:
        return f"complete -c vpac -n {_quoted(where)} {what}" + (f" -d {_quoted(about)}" if about else "")

    first = "__fish_use_subcommand"
    yield from (offer(first, f"-f -a {name}", verb.about) for name, verb in verbs.items())
    yield offer(first, "-l help", "Show the verbs")
    yield offer(first, "-l version", "Show the version")
    yield offer(first, f"-l print-completion -x -a {_quoted(' '.join(SHELLS))}")
    for name, verb in verbs.items():
        there = f"__fish_seen_subcommand_from {name}"
        for flag, words in verb.flags.items():
            value = "" if words is None else f" -x -a {_quoted(' '.join(words))}" if words else " -r"
            yield offer(there, f"-l {flag[2:]}{value}")
        for slot in verb.slots:
            yield offer(there, f"-a {_quoted(slot)}")
            there += f"; and __fish_seen_subcommand_from {slot}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "’") + "'"
