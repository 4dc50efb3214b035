"""Chromium for the tests that look at a page as a reader does: `make test-browser`."""

import shutil
import sys
from pathlib import Path

import pytest

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1] / "watch")]

from looking import SCREENS


@pytest.fixture(scope="session")
def chromium():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        program = (
            shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        )
        assert program, "there is no chromium: apt-get install chromium"
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def page(chromium, request):
    """A tab, on a desktop unless a test names other SCREENS; what its console says of errors is in `said`."""
    width, height, theme = SCREENS[getattr(request, "param", "desktop")]
    context = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=theme)
    tab = context.new_page()
    said: list[str] = []
    tab.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.said = said
    yield tab
    context.close()
