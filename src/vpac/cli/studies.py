"""`vpac reproduce`, `vpac sweep`, `vpac runs` and `vpac report`."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from vpac.cli.output import say, show
from vpac.errors import UserError, one_of

if TYPE_CHECKING:
    from vpac.lab.report.document import ClaimRow
    from vpac.lab.workers.pool import Executor
    from vpac.lab.workers.study import Plan, Tally
    from vpac.lab.workers.worker import Outcome

__all__ = [
    "OUT",
    "SHOWN",
    "STORE",
    "Display",
    "Report",
    "Reproduce",
    "Runs",
    "Sweep",
    "counted",
    "page_folder",
    "tell_of_deaths",
]

EXECUTORS = ("processes", "serial", "ray")
JOBS = Annotated[int | None, tyro.conf.arg(metavar="N")]
STORE = Annotated[str, tyro.conf.arg(metavar="DIR|URL")]
OUT = Annotated[Path | None, tyro.conf.arg(metavar="DIR")]
SHOWN = 5
"""Failures that are named on the terminal."""


@dataclass(frozen=True)
class Reproduce:
    """Rerun the paper's experiments and ours, and build the page that shows them.

    What is finished is not run again.

    Example: vpac reproduce four-rooms/performance
    """

    names: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[NAME …]")] = ()
    """Experiments or groups of them (`four-rooms`); none: all. `vpac list experiments` shows their names."""
    full: bool = False
    """At full size, also where fewer runs are usual."""
    scale: float = 1.0
    """Multiply episodes by this, above 0 and at most 1: a quick look; of the PPO family steps, and runs down to 5."""
    runs: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """So many runs of each arm instead."""
    jobs: JOBS = None
    """Runs at a time. Default: one for each core."""
    executor: Annotated[str, tyro.conf.arg(metavar="processes|serial|ray")] = "processes"
    """Who carries out the runs; the results do not depend on it."""
    address: Annotated[str | None, tyro.conf.arg(metavar="HOST:PORT")] = None
    """Of a Ray cluster, or auto; none: $RAY_ADDRESS, else one that runs on this machine, else a new one here."""
    time_limit: Annotated[float | None, tyro.conf.arg(metavar="SECONDS")] = None
    """Stop a run that takes longer, and report it; the others go on."""
    store: STORE = "results"
    """Where everything is kept: a folder, or s3://BUCKET/PREFIX."""
    out: OUT = None
    """Where the page and the figures go. Default: the store; for a bucket, the folder results."""
    json: bool = False
    """Print JSON instead of tables."""

    def run(self) -> int:
        """Carry out, report."""
        from vpac.lab.experiments.catalogue import chosen
        from vpac.lab.workers.study import plan

        plans = [plan(e, full=self.full, runs=self.runs, scale=self.scale) for e in chosen(self.names)]
        return carry_out_and_show(plans, self, command(self, "reproduce", *self.names))


@dataclass(frozen=True)
class Sweep:
    """Run a study of your own, described in a TOML file, with the same machinery.

    Example: vpac sweep examples/sweep.toml
    """

    spec: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="SPEC.toml")]
    """The study: environment, settings, arms or a grid. docs/experiments.md describes it."""
    scale: float = 1.0
    """Multiply episodes by this, above 0 and at most 1: a quick look; of the PPO family steps, and runs down to 5."""
    runs: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """So many runs of each arm instead."""
    jobs: JOBS = None
    """Runs at a time. Default: one for each core."""
    executor: Annotated[str, tyro.conf.arg(metavar="processes|serial|ray")] = "processes"
    """Who carries out the runs; the results do not depend on it."""
    address: Annotated[str | None, tyro.conf.arg(metavar="HOST:PORT")] = None
    """Of a Ray cluster, or auto; none: $RAY_ADDRESS, else one that runs on this machine, else a new one here."""
    time_limit: Annotated[float | None, tyro.conf.arg(metavar="SECONDS")] = None
    """Stop a run that takes longer, and report it; the others go on."""
    store: STORE = "results"
    """Where everything is kept: a folder, or s3://BUCKET/PREFIX."""
    out: OUT = None
    """Where the page and the figures go. Default: the store; for a bucket, the folder results."""
    json: bool = False
    """Print JSON instead of tables."""

    def run(self) -> int:
        """Read, carry out, report."""
        from vpac.lab.experiments.catalogue import read_experiment
        from vpac.lab.workers.study import check, plan

        experiment = read_experiment(self.spec)
        check(experiment)
        plans = [plan(experiment, full=True, runs=self.runs, scale=self.scale)]
        return carry_out_and_show(plans, self, command(self, "sweep", str(self.spec)))


