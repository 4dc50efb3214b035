"""What is refused before anything is measured, and which parts of a folder can be measured."""

from pathlib import Path

import pytest
from student_folders import written_by_student

from shoal.errors import ConfigError
from shoal.report.folder import write_files
from shoal_labs.frame import folder_for, load_lab
from shoal_labs.handout.start import skeleton
from shoal_labs.settings import SETTINGS
from shoal_labs.student.experiments import autograd, lab2, lab4
from shoal_labs.student.spec import StudentExperiment, reasons, usable
from shoal_labs.student.submission import TaskVerdict, read_submission
from shoal_labs.words import load_words

EXPERIMENT = StudentExperiment(
    number="2", file="dist_utils.py", parts=lab2.PARTS, measure=lab2.measure, findings=lab2.findings
)
WHOLE = StudentExperiment(
    number="4", file="model.py", parts=lab4.PARTS, measure=lab4.measure, findings=lab4.findings, stops=False
)
WORDS = load_words("shoal_labs.lab2", "en", "shoal_labs.student")


@pytest.fixture
def submission(tmp_path):
    written_by_student(tmp_path, "2")
    return read_submission("2", tmp_path, "dist_utils.py")


def verdict(task, word, why="", stops=False):
    return TaskVerdict((task,), word, why, stops)


def test_parts_that_are_not_written_are_left_out(submission):
    found = [
        verdict("allreduce_average_gradients", "wrong", "the sum"),
        verdict("allgather_average_gradients", "open", "not done"),
    ]
    assert usable(EXPERIMENT, submission, found, WORDS) == ["allreduce"]
    with pytest.raises(ConfigError, match="nothing can be trained yet.*: allgather_average_gradients\n"):
        usable(EXPERIMENT, submission, found[1:], WORDS)


def test_a_part_needs_all_of_its_tasks(submission):
    tape = StudentExperiment(
        number="autograd",
        file="tape.py",
        parts={"tape": autograd.TASKS},
        measure=autograd.measure,
        findings=autograd.findings,
    )
    found = [verdict("mul", "right"), *(verdict(task, "open") for task in ("add", "grad"))]
    with pytest.raises(ConfigError, match="tasks that are not written: add, grad\n"):
        usable(tape, submission, found, WORDS)


def test_code_that_would_stop_is_one_sentence(submission):
    why = "your code raises NameError: name 'x' is not defined (dist_utils.py:30)"
    with pytest.raises(
        ConfigError,
        match=r"^dist_utils.py: allreduce_average_gradients: your code raises NameError.*:30\)",
    ) as error:
        usable(
            EXPERIMENT, submission, [verdict("allreduce_average_gradients", "wrong", why, stops=True)], WORDS
        )
    assert "shoal lab check 2" in error.value.hint


def test_tasks_that_stop_for_the_same_reason_are_one_sentence():
    same = [verdict(task, "wrong", "no reset_tape", stops=True) for task in ("mul", "add")]
    assert reasons([*same, verdict("grad", "wrong", "timed out")]) == [
        "mul, add: no reset_tape",
        "grad: timed out",
    ]


def test_a_program_that_is_watched_is_reported_on_though_it_stops(submission):
    found = [verdict("stages", "open"), verdict("train_step", "wrong", "hangs", stops=True)]
    assert usable(WHOLE, submission, found, WORDS) == ["whole"]


def test_a_folder_that_is_not_there_and_one_without_the_file(tmp_path):
    with pytest.raises(ConfigError, match="nowhere is not a folder"):
        read_submission("1", Path("nowhere"), "MyOptimizer.py")
    with pytest.raises(ConfigError, match="there is no MyOptimizer.py"):
        read_submission("1", tmp_path, "MyOptimizer.py")


def test_the_fingerprint_follows_the_code(tmp_path):
    first = read_submission("1", written_by_student(tmp_path / "a", "1"), "MyOptimizer.py")
    same = read_submission("1", written_by_student(tmp_path / "b", "1"), "MyOptimizer.py")
    other = read_submission("1", written_by_student(tmp_path / "c", "1", gd_step="pass"), "MyOptimizer.py")
    assert first.fingerprint == same.fingerprint != other.fingerprint


def test_the_report_shows_every_file_of_the_program_that_has_tasks(tmp_path):
    written_by_student(tmp_path, "4")
    lab = load_lab("4", solution=True)
    submission = lab.plan(SETTINGS[lab.number](solution=tmp_path, quick=True)).submission
    assert submission.folder == tmp_path
    assert list(submission.sources) == ["model.py", "dist_utils.py"]
    assert "def parameter_rrefs" in submission.sources["dist_utils.py"]
    submission.also[0].unlink()
    assert list(lab.plan(SETTINGS[lab.number](solution=tmp_path)).submission.sources) == ["model.py"]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_hand_outs_of_both_languages_are_found_from_their_folder_or_one_below(tmp_path, lang):
    write_files(tmp_path, skeleton("1", lang))
    for folder in (tmp_path, tmp_path / "task1", tmp_path / "task1" / "pytorch"):
        found = read_submission("1", folder, "MyOptimizer.py")
        assert found.file == tmp_path / "task1" / "pytorch" / "MyOptimizer.py"


def test_flags_without_an_effect_are_refused(tmp_path):
    lab = load_lab("2", solution=True)
    settings = SETTINGS[lab.number](solution=tmp_path, workers=3)
    with pytest.raises(ConfigError, match="--workers has no effect with --solution"):
        lab.plan(settings)
    assert "lab2-solution" in str(folder_for(lab, settings))
