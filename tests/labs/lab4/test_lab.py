import pytest
from reports import Listening, again_in_chinese, assert_judged, assert_whole, rows, text_of

from shoal.config.sections.data import DigitsConfig
from shoal.events.file import read_events
from shoal.events.folder import RunFolder
from shoal.events.steps import steps_of
from shoal_labs.frame import run_plan
from shoal_labs.lab4.lab import LAB
from shoal_labs.lab4.plan import SCHEDULES, Lab4Plan, Lab4Size
from shoal_labs.words import load_words

TINY = Lab4Plan(
    3,
    Lab4Size(epochs=2, timed_epochs=1, rounds=1, rpc_rounds=1, round_steps=3, microbatches=(1, 4)),
    quick=True,
    data=DigitsConfig(samples=450, validation=0.15),
    launcher="threads",
)
WAYS = {"single", "rpc", "rpc-4", *SCHEDULES, "tensor"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder, watch = tmp_path_factory.mktemp("lab") / "report", Listening()
    return run_plan(LAB, TINY, folder, "shoal lab 4", load_words(LAB.package, "en"), watch), watch


@pytest.fixture(scope="module")
def in_chinese(finished, tmp_path_factory):
    folder = tmp_path_factory.mktemp("zh") / "report"
    return again_in_chinese(LAB, TINY, folder, finished[0].folder / "runs")


def test_every_way_has_its_accuracy_its_time_and_its_workers(finished):
    folder = finished[0].folder
    found = {row["run"]: row for row in rows(folder, "results")}
    assert {name for name, row in found.items() if row["test accuracy (1)"]} == WAYS
    assert all(float(row["step (ms)"]) > 0 for row in found.values())
    assert all(int(row["sent in a step (B)"]) > 0 for name, row in found.items() if row["workers"] != "1")
    assert {row["run"] for row in rows(folder, "curves")} == WAYS


def test_every_way_equals_one_machine_after_the_first_step(finished):
    found = rows(finished[0].folder, "results")
    assert max(float(row["difference after one step"]) for row in found) < 1e-5


def test_the_workers_of_a_way_hold_what_one_machine_holds(finished):
    held = {}
    for row in rows(finished[0].folder, "workers"):
        held.setdefault(row["run"], []).append(int(row["parameters (B)"]))
    assert {sum(each) for each in held.values()} == {held["single"][0]}
    assert all(max(each) < held["single"][0] for name, each in held.items() if len(each) > 1)


def test_the_timelines_show_every_action_of_the_schedule(finished):
    actions = rows(finished[0].folder, "actions")
    for name in SCHEDULES:
        executed, planned = (
            [
                (row["stage"], row["action"])
                for row in actions
                if (row["run"], row["timeline"]) == (name, kind)
            ]
            for kind in ("measured", "ideal")
        )
        assert executed == planned
        assert len(executed) == 3 * 4 * (3 if name == "zero-bubble" else 2)


def test_a_stage_over_rpc_counts_no_evaluation_as_a_part_of_a_step(finished):
    folder = RunFolder(finished[0].folder / "runs" / "rpc")
    for rank in (1, 2):
        steps = steps_of(read_events(folder.events(rank)))
        forwards = [[span.name for span in step.spans].count("forward") for step in steps]
        assert forwards == [1] * len(steps)


def test_tables_and_findings_have_the_same_bubbles(finished):
    folder = finished[0].folder
    found = {(row["claim"], row["number"]): row["value"] for row in rows(folder, "findings")}
    for place, row in enumerate(rows(folder, "microbatches")):
        for number, column in (
            ("count", "micro-batches"),
            ("measured", "bubble (%)"),
            ("formula", "formula (%)"),
        ):
            assert found["bubble_as_formula", f"bubbles, {place}, {number}"] == row[column]


def test_the_report_is_whole_in_both_languages(finished, in_chinese):
    for outcome, lang in ((finished[0], "en"), (in_chinese, "zh")):
        words = load_words(LAB.package, lang)
        assert_whole(outcome.folder, words)
        assert_judged(outcome, words, claims=LAB.claims)
        assert "def gpipe(" in text_of(outcome.folder)  # the code that ran
        assert len(text_of(outcome.folder).split("![")) == 1 + 4 + 2 * len(SCHEDULES)
    for table in ("results", "actions"):
        assert rows(finished[0].folder, table) == rows(in_chinese.folder, table)
