"""The live page in Chromium: it changes by itself, zooms, and says when nothing comes any more."""

import pytest
from growing import Growing
from looking import SCREENS, Cable, violations

from shoal.watch.address import listener, new_token, url_of
from shoal.watch.page import LivePage
from shoal.watch.server import serving

pytestmark = pytest.mark.browser


def expect(found):
    """Waits until a part of the page is as a test expects it. Other tests run without the package."""
    from playwright.sync_api import expect

    return expect(found)


@pytest.fixture
def folder(tmp_path):
    made = Growing(tmp_path / "a <b>run", workers=2)
    made.begin()
    made.steps(0, 45, own_ms=[3.0, 9.0])
    return made


@pytest.fixture
def url(folder, request):
    listening, token = listener(), new_token()
    with serving(LivePage(folder.path, None, getattr(request, "param", "en")), listening, token):
        yield url_of(listening, token)


@pytest.mark.parametrize("url", ["en", "zh"], indirect=True)
@pytest.mark.parametrize("page", SCREENS, indirect=True)
def test_it_shows_the_essentials_and_is_accessible(page, url):
    page.goto(url)
    page.wait_for_selector("#workers table")
    assert page.locator("h1").inner_text() == "a <b>run"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    top = page.locator("#loss svg:visible").first.bounding_box()["y"]
    assert top < page.viewport_size["height"] * 0.75
    assert page.locator("#loss svg:visible").count() == 1
    assert page.locator("#workers tbody tr").count() == 2
    assert violations(page) == []
    assert page.said == []


def test_it_changes_without_a_reload(page, url, folder):
    page.goto(url)
    page.wait_for_selector("#workers table")
    folder.steps(45, 70)
    expect(page.locator("#state")).to_contain_text("70")
    folder.end()
    expect(page.locator("#state")).to_contain_text("finished")
    assert page.said == []


def test_the_timeline_zooms_and_stays_while_newer_steps_come(page, url, folder):
    page.goto(url)
    stretched = page.locator("#timeline svg:visible .stretched").first
    page.wait_for_selector("#timeline .zoom button")
    assert stretched.get_attribute("width") == "100%"
    page.locator("#timeline .zoom button").first.click()
    assert stretched.get_attribute("width") == "200%"
    title = page.locator("#timeline svg:visible").first.text_content()
    folder.steps(45, 85, own_ms=[3.0, 9.0])
    page.wait_for_selector("#timeline .held")
    assert page.locator("#timeline svg:visible").first.text_content() == title
    page.locator("#timeline .zoom button").nth(2).click()
    expect(page.locator("#timeline .held")).to_have_count(0)
    expect(page.locator("#timeline svg:visible").first).to_contain_text("80")


def test_a_cut_connection_is_said_and_repaired_and_the_picture_stays(page, folder):
    listening, token = listener(), new_token()
    cable = Cable(listening.getsockname()[1])
    with serving(LivePage(folder.path, None, "en"), listening, token):
        page.goto(f"http://127.0.0.1:{cable.port}/{token}/")
        page.wait_for_selector("#workers table")
        page.wait_for_timeout(300)  # until it listens
        cable.cut()
        page.wait_for_selector("#connection:not([hidden])")
        assert page.locator("#loss svg:visible").count() == 1
        folder.steps(45, 60)
        cable.mend()
        expect(page.locator("#state")).to_contain_text("60", timeout=20_000)
        expect(page.locator("#connection")).to_be_hidden()


def test_the_end_of_the_command_is_said_and_the_picture_stays(page, folder):
    listening, token = listener(), new_token()
    with serving(LivePage(folder.path, None, "en"), listening, token):
        page.goto(url_of(listening, token))
        page.wait_for_selector("#workers table")
        page.wait_for_timeout(500)
        folder.end()
    page.wait_for_selector("#connection:not([hidden])")
    assert "finished" in page.locator("#state").inner_text()
    assert page.locator("#loss svg:visible").count() == 1
