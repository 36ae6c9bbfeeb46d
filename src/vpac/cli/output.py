"""Output of verbs: tables and a progress bar for people, JSON for programs. Names from a store cannot control the terminal."""

from __future__ import annotations

import codecs
import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from vpac.envs.make import EnvRecipe
from vpac.progress import ProgressBar

if TYPE_CHECKING:
    from vpac.lab.report.chart import Summary, Table
    from vpac.lab.workers.worker import Outcome

CONTROLS = [*range(0x20), 0x7F, *range(0x80, 0xA0)]
HIDDEN = dict.fromkeys(CONTROLS) | dict.fromkeys(range(0xD800, 0xE000), "\N{REPLACEMENT CHARACTER}")
"""Control characters, with which a name could move the cursor or set the title, are removed; surrogates are replaced."""
HIDDEN_IN_LINES = {code: new for code, new in HIDDEN.items() if chr(code) not in "\n\t"}
ESCAPED = dict.fromkeys(HIDDEN) | {code: f"\\u{code:04x}" for code in HIDDEN if code >= 0x7F}
"""The same for JSON, which already escapes the first of them."""
del ESCAPED[ord("\n")]


_GREEK = "ψ psi γ gamma σ sigma λ lambda α alpha θ theta π pi ρ rho δ delta ε eps κ kappa μ mu τ tau"
_SIGNS = "− - – - — - · * × x ÷ / … ... → -> ≤ <= ≥ >= ≈ ~ ² ^2 √ sqrt ‘ ' ’ ' “ \" ” \" │ | ┃ | ─ - ━ -"
_WORDS = f"{_GREEK} {_SIGNS}".split()
PLAIN = dict(zip(_WORDS[::2], _WORDS[1::2], strict=True)) | {"\xa0": " "}
"""Replacements for characters that the encoding of standard output lacks."""


def prepare_streams() -> None:
    """Make standard output and error writable, whatever their encoding, also if they were closed."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="vpac")


def _plain(error: UnicodeError) -> tuple[str, int]:
    """An error handler of `codecs`: replace characters that an encoding lacks; the lines of tables become +, - and |."""
    assert isinstance(error, UnicodeEncodeError)
    missing = error.object[error.start : error.end]
    return "".join(PLAIN.get(c, "+" if "\u2500" <= c <= "\u257f" else "?") for c in missing), error.end


codecs.register_error("vpac", _plain)


def inert(text: str) -> str:
    """Text without characters that control the terminal."""
    return text.translate(HIDDEN_IN_LINES)


def show(data: Any, *tables: Any) -> None:
    """Print data as JSON, or the tables if there is none."""
    if data is not None:
        ascii_only = not (sys.stdout.encoding or "utf").casefold().startswith("utf")
        print(json.dumps(data, indent=1, ensure_ascii=ascii_only).translate(ESCAPED))
        return
    from rich.console import Console, ConsoleOptions
    from rich.segment import Segment

    class Plain(Console):
        """Square brackets and colons in names are not markup, and control characters are removed."""

        def render(self, renderable: Any, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(inert(segment.text), segment.style)

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    console = Plain(markup=False, emoji=False)
    for table in tables:
        console.print(table)


@contextmanager
def may_be_closed() -> Iterator[None]:
    """Go on without standard output where its reader, e.g. `head`, has closed it: the exit code stays that of the work."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def show_summary(summary: Summary, as_json: bool) -> None:
    """Print a summary as JSON or as tables."""
    show(summary.as_dict() if as_json else None, *map(as_rich, () if as_json else summary.tables()))


def note(text: str) -> None:
    """Print a line to standard error."""
    print(inert(text), file=sys.stderr)


def print_error(message: object) -> None:
    """Print an error to standard error."""
    note(f"vpac: {message}")


def next_step(quiet: bool, *words: Any, env: str = "", wrap: Sequence[tuple[str, dict[str, Any]]] = ()) -> None:
    """Print a suggested next command, unless standard output is for programs."""
    if not quiet:
        named = any(":" in path for path in (env, *(path for path, _ in wrap)))
        again = f" {EnvRecipe(env, {}, tuple(wrap)).flags()}" if named else ""
        print(inert(f"next: {' '.join(map(_quoted, ('vpac', *map(str, words))))}{again}"))


def _quoted(word: str) -> str:
    """A word as a shell takes it; bytes that are not UTF-8 as $'\\xff', which Bash and Zsh read."""
    try:
        word.encode()
        return shlex.quote(word)
    except UnicodeEncodeError:
        plain = (chr(byte) if chr(byte).isalnum() and byte < 128 else f"\\x{byte:02x}" for byte in os.fsencode(word))
        return f"$'{''.join(plain)}'"


def counted(number: int, thing: str) -> str:
    """ "1 run", "2 runs"."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def as_rich(table: Table, numbers: Sequence[str] | None = None) -> Any:
    """A table of the report for the terminal; `numbers` are the right-aligned columns, by default all but names."""
    from rich.table import Table as Shown

    from vpac.lab.report.chart import shown

    made = Shown(title=table.title, title_justify="left", show_header=any(table.columns))
    for column, heading in enumerate(table.columns):
        left = column == 0 or heading in ("policy", "source") if numbers is None else heading not in numbers
        whole = any("\N{NO-BREAK SPACE}" in str(row[column]) for row in table.rows)  # rich would break there
        justify: Any = "left" if left else "right"
        made.add_column(heading, justify=justify, overflow="fold", no_wrap=whole or heading == "name")
    for row in table.rows:
        made.add_row(*("" if cell is None else shown(cell) for cell in row))
    return made


def plain_table(title: str, rows: Sequence[Mapping[str, Any]], numbers: Sequence[str] = ()) -> Any:
    """A table whose headings are the keys of the rows."""
    from vpac.lab.report.chart import Table

    return as_rich(Table.of([*rows[0]] if rows else ["none"], [[*row.values()] for row in rows], title), numbers)


class RunProgress(ProgressBar):
    """A progress bar over runs; a run shared by several experiments counts once.

    `describe` gives the text before the bar, by the name of the last finished run.
    """

    def __init__(self, total: int, quiet: bool, describe: Callable[[str], str] = lambda name: "training") -> None:
        super().__init__(total, "runs", quiet=quiet)
        self._describe = describe
        self._seen: set[str] = set()
        self._failed = self._new = 0

    def count(self, outcome: Outcome) -> None:
        """Count a finished run."""
        if outcome.name in self._seen:
            return
        self._seen.add(outcome.name)
        self._new += bool(outcome.seconds)
        self._failed += not outcome.well
        failed = f"{self._failed} failed · " if self._failed else ""
        speed = f"{self._new / max(time.monotonic() - self._begun, 1e-9):.1f} runs/s"
        self.tell(len(self._seen), failed + speed, self._describe(outcome.name))
