"""Parts of the documentation that are made from the code, so that they cannot drift.

Pages stay readable where nothing is built, such as on a code host:

- A line that is only a link to a file of the project is replaced by what it names when the site is built. "`begin`, `advance`
  in src/vpac/tabular/update.py" becomes the source of these functions or classes (a method is `Class.method`), a notebook
  becomes its words, code and stored outputs, any other file is shown whole. A name that is gone stops the build.
- In api.md, an item "[`vpac.NAME`](file): summary" becomes the signature and the docstring.
- The summaries of api.md, the forms of commands in cli.md, the settings in deep.md and the penalties in measures.md are kept in
  the pages: `python docs/pages.py --write` renews them and adds public names that are missing; a test fails when they are old.

`python docs/pages.py` writes the complete pages to build/docs, which the generator of the site reads (mkdocs.yml).
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, get_args, get_origin

DOCS = Path(__file__).parent
ROOT = DOCS.parent
BUILT = ROOT / "build" / "docs"
TABLE = re.compile(r"(?<=<!-- table: python docs/pages.py --write -->\n).*?(?=<!-- end of table -->)", re.DOTALL)
INCLUDED = re.compile(
    r"^\[(?:(?P<names>`[\w.]+`(?:, `[\w.]+`)*) in )?(?P<path>(?:src|examples)/[\w./-]+)\]\((?P<link>[\w./-]+)\)$",
    re.MULTILINE,
)
ITEM = re.compile(r"^- \[`(?P<name>vpac\.[\w.]+)`\]\((?P<link>[^)]*)\)(?P<rest>.*(?:\n  .*)*)$", re.MULTILINE)
OUTSIDE = re.compile(r"\]\((?:\.\./)+(?:src|examples|tests|benchmarks)/[^)]*\)")
LANGUAGES = {".py": "python", ".toml": "toml"}


def preset_table() -> str:
    """The settings of the deep learners: name, what it is, and its value in each preset."""
    from vpac.algorithms import option_docs
    from vpac.deep import options

    about = option_docs(options.PPOOptions)
    known = fields(options.PPOOptions)
    default, paper = ({f.name: f.default for f in known} | options.PRESETS[name] for name in ("default", "paper"))
    lines = ["| setting | what it is | default | paper |", "|---|---|---|---|"]
    for field in known:
        mine, theirs = (_shown(preset[field.name]) for preset in (default, paper))
        words = about[field.name].replace("\n", " ").replace("|", "\\|")
        lines.append(f"| `{field.name}` | {words} | {mine} | {'the same' if mine == theirs else theirs} |")
    return "\n".join(lines)


def penalty_table() -> str:
    """The measures that can have a price, from their registry."""
    from vpac.risk.measures import penalty_rows

    lines = ["| `penalty=` | measure | parameter | unit of ψ | what it is |", "|---|---|---|---|---|"]
    for row in penalty_rows():
        cells = (f"`{row['name']}`", row["definition"], row["parameter"], row["unit"], row["about"])
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def command_forms() -> str:
    """The form of each command but for `--json`, from the declarations of its options."""
    from tyro.conf import Positional

    from vpac.cli import VERBS
    from vpac.cli.help import options_of

    forms = []
    for verb, kind in VERBS.items():
        needed = {f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING}
        places, flags = list[str](), list[str]()
        for name, hint in options_of(kind):
            described = get_args(hint)[1:]
            outer = (get_args(hint) or (hint,))[0]
            metavar = next((str(part.metavar) for part in described if getattr(part, "metavar", None)), "")
            metavar = metavar or {bool: "", int: "N", float: "X", Path: "FILE"}.get(outer, "TEXT")
            if Positional in described:
                places.append(metavar)
            elif name != "json":
                many = " …" if get_origin(outer) is tuple and not metavar.endswith("…") else ""
                form = f"--{name.replace('_', '-')} {metavar}{many}".rstrip()
                flags.append(form if name in needed else f"[{form}]")
        words = [f"vpac {verb}", *places, *flags, *(["[--SETTING VALUE …]"] if verb == "train" else [])]
        joined = " ".join(word.replace(" ", "\0") for word in words)
        wrapped = textwrap.wrap(joined, 116, subsequent_indent=" " * 14, break_on_hyphens=False)
        forms += [line.replace("\0", " ") for line in wrapped]
    return _fenced("\n".join(forms), "")


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


def included(page: Path, markdown: str) -> str:
    """A page with the sources, files and notebooks that its lines link to."""

    def piece(mark: re.Match[str]) -> str:
        path, names = mark["path"], re.findall(r"[\w.]+", mark["names"] or "")
        if (page.parent / mark["link"]).resolve() != (ROOT / path).resolve() or not (ROOT / path).is_file():
            raise LookupError(f"{page}: {mark[0]} does not link to {path}, or there is no such file")
        if names:
            return f'```python title="{path}"\n' + "\n\n\n".join(source_of(path, name) for name in names) + "\n```"
        text = (ROOT / path).read_text(encoding="utf-8")
        if path.endswith(".ipynb"):
            return "\n\n".join(part for cell in json.loads(text)["cells"] for part in _cell(cell))
        return _fenced(text.rstrip("\n"), LANGUAGES[Path(path).suffix])

    return INCLUDED.sub(piece, markdown)


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


def _resolved(name: str) -> Any:
    """The class or function of a dotted name, not a module that is called alike."""
    return resolve_name(":".join(name.rsplit(".", 1)))


def summary(name: str) -> str:
    """An item of api.md: the name, a link to where it is defined, and the first sentence of its docstring."""
    thing = _resolved(name)
    file = Path(inspect.getsourcefile(inspect.unwrap(thing)) or "").resolve().relative_to(ROOT)
    words = " ".join((inspect.getdoc(thing) or "").partition("\n\n")[0].split())
    first = re.split(r"(?<=[.:;])\s(?=[A-Z`\"])", words)[0].rstrip(".:;")
    return f"- [`{name}`]({os.path.relpath(file, 'docs').replace(os.sep, '/')}): {first}"


def reference(name: str) -> str:
    """The documentation of a class or a function: signature, docstring, fields, and the methods of a class."""
    thing = _resolved(name)
    parts = [f"### `{name}` {{#{name}}}", _fenced(_signature(thing, name.rpartition(".")[2]), "python"), _words(thing)]
    if inspect.isclass(thing):
        parts += list(_members(thing))
    return "\n\n".join(parts)


def _signature(thing: Any, name: str, width: int = 110) -> str:
    """A call as it is written in code, one parameter on a line if it is long."""
    try:
        signature = inspect.signature(thing)
    except ValueError:
        return name
    pieces, marked = [], False
    for p in signature.parameters.values():
        if p.name in ("self", "cls"):
            continue
        if p.kind is p.KEYWORD_ONLY and not marked:
            pieces.append("*")
        marked = marked or p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL)
        stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        default = "" if p.default is p.empty else " = …" if "<" in repr(p.default) else f" = {p.default!r}"
        pieces.append(stars + p.name + ("" if p.annotation is p.empty else f": {_annotation(p)}") + default)
    returned = "" if signature.return_annotation in (signature.empty, "None", None) else f" -> {_annotation(signature)}"
    line = f"{name}({', '.join(pieces)}){returned}"
    return line if len(line) <= width else f"{name}(\n    " + ",\n    ".join(pieces) + f",\n){returned}"


def _annotation(of: inspect.Parameter | inspect.Signature) -> str:
    found = of.annotation if isinstance(of, inspect.Parameter) else of.return_annotation
    return found if isinstance(found, str) else inspect.formatannotation(found)


def _words(thing: Any) -> str:
    """A docstring as Markdown: its arguments become a list."""
    text = inspect.getdoc(thing) or ""
    return re.sub(r"^(Args|Returns|Raises):\n((?: +.*\n?|\n)+)", _arguments, text, flags=re.MULTILINE).strip()


def _arguments(section: re.Match[str]) -> str:
    """A section of a docstring as a list."""
    if section[1] == "Returns":
        return f"Returns: {' '.join(section[2].split())}\n"
    items = re.sub(r"\n {6,}", " ", section[2])
    return "\n" + re.sub(r"^ {4}([\w, *]+): ", r"- **\1**: ", items, flags=re.MULTILINE) + "\n"


def _members(kind: type) -> Iterator[str]:
    """The fields of a dataclass and the public methods and properties of a class that its own module documents."""
    from vpac.algorithms import option_docs

    if is_dataclass(kind) and (docs := option_docs(kind)):
        yield "\n".join(f"- **{name}**: {words}" for name, words in docs.items())
    lines = []
    for name, member in vars(kind).items():
        call = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if (
            name.startswith("_")
            or not (inspect.isfunction(call) or isinstance(call, property))
            or not inspect.getdoc(call)
        ):
            continue
        head = name if isinstance(call, property) else _signature(call, name, 1000)
        lines.append(f"- `{head}`: {' '.join((inspect.getdoc(call) or '').partition('Args:')[0].split())}")
    if lines:
        yield "\n".join(lines)


def renewed(page: str, markdown: str) -> str:
    """A page as it is kept: with today's table of settings and summaries."""
    if table := {"deep.md": preset_table, "measures.md": penalty_table, "cli.md": command_forms}.get(page):
        return TABLE.sub(lambda _: table() + "\n", markdown)
    return ITEM.sub(lambda item: summary(item["name"]), _extended(markdown)) if page == "api.md" else markdown


