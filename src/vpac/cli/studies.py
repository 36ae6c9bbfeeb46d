"""`vpac reproduce`, `vpac sweep`, `vpac report` and `vpac runs`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from vpac.checks import whole
from vpac.cli.arguments import Count, Execution, Folder, Pairs, StoreAddress, Verb, key_values
from vpac.cli.output import RunProgress, counted, note, plain_table, show
from vpac.errors import UserError, one_of

if TYPE_CHECKING:
    from vpac.lab.report.chart import ClaimRow
    from vpac.lab.workers.pool import Executor
    from vpac.lab.workers.study import Plan, Tally

FAILURES_SHOWN = 5
"""Number of failures named on the terminal."""

_PAGE = "Folder of the page and the figures. Default: the store; for a bucket, the folder results."
PageFolder = Annotated[Folder, tyro.conf.arg(help=_PAGE)]


@dataclass(frozen=True)
class Size:
    """The size of a study, and the folder of its report."""

    scale: float = 1.0
    """Multiply episodes by this (above 0, at most 1) for a quick look; for the PPO family steps, and runs down to 5."""
    runs: Count = None
    """Runs of each arm, instead of the experiment's own number."""
    out: PageFolder = None


@dataclass(frozen=True)
class Reproduce(Verb):
    """Rerun the paper's experiments and ours, and build the page that shows them.

    Finished runs are not repeated.

    Example: vpac reproduce four-rooms/performance
    """

    names: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[NAME …]")] = ()
    """Experiments or groups of them (`four-rooms`); none: all. `vpac list experiments` shows their names."""
    full: bool = False
    """Run everything at full size, also where the default has fewer runs."""
    size: Size = field(default_factory=Size)
    execution: Execution = field(default_factory=Execution)

    def run(self) -> int:
        """Execute the runs, then report."""
        from vpac.lab.experiments.catalogue import chosen
        from vpac.lab.workers.study import plan

        plans = [plan(e, full=self.full, runs=self.size.runs, scale=self.size.scale) for e in chosen(self.names)]
        return carry_out_and_show(plans, self, self.again("reproduce", *self.names, leave_out=("names",)))


@dataclass(frozen=True)
class Sweep(Verb):
    """Run a study of your own, described in a TOML file.

    Finished runs are not repeated.

    Example: vpac sweep examples/sweep.toml
    """

    spec: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="SPEC.toml")]
    """The study: environment, settings, arms or a grid. docs/experiments.md describes it."""
    size: Size = field(default_factory=Size)
    execution: Execution = field(default_factory=Execution)

    def run(self) -> int:
        """Read the study, execute the runs, then report."""
        from vpac.lab.experiments.catalogue import read_experiment
        from vpac.lab.workers.study import check, plan

        experiment = read_experiment(self.spec)
        check(experiment)
        plans = [plan(experiment, full=True, runs=self.size.runs, scale=self.size.scale)]
        return carry_out_and_show(plans, self, self.again("sweep", str(self.spec), leave_out=("spec",)))


def carry_out_and_show(plans: Sequence[Plan], verb: Reproduce | Sweep, command: str) -> int:
    """Execute studies under one progress bar, then build the page; 1 if a run failed.

    `command` continues it.
    """
    from vpac.lab.report.build import build
    from vpac.lab.report.judge import anchor
    from vpac.lab.workers.study import carry_out_studies

    quiet = verb.json
    store, executor = verb.execution.open()
    experiment_of = {run.name: plan.experiment.name for plan in reversed(plans) for run in plan.all()}
    bar = RunProgress(len(experiment_of), quiet, experiment_of.__getitem__)
    with stopping(executor, verb.execution.store, command), bar:
        tallies = carry_out_studies(plans, store, executor, bar.count, command)
    for damage in (damage for tally in tallies.values() for damage in tally.damaged):
        note(f"damaged: {damage}")
    page, document = build(store, quiet, page_folder(verb.execution.store, verb.size.out))
    claims = [claim for claim in document.claims if claim.anchor in map(anchor, tallies)]
    show(_as_dict(tallies, page, claims) if quiet else None, _table(tallies), *_claims_table(claims))
    if any(plan.scale != 1.0 for plan in plans):
        verb.say("scaled down: no number here is one of the full experiment")
    verb.say(f"look at {page}")
    failed = [outcome for tally in tallies.values() for outcome in tally.failed]
    if not failed:
        return 0
    for outcome in failed[:FAILURES_SHOWN]:
        note(f"{outcome.name}: {outcome.last_line}")
    diverged = sum(outcome.status == "diverged" for outcome in failed)
    also = f" ({diverged} of them diverged)" if diverged else ""
    note(f"{counted(len(failed), 'run')} failed{also}; the page shows how. To try again: {command}")
    return 1


