"""The command line. Each verb is a dataclass: its fields are the options, its docstring is the help."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache
from typing import Any

import gymnasium
import tyro

from vpac._start import end_with
from vpac._version import __version__
from vpac.cli.arguments import gather
from vpac.cli.certify import Certify, Stress
from vpac.cli.check import Check, Solve
from vpac.cli.frontier import FrontierVerb, Tune
from vpac.cli.help import SHELLS, completion, overview, readable, with_hints
from vpac.cli.list import Doctor, List
from vpac.cli.output import may_be_closed, prepare_streams, print_error
from vpac.cli.studies import Report, Reproduce, Runs, Sweep
from vpac.cli.train import Train, with_learner_options
from vpac.cli.trained import Evaluate, Export, Offline, Watch
from vpac.errors import UserError, suggestion
from vpac.files import MISTAKES, Unwritable
from vpac.interruption import LAST, Terminated, handled, no_silent_exit, stopped_by
from vpac.lab.store.backend import Unreadable
from vpac.portable import deduplicate_stderr

VERB_CLASSES = (
    List, Check, Solve, Train, Evaluate, Offline, Certify, Stress, FrontierVerb, Tune, Watch, Export, Reproduce, Sweep,
    Runs, Report, Doctor,
)  # fmt: skip
VERBS: dict[str, type] = {kind.name(): kind for kind in VERB_CLASSES}
"""The verbs by name. A new one is a `Verb` in its own module, listed in `VERB_CLASSES`."""
NARROWEST = 20
"""Columns; with fewer tyro's help does not terminate."""


def each_once(say: Callable[[str], None]) -> Callable[..., None]:
    """A `warnings.showwarning` that prints each text once, whatever a library does to the filters."""
    once = cache(say)
    return lambda message, *_, **__: once(str(message))


def parse(arguments: Sequence[str]) -> Any:
    """The verb with its options. Help and invalid options end the process, with code 0 or 2."""
    verb, *words = arguments
    if shutil.get_terminal_size().columns < NARROWEST:
        os.environ["COLUMNS"] = str(NARROWEST)
    if verb not in VERBS:
        near = suggestion(verb, VERBS) or "; vpac --help says what each does"
        raise UserError(f"unknown verb {verb!r}: expected one of {', '.join(VERBS)}{near}")
    kind = with_learner_options(words) if verb == "train" else VERBS[verb]
    config = (tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes)
    return tyro.cli(with_hints(kind), prog=f"vpac {verb}", args=readable(verb, kind, gather(words)), config=config)


def _general(arguments: Sequence[str]) -> int | None:
    """Handle `vpac` without a verb; None if there is one."""
    word = arguments[0] if arguments else ""
    if word in ("", "-h", "--help"):
        print(overview(VERBS))
        return 0 if word else 2
    if word == "--version":
        print(f"vpac {__version__}")
        return 0
    if word.partition("=")[0] == "--print-completion":
        shell = word.partition("=")[2] or " ".join(arguments[1:2])
        if not shell:
            raise UserError(f"for which shell? vpac --print-completion {'|'.join(SHELLS)}")
        print(completion(shell, VERBS))
        return 0
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a verb; returns the exit code.

    0: success; 1: the machine or a run failed; 2: a mistake in the input; 3: a limit of `vpac certify` is not confirmed;
    130: Ctrl-C; 143: SIGTERM.
    """
    prepare_streams()
    deduplicate_stderr()
    with ExitStack() as stack:
        try:
            stack.enter_context(handled())
            stack.enter_context(warnings.catch_warnings())
            warnings.showwarning = each_once(lambda text: print_error(f"note: {text}"))
            return end_with(_main(arguments))
        except KeyboardInterrupt as stop:
            print("vpac: stopped", file=sys.stderr)
            return end_with(143 if isinstance(stop, Terminated) else 130, LAST)


def _run(verb: Any) -> int:
    """Run a verb. A library may wrap the exception of Ctrl-C or SIGTERM in its own: raise the original."""
    try:
        with no_silent_exit(print_error):
            return int(verb.run())
    except BaseException as error:
        if (stop := stopped_by(error)) is None:
            raise
        raise stop from None


def _main(arguments: Sequence[str] | None) -> int:
    try:
        arguments = sys.argv[1:] if arguments is None else arguments
        gymnasium.logger.min_level = gymnasium.logger.ERROR  # vpac has its own messages for what matters
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())  # `my_env:MyEnv` is found in the working folder, after everything else
        code = None
        with may_be_closed():
            code = _general(arguments)
            if code is None:
                code = _run(parse(arguments))
        return code or 0
    except (UserError, MemoryError) as error:
        print_error(error if isinstance(error, UserError) else "this needs more memory than there is")
        return 2
    except (Unreadable, Unwritable) as error:
        print_error(error)
        return 1
    except UnicodeEncodeError as error:
        print_error(f"{error.object!r:.80} is not UTF-8 and cannot be used here: choose another name")
        return 2
    except OSError as error:  # files that are written have said so; the rest are read, or standard output
        what = f"cannot open {error.filename}" if error.filename else "cannot write"
        print_error(f"{what}: {error.strerror or error}")
        if error.filename:
            return 2 if error.errno in MISTAKES else 1
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
