"""The command line. Each verb is a dataclass whose fields are its options."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, get_args

import gymnasium
import tyro

from vpac._start import end_with
from vpac.cli.checking import Check
from vpac.cli.completion import with_hints
from vpac.cli.evaluating import Evaluate
from vpac.cli.frontier import Frontier
from vpac.cli.output import complain, refuse, say, show
from vpac.cli.reading import gather
from vpac.cli.studies import Report, Reproduce, Runs, Sweep
from vpac.cli.training import Train
from vpac.cli.watch import Watch
from vpac.errors import UserError, one_of, suggestion
from vpac.files import Unwritable
from vpac.interruption import Terminated, handled, stopped_by
from vpac.lab.store.place import Unreadable

__all__ = ["main"]


@dataclass(frozen=True)
class List:
    """Show environments, algorithms and experiments.

    Example: vpac list environments
    """

    what: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[WHAT]")] = "all"
    """all, environments, algorithms or experiments."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self) -> int:
        from vpac.cli.listing import algorithms, environments, experiments, tables

        found = {"environments": environments, "algorithms": algorithms, "experiments": experiments}
        one_of(self.what, ("all", *found), "list")
        chosen = {name: rows() for name, rows in found.items() if self.what in ("all", name)}
        show(chosen if self.json else None, *tables(chosen))
        return 0


@dataclass(frozen=True)
class Solve:
    """Exact mean and variance of the return of a policy; nothing is sampled.

    Example: vpac solve vpac/FourRooms-v0 --policy greedy --plot rooms.png
    """

    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
    """Environment with a transition table: its Gymnasium id (`vpac list` shows some) or package.module:Class."""
    policy: Annotated[str, tyro.conf.arg(metavar="uniform|greedy|FILE")] = "uniform"
    """uniform, greedy (the risk-neutral optimum), or a file with π[s, a]: .npy, .json or .csv."""
    gamma: float = 0.99
    """Discount factor, 0 to 1."""
    horizon: Annotated[int | None, tyro.conf.arg(metavar="H")] = None
    """Cut episodes off after this many steps, as a time limit does."""
    set: Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE")] = ()
    """Arguments of the environment, e.g. --set slip=0.1 goal=5."""
    plot: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Draw value, variance and visitation maps into this .png, .svg or .pdf file."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self) -> int:
        from vpac.cli.reading import key_values, read_policy
        from vpac.envs.finite_mdp import FiniteMDP
        from vpac.envs.make import make_env
        from vpac.files import make_folder
        from vpac.lab.report import solution
        from vpac.lab.report.style import figure_kind
        from vpac.oracle import evaluate

        if self.plot:
            figure_kind(self.plot)
            make_folder(self.plot.parent, self.plot)
        arguments = key_values(self.set)
        if "max_episode_steps" in arguments:
            raise UserError(
                "a time limit is not part of the process: use --horizon instead of --set max_episode_steps=…"
            )
        mdp = FiniteMDP.from_gymnasium(make_env(self.env, **arguments))
        moments = evaluate(mdp, read_policy(self.policy, mdp, self.gamma), self.gamma, self.horizon)
        data = solution.as_dict(moments, self.env, self.policy) if self.json else None
        show(data, solution.table(moments, self.env, self.policy))
        if self.plot:
            say(f"drew {solution.plot(moments, self.env, self.policy, self.plot)}", quiet=self.json)
        return 0


@dataclass(frozen=True)
class Doctor:
    """Show versions, the machine, and which extras are present or missing.

    Example: vpac doctor
    """

    json: bool = False
    """Print JSON instead of tables."""

    def run(self) -> int:
        from vpac.cli.listing import examine, health_tables

        health = examine()
        show(asdict(health) if self.json else None, *health_tables(health))
        return 0 if health.well else 1


Verb = (
    Annotated[List, tyro.conf.subcommand("list")]
    | Annotated[Check, tyro.conf.subcommand("check")]
    | Annotated[Solve, tyro.conf.subcommand("solve")]
    | Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
    | Annotated[Frontier, tyro.conf.subcommand("frontier")]
    | Annotated[Watch, tyro.conf.subcommand("watch")]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
    | Annotated[Sweep, tyro.conf.subcommand("sweep")]
    | Annotated[Runs, tyro.conf.subcommand("runs")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[Doctor, tyro.conf.subcommand("doctor")]
)
VERBS: dict[str, type] = {kind.__name__.lower(): kind for kind in (get_args(one)[0] for one in get_args(Verb))}
"""Each verb is named like its class."""


def _parsed(arguments: Sequence[str]) -> Any:
    for kind in VERBS.values():
        with_hints(kind)
    return tyro.cli(
        Verb,
        prog="vpac",
        description="Reinforcement learning that cares how much its results vary.",
        args=arguments,
        config=(tyro.conf.FlagCreatePairsOff, tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes),
    )


def _general(arguments: Sequence[str]) -> int | None:
    """What `vpac` answers without a verb; None if there is one."""
    from vpac._version import __version__
    from vpac.cli.completion import SHELLS, completion, overview

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

    0: all went well; 1: the machine or a run failed; 2: a mistake in the input; 130: Ctrl-C; 143: SIGTERM.
    """
    with handled(), warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: complain(f"note: {message}")
        try:
            return end_with(_main(arguments))
        except KeyboardInterrupt as stop:
            print("vpac: stopped", file=sys.stderr)
            return end_with(143 if isinstance(stop, Terminated) else 130)


def _run(verb: Any) -> int:
    try:
        return int(verb.run())
    except BaseException as error:
        stop = stopped_by(error)
        if stop is None:
            raise
        raise stop from None


def _main(arguments: Sequence[str] | None) -> int:
    try:
        arguments = sys.argv[1:] if arguments is None else arguments
        if arguments and not arguments[0].startswith("-") and arguments[0] not in VERBS:
            near = suggestion(arguments[0], VERBS) or "; vpac --help says what each does"
            return refuse(f"unknown verb {arguments[0]!r}: expected one of {', '.join(VERBS)}{near}")
        gymnasium.logger.min_level = gymnasium.logger.ERROR  # what matters of its warnings is said in our own words
        if os.getcwd() not in sys.path:
            sys.path.append(
                os.getcwd()
            )  # `my_env:MyEnv` is found in the folder where one works, behind everything else
        arguments = gather(arguments, ("--set", "--option", "--where", "--wrap"))
        code = _general(arguments)
        if code is None:
            code = _run(_parsed(arguments))
        sys.stdout.flush()
        return code
    except UserError as error:
        return refuse(str(error))
    except MemoryError:
        return refuse("this needs more memory than there is")
    except BrokenPipeError:  # the reader, `head` for example, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (Unreadable, Unwritable) as error:
        complain(error)
        return 1
    except OSError as error:  # standard output among others, which would fail once more when the process ends
        complain(f"cannot write{f' {error.filename}' if error.filename else ''}: {error.strerror or error}")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