@contextmanager
def stopping(executor: Executor, store: str, command: str) -> Iterator[None]:
    """Close the executor at the end; after Ctrl-C print how to continue, and report runs that were retried."""
    try:
        yield
    except KeyboardInterrupt:
        note(f"stopped; finished runs are kept in {store}. To go on: {command}")
        raise
    finally:
        executor.close()
    if retried := getattr(executor, "retried", 0):  # Ray does not report its retries
        note(f"{counted(retried, 'time')} a run was begun once more: its worker had died")


def page_folder(store: str, out: Path | None) -> Path | None:
    """The folder of the page: a bucket has no local folder."""
    return Path("results") if out is None and "://" in store else out


def _claims_table(claims: Sequence[ClaimRow]) -> list[Any]:
    rows = [
        {
            "claim": claim.sentence, "paper": claim.paper_number, "ours": claim.ours.text() if claim.ours else "",
            "95 % interval": claim.ours.interval() if claim.ours else "", "verdict": claim.verdict,
        }
        for claim in claims
    ]  # fmt: skip
    return [plain_table("claims", rows, ("paper", "ours", "95 % interval"))] if rows else []


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
    rows = []
    for name, tally in tallies.items():
        counts = {"run now": tally.done, "by others": tally.found, "failed": len(tally.failed)}
        runs = tally.kept + sum(counts.values())
        rows.append({"name": name, "runs": runs, **counts, "seconds": f"{tally.seconds:.1f}"})
    return plain_table("experiments", rows, ("runs", "run now", "by others", "failed", "seconds"))


@dataclass(frozen=True)
class Report(Verb):
    """Build the page and the figures from the runs in a store.

    Example: vpac report --store results
    """

    store: StoreAddress = "results"
    out: PageFolder = None

    def run(self) -> int:
        """Build the page."""
        from vpac.lab.report.build import build
        from vpac.lab.store.store import Store

        store = Store(self.store)
        store.backend.prepare(reading=True)
        if not store.backend.files("studies"):
            raise UserError(f"there is nothing to report in {self.store}: `vpac reproduce` fills it, --store names it")
        page, document = build(store, self.json, page_folder(self.store, self.out))
        failed = document.failures
        if self.json:
            show({"page": str(page), "failed": [{"run": f.run, "message": f.message} for f in failed]})
        for failure in failed[:FAILURES_SHOWN]:
            note(f"{failure.run}: {failure.message}")
        if failed:
            note(f"{counted(len(failed), 'run')} failed or damaged, and not in the figures; the page names all")
        self.say(f"look at {page}")
        return 0


@dataclass(frozen=True)
class Runs(Verb):
    """List the runs in a store.

    Example: vpac runs --env FourRooms --algorithm vpac
    """

    store: StoreAddress = "results"
    algorithm: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Only runs of this algorithm."""
    env: Annotated[str | None, tyro.conf.arg(metavar="TEXT")] = None
    """Only runs whose environment contains this."""
    status: Annotated[str, tyro.conf.arg(metavar="all|finished|failed")] = "all"
    """Only runs that finished or failed."""
    where: Pairs = ()
    """Only runs with these settings, e.g. --where psi=0.015."""
    limit: int = 50
    """Rows of the table; the JSON has all."""

    def run(self) -> int:
        """Filter the index and show it."""
        from vpac.lab.store.records import index
        from vpac.lab.store.store import Store

        one_of(self.status, ("all", "finished", "failed"), "status")
        whole(self.limit, "limit", 0)
        if "://" not in self.store and not Path(self.store).is_dir():
            raise UserError(f"there is no store {self.store}: `vpac reproduce` makes one, --store names another")
        wanted, store = key_values(self.where), Store(self.store)
        store.backend.prepare(reading=True)
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
            self.say("vpac train, vpac reproduce, vpac sweep and vpac frontier put runs here")
        if hidden and not self.json:
            self.say(f"without {', '.join(hidden)}, for which there is no room here; --json has all")
        if len(rows) > self.limit and not self.json:
            self.say(f"… and {len(rows) - self.limit} more: --limit {len(rows)} shows all")
        return 0


def runs_table(rows: Sequence[Mapping[str, Any]], title: str, width: int | None = None) -> tuple[Any, list[str]]:
    """A table of runs, and the columns that are left out so that names stay whole and can be copied."""
    from rich.console import Console

    width = Console().width if width is None else width
    cells = {"name": [row["name"] for row in rows], "status": [row["status"] for row in rows]}
    for key in ("mean", "variance", "seconds"):
        cells[key] = ["" if row[key] is None else f"{row[key]:.4g}" for row in rows]
    hidden = []
    finished = ["status"] if set(cells["status"]) <= {"finished"} else []
    for heading in (*finished, "seconds", "variance", "mean"):
        if sum(max(map(len, [key, *column])) + 3 for key, column in cells.items()) + 1 > width:
            del cells[heading]
            hidden.append(heading)
    kept = [dict(zip(cells, values, strict=True)) for values in zip(*cells.values(), strict=True)]
    return plain_table(title, kept, ("mean", "variance", "seconds")), hidden
