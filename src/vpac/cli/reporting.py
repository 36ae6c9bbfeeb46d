"""`vpac report`."""

from __future__ import annotations

from dataclasses import dataclass

from vpac.cli.output import say, show
from vpac.cli.studies import OUT, SHOWN, STORE, counted, page_folder
from vpac.errors import UserError

__all__ = ["Report"]


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
        from vpac.execution.store import Store
        from vpac.report.build import build

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
