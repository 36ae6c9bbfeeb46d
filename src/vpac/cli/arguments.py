"""Parts that the verbs share: their base class, options, and KEY=VALUE arguments. Parsing runs no code."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from vpac.cli.output import inert, note, show_summary
from vpac.envs.make import EnvOverrides, make_unflattened
from vpac.errors import UserError, one_of
from vpac.files import write_text
from vpac.risk.budget import LIMIT_KINDS

if TYPE_CHECKING:
    from vpac.lab.report.chart import Summary
    from vpac.lab.store.store import Store
    from vpac.lab.workers.pool import Executor

_IDS = "Gymnasium id, package.module:Name-v0 or package.module:Class."
EnvName = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV", help=_IDS)]
Count = Annotated[int | None, tyro.conf.arg(metavar="N")]
Jobs = Annotated[Count, tyro.conf.arg(help="Number of runs at a time. Default: one for each core.")]
Seed = Annotated[int, tyro.conf.arg(help="Random seed.")]
Discount = Annotated[float | None, tyro.conf.arg(metavar="G")]
Folder = Annotated[Path | None, tyro.conf.arg(metavar="DIR")]
Pairs = Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE")]
Wrappers = Annotated[tuple[str, ...], tyro.conf.arg(metavar="WRAPPER [KEY=VALUE …]")]
StoreAddress = Annotated[
    str, tyro.conf.arg(metavar="DIR|URL", help="Where the runs are stored: a folder, or s3://BUCKET/PREFIX.")
]
"""Options that several verbs have; those with a `help` mean the same in all of them."""

REPEATABLE = ("--set", "--option", "--where", "--wrap")
"""Options that may be given several times: `gather` joins their values."""
EXECUTORS = ("processes", "serial", "ray")


@dataclass(frozen=True, kw_only=True)
class Verb:
    """A verb: its fields are the options, its docstring is the help, whose last paragraph is `Example: vpac …`."""

    json: bool = False
    """Print JSON instead of tables."""

    @classmethod
    def name(cls) -> str:
        """The verb as it is typed: the name of its class in lower case, without the ending `Verb`."""
        return cls.__name__.removesuffix("Verb").lower()

    def run(self) -> int:
        """Run the verb; returns the exit code."""
        raise NotImplementedError

    def say(self, text: str) -> None:
        """Print a line for people; with --json to standard error."""
        print(inert(text), file=sys.stderr if self.json else sys.stdout)

    def again(self, *words: str, leave_out: Sequence[str] = ()) -> str:
        """The command that repeats this one, quoted for a shell: `vpac words` and all options that are not defaults."""
        options: list[str] = []
        for name, value, default in flat(self):
            if value != default and name not in ("json", *leave_out):
                flag = f"--{name.replace('_', '-')}"
                options += (
                    [flag] if value is True else as_words(flag, value if isinstance(value, tuple) else (str(value),))
                )
        return shlex.join(["vpac", *words, *options])

    def usual_folder(self, algorithm: str, env: str, penalty: str = "variance") -> Path:
        """The default output folder: results/VERB/ALGORITHM-ENV, with the penalty if it is not the variance."""
        kind = "" if penalty == "variance" else "-" + penalty.replace(":", "-")
        return Path("results") / self.name() / f"{algorithm}-{re.split('[/:]', env)[-1]}{kind}"

    def present(self, summary: Summary, folder: Path) -> None:
        """Print a summary, and write its figure and `summary.json` to a folder."""
        from vpac.lab.report import draw

        data = json.dumps(summary.as_dict(), indent=1, ensure_ascii=False, allow_nan=False)
        write_text(folder / "summary.json", data + "\n")
        draw.write(summary.charts()[0], folder)
        show_summary(summary, self.json)


@dataclass(frozen=True)
class EnvOptions:
    """Options that make the environment."""

    set: Pairs = ()
    """Arguments of the environment, e.g. --set slip=0.1 max_episode_steps=500."""
    wrap: Wrappers = ()
    """Wrappers around it, the innermost first, e.g. --wrap RewardNoise std=2 or package.module:Wrapper."""

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments by name."""
        return env_arguments(self.set)

    @property
    def wrappers(self) -> list[tuple[str, dict[str, Any]]]:
        """Wrappers with their arguments."""
        return wrappers(self.wrap)

    @property
    def words(self) -> list[str]:
        """Arguments and wrappers as they are typed."""
        return as_words("--set", self.set) + as_words("--wrap", self.wrap)

    def make(self, env: str, **more: Any) -> Any:
        """Make an environment of this name; `more` are arguments that --set may override."""
        return make_unflattened(env, self.wrappers, **{**more, **self.arguments})

    def check(self, env: str, **more: Any) -> Any:
        """Make an environment and check it, with remarks on standard error; returns its action space."""
        from vpac.envs.check import check_env

        with closing(self.make(env, **more)) as trial:
            for remark in check_env(trial).remarks:
                note(f"{env}: {remark}")
            return trial.action_space


