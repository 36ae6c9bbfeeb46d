from __future__ import annotations

import ast
import importlib.util
import re
import shlex
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from vpac.algorithms import ALGORITHMS
from vpac.cli import VERBS, parse
from vpac.deep.options import PRESETS, PPOOptions

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
NAMES = {name: algorithm.class_name for name, algorithm in ALGORITHMS.items()}


def pages(name="pages"):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def test_the_table_of_all_results_counts_the_runs_that_there_are():
    glance = pages("glance")
    written = glance.TABLE.search((DOCS / "evidence.md").read_text(encoding="utf-8"))[0]
    assert written == glance.table(), "renew it: python docs/glance.py --write"


def test_the_table_of_presets_has_every_setting_with_its_words_and_both_values():
    rows = [row.strip("| ").split(" | ") for row in pages().preset_table().splitlines()[2:]]
    assert [row[0].strip("`") for row in rows] == [field.name for field in fields(PPOOptions)]
    assert all(len(row) == 4 and len(row[1]) > 5 for row in rows)
    changed = {row[0].strip("`") for row in rows if row[3] != "the same"}
    assert changed <= set(PRESETS["paper"])
    found = {row[0].strip("`"): row[2:] for row in rows}
    assert found["steps"] == ["128", "2048"]
    assert found["critic_max_grad_norm"] == ["0.5", "none"]
    assert found["hidden"] == ["64, 64", "128, 64"]


@pytest.mark.parametrize("name", ["deep.md", "api.md", "measures.md", "cli.md"])
def test_what_a_page_keeps_of_the_code_is_todays(name):
    text = (DOCS / name).read_text(encoding="utf-8")
    made = pages().renewed(name, text)
    assert made.count("\n") > 60
    assert text == made, "run python docs/pages.py --write"
    old = {
        "deep.md": re.sub(r"`psi_units` \|[^|]*\|", "`psi_units` | ? |", text), "api.md": text.replace(": ", ": x", 9),
        "measures.md": text.replace("| none | Half", "| ? | Half"), "cli.md": text.replace("[--seed N]", ""),
    }[name]  # fmt: skip
    assert old != text
    assert pages().renewed(name, old) == text


def test_a_public_name_that_is_missing_is_added_to_its_package():
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    line = re.compile(r"^- \[`vpac\.(deep\.ppo\.MVPIPPO|envs\.CatchUp)`\].*\n", re.MULTILINE)
    made = pages().renewed("api.md", line.sub("", text))
    for package, name in (("deep", "MVPIPPO"), ("envs", "CatchUp")):
        section = made.partition(f"\n## vpac.{package}\n")[2].partition("\n## ")[0]
        assert section.count(f"\n- [`vpac.{package}.{name}`](../src/vpac/{package}/") == 1
        assert made.count(f".{name}`]") == 1
    assert made.count("\n") == text.count("\n")


@pytest.mark.parametrize("name", ["tour", "practitioner"])
def test_a_notebook_is_shown_with_its_outputs(name):
    shown = pages().complete(DOCS / "notebooks" / f"{name}.md")
    assert shown.startswith("# ")
    assert "plt.show()\n```\n\n" in shown
    assert "](data:image/png;base64,iVBOR" in shown
    assert shown.count("```python\n") >= 6
    assert shown.count("```text\n") >= 4


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_every_page_is_complete_with_what_it_names_and_readable_without(path):
    text = path.read_text(encoding="utf-8")
    made, named = pages().complete(path), re.findall(r"^\[`.* in (?:src|examples)/.*\]\(.*\)$", text, re.MULTILINE)
    assert made.count("```python title=") == len(named)
    assert not re.search(r"^(:::|--8<--|<!-- (code|notebook))", text, re.MULTILINE), "empty where nothing is built"


def test_source_is_found_by_its_name():
    made = pages()
    assert made.source_of("src/vpac/tabular/agents.py", "AC").startswith("class AC(Learner):")
    assert made.source_of("src/vpac/tabular/update.py", "corrected").startswith("@inlined\ndef corrected(")
    assert made.source_of("src/vpac/tabular/agents.py", "Learner.__init__").startswith("def __init__(self")
    link = "[`begin`, `advance` in src/vpac/tabular/update.py](../src/vpac/tabular/update.py)"
    page = made.included(DOCS / "a.md", f"a\n{link}\nb")
    assert page.startswith('a\n```python title="src/vpac/tabular/update.py"\n@inlined\ndef begin(')
    assert page.endswith("\n```\nb")
    assert "\ndef advance(" in page
    for wrong in (link.replace("begin", "began"), link.replace("(../", "("), link.replace("update.py", "up.py")):
        with pytest.raises(LookupError):
            made.included(DOCS / "a.md", wrong)


def test_the_reference_has_signatures_arguments_fields_and_methods():
    made = pages()
    function = made.reference("vpac.oracle.gradient")
    assert function.startswith("### `vpac.oracle.gradient` {#vpac.oracle.gradient}\n\n```python\ngradient(")
    assert "    form: Form = 'exact',\n" in function
    assert "- **form**: " in function
    sample = made.reference("vpac.risk.ReturnSample")
    assert re.search(r"^- `interval\(metric: str, .*`: ", sample, re.MULTILINE)
    assert "- **lengths**: " in sample


@pytest.mark.parametrize("name", [*NAMES, "linear"])
def test_every_algorithm_has_a_page(name):
    page = (DOCS / "algorithms" / f"{name}.md").read_text(encoding="utf-8")
    for heading in ("Pseudo-code and code", "Published and corrected", "Deviations from the paper"):
        assert f"\n## {heading}\n" in page
    beside = re.findall(
        r"<div class=\"beside\" markdown>.*?```text\n.*?```.*?\n\[`.*? in src/.*?</div>\n</div>", page, re.DOTALL
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


def messages():
    """What the package says, with … for what is filled in."""
    for path in (ROOT / "src" / "vpac").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                yield "…".join(part.value for part in node.values if isinstance(part, ast.Constant))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_links_to_sections_lead_somewhere():
    """`make docs` refuses them as well; here they are found sooner."""
    pages = {path: path.read_text(encoding="utf-8") for path in [DOCS.parent / "README.md", *DOCS.rglob("*.md")]}
    wrong = []
    for path, text in pages.items():
        for name, anchor in re.findall(r"\]\(([\w./-]*\.md)?#([\w-]+)\)", text):
            page = (path.parent / name).resolve() if name else path
            titles = [
                title.lower().encode("ascii", "ignore").decode()
                for title in re.findall(r"^#+ (.*)$", pages.get(page, ""), re.M)
            ]
            known = {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", title)).strip("-") for title in titles}
            if anchor not in known:
                wrong.append(f"{path.name}: {name}#{anchor}")
    assert wrong == []


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
