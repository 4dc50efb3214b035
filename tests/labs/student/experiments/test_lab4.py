"""Lab 4 with a student's split model: the program as it is, against one process."""

from reports import assert_whole, findings_in, rows, text_of
from stage_programs import DIST_UTILS, RIGHT, WRONG, changed
from student_folders import report_of

from shoal.report.folder import write_files

TASKS = ("stages", "forward", "init_parameters", "parameter_rrefs", "train_step")


def report(folder, out, lang="en"):
    outcome, words = report_of(folder, "4", "model.py", out, lang=lang, tasks=TASKS, drawn=lang == "en")
    assert_whole(outcome.folder, words)
    return outcome, {each["claim"]: each for each in findings_in(outcome.folder)}


def student(folder, replacements):
    write_files(folder, {"model.py": changed(RIGHT, replacements), "dist_utils.py": DIST_UTILS})
    return folder


def test_a_right_program_equals_one_process(tmp_path):
    outcome, found = report(student(tmp_path / "in", {}), tmp_path / "out")
    assert {found[claim]["verdict"] for claim in ("own_trains", "own_split", "own_equal")} == {"holds"}
    assert "worker1: conv1, conv2" in found["own_split"]["numbers"]["places"]
    assert (outcome.folder / "figures" / "own.png").read_bytes().startswith(b"\x89PNG")


def test_a_step_outside_of_its_context_is_reported_without_numbers_of_ours(tmp_path):
    case = next(case for case in WRONG if case[0] == "context_left")
    outcome, found = report(student(tmp_path / "in", WRONG[case]), tmp_path / "out", lang="zh")
    assert found["own_trains"]["verdict"] == "fails"
    assert "model.py:" in found["own_trains"]["numbers"]["why"]
    assert "own_equal" not in found
    assert not rows(outcome.folder, "runs")
    assert "def " in text_of(outcome.folder)
