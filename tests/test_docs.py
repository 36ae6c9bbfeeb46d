from __future__ import annotations

import importlib.util
from dataclasses import fields
from pathlib import Path

from vpac.deep.options import PRESETS, Options

DOCS = Path(__file__).parent.parent / "docs"


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
    assert changed == set(PRESETS["paper"])
    found = {row[0].strip("`"): row[2:] for row in rows}
    assert found["steps"] == ["128", "2048"]
    assert found["critic_max_grad_norm"] == ["0.5", "none"]
    assert found["hidden"] == ["64, 64", "128, 64"]


def test_the_page_asks_for_the_table():
    made = hooks()
    text = (DOCS / "deep.md").read_text(encoding="utf-8")
    assert made.MARK in text
    assert "| `psi_units` |" in made.on_page_markdown(text)
