"""Tables of the documentation that are made from the code, so that they cannot drift."""

from __future__ import annotations

import ast
import inspect
from dataclasses import fields
from typing import Any

MARK = "<!-- table of presets -->"


def preset_table() -> str:
    """The settings of the deep learners: name, what it is, and its value in each preset."""
    from vpac.deep import options

    about = _docstrings(inspect.getsource(options.Options))
    known = fields(options.Options)
    default, paper = ({f.name: f.default for f in known} | options.PRESETS[name] for name in ("default", "paper"))
    lines = ["| setting | what it is | default | paper |", "|---|---|---|---|"]
    for field in known:
        mine, theirs = (_shown(preset[field.name]) for preset in (default, paper))
        words = about[field.name].replace("\n", " ").replace("|", "\\|")
        lines.append(f"| `{field.name}` | {words} | {mine} | {'the same' if mine == theirs else theirs} |")
    return "\n".join(lines)


def _docstrings(source: str) -> dict[str, str]:
    """What stands below each field of a class."""
    (body,) = ast.parse(source).body
    assert isinstance(body, ast.ClassDef)
    return {
        field.target.id: " ".join(str(below.value.value).split())
        for field, below in zip(body.body, body.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
    }


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return "none" if value is None else f"{value:g}".replace("-", "−") if isinstance(value, float) else str(value)


def on_page_markdown(markdown: str, **kwargs: Any) -> str:
    """Called by MkDocs for each page."""
    return markdown.replace(MARK, preset_table()) if MARK in markdown else markdown
