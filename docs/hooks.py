"""Parts of the documentation that are made from the code, so that they cannot drift: a table of settings, pieces of source.

A line `<!-- code: src/vpac/tabular/update.py begin advance -->` in a page becomes the source of these functions or classes (a
method is `Class.method`). A piece is found by its name, so it needs no marks in the source, and a name that is gone stops the
build. `<!-- notebook: examples/tour.ipynb -->` becomes the notebook: its words, its code, and the outputs that are kept in it.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
MARK = "<!-- table of presets -->"
CODE = re.compile(r"^<!-- code: (?P<path>src/[\w/]+\.py)(?P<names>( [\w.]+)+) -->$", re.MULTILINE)
NOTEBOOK = re.compile(r"^<!-- notebook: (?P<path>examples/[\w-]+\.ipynb) -->$", re.MULTILINE)
LIKE_CODE = re.compile(r"^\s*<!-- *code.*$", re.MULTILINE)


def preset_table() -> str:
    """The settings of the deep learners: name, what it is, and its value in each preset."""
    from vpac.algorithms import option_docs
    from vpac.deep import options

    about = option_docs(options.Options)
    known = fields(options.Options)
    default, paper = ({f.name: f.default for f in known} | options.PRESETS[name] for name in ("default", "paper"))
    lines = ["| setting | what it is | default | paper |", "|---|---|---|---|"]
    for field in known:
        mine, theirs = (_shown(preset[field.name]) for preset in (default, paper))
        words = about[field.name].replace("\n", " ").replace("|", "\\|")
        lines.append(f"| `{field.name}` | {words} | {mine} | {'the same' if mine == theirs else theirs} |")
    return "\n".join(lines)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return "none" if value is None else f"{value:g}".replace("-", "−") if isinstance(value, float) else str(value)


def source_of(path: str, name: str) -> str:
    """The source of a function, a class or a method, with its decorators."""
    text = (ROOT / path).read_text(encoding="utf-8")
    body: list[ast.stmt] = ast.parse(text).body
    for part in name.split("."):
        kinds = (ast.FunctionDef, ast.ClassDef)
        found = [node for node in body if isinstance(node, kinds) and node.name == part]
        if len(found) != 1:
            raise LookupError(f"a page of the documentation shows {name} of {path}, where there is no such thing")
        node, body = found[0], found[0].body
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    lines = text.splitlines()[first - 1 : node.end_lineno]
    return "\n".join(line[node.col_offset :] for line in lines)


def with_source(markdown: str) -> str:
    """A page with the pieces of source that it asks for."""

    def piece(mark: re.Match[str]) -> str:
        path, names = mark["path"], mark["names"].split()
        return f'```python title="{path}"\n' + "\n\n\n".join(source_of(path, name) for name in names) + "\n```"

    page = CODE.sub(piece, markdown)
    if left := LIKE_CODE.search(page):
        raise LookupError(
            f"cannot read {left[0]!r}: expected <!-- code: src/FOLDER/FILE.py NAME … --> on a line of its own"
        )
    return page


def with_notebooks(markdown: str) -> str:
    """A page with the notebooks that it asks for."""

    def whole(mark: re.Match[str]) -> str:
        cells = json.loads((ROOT / mark["path"]).read_text(encoding="utf-8"))["cells"]
        return "\n\n".join(piece for cell in cells for piece in _cell(cell))

    return NOTEBOOK.sub(whole, markdown)


def _cell(cell: dict[str, Any]) -> Iterator[str]:
    """A cell as Markdown: words as they are, code and what it printed in fences, figures inside the page."""
    text = "".join(cell["source"])
    if cell["cell_type"] != "code":
        yield text
        return
    yield _fenced(text, "python")
    for output in cell["outputs"]:
        if output["output_type"] == "stream":
            yield _fenced("".join(output["text"]).rstrip("\n"), "text")
        else:
            yield f"![figure](data:image/png;base64,{''.join(output['data']['image/png']).strip()})"


def _fenced(text: str, language: str) -> str:
    """A block of code, in a fence that is longer than any inside."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text}\n{fence}"


def on_page_markdown(markdown: str, **kwargs: Any) -> str:
    """Called by MkDocs for each page."""
    page = with_notebooks(with_source(markdown))
    return page.replace(MARK, preset_table()) if MARK in page else page
