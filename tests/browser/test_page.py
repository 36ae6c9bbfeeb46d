from __future__ import annotations

import csv
import io
import urllib.parse

import pytest

from demo import HOSTILE, claims, curves, document, explorer

PHONE = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True}
MORE_ROWS = "table.data tbody tr:nth-child(n+9):not(:last-child)"
"""Of tables of a hundred rows, made by one rule: looked at one by one they take most of the time."""


def test_it_opens_without_errors_and_asks_for_nothing(visit, demo_page):
    found = visit(demo_page).see_all()
    assert found.page.title() == document().title
    assert found.complaints == []
    assert [url for url in found.requests if not url.startswith("data:")] == [demo_page.as_uri()]


def test_the_claims_are_the_documents(seen):
    rows = seen.locator("table.claims tbody tr").all()
    assert len(rows) == len(claims())
    for row, claim in zip(rows, claims(), strict=True):
        text = row.inner_text()
        assert claim.sentence in text
        assert claim.command in text
        assert claim.explanation in text
        assert row.locator(".verdict").inner_text().split(maxsplit=1) == [
            {"holds": "✓", "does not hold": "✗", "undecided": "?"}[claim.verdict], claim.verdict,
        ]  # fmt: skip
        assert row.locator(".ours").count() == (claim.ours is not None)
        if claim.ours:
            ours = row.locator(".ours")
            shown = [ours.get_attribute(name) for name in ("value", "data-low", "data-high")]
            assert [float(number) for number in shown] == [claim.ours.value, claim.ours.low, claim.ours.high]
            assert claim.ours.text() in text
            assert claim.ours.interval() in text
    assert seen.locator("#four-rooms .facts data").inner_text() == "12 min 34 s"


def test_the_saved_table_is_the_charts(seen, tmp_path):
    chart = curves()
    seen.locator(f"#{chart.name} summary").click()
    with seen.expect_download() as saved:
        seen.locator(f"#{chart.name} a[download]").click()
    saved.value.save_as(tmp_path / "saved.csv")
    assert saved.value.suggested_filename == f"{chart.name}.csv"
    rows = list(csv.reader(io.StringIO((tmp_path / "saved.csv").read_text())))
    table = chart.table()
    assert tuple(rows[0]) == table.columns
    assert [float(row[-1]) for row in rows[1:3]] == [row[-1] for row in table.rows[:2]]
    assert len(rows) - 1 == len(table.rows)


def test_the_drawn_curves_are_the_charts(seen):
    drawn = seen.evaluate(
        "name => [...document.querySelectorAll(`#${name} .plot`)].map(plot => plot.data.map("
        "trace => [trace.legendgroup, trace.mode, Array.from(trace.y)]))",
        curves().name,
    )
    for traces, panel in zip(drawn, curves().panels, strict=True):
        for line in panel.series:
            (y,) = [y for group, mode, y in traces if group == line.label and mode == "lines+markers"]
            assert y == pytest.approx(line.y, rel=1e-6)


def reading(page):
    return {name: float(page.locator(f"#now-{name}").get_attribute("data-value"))
            for name in ("psi", "mean", "variance", "std")}  # fmt: skip


def drawing(page):
    return page.evaluate(
        "['policy', 'variance', 'visitation', 'frontier'].map(name => document.getElementById(`map-${name}`).outerHTML)"
    )


def expected(number):
    point = explorer().data["points"][number]
    return {name: point[name] for name in ("psi", "mean", "variance", "std")}


def test_the_slider_works_by_keyboard(seen):
    slider = seen.get_by_role("slider", name="Price of variance ψ")
    slider.focus()
    assert reading(seen) == pytest.approx(expected(0))
    before = drawing(seen)
    for _ in range(5):
        seen.keyboard.press("ArrowRight")
    assert reading(seen) == pytest.approx(expected(5))
    assert slider.get_attribute("aria-valuetext") == f"ψ = {explorer().data['points'][5]['psi']:g}"
    assert all(old != new for old, new in zip(before, drawing(seen), strict=True))
    seen.keyboard.press("End")
    assert reading(seen) == pytest.approx(expected(len(explorer().data["points"]) - 1))
    seen.keyboard.press("Home")
    assert reading(seen) == pytest.approx(expected(0))
    assert drawing(seen) == before


def test_the_slider_works_by_mouse(visit, demo_page):
    page = visit(demo_page).page
    slider = page.locator("#psi")
    slider.scroll_into_view_if_needed()
    before = drawing(page)
    box = slider.bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 8, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, middle, steps=4)
    page.mouse.move(box["x"] + box["width"] - 2, middle, steps=4)
    page.mouse.up()
    assert reading(page) == pytest.approx(expected(len(explorer().data["points"]) - 1))
    assert all(old != new for old, new in zip(before, drawing(page), strict=True))
    page.locator("#map-frontier .dot").nth(3).click()
    assert reading(page) == pytest.approx(expected(3))


def test_arrows_point_where_the_policy_goes(seen):
    """The cell above the goal goes down and the one below it goes up; up on the screen is a smaller y."""
    path = seen.locator("#map-policy .arrow").first.get_attribute("d")
    row, column = explorer().data["goal"]
    strokes = [stroke.replace("M", "").replace("L", ",").split(",") for stroke in path.split("M")[1:]]
    shafts = [[float(x) for x in stroke] for stroke in strokes if len(stroke) == 4]
    above = next(s for s in shafts if s[0] == pytest.approx(column + 0.5) and row - 1 < s[1] < row)
    below = next(s for s in shafts if s[0] == pytest.approx(column + 0.5) and row + 1 < s[1] < row + 2)
    assert above[3] > above[1]
    assert below[3] < below[1]