def _extended(markdown: str) -> str:
    """api.md with an item for each public name that it does not mention, at the end of the section of its package."""
    for package in reversed(re.findall(r"^## (vpac[\w.]*)$", markdown, re.MULTILINE)):  # `vpac` has names of the others
        found = importlib.import_module(package)
        for name in found.__all__:
            if name.startswith("__") or inspect.ismodule(getattr(found, name)) or re.search(rf"\b{name}\b", markdown):
                continue
            section = re.compile(rf"^## {re.escape(package)}\n.*?(?=\n*(?:^## |\Z))", re.MULTILINE | re.DOTALL)
            item = "\n" + summary(f"{package}.{name}")
            markdown = section.sub(lambda part, item=item: part[0] + item, markdown)
    return markdown


def complete(page: Path) -> str:
    """A page as the site shows it."""
    markdown = page.read_text(encoding="utf-8")
    if page.name == "api.md":
        markdown = ITEM.sub(lambda item: reference(item["name"]), markdown)
    markdown = included(page, markdown)
    if left := OUTSIDE.search(markdown):
        raise LookupError(f"{page}: a link to a file of the project stands on a line of its own, found {left[0]!r}")
    return markdown


def main() -> None:
    """Renew what pages keep (--write), or write the pages as the site shows them."""
    pages = sorted(DOCS.rglob("*.md"))
    if "--write" in sys.argv[1:]:
        for page in pages:
            text = page.read_text(encoding="utf-8")
            if (new := renewed(page.relative_to(DOCS).as_posix(), text)) != text:
                page.write_text(new, encoding="utf-8")
        return
    shutil.rmtree(BUILT, ignore_errors=True)
    shutil.copytree(DOCS, BUILT, ignore=shutil.ignore_patterns("*.py", "*.md", "__pycache__"))
    for page in pages:
        (BUILT / page.relative_to(DOCS)).write_text(complete(page), encoding="utf-8")


if __name__ == "__main__":
    main()
