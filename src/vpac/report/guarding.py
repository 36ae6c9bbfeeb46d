"""One bad study does not take the page down: what cannot be shown is left out, and the page says which and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from vpac.errors import UserError
from vpac.report.document import Document, Failure, Section, why
from vpac.report.drawings import Drawings
from vpac.report.page import write_page
from vpac.report.page.views import explorer_view, section_view
from vpac.report.page.writing import as_json

__all__ = ["write_what_can_be_shown"]


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
