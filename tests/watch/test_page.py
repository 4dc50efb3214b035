"""The live page as HTML, in both languages."""

import pytest
from growing import Growing

from shoal.watch.page import PARTS, LivePage


def made(path, lang="en", beside=None):
    page = LivePage(path, beside, lang)
    page.refresh()
    return page


@pytest.fixture
def folder(tmp_path):
    return Growing(tmp_path / "run", workers=2)


def test_before_the_first_step_the_page_has_its_numbers_and_no_figures(folder):
    page = made(folder.path)
    assert set(page.parts) == set(PARTS)
    assert (page.parts["loss"], page.parts["timeline"], page.parts["slow"]) == ("", "", "")
    assert "<dl" in page.parts["state"]


def test_an_earlier_run_is_drawn_beside_with_its_name(folder, tmp_path):
    older = Growing(tmp_path / "older")
    older.begin()
    older.steps(0, 30)
    folder.begin()
    folder.steps(0, 30)
    alone, beside = made(folder.path), made(folder.path, beside=older.path)
    assert "older" in beside.parts["loss"]
    assert (
        beside.parts["loss"].count("<polyline") == alone.parts["loss"].count("<polyline") + 2
    )  # page and phone
    assert "older" in beside.parts["speed"]


def test_slow_workers_are_marked_as_they_appear_and_stay_in_the_log(folder):
    folder.begin(total=1000)
    folder.steps(0, 30)
    page = made(folder.path)
    assert page.parts["slow"] == ""
    folder.steps(30, 150, own_ms=[3.0, 9.0])
    page.refresh()
    assert 'class="finding fails"' in page.parts["slow"]
    since = page.parts["log"].count("step 150")
    assert since == 1
    folder.steps(150, 300)
    page.refresh()
    assert page.parts["slow"] == ""
    assert page.parts["log"].count("step 150") == since


def test_only_what_changed_is_drawn_again(folder):
    folder.begin()
    folder.steps(0, 30)
    page = made(folder.path)
    before = page.parts
    folder.steps(30, 32)
    page.refresh()
    assert page.parts["timeline"] is not None
    assert {name for name in PARTS if page.parts[name] != before[name]} >= {"state", "loss", "workers"}
    assert page.parts["timeline"] == before["timeline"]


def test_the_page_speaks_chinese(folder):
    folder.begin()
    folder.steps(0, 30)
    english, chinese = made(folder.path), made(folder.path, "zh")
    assert '<html lang="zh-Hans">' in chinese.html()
    assert all(english.parts[name] != chinese.parts[name] for name in ("state", "workers", "timeline", "log"))


def test_damage_stands_on_the_page_beside_the_rest(folder):
    folder.begin()
    folder.steps(0, 30)
    folder.append(0, b'{"event":"step","crc":"00000000"}\n')
    parts = made(folder.path).parts
    assert "events.rank0.jsonl" in parts["problems"]
    assert "30 of 100" in parts["state"]