def command(verb: Reproduce | Sweep, *words: str) -> str:
    """What to type to do the same again, quoted for a shell."""
    options: list[str] = []
    for field in fields(verb):
        value = getattr(verb, field.name)
        if field.name in ("names", "spec", "json") or value == field.default:
            continue
        name = f"--{field.name.replace('_', '-')}"
        options += [name] if value is True else [name, str(value)]
    return shlex.join(["vpac", *words, *options])


def carry_out_and_show(plans: Sequence[Plan], verb: Reproduce | Sweep, again: str) -> int:
    """Carry out studies under one display, then build the page; 1 if a run failed."""
    from vpac.lab.report.build import build
    from vpac.lab.report.judge import anchor
    from vpac.lab.store.store import Store
    from vpac.lab.workers.pool import make_executor
    from vpac.lab.workers.study import carry_out_studies

    quiet, store = verb.json, Store(verb.store)
    hands = make_executor(one_of(verb.executor, EXECUTORS, "executor"), verb.jobs, verb.address, verb.time_limit)
    store.place.prepare()
    try:
        with Display(plans, quiet) as display:
            tallies = carry_out_studies(plans, store, hands, display.tell, again)
    except KeyboardInterrupt:
        say(f"stopped; finished runs are kept in {verb.store}. To go on: {again}", quiet=True)
        raise
    finally:
        hands.close()
    tell_of_deaths(hands)
    for damage in (damage for tally in tallies.values() for damage in tally.damaged):
        say(f"damaged: {damage}", quiet=True)
    page, document = build(store, quiet, page_folder(verb.store, verb.out))
    claims = [claim for claim in document.claims if claim.anchor in map(anchor, tallies)]
    failed = sum(len(tally.failed) for tally in tallies.values())
    show(_as_dict(tallies, page, claims) if quiet else None, _table(tallies), *_claims_table(claims))
    if any(plan.scale != 1.0 for plan in plans):
        say("scaled down: no number here is one of the full experiment", quiet)
    say(f"look at {page}", quiet)
    if failed:
        ends = [outcome for tally in tallies.values() for outcome in tally.failed]
        for end in ends[:SHOWN]:
            say(f"{end.name}: {end.error.strip().splitlines()[-1]}", quiet=True)
        diverged = sum(end.status == "diverged" for end in ends)
        also = f" ({diverged} of them diverged)" if diverged else ""
        say(f"{counted(failed, 'run')} failed{also}; the page shows how. To try again: {again}", quiet=True)
    return 1 if failed else 0


def tell_of_deaths(hands: Executor) -> None:
    """Nothing is lost by them, but somebody may want to know why a study takes its time."""
    if hands.retried:
        say(
            f"{counted(hands.retried, 'time')} a run was begun once more: its worker, or its machine, had died",
            quiet=True,
        )


def page_folder(store: str, out: Path | None) -> Path | None:
    """Where to write the page: a bucket has no folder of its own."""
    return Path("results") if out is None and "://" in store else out


