"""The page of `shoal report` in Chromium: accessible on every screen, and its timeline zooms."""

import pytest
from looking import SCREENS, violations

import shoal

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module", params=["en", "zh"])
def report(tmp_path_factory, request):
    folder = tmp_path_factory.mktemp("run")
    result = shoal.train(
        "quickstart", strategy="ddp", workers=2, launcher="threads", epochs=1, runs_dir=str(folder), name="it"
    )
    return shoal.report(result, out=folder / "page", lang=request.param).page


@pytest.mark.parametrize("page", SCREENS, indirect=True)
def test_it_is_accessible_and_as_wide_as_the_screen(page, report):
    page.goto(report.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert violations(page) == []
    assert page.said == []


def test_its_timeline_zooms(page, report):
    page.goto(report.as_uri())
    stretched = page.locator("svg:visible .stretched").first
    page.locator(".zoom button").first.click()
    assert stretched.get_attribute("width") == "200%"
    page.locator(".zoom button").nth(2).click()
    assert stretched.get_attribute("width") == "100%"
