"""The certificate opens in a browser without errors, loads nothing, runs nothing, and is accessible."""

from __future__ import annotations

import pytest

import vpac
from vpac.evaluation.stressing import Axis, stress
from vpac.files import jsonable
from vpac.lab.report.measured import write_certificate
from vpac.risk import Limit

pytestmark = pytest.mark.slow  # starts Chromium
EVIL = "<script>document.title='pwned'</script><img src=x onerror=alert(1)>"
PHONE = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True}


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    world, agent = "vpac/CatchUp-v0", vpac.VPAC("vpac/CatchUp-v0", gamma=0.95, seed=1).learn(50)
    axes = [Axis("lucky", (2.0, 3.0)), Axis("drop", (0.5,))]
    found = stress(agent, lambda given: vpac.envs.make_env(world, **given), axes, 20)
    certificate = vpac.certify(
        agent, world, 60, baseline="random", sources=10, below=[5.0], stress=jsonable(found.as_dict()),
        limits=[Limit("max-ruin", 0.9, 0.0), Limit("min-mean", 1e9), Limit("max-std", agent.options.gamma * 4.0)],
        policy={"name": EVIL, "run": EVIL}, commands=lambda seed: {"replay": f"vpac evaluate '{EVIL}' --seed {seed}"},
        about={"time": "now", "remark": EVIL},
    )  # fmt: skip
    return write_certificate(certificate, tmp_path_factory.mktemp("certificate"))[1]


def test_it_opens_without_errors_and_asks_for_nothing(visit, page):
    found = visit(page)
    assert found.page.title() == f"Certificate of {EVIL}"
    assert found.complaints == []
    assert [url for url in found.requests if not url.startswith("data:")] == [page.as_uri()]
    assert found.page.locator("script").count() == 0
    assert found.page.locator("img[src='x']").count() == 0
    assert found.page.evaluate("[...document.images].every(image => image.complete && image.naturalWidth > 0)")
    assert found.page.locator("figure img").count() == 5
    assert page.stat().st_size < 1_000_000


def test_limits_and_commands_are_there(visit, page):
    text = visit(page).page.locator("main").inner_text()
    for words in ("P(G < 0) is at most 90 %", "✗ does not hold", "against random actions", "what hurts most", EVIL):
        assert words in text
    assert "watch = vpac.monitor" in text


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_accessible(visit, page, scheme):
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(visit(page, color_scheme=scheme, bypass_csp=True).page)
    assert found.response["violations"] == []


def test_a_phone_shows_all_of_it(visit, page):
    found = visit(page, **PHONE).page
    assert found.evaluate("document.documentElement.scrollWidth <= innerWidth")