def counted(number: int, thing: str) -> str:
    """ "1 run", "2 runs"."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _claims_table(claims: Sequence[ClaimRow]) -> Iterator[Any]:
    from rich.table import Table

    shown = Table(title="claims", title_justify="left")
    for heading in ("claim", "paper", "ours", "95 % interval", "verdict"):
        shown.add_column(heading, overflow="fold", justify="left" if heading in ("claim", "verdict") else "right")
    for claim in claims:
        ours = ("", "") if claim.ours is None else (claim.ours.text(), claim.ours.interval())
        shown.add_row(claim.sentence, claim.paper_number, *ours, claim.verdict)
    if claims:
        yield shown


def _as_dict(tallies: dict[str, Tally], page: Path, claims: Sequence[ClaimRow]) -> dict[str, Any]:
    return {
        "page": str(page),
        "claims": [asdict(claim) for claim in claims],
        "experiments": {
            name: {
                "kept": t.kept, "done": t.done, "found": t.found, "failed": [vars(o) for o in t.failed], "seconds": t.seconds,
                "damaged": t.damaged,
            }
            for name, t in tallies.items()
        },
    }  # fmt: skip


def _table(tallies: dict[str, Tally]) -> Any:
    from rich.table import Table

    shown = Table(title="experiments", title_justify="left")
    for heading in ("name", "runs", "run now", "by others", "failed", "seconds"):
        shown.add_column(heading, justify="left" if heading == "name" else "right", no_wrap=heading == "name")
    for name, tally in tallies.items():
        counts = (tally.done, tally.found, len(tally.failed))
        shown.add_row(name, *map(str, (tally.kept + sum(counts), *counts)), f"{tally.seconds:.1f}")
    return shown


@dataclass(frozen=True)
class Runs:
    """List the runs in a store.

    Example: vpac runs --env FourRooms --algorithm vpac
    """

    store: STORE = "results"
    """Where the runs are: a folder, or s3://BUCKET/PREFIX."""
    algorithm: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Only runs of this algorithm."""
    env: Annotated[str | None, tyro.conf.arg(metavar="TEXT")] = None
    """Only runs whose environment contains this."""
    status: Annotated[str, tyro.conf.arg(metavar="all|finished|failed")] = "all"
    """Only runs that finished or failed."""
    where: Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE")] = ()
    """Only runs with these settings, e.g. --where psi=0.015."""
    limit: int = 50
    """Show at most so many; the JSON has all."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self) -> int:
        """Look through the index."""
        from vpac.checks import whole
        from vpac.cli.listing import runs_table
        from vpac.cli.reading import key_values
        from vpac.lab.store.index import index
        from vpac.lab.store.store import Store

        one_of(self.status, ("all", "finished", "failed"), "status")
        whole(self.limit, "limit", 0)
        if "://" not in self.store and not Path(self.store).is_dir():
            raise UserError(f"there is no store {self.store}: `vpac reproduce` makes one, --store names another")
        wanted, store = key_values(self.where), Store(self.store)
        store.place.prepare(reading=True)
        found = index(store)
        rows = [
            row
            for row in found
            if (self.algorithm is None or row["algorithm"] == self.algorithm)
            and (self.env is None or self.env.casefold() in row["env"].casefold())
            and (self.status == "all" or (row["status"] == "finished") == (self.status == "finished"))
            and all(row["settings"].get(key) == value for key, value in wanted.items())
        ]
        if not rows and self.algorithm is not None and not any(r["algorithm"] == self.algorithm for r in found):
            one_of(self.algorithm, sorted({str(row["algorithm"]) for row in found}), "algorithm among the runs")
        table, hidden = runs_table(rows[: self.limit], f"{counted(len(rows), 'run')} in {self.store}")
        show(rows if self.json else None, table)
        if not found:
            say(
                "vpac reproduce, vpac sweep and vpac frontier put runs here; vpac train writes into a folder",
                quiet=self.json,
            )
        if hidden and not self.json:
            say(f"without {', '.join(hidden)}, for which there is no room here; --json has all", quiet=False)
        if len(rows) > self.limit and not self.json:
            say(f"… and {len(rows) - self.limit} more: --limit {len(rows)} shows all", quiet=False)
        return 0


@dataclass(frozen=True)
class Report:
    """Build the page and the figures from the runs in a store.

    Example: vpac report --store results
    """

    store: STORE = "results"
    """Where the runs are: a folder, or s3://BUCKET/PREFIX."""
    out: OUT = None
    """Where the page and the figures go. Default: the store; for a bucket, the folder results."""
    json: bool = False
    """Print JSON instead of text."""

    def run(self) -> int:
        """Build."""
        from vpac.lab.report.build import build
        from vpac.lab.store.store import Store

        store = Store(self.store)
        store.place.prepare(reading=True)
        if not store.place.files("studies"):
            raise UserError(
                f"there is nothing to report in {self.store}: `vpac reproduce` fills it, --store names another"
            )
        page, document = build(store, self.json, page_folder(self.store, self.out))
        failed = document.failures
        if self.json:
            show({"page": str(page), "failed": [{"run": f.run, "message": f.message} for f in failed]})
        for failure in failed[:SHOWN]:
            say(f"{failure.run}: {failure.message}", quiet=True)
        if failed:
            say(
                f"{counted(len(failed), 'run')} failed or damaged, and not in the figures; the page names all",
                quiet=True,
            )
        say(f"look at {page}", self.json)
        return 0


class Display:
    """A progress bar over all runs of all plans. Experiments share runs: those count where they are met first."""

    def __init__(self, plans: Sequence[Plan], quiet: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self.of = {run.name: plan.experiment.name for plan in reversed(plans) for run in plan.all()}
        """The experiment that a run is shown under."""
        self.total = len(self.of)
        self.seen: set[str] = set()
        self.failed, self.fresh, self.begun = 0, 0, time.monotonic()
        columns = (
            TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), TextColumn("{task.fields[how]}"),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
        )  # fmt: skip
        self._bar = Progress(*columns, console=Console(stderr=True), disable=quiet)
        self._task = self._bar.add_task("studies", total=self.total, how="")

    def __enter__(self) -> Display:
        self._bar.__enter__()
        return self

    def __exit__(self, *reason: Any) -> None:
        self._bar.__exit__(*reason)

    def tell(self, outcome: Outcome) -> None:
        """A run is through."""
        self.seen.add(outcome.name)
        if outcome.seconds:
            self.fresh += 1
        self.failed += not outcome.well
        speed = self.fresh / max(time.monotonic() - self.begun, 1e-9)
        failed = f"[red]{self.failed} failed[/red] · " if self.failed else ""
        how = f"{failed}{self.total - len(self.seen)} left · {speed:.1f} runs/s"
        self._bar.update(self._task, completed=len(self.seen), how=how, description=self.of[outcome.name])
