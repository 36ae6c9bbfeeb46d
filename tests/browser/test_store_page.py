"""The page of a small store: its numbers are those of the store, and names are escaped."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tiny import little
from vpac.lab.experiments.spec import Arm, Claim
from vpac.lab.report.build import build
from vpac.lab.store.store import Store
from vpac.lab.workers.pool import Serial
from vpac.lab.workers.study import carry_out_studies, plan

EVIL = "<script>document.title='pwned'</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    root = tmp_path_factory.mktemp("store") / "a store & <b>"
    arms = (
        Arm(label="AC", algorithm="ac", paper={"mean": 3.0}),
        Arm(label=EVIL, algorithm="vpac", settings={"psi": 0.1}),
        Arm(label="failing", algorithm="vpac", settings={"psi": -1.0}),
    )
    claims = (Claim(text=EVIL, where="here", quantity="variance", arm=EVIL, against="AC", below=9.0),)
    experiment = little(runs=4, arms=arms, claims=claims, title=EVIL, about=EVIL)
    found = Store(root)
    carry_out_studies([plan(experiment)], found, Serial())
    return found


@pytest.fixture(scope="module")
def page(store):
    return build(store, quiet=True)[0]


def finals(store, algorithm, quantity):
    records = [json.loads((store.root / "runs" / n / "run.json").read_text(encoding="utf-8")) for n in store.names()]
    return np.array([r["final"][quantity] for r in records if r["task"]["algorithm"] == algorithm])


def test_the_numbers_are_the_stores(visit, store, page):
    found = visit(page).see_all()
    ours = float(found.page.locator("table.claims tbody tr .ours").get_attribute("value"))
    expected = finals(store, "vpac", "variance").mean() / finals(store, "ac", "variance").mean()
    assert ours == pytest.approx(expected, rel=1e-12)
    text = found.page.locator("#experiment-little").inner_text()
    assert f"{finals(store, 'ac', 'mean').mean():.6g}".replace("-", "−") in text


def test_names_can_do_nothing(visit, page):
    found = visit(page).see_all()
    assert "pwned" not in found.page.title()
    assert found.complaints == []
    assert found.page.locator("img[src='x']").count() == 0
    assert EVIL in found.page.locator("table.claims").inner_text()


def test_what_is_drawn_later_does_not_move_what_is_read(visit, page):
    found = visit(page, reduced_motion="reduce").page
    found.evaluate("location.hash = '#colophon'")
    found.wait_for_timeout(300)
    before = found.evaluate("document.documentElement.scrollHeight")
    for figure in found.locator("figure[data-chart]").all():
        figure.scroll_into_view_if_needed()
        found.wait_for_function("figure => figure.dataset.ready", arg=figure.element_handle())
    assert abs(found.evaluate("document.documentElement.scrollHeight") - before) <= 4


def test_a_failed_run_is_there_with_its_traceback(visit, page):
    text = visit(page).page.locator("body").inner_text()
    assert "psi must be" in text
    assert "vpac-RiskyShortcut-v0-psi-1.0-run0" in text
