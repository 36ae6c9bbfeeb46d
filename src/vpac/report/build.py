"""From a store to the page and the figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from vpac._version import __version__
from vpac.execution.provenance import provenance
from vpac.execution.store import Record, Store
from vpac.execution.study import Study, damaged_notes, studies
from vpac.experiments.catalogue import EXPERIMENTS
from vpac.files import write_text
from vpac.report import theorems
from vpac.report.document import ClaimRow, Document, Explorer, Failure, Section
from vpac.report.frontier import explorer_of
from vpac.report.judge import GROUPS, judge
from vpac.report.markdown import claims_as_markdown
from vpac.report.results import read_results
from vpac.report.sections import section_of
from vpac.report.trial import verdicts_of

__all__ = ["build", "document_of"]


REPRODUCTION = (
    "Variance-penalized actor-critic: the paper's numbers and ours",
    "The experiments of “Variance Penalized On-Policy and Off-Policy Actor-Critic” (AAAI 2021), rerun; as "
    "published and corrected.",
)
STUDIES = ("Studies", "Mean and variance of the return of what was learned.")


def build(store: Store, quiet: bool = False, out: Path | None = None) -> tuple[Path, Document]:
    """Write `report/index.html`, `report/claims.md` and `figures/*`; returns the page and what it says.

    Args:
        store: where the runs are.
        quiet: no progress bar.
        out: the folder to write into; none: the store's own, which a bucket has not.
    """
    from vpac.report.drawings import Drawings
    from vpac.report.page import write_page
    from vpac.report.progress import steps

    folder = store.root if out is None else out
    found = list(_ordered(store))
    with steps("building the page", len(found) + 1, quiet) as step:
        document = document_of(store, found, step, folder)
        step("figures")
        drawings = Drawings(folder / "figures")
        drawings.update(chart for section in document.sections for chart in section.charts)
        write_text(folder / "report" / "claims.md", claims_as_markdown(document))
        return write_page(document, folder / "report", drawings.svg), document


def document_of(
    store: Store, found: list[Study], step: Callable[[str], None] = lambda what: None, folder: Path | None = None
) -> Document:
    """What the page says; the trial of the theorems is also written into a folder."""
    known: dict[str, Record | Failure] = {}
    claims: list[ClaimRow] = []
    sections: list[Section] = []
    failures: dict[str, Failure] = {}
    explorer: Explorer | None = None
    for study in found:
        step(study.experiment.name)
        results = read_results(store, study, known)
        claims += judge(results)
        sections.append(section_of(results))
        failures |= {f"{failure.run}: {failure.message}": failure for failure in results.failures}
        try:
            if study.experiment.name == "four-rooms/frontier" and results.arms:
                explorer = explorer_of(results)
            if study.experiment.kind == "theorems":
                theorems.update(verdicts_of(results), folder or store.root)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            failures[study.experiment.name] = Failure(
                study.experiment.name, f"cannot be shown: {error}", command=study.command
            )
    for note in damaged_notes(store):
        failures[note] = Failure(note, "is damaged; carrying out its study again writes it anew")
    claims.sort(key=lambda claim: list(GROUPS.values()).index(claim.group))
    title, subtitle = REPRODUCTION if any(study.experiment.name in EXPERIMENTS for study in found) else STUDIES
    return Document(
        title=title,
        subtitle=subtitle,
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        claims=claims, sections=sections, failures=list(failures.values()), explorer=explorer,
        versions={"vpac": __version__, **provenance()["versions"]},
    )  # fmt: skip


def _ordered(store: Store) -> Iterator[Study]:
    """The studies of a store: ours in the catalogue's order, then a user's own by name."""
    found = {study.experiment.name: study for study in studies(store)}
    for name in EXPERIMENTS:
        if name in found:
            yield found.pop(name)
    yield from found.values()
