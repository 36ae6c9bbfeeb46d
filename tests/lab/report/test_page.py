from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import urllib.parse
from xml.etree import ElementTree

import numpy as np
import pytest

import demo
from vpac.errors import UserError
from vpac.lab.report import page as pages
from vpac.lab.report.chart import Chart, ClaimEstimate, Document, Line, Lines, Section
from vpac.lab.report.draw import static_svg
from vpac.lab.report.page import as_json, duration, render, write_page


@pytest.fixture(scope="module")
def page():
    return render(demo.document())


@pytest.fixture(scope="module")
def hostile():
    return render(demo.document(demo.HOSTILE))


def test_the_file_is_written_whole_and_below_its_limit_and_the_same_for_the_same_document(page, tmp_path, monkeypatch):
    drawn = {}

    def paint(chart):
        drawn[chart.name] = drawn.get(chart.name) or static_svg(chart)
        return drawn[chart.name]

    path = write_page(demo.document(), tmp_path / "report", paint)
    assert path == tmp_path / "report" / "index.html"
    assert path.read_text(encoding="utf-8") == page
    assert path.stat().st_size < 8_000_000
    monkeypatch.setattr(pages, "MOST_PAGE_BYTES", 1_000_000)
    with pytest.raises(UserError, match=r"the page has \d\.\d MB, at most 1 are allowed; largest: four-rooms"):
        write_page(demo.document(), tmp_path / "other", paint)
    assert not (tmp_path / "other").exists()


def test_claims_come_first_with_their_numbers_and_commands(page):
    order = [
        page.index(f'<section id="{name}"') for name in ("claims", "explorer", "four-rooms", "puddle-world", "failures")
    ]
    assert order == sorted(order)
    for claim in demo.claims():
        assert html.escape(claim.sentence).replace("&#x27;", "&#39;") in page
        assert f"<code>{claim.command}</code>" in page
        if claim.ours:
            assert f'value="{claim.ours.value!r}" data-low="{claim.ours.low!r}" data-high="{claim.ours.high!r}"' in page


def test_nothing_is_loaded_from_anywhere(page):
    markup = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    for attribute, value in re.findall(r'\b(src|href)="([^"]*)"', markup):
        assert value.startswith(("#", "data:")), f"{attribute}={value[:60]}"
    assert "@import" not in markup
    pictures = urllib.parse.unquote(markup)
    assert not re.search(r"url\((?!#)", pictures)
    assert all(value.startswith(("#", "data:")) for value in re.findall(r"href='([^']*)'", pictures))


def test_the_policy_lists_the_scripts_and_no_more(page):
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    policy = html.unescape(policy)
    scripts = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    assert re.findall(r"'sha256-([^']*)'", policy) == digests
    assert len(digests) == 3
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy
    assert "unsafe-inline" not in policy.split("style-src")[0]


def test_hostile_names_are_text_everywhere(page, hostile):
    assert demo.HOSTILE not in hostile
    assert "<script>window" not in hostile
    assert hostile.count("<script") == page.count("<script") + 1, "one chart more"
    assert hostile.count("<img ") == page.count("<img ") + 1
    for text in re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', hostile, flags=re.DOTALL):
        assert not set("<>&\u2028\u2029") & set(text)
        json.loads(text)


def test_json_cannot_end_its_element():
    nasty = {"a": "</script><!--\u2028\u2029&amp;", "b": [1.5, None]}
    text = as_json(nasty)
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == nasty
    with pytest.raises(ValueError):
        as_json(float("nan"))


def test_every_figure_has_words_a_static_picture_and_its_data(page):
    for section in demo.document().sections:
        for chart in section.charts:
            part = page[page.index(f'<figure class="chart" id="{chart.name}"') :]
            part = part[: part.index("</figure>")]
            picture, words = re.search(
                r'<img class="static" src="data:image/svg\+xml;charset=utf-8,([^"<>&]*)" alt="([^"]+)"', part
            ).groups()
            assert ElementTree.fromstring(urllib.parse.unquote(picture)).tag.endswith("svg")
            assert html.unescape(words).startswith(chart.title)
            assert f"Data: {len(chart.table().rows)} rows" in part
            assert f'download="{chart.name}.csv"' in part
            assert part.count("<tr>") <= 121


def test_long_curves_do_not_make_a_heavy_page():
    x = np.arange(20_000)
    lines = [Line(f"arm {k}", x, np.sin(x / 999.0), np.sin(x / 999.0) - 0.1, np.sin(x / 999.0) + 0.1) for k in range(6)]
    chart = Chart("long", "Long", "Caption", [Lines(lines, "steps", "value")])
    text = render(Document("t", "s", "m", sections=[Section("a", "A", "", (chart,))]))
    assert len(text) < 5_400_000
    assert "Data: 120000 rows" in text
    assert "Save 996 rows as CSV</a>; all are in <code>figures/long.csv</code>" in text


def test_wall_times_settings_and_provenance_are_there(page):
    assert 'Wall time <data value="754.2">12 min 34 s</data>' in page
    assert "0123abc" in page
    assert "VAAC_TD" in page
    assert [duration(x) for x in (0.04, 9.96, 59.4, 60, 3599.6, 7325)] == [
        "0.0 s", "10 s", "59 s", "1 min 0 s", "1 h 0 min", "2 h 2 min",
    ]  # fmt: skip


def test_a_page_with_nothing_to_say_is_still_a_page():
    empty = render(Document("Title", "Sub", "now"))
    assert 'id="explorer"' not in empty
    assert 'id="failures"' not in empty
    assert "No claim was tested" in empty


def test_names_must_be_fit_for_links():
    with pytest.raises(ValueError, match="section name"):
        Section("Four rooms", "", "")
    with pytest.raises(ValueError, match="section name"):
        Section("claims", "", "")
    twice = Section("a", "", "", (demo.curves(),)), Section("b", "", "", (demo.curves(),))
    with pytest.raises(ValueError, match="four-rooms-curves is there twice"):
        render(Document("t", "s", "m", sections=twice))


def test_estimates_are_written_for_readers():
    assert ClaimEstimate(-1.234, -2.0, -0.5, "%", ".1f").text() == "−1.2\N{NO-BREAK SPACE}%"
    assert ClaimEstimate(-1.234, -2.0, -0.5, "%", ".1f").interval() == "−2.0 … −0.5\N{NO-BREAK SPACE}%"
    assert ClaimEstimate(3.14159).interval() == ""
    assert ClaimEstimate(float("nan")).text() == "–"
