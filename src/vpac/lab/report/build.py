"""From a store to the page and the figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from vpac._version import __version__
from vpac.errors import UserError
from vpac.files import Unwritable, write_text
from vpac.lab.experiments.catalogue import EXPERIMENTS
from vpac.lab.report import theorems
from vpac.lab.report.document import ClaimRow, Document, Explorer, Failure, Section, why
from vpac.lab.report.drawings import Drawings
from vpac.lab.report.frontier import explorer_of
from vpac.lab.report.judge import GROUPS, claims_as_markdown, judge
from vpac.lab.report.page import write_page
from vpac.lab.report.page.views import explorer_view, section_view
from vpac.lab.report.page.writing import as_json
from vpac.lab.report.results import parts_of, read_results
from vpac.lab.report.sections import section_of
from vpac.lab.report.theorems import verdicts_of
from vpac.lab.store.place import Unreadable
from vpac.lab.store.store import Record, Store
from vpac.lab.workers.study import Study, damaged_notes, studies
from vpac.lab.workers.worker import provenance

__all__ = ["build", "document_of", "write_what_can_be_shown"]

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
    from vpac.progress import steps

    folder = store.root if out is None else out
    found = list(_ordered(store))
    total = sum(1 + parts_of(study) for study in found) + 1
    with steps("building the page", total, quiet) as step, np.errstate(over="ignore", invalid="ignore"):
        document = document_of(store, found, step, folder)
        step("figures")
        page, document = write_what_can_be_shown(document, folder)
        write_text(folder / "report" / "claims.md", claims_as_markdown(document))
        return page, document


def document_of(
    store: Store, found: list[Study], step: Callable[..., None] = lambda what="": None, folder: Path | None = None
) -> Document:
    """What the page says; the trial of the theorems is also written into a folder."""
    known: dict[str, Record | Failure] = {}
    claims: list[ClaimRow] = []
    sections: list[Section] = []
    failures: dict[str, Failure] = {}
    explorer: Explorer | None = None
    for study in found:
        step(study.experiment.name)
        try:
            results = read_results(store, study, known, step)
            judged, section = judge(results), section_of(results)
            if any(section.name == other.name for other in sections):
                raise UserError("another study is called the same but for its slashes")
            claims += judged
            sections.append(section)
            failures |= {f"{failure.run}: {failure.message}": failure for failure in results.failures}
            if study.experiment.name == "four-rooms/frontier" and results.arms:
                explorer = explorer_of(results)
            if study.experiment.kind == "theorems":
                theorems.update(verdicts_of(results), folder or store.root)
        except (Unreadable, Unwritable):
            raise
        except Exception as error:  # the studies beside it shall still be seen
            failures[study.experiment.name] = Failure(
                study.experiment.name, f"cannot be shown: {why(error)}", command=study.command
            )
    failures |= {note: Failure(note, words) for note, words in damaged_notes(store).items()}
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


def write_what_can_be_shown(document: Document, folder: Path) -> tuple[Path, Document]:
    """Write figures and page; returns the page and what it says.

    Only if that fails is everything tried one by one, so a good store does not pay for it.
    """
    drawings = Drawings(folder / "figures")
    try:
        return _write(document, folder, drawings), document
    except (UserError, OSError):  # too large a page, a full disk: nothing that one study could be left out for
        raise
    except Exception:
        document = _sound(document, drawings)
        return _write(document, folder, drawings), document


def _write(document: Document, folder: Path, drawings: Drawings) -> Path:
    drawings.update(chart for section in document.sections for chart in section.charts)
    return write_page(document, folder / "report", drawings.svg)


def _sound(document: Document, drawings: Drawings) -> Document:
    """The document without what cannot be shown."""
    failures = list(document.failures)

    def can(what: str, command: str, show: Callable[[], Any]) -> bool:
        try:
            as_json(show())
        except (UserError, OSError):
            raise
        except Exception as error:
            failures.append(Failure(what, f"cannot be shown: {why(error)}", command=command))
            return False
        return True

    def shown(section: Section) -> dict[str, Any]:
        return {"figures": [chart.get("figures") for chart in section_view(section, drawings.svg)["charts"]]}

    sections = []
    for section in document.sections:
        alone = [(chart, replace(section, charts=[chart], tables=())) for chart in section.charts]
        charts = [
            chart
            for chart, part in alone
            if can(chart.name, section.command, lambda part=part: shown(part))  # type: ignore[misc]
        ]
        left = replace(section, charts=charts)
        if can(section.name, section.command, lambda left=left: shown(left)):  # type: ignore[misc]
            sections.append(left)
    explorer = document.explorer
    if explorer is not None and not can("explorer", "", lambda: explorer_view(explorer)["data"]):  # type: ignore[arg-type]
        explorer = None
    return replace(document, sections=sections, explorer=explorer, failures=failures)