def test_the_legend_hides_and_shows_by_keyboard(seen):
    button = seen.locator("#four-rooms-curves .legend button").first
    count = "() => document.querySelector('#four-rooms-curves .plot').data.filter(trace => trace.visible).length"
    before = seen.evaluate(count)
    button.focus()
    seen.keyboard.press("Enter")
    assert button.get_attribute("aria-pressed") == "false"
    assert seen.evaluate(count) == before - 3
    seen.keyboard.press("Space")
    assert seen.evaluate(count) == before


def test_the_theme_is_chosen_by_keyboard_and_figures_follow(visit, demo_page):
    page = visit(demo_page, color_scheme="light").see_all().page
    ink = "() => document.querySelector('.plot').layout.font.color"
    light = page.evaluate(ink)
    page.get_by_role("radio", name="System").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.get_by_role("radio", name="Dark").is_checked()
    dark = page.evaluate(ink)
    assert (light, dark) == ("rgb(28, 34, 48)", "rgb(230, 233, 239)")
    assert page.evaluate("() => getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 28)"
    page.keyboard.press("ArrowLeft")
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(ink) == light, "light was chosen, whatever the system says"


def test_the_systems_theme_is_followed(visit, demo_page):
    page = visit(demo_page, color_scheme="light").see_all().page
    ink = "document.querySelector('.plot').layout.font.color"
    assert page.evaluate(ink) == "rgb(28, 34, 48)"
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"() => {ink} === 'rgb(230, 233, 239)'")


@pytest.mark.parametrize(
    "options", [{"color_scheme": "light"}, {"color_scheme": "dark"}, PHONE], ids=["light", "dark", "phone"]
)
def test_the_page_has_no_serious_accessibility_problem(visit, demo_page, options):
    from axe_playwright_python.sync_playwright import Axe

    page = visit(demo_page, **options).see_all().page
    page.evaluate("() => document.querySelectorAll('details').forEach(part => { part.open = true; })")
    page.evaluate(f"() => document.querySelectorAll('{MORE_ROWS}').forEach(row => row.remove())")
    problems = (
        Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    )  # what passes is not described
    found = [
        (p["id"], p["help"], p["nodes"][0]["html"][:200]) for p in problems if p["impact"] in ("serious", "critical")
    ]
    assert found == []


@pytest.mark.parametrize("name", ["demo_page", "hostile_page"])
def test_a_phone_scrolls_one_way_only(visit, request, name):
    page = visit(request.getfixturevalue(name), **PHONE).see_all().page
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 360
    assert not page.locator("#contents").get_attribute("open")
    assert page.locator("table.claims th[scope=row]").first.is_visible()


def test_hostile_names_are_inert(visit, hostile_page):
    found = visit(hostile_page).see_all()
    page = found.page
    page.locator("#psi").focus()
    page.keyboard.press("End")
    for plot in page.locator("#nasty .plot").all():
        plot.hover()
    assert page.evaluate("() => window.hacked") is None
    assert found.complaints == []
    assert [url for url in found.requests if not url.startswith("data:")] == [hostile_page.as_uri()]
    assert page.title() == document(HOSTILE).title
    assert page.locator("h1").inner_text() == document(HOSTILE).title
    assert page.locator("img:not(.static)").count() == 0
    assert page.locator("script").count() == 3 + page.locator("script[type='application/json']").count()
    for link in page.locator("a[href]").all():
        assert urllib.parse.urlparse(link.get_attribute("href")).scheme in ("", "data")


def test_injected_scripts_would_not_run(visit, demo_page, tmp_path):
    """Were a name not escaped after all, the page's policy would still not run it."""
    text = demo_page.read_text().replace(
        "<main", "<script>window.hacked = true</script><img src='x' onerror='hacked = true'><main"
    )
    (tmp_path / "index.html").write_text(text)
    found = visit(tmp_path / "index.html")
    assert found.page.evaluate("() => window.hacked") is None
    assert any("Content Security Policy" in line for line in found.complaints)


def test_on_paper_the_static_figures_are_seen(visit, demo_page):
    page = visit(demo_page, color_scheme="dark").see_all().page
    assert not any(image.is_visible() for image in page.locator("img.static").all())
    page.emulate_media(media="print")
    assert all(image.is_visible() for image in page.locator("img.static").all())
    assert not any(panels.is_visible() for panels in page.locator(".panels").all())
    assert page.evaluate("() => getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    loaded = (
        "() => [...document.querySelectorAll('img.static')].every(image => image.complete && image.naturalWidth > 100)"
    )
    assert page.evaluate(loaded)


def test_without_scripts_it_can_be_read(visit, demo_page):
    page = visit(demo_page, java_script_enabled=False).page
    assert claims()[0].sentence in page.locator("table.claims").inner_text()
    assert all(image.is_visible() for image in page.locator("img.static").all())
    assert page.get_by_text("The slider needs JavaScript").is_visible()
    assert not page.locator("#psi").is_visible()


def test_the_skip_link_comes_first_and_leads_to_the_claims(visit, demo_page):
    page = visit(demo_page).page
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("() => document.activeElement.id") == "main"


def test_a_failed_run_is_shown_with_its_trace(seen):
    seen.locator("#failures summary").click()
    assert '  File "loop.py", line 3, in <module>' in seen.locator("#failures pre").inner_text()
