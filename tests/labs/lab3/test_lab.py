from dataclasses import replace

import pytest
from reports import Listening, again_in_chinese, assert_judged, assert_whole, rows, text_of

from shoal.compare.watch import QuietWatch
from shoal.config.sections.data import SyntheticConfig
from shoal.config.sections.model import MlpConfig
from shoal_labs.frame import run_plan
from shoal_labs.lab3.lab import LAB
from shoal_labs.lab3.plan import DIVISIONS, TIMED, Lab3Plan, Lab3Size
from shoal_labs.words import load_words

MODEL = MlpConfig(hidden=(16,))
SIZE = Lab3Size(2, 2, few_seeds=2, rounds=2, few_rounds=2, timed_steps=4, equal_steps=3, model=MODEL)

TINY = Lab3Plan(
    (2,),
    SIZE,
    quick=True,
    data=SyntheticConfig(samples=240, validation=0.2),
    timed_model=MODEL,
    timed_launcher="threads",
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder, watch = tmp_path_factory.mktemp("lab") / "report", Listening()
    return run_plan(LAB, TINY, folder, "shoal lab 3", load_words(LAB.package, "en"), watch), watch


@pytest.fixture(scope="module")
def in_chinese(finished, tmp_path_factory):
    folder = tmp_path_factory.mktemp("zh") / "report"
    return again_in_chinese(
        LAB, TINY, folder, finished[0].folder / "runs", "shoal_labs.lab3.own_loop.train_own"
    )


def test_every_division_has_its_curve_its_accuracy_and_its_coverage(finished):
    folder = finished[0].folder
    for table in ("results", "curves", "coverage"):
        names = {row["division"] for row in rows(folder, table)}
        assert {*DIVISIONS, "own-right", "own-range", "own-rank-seed", "own-seldom-label"} <= names
    assert len([row for row in rows(folder, "speed") if row["workers"] == "2"]) == len(TIMED) + 3
    per_epoch = [row for row in rows(folder, "curves") if row["division"] == "label"]
    assert [(row["seed"], row["epoch"]) for row in per_epoch] == [
        ("0", "1"),
        ("0", "2"),
        ("1", "1"),
        ("1", "2"),
    ]


def test_the_report_has_the_courses_sections_and_leaves_no_place_empty(finished):
    assert_report(finished[0], "en")


def test_the_report_in_chinese_is_made_from_the_same_runs(finished, in_chinese):
    assert_report(in_chinese, "zh")
    for table in ("results", "curves", "coverage"):
        assert rows(finished[0].folder, table) == rows(in_chinese.folder, table)


def assert_report(outcome, lang):
    words = load_words(LAB.package, lang)
    assert_whole(outcome.folder, words)
    assert_judged(outcome, words, {"faster_than_one_process", "crowded_is_slower"}, LAB.claims)
    assert "torch.randperm" in text_of(outcome.folder)  # the divisions' own source
    assert len(text_of(outcome.folder).split("![")) == 7  # loading, owners, curves, speed, batches, samplers


def test_runs_are_printed_and_what_is_equal_is_equal(finished):
    outcome, watch = finished
    assert any("own-range-2w-seed1" in line for line in watch.lines)
    exact = [float(row["relative difference"]) for row in rows(outcome.folder, "equality")]
    assert len(exact) == len(DIVISIONS)
    assert max(exact) < 1e-5


def test_runs_with_other_settings_are_made_again(finished, tmp_path, monkeypatch):
    def train(*_):
        raise AssertionError("trained again")

    monkeypatch.setattr("shoal_labs.student.host.launch_run", train)
    words = load_words(LAB.package, "en")
    with pytest.raises(AssertionError, match="trained again"):
        run_plan(
            LAB,
            replace(TINY, first_seed=5),
            tmp_path / "out",
            "",
            words,
            QuietWatch(),
            earlier=finished[0].folder / "runs",
        )
