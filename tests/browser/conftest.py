from __future__ import annotations

import os
import shutil
from contextlib import contextmanager

import pytest

from demo import HOSTILE, document
from vpac.lab.report.page import write_page

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_browser() -> str | None:
    """The Chromium to test with: the variable CHROMIUM, or one that is installed."""
    asked = os.environ.get("CHROMIUM")
    return shutil.which(asked) if asked else next(filter(None, map(shutil.which, NAMES)), None)


@pytest.fixture(scope="session")
def browser():
    path = find_browser()
    if path is None:
        message = "no Chromium: apt-get install chromium, or set CHROMIUM to the path of one"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="session")
def demo_page(tmp_path_factory):
    """The page of the made-up document, as a file."""
    return write_page(document(), tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="session")
def hostile_page(tmp_path_factory):
    """The same with a script for every name."""
    return write_page(document(HOSTILE), tmp_path_factory.mktemp("hostile"))


class Visit:
    """A page that was opened, what it asked for and what it complained about."""

    def __init__(self, page):
        self.page, self.requests, self.complaints = page, [], []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda line: line.type in ("error", "warning") and self.complaints.append(line.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def see_all(self):
        """Scroll through the page until every figure is drawn."""
        for figure in self.page.locator("figure[data-chart]").all():
            figure.scroll_into_view_if_needed()
            self.page.wait_for_function("figure => figure.dataset.ready", arg=figure.element_handle())
        return self


@contextmanager
def visitor(browser):
    """Opens files; keywords are those of Playwright's contexts."""
    contexts = []

    def open_file(path, **options):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        found = Visit(context.new_page())
        found.page.goto(path.as_uri())
        return found

    yield open_file
    for context in contexts:
        context.close()


@pytest.fixture
def visit(browser):
    """Open a file for one test."""
    with visitor(browser) as open_file:
        yield open_file


@pytest.fixture(scope="session")
def seen(browser, demo_page):
    """The page with every figure drawn, for tests that leave it as it was: to open it takes seconds."""
    with visitor(browser) as open_file:
        yield open_file(demo_page).see_all().page
