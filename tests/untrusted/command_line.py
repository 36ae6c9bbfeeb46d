"""The command line in a sandbox with a home and a working folder with a store; it writes only what its arguments name."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
from dataclasses import replace
from pathlib import Path
from unittest import mock

from untrusted.targets import FIXTURES, SEEDS
from vpac.cli import VERBS, main
from vpac.errors import UserError
from vpac.files import write_text
from vpac.lab import frontier
from vpac.lab.kinds import tabular
from vpac.lab.report import build
from vpac.lab.store import bucket
from vpac.lab.store.run import Run
from vpac.lab.workers import pool, study

VERB_WORDS = tuple(VERBS)
WORDS = (
    *VERB_WORDS, "--json", "--store", "--out", "--set", "--env", "--policy", "--gamma", "--psi", "--wrap", "--option",
    "--where", "--limit", "--status", "--algorithm", "--seed", "--horizon", "--levels", "--threads", "--jobs", "--scale",
    "--time-limit", "--executor", "--episodes", "--steps", "--runs", "--points", "--plot", "--resume", "--help",
    "--nonsense", "-", "--", "=", "a=b", "slip=0.1", "x=[", "vpac/CatchUp-v0", "vpac/FourRooms-v0", "FrozenLake-v1", "ac",
    "vpac", "nope:Nope", "0", "-1", "1", "0.5", "nan", "inf", "1e309", "99999999999999999999", "greedy", "uniform",
    "warm-up:1:2", "RewardNoise", "std=2", "é", "\u202e", "<script>", "%s", "{}", "$(id)", "serial", "processes",
    "study.toml", "nothing.npy", "all", "experiments", "results", "learner", "four-rooms", "sensitivity/gamma", "little",
    "--address", "--full", "ray", "auto:1", "127.0.0.1:1", "ray://127.0.0.1:1", "127.0.0.1:65536", "[::1]:1", "os://127.0.0.1:1",
    "http://127.0.0.1:1", "127.0.0.1", "s3://vpac/x", "s3://vpac", "s3://", "s3:///x", "s3://key:word@vpac/x", "s3://é/x",
    "s3://vpac/../x", "s3://vpac/x?endpoint=http://127.0.0.1:1", "s3://vpac/x?endpoint=ftp://127.0.0.1:1", "s3://vpac/x?nope=1",
    "gs://vpac/x", "file:///x",
    "../up", "../home", "..", ".", "~", "~/x", "results/../../x", "results/runs/..", "x.gif", "x.png", "\033[31m", "[/x]",
)  # fmt: skip


ADDRESSES = (
    "127.0.0.1:1",
    "ray://127.0.0.1:1",
    "[::1]:1",
    "127.0.0.1:0",
    "127.0.0.1:99999",
    "os://127.0.0.1:1",
    "x",
    "",
)
STORES = (
    "results", "new", "../up", "study.toml", "s3://vpac/x", "s3://vpac/x?endpoint=http://127.0.0.1:1&region=x", "s3://", "s3://é",
    "s3://vpac/x?endpoint=nonsense", "s3://vpac/x?nope=1", "s3://a@b/x", "S3://vpac/x", "gs://vpac/x", "://", "s3:/vpac",
)  # fmt: skip
NUMBERS = ("1", "0", "-1", "0.5", "nan", "1e309", "x", "")
OF_STORES = {"--store": STORES, "--out": ("out", "../home/out", "s3://vpac/x", "study.toml")}
OF_STUDIES = OF_STORES | {
    "--executor": ("ray", "ray", "serial", "processes", "Ray", ""), "--address": ADDRESSES, "--jobs": NUMBERS,
    "--time-limit": NUMBERS, "--runs": NUMBERS, "--scale": NUMBERS,
}  # fmt: skip
OF_LISTS = {
    "--store": STORES,
    "--limit": NUMBERS,
    "--where": ("psi=0.1", "psi=", "=", "x"),
    "--status": ("finished", "x"),
}
OPTIONS = {
    ("sweep", "study.toml"): OF_STUDIES,
    ("reproduce", "four-rooms/performance"): OF_STUDIES,
    ("frontier", "vpac/CatchUp-v0", "--algorithm", "vpac"): {
        option: values for option, values in OF_STUDIES.items() if option not in ("--runs", "--scale")
    },
    ("runs",): OF_LISTS,
    ("report",): OF_STORES,
}
"""Verbs with their arguments, and options with right, nearly right and wrong values."""


CACHES = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "MPLCONFIGDIR")
SHORT = {"episodes": 2, "every": 1}
NO_SERVERS = {
    "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1",
    "AWS_ENDPOINT_URL": "http://127.0.0.1:1", "RAY_ADDRESS": "127.0.0.1:1",
}  # fmt: skip
"""Addresses lead to a port of this machine without a listener."""


class Sandbox:
    """A folder to run commands in. Trainings are short; without `pages` no figure is drawn."""

    def __init__(self, root: Path, pages: bool = True) -> None:
        self.pages = pages
        self.root = Path(root).resolve()
        self.home, self.here = self.root / "home", self.root / "work"
        for folder in (self.home, self.here):
            folder.mkdir(parents=True)
        (self.here / "study.toml").write_text(SEEDS["a study"])
        shutil.copytree(FIXTURES / "format-2" / "store", self.here / "results")
        shutil.copytree(FIXTURES / "format-2" / "learner", self.here / "learner")

    @contextlib.contextmanager
    def entered(self):
        """Work in it."""
        before = os.getcwd()
        with contextlib.ExitStack() as stack:
            stack.enter_context(
                mock.patch.dict(
                    os.environ, dict.fromkeys(CACHES, str(self.root / "cache")) | NO_SERVERS | {"HOME": str(self.home)}
                )
            )
            for home, name, instead in (
                (tabular, "train", _short(tabular.train)), (pool, "make_executor", _here(pool.make_executor)),
                (bucket, "RETRIES", 0),
                (study, "carry_out_studies", _first(study.carry_out_studies)), (study, "plan", _little(study.plan)),
                (frontier, "trace_frontier", _untraced),
            ):  # fmt: skip
                stack.enter_context(mock.patch.object(home, name, instead))
            if not self.pages:
                stack.enter_context(mock.patch.object(build, "write_page", _empty))
                stack.enter_context(mock.patch.object(build.Drawings, "update"))
            os.chdir(self.here)
            stack.callback(os.chdir, before)
            yield self

    def speak(self, verb: str, words: list[str]) -> None:
        """Say it, and look at the exit code, at what is answered and at what was written."""
        words = [f"{self.root}{word}" if word.startswith("/") else word for word in words if "\0" not in word]
        before = self.files()
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                code = main([verb, *words])
            except SystemExit as end:  # the parser's
                code = end.code if isinstance(end.code, int) else 2
        assert code in ((0, 1, 2) if verb == "doctor" else (0, 2)), (verb, words, code, said.getvalue()[-2000:])
        assert "Traceback" not in said.getvalue()
        assert code == 0 or said.getvalue().strip(), (verb, words)
        named = [self.here, self.root / "cache", *self.named(words)]
        for path in self.files() - before:
            assert any(path.is_relative_to(place) or place.is_relative_to(path) for place in named), (verb, words, path)

    def named(self, words: list[str]) -> list[Path]:
        """Where a user says that files may go; the folder that everything is in is no such place."""
        folders = [
            (self.here / os.path.expanduser(part)).resolve()
            for word in words
            for part in (word, word.partition("=")[2])
            if part and len(part) < 200
        ]
        return [place for place in folders if place != self.root]

    def files(self) -> set[Path]:
        """Everything in the sandbox, the store among it."""
        return {Path(folder, name) for folder, folders, files in os.walk(self.root) for name in (*folders, *files)}


def _short(train):
    def short(kind, env, episodes, runs, seed, **more):
        return train(kind, env, min(episodes, 2) if episodes < 10**9 else episodes, min(runs, 1), seed, **more)

    return short


def _here(make_executor):
    """What was given is looked at, and a cluster is looked for; runs are carried out in this process."""

    def here(*given):
        make_executor(*given).close()
        return pool.Serial()

    return here


def _little(plan):
    """The first run, for two episodes; what is no training is only planned."""

    def little(*given, **named):
        made = plan(*given, **named)
        label, runs = next(iter(made.runs.items()))
        first = [Run(r.task | SHORT, r.number, r.seed) for r in runs[:1] if r.task["kind"] == "training"]
        return replace(made, runs={key: [] for key in made.runs} | {label: first})

    return little


def _empty(document, folder, paint):
    return write_text(folder / "index.html", "")


def _first(carry_out_studies):
    return lambda plans, *more: carry_out_studies(plans[:1], *more)


def _untraced(*given, **named):
    raise UserError("everything was read; nothing is trained here")