@dataclass(frozen=True)
class PolicyEnv:
    """The environment of a trained policy. Default: the environment of training."""

    env: Annotated[str | None, tyro.conf.arg(metavar="ID")] = None
    """Another environment with the same spaces; or the same one, if it was named by an import path."""
    set: Pairs = ()
    """Arguments of the environment, in addition to those of training if it is the same one, e.g. --set slip=0.1."""
    wrap: Wrappers = ()
    """Wrappers instead of those of training, the innermost first; none: no wrappers."""

    def wanted(self, verb: str, run: str) -> EnvOverrides:
        """The user's changes to the environment, with the command for messages."""
        around = None if not self.wrap else [] if self.wrap == ("none",) else wrappers(self.wrap)
        return EnvOverrides(self.env, env_arguments(self.set), around, f"vpac {verb} {shlex.quote(run)}")


@dataclass(frozen=True)
class Execution:
    """Executor and store of the runs; the results do not depend on them."""

    jobs: Jobs = None
    executor: Annotated[str, tyro.conf.arg(metavar="processes|serial|ray")] = "processes"
    """Worker processes on this machine, this process, or a Ray cluster."""
    address: Annotated[str | None, tyro.conf.arg(metavar="HOST:PORT")] = None
    """Address of a Ray cluster, or auto. Default: $RAY_ADDRESS, else one that runs on this machine, else a new one here."""
    time_limit: Annotated[float | None, tyro.conf.arg(metavar="SECONDS")] = None
    """Stop a run that takes longer, and report it; the others continue."""
    store: StoreAddress = "results"

    def open(self) -> tuple[Store, Executor]:
        """The store, ready to be written, and the executor."""
        from vpac.lab.store.store import Store
        from vpac.lab.workers.pool import make_executor

        store = Store(self.store)
        one_of(self.executor, EXECUTORS, "executor")
        executor = make_executor(self.executor, self.jobs, self.address, self.time_limit)
        store.backend.prepare()
        return store, executor


def flat(verb: Any) -> Iterator[tuple[str, Any, Any]]:
    """(name, value, default) of each option of a verb, including those in groups."""
    for field in fields(verb):
        value = getattr(verb, field.name)
        if is_dataclass(value):
            yield from flat(value)
        else:
            yield field.name, value, field.default


def as_words(flag: str, values: Sequence[str]) -> list[str]:
    """An option with its values as typed: each wrapper has its own --wrap."""
    if flag != "--wrap":
        return [flag, *values] if values else []
    return [word for value in values for word in ([value] if "=" in value else [flag, value])]


def key_values(pairs: Sequence[str]) -> dict[str, Any]:
    """["slip=0.1", "map_name=8x8"] → {"slip": 0.1, "map_name": "8x8"}: values are JSON where they can be, else text."""
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.isidentifier():
            raise UserError(f"cannot read {pair!r}: expected KEY=VALUE, for example slip=0.1")
        found[key] = read_value(text)
    return found


def env_arguments(pairs: Sequence[str]) -> dict[str, Any]:
    """Arguments of an environment; `wrap` is rejected, because it is an argument of `make_env`."""
    found = key_values(pairs)
    if "wrap" in found:
        raise UserError("--set has no argument 'wrap': wrappers have an option of their own, --wrap RewardNoise std=2")
    return found


def read_value(text: str) -> Any:
    """A value: JSON where it can be read as such, else text; lists become tuples, which may be written as in Python."""
    try:
        value = json.loads("[" + text[1:-1].rstrip(", ") + "]" if text[:1] == "(" and text[-1:] == ")" else text)
    except (ValueError, RecursionError):
        value = {"True": True, "False": False, "None": None}.get(text, text)
    return tuple(value) if isinstance(value, list) else value


def wrappers(words: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
    """["RewardNoise", "std=2", "my.module:Other"] → [("RewardNoise", {"std": 2}), ("my.module:Other", {})]."""
    found: list[tuple[str, list[str]]] = []
    for word in words:
        if "=" not in word:
            found.append((word, []))
        elif found:
            found[-1][1].append(word)
        else:
            raise UserError(f"--wrap begins with {word!r}: expected a wrapper, for example --wrap RewardNoise std=2")
    return [(path, key_values(pairs)) for path, pairs in found]


def gather(arguments: Sequence[str]) -> list[str]:
    """Join the values of an option that is given several times: `--set a=1 --set b=2` is `--set a=1 b=2`."""
    values: dict[str, list[str]] = {option: [] for option in REPEATABLE}
    others: list[str] = []
    left, current = list(arguments), ""
    names = [word.partition("=")[0] for word in arguments]
    for kind in LIMIT_KINDS:  # the last would silently win
        if (times := names.count(f"--{kind}")) > 1:
            raise UserError(f"--{kind} is given {times} times: give each limit once")
    while left:
        word = left.pop(0)
        name, equals, value = word.partition("=")
        if name in values:
            current = name
            values[name] += [value] if equals else left[:1]
            left = left if equals else left[1:]
        elif current and "=" in word and not word.startswith("-"):
            values[current].append(word)
        else:
            current = ""
            others.append(word)
    return others + [word for name, found in values.items() if found for word in (name, *found)]
