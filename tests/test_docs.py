from __future__ import annotations

import ast
import importlib.util
import re
import shlex
from dataclasses import fields
from pathlib import Path
from pkgutil import resolve_name

import pytest

from vpac.algorithms import ALGORITHMS
from vpac.cli import VERBS, parse
from vpac.deep.options import PRESETS, Options

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
NAMES = {name: algorithm.class_name for name, algorithm in ALGORITHMS.items()}


def hooks():
    spec = importlib.util.spec_from_file_location("hooks", DOCS / "hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_of_presets_has_every_setting_with_its_words_and_both_values():
    made = hooks()
    rows = [row.strip("| ").split(" | ") for row in made.preset_table().splitlines()[2:]]
    assert [row[0].strip("`") for row in rows] == [field.name for field in fields(Options)]
    assert all(len(row) == 4 and len(row[1]) > 5 for row in rows)
    changed = {row[0].strip("`") for row in rows if row[3] != "the same"}
    assert changed <= set(PRESETS["paper"])
    found = {row[0].strip("`"): row[2:] for row in rows}
    assert found["steps"] == ["128", "2048"]
    assert found["critic_max_grad_norm"] == ["0.5", "none"]
    assert found["hidden"] == ["64, 64", "128, 64"]


def test_the_page_asks_for_the_table():
    made = hooks()
    text = (DOCS / "deep.md").read_text(encoding="utf-8")
    assert made.MARK in text
    assert "| `psi_units` |" in made.on_page_markdown(text)


@pytest.mark.parametrize("name", ["tour", "practitioner"])
def test_a_notebook_is_shown_with_its_outputs(name):
    page = (DOCS / "notebooks" / f"{name}.md").read_text(encoding="utf-8")
    shown = hooks().on_page_markdown(page)
    assert shown.startswith("# ")
    assert "<!-- notebook" not in shown
    assert "plt.show()\n```\n\n" in shown
    assert "](data:image/png;base64,iVBOR" in shown
    assert shown.count("```python\n") >= 6
    assert shown.count("```text\n") >= 4


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_every_piece_of_source_that_a_page_shows_is_there(path):
    text = path.read_text(encoding="utf-8")
    made = hooks().with_source(text)
    assert made.count("```python title=") == len(re.findall("^<!-- code", text, re.MULTILINE))
    for name in re.findall(r"^--8<-- \"(.*)\"$", text, re.MULTILINE):
        assert (ROOT / name).is_file()
    fences = re.findall(r"^```\w+$(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert not any("-8 <" in inside for inside in fences), "a formatter has taken an inclusion for code"


def test_source_is_found_by_its_name():
    made = hooks()
    assert made.source_of("src/vpac/tabular/agents.py", "AC").startswith("class AC(Learner):")
    assert made.source_of("src/vpac/tabular/update.py", "corrected").startswith("@inlined\ndef corrected(")
    assert made.source_of("src/vpac/tabular/agents.py", "Learner.__init__").startswith("def __init__(self")
    page = made.on_page_markdown("a\n<!-- code: src/vpac/tabular/update.py begin advance -->\nb")
    assert page.startswith('a\n```python title="src/vpac/tabular/update.py"\n@inlined\ndef begin(')
    assert page.endswith("\n```\nb")
    assert "\ndef advance(" in page
    for wrong in ("src/vpac/tabular/agents.py ACC", "src/vpac/tabular/agents.py", "README.md AC"):
        with pytest.raises(LookupError):
            made.on_page_markdown(f"<!-- code: {wrong} -->")


@pytest.mark.parametrize("name", [*NAMES, "linear"])
def test_every_algorithm_has_a_page(name):
    page = (DOCS / "algorithms" / f"{name}.md").read_text(encoding="utf-8")
    for heading in ("Pseudo-code and code", "Published and corrected", "Deviations from the paper"):
        assert f"\n## {heading}\n" in page
    beside = re.findall(
        r"<div class=\"beside\" markdown>.*?```text\n.*?```.*?<!-- code: .*?</div>\n</div>", page, re.DOTALL
    )
    assert beside, "pseudo-code beside code"
    assert len(page.partition("## Deviations from the paper")[2].split("\n- ")) > 1
    if name in NAMES:
        assert f"`vpac.{NAMES[name]}`" in page
        overview = (DOCS / "algorithms" / "index.md").read_text(encoding="utf-8")
        assert re.search(rf"\({name}\.md\) \| `{NAMES[name]}` \| `{name}` \|", overview)


def test_every_page_can_be_reached():
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = re.findall(r"([\w/-]+\.md)$", site, re.MULTILINE)
    assert sorted(listed) == sorted(str(path.relative_to(DOCS)) for path in PAGES)


def test_everything_that_is_taken_from_docstrings_is_there():
    for path in PAGES:
        for name in re.findall(r"^::: ([\w.]+)$", path.read_text(encoding="utf-8"), re.MULTILINE):
            assert resolve_name(name).__doc__, f"{path.name}: {name}"


def messages():
    """What the package says, with … for what is filled in."""
    for path in (ROOT / "src" / "vpac").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                yield "…".join(part.value for part in node.values if isinstance(part, ast.Constant))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_the_faq_quotes_the_code():
    """Between the ellipses, each heading consists of pieces that one message has in the same order."""
    said = list(messages())
    page = (DOCS / "faq.md").read_text(encoding="utf-8")
    headings = re.findall(r"^### (?:\*A warning:\* )?(.*)$", page, re.MULTILINE)
    assert len(headings) > 25
    for heading in headings:
        pieces = [piece.strip() for piece in heading.split("…") if piece.strip(" .:()")]
        pattern = re.compile(".*".join(map(re.escape, pieces)), re.DOTALL)
        assert any(pattern.search(message) for message in said), heading


def commands():
    """Complete commands of the pages; those with words in capitals or brackets are forms to fill in."""
    for path in [DOCS / "quick-start.md", DOCS / "choosing-psi.md", *sorted((DOCS / "algorithms").glob("*.md"))]:
        text = path.read_text(encoding="utf-8").replace(" \\\n", " ")
        yield from re.findall(r"^(?:\$ )?vpac (\w+ .*)$", text, re.MULTILINE)


def test_the_commands_of_the_pages_can_be_read():
    found = list(commands())
    assert len(found) > 20
    for line in found:
        words = shlex.split(line.partition("  #")[0])
        verb = parse(words)
        assert isinstance(verb, VERBS[words[0]]), line
