"""The claims as Markdown, for documents that cannot hold a page."""

from __future__ import annotations

from vpac.report.document import ClaimRow, Document

__all__ = ["claims_as_markdown"]


def claims_as_markdown(document: Document) -> str:
    """A table for each group of claims."""
    lines = []
    for group in dict.fromkeys(claim.group for claim in document.claims):
        lines += [
            f"## {group}",
            "",
            "| experiment | claim | paper | ours | 95 % interval | |",
            "|---|---|---|---|---|---|",
        ]
        lines += [_markdown_row(claim) for claim in document.claims if claim.group == group] + [""]
    return "\n".join(lines)


def _markdown_row(claim: ClaimRow) -> str:
    ours, interval = ("", "") if claim.ours is None else (claim.ours.text(), claim.ours.interval())
    name = f"`{claim.command.removeprefix('vpac reproduce ')}`" if claim.command else claim.experiment
    cells = (name, claim.sentence, claim.paper_number, ours, interval, claim.verdict)
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
