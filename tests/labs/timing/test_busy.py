import pytest

from shoal.labs.page.page import opening
from shoal.labs.runs import Runs
from shoal.labs.timing import busy
from shoal.labs.timing.busy import OtherWork
from shoal.labs.watch import QuietWatch
from shoal.labs.words import load_words


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with two cores, a clock of our own, and programs that use as much time as `used` says."""
    now = {"s": 100.0, "used": 0}
    stat = tmp_path / "stat"
    monkeypatch.setattr(busy, "STAT", stat)
    monkeypatch.setattr(busy.time, "monotonic", lambda: now["s"])
    monkeypatch.setattr(busy.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(busy.os, "sysconf", lambda _: 100)

    def after(seconds, used_s):
        now["s"] += seconds
        now["used"] += round(100 * used_s)
        stat.write_text(f"cpu {now['used']} 0 0 999999 7 0 0 0 55 0\ncpu0 1 2 3\n", encoding="ascii")

    after(0, 50)
    return after


def test_other_programs_are_counted_and_this_one_is_not(machine):
    work = OtherWork()
    machine(100, used_s=60)
    assert work.fraction() == pytest.approx(0.3, abs=0.02)
    assert work.busy() == pytest.approx(30, abs=2)


def test_a_quiet_machine_is_not_mentioned(machine):
    work = OtherWork()
    machine(100, used_s=4)
    assert work.busy() == 0


def test_where_it_is_unknown_nothing_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr(busy, "STAT", tmp_path / "missing")
    assert OtherWork().fraction() is None
    assert OtherWork().busy() == 0


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_report_of_a_busy_machine_says_so(tmp_path, lang):
    words = load_words("shoal.labs.lab1", lang)
    runs = Runs(tmp_path, words, QuietWatch())
    quiet, loaded = (opening(True, "shoal lab 1", runs, part) for part in (0.0, 42.0))
    assert len(loaded) == len(quiet) + 1
    assert any("42 %" in getattr(block, "text", "") for block in loaded)
