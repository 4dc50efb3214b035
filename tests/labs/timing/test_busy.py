import json
import os

import pytest

from shoal.compare.watch import QuietWatch
from shoal.report.findings import Finding, Pairs
from shoal_labs.page.page import opening
from shoal_labs.page.pictures import Pictures
from shoal_labs.page.template import Content, Page
from shoal_labs.runs import OTHER_WORK, Runs
from shoal_labs.timing import busy
from shoal_labs.timing.busy import OtherWork, trusted
from shoal_labs.words import LANGUAGES, load_words


class Machine:
    """A machine with some cores and a clock of our own; its programs use as much time as `after` says."""

    def __init__(self, proc, cores):
        self.proc, self.cores, self.now_s, self.ticks = proc, cores, 100.0, {}
        self.after(0)

    def after(self, seconds, others_s=0.0, own_s=0.0, child_s=0.0, ended_s=0.0):
        """Programs use time on the first cores; what they leave is idle."""
        self.now_s += seconds
        spent = [round(100 * each) for each in (others_s, own_s, child_s, ended_s)]
        self.ticks = {name: self.ticks.get(name, 0) + each for name, each in zip("ocde", spent, strict=True)}
        used = sum(self.ticks.values())
        idle = round(100 * (self.now_s - 100) * self.cores) - used
        rows = [
            f"cpu{core} {used // self.cores} 0 0 {idle // self.cores} 7 0 0 0 55 0"
            for core in range(self.cores)
        ]
        (self.proc / "stat").write_text("\n".join(["cpu 1 2 3", *rows, "intr 5"]), encoding="ascii")
        self.process(os.getpid(), 1, self.ticks["c"])
        self.process(77, os.getpid(), 0)  # starts the others, and has waited for one
        self.process(78, 77, self.ticks["d"])
        self.process(77, os.getpid(), 0, waited_for=self.ticks["e"])
        self.process(99, 1, self.ticks["o"])

    def process(self, pid, parent, ticks, waited_for=0):
        folder = self.proc / str(pid)
        folder.mkdir(exist_ok=True)
        text = f"{pid} (a) name) S {parent} {'0 ' * 9}{ticks} 0 {waited_for} 0 20"
        (folder / "stat").write_text(text, encoding="ascii")


@pytest.fixture(params=[2])
def machine(request, tmp_path, monkeypatch):
    made = Machine(tmp_path, request.param)
    monkeypatch.setattr(busy, "PROC", tmp_path)
    monkeypatch.setattr(busy.time, "monotonic", lambda: made.now_s)
    monkeypatch.setattr(busy, "_cores", lambda: frozenset(f"cpu{core}" for core in range(request.param)))
    monkeypatch.setattr(busy.os, "sysconf", lambda _: 100)
    return made


def test_other_programs_are_counted_and_our_own_processes_are_not(machine):
    work = OtherWork()
    machine.after(30, others_s=30, own_s=10, child_s=10, ended_s=8)
    assert work.part() == pytest.approx(0.5, abs=0.02)


def test_a_quiet_machine_is_not_busy_however_much_we_use(machine):
    work = OtherWork()
    machine.after(100, others_s=4, own_s=90, child_s=60, ended_s=40)
    assert work.part() == 0


@pytest.mark.parametrize("machine", [16], indirect=True)
def test_other_programs_do_no_harm_while_cores_are_idle(machine):
    work = OtherWork()
    machine.after(100, others_s=600, own_s=100)
    assert work.part() == 0
    machine.after(100, others_s=1500, own_s=90)
    assert work.part() == pytest.approx(0.94, abs=0.02)


def test_the_busiest_minute_counts_and_a_busy_second_does_not(machine):
    work = OtherWork()
    for others_s in (2, 60, 0, 0):
        machine.after(60, others_s=others_s, own_s=55)
        last = work.part()
    assert last == pytest.approx(0.5, abs=0.02)
    calm = OtherWork()
    for others_s in (0, 2, 0):
        machine.after(20, others_s=others_s, own_s=38)
        last = calm.part()
    assert last == 0


def test_where_it_is_unknown_the_machine_is_not_called_busy(machine):
    (machine.proc / "stat").unlink()
    work = OtherWork()
    machine.now_s += 100
    assert work.part() == 0


@pytest.mark.parametrize("text", ["", "cpu0 1 2", "cpu0 a b c d e f g h", "cpu0 1 2 3 4 5 6 7 8"])
def test_a_file_of_another_kind_is_unknown(machine, text):
    (machine.proc / "stat").write_text(text, encoding="ascii")
    assert OtherWork().part() == 0


FINDINGS = {
    "time": [
        Finding("step_time", {}, "fails", Pairs(15, 15, "rounds")),
        Finding("per_second", {}, "holds", Pairs(5, 5, "seeds"), timed=True),
    ],
    "learning": [Finding("accuracy", {}, "holds", Pairs(5, 5, "seeds"))],
}


def test_on_a_busy_machine_no_finding_about_time_is_decided():
    found = trusted(FINDINGS, 0.83)
    assert [each.verdict for each in found["time"]] == ["undecided", "undecided"]
    assert found["learning"] == FINDINGS["learning"]
    assert trusted(FINDINGS, 0.0) == FINDINGS


@pytest.mark.parametrize("lang", LANGUAGES)
def test_no_cause_is_given_for_times_that_decide_nothing(lang):
    words = load_words("shoal_labs.lab1", lang)
    numbers = {"adam": 1.0, "sgd": 1.0, "gd": 1.0, "gd_samples": 8}
    noisy = Finding("step_time", numbers, "undecided", Pairs(8, 15, "rounds"))
    (loaded,) = trusted({"time": [Finding("step_time", numbers, "fails", timed=True)]}, 0.83)["time"]
    for finding, reason in (
        (noisy, words("analysis.undecided")),
        (loaded, words("analysis.busy", part=83.0)),
    ):
        page = Page(Content(), {"step_time": [finding]}, Pictures({}), words, {})
        document, _ = page.document("{finding:step_time}\n: A\n: numbers: {adam}\n: holds: B\n: fails: C\n")
        assert document.blocks[0].reason == reason


def test_a_report_that_takes_runs_over_takes_over_how_busy_the_machine_was(tmp_path, monkeypatch):
    monkeypatch.setattr(OtherWork, "part", lambda self: 0.0)
    words = load_words("shoal_labs.lab1", "en")
    (tmp_path / "earlier" / "run").mkdir(parents=True)
    (tmp_path / "earlier" / OTHER_WORK).write_text(json.dumps(0.83))
    runs = Runs(tmp_path / "runs", words, QuietWatch(), tmp_path / "earlier")
    assert runs.busy() == 0
    runs.reuse("run", lambda _: True)
    assert runs.busy() == 0.83
    assert json.loads((tmp_path / "runs" / OTHER_WORK).read_text()) == 0.83


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_report_of_a_busy_machine_says_so(tmp_path, lang):
    words = load_words("shoal_labs.lab1", lang)
    runs = Runs(tmp_path, words, QuietWatch())
    quiet, loaded = (opening("shoal lab 1", runs, part) for part in (0.0, 0.42))
    assert len(loaded) == len(quiet) + 1
    assert any("42 %" in getattr(block, "text", "") for block in loaded)
