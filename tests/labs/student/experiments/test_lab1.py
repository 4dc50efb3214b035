"""Lab 1 with a student's optimizers: the whole report, about the student's numbers."""

from dataclasses import replace

import pytest
from hand_ins import COURSE_MODEL, COURSE_OPTIMIZER, hand_in
from reports import assert_whole, findings_in, rows, text_of
from student_folders import report_of, written_by_student

from shoal.config.sections.data import SyntheticConfig
from shoal.errors import ConfigError
from shoal_labs.lab1.claims import CLAIMS
from shoal_labs.lab1.plan import Lab1Plan, Lab1Size
from shoal_labs.student.submission import read_submission

TASKS = ("zero_grad", "gd_step", "sgd_step", "adam_step")
UNCORRECTED = """
    for p, m, v in zip(self.params, self.m, self.v):
        m.mul_(self.b1).add_((1 - self.b1) * p.grad)
        v.mul_(self.b2).add_((1 - self.b2) * p.grad**2)
        p -= self.lr * m / (v.sqrt() + self.eps)
    """


def lab_plan(submission):
    data = SyntheticConfig(samples=160, validation=0.2)
    plan = Lab1Plan(data, Lab1Size(2, 1, seeds=2, sweep_part=1, contest_s=0.5), quick=True, device="cpu")
    return replace(plan, code=submission.fingerprint)


def report(folder, out, **more):
    return report_of(folder, "1", "MyOptimizer.py", out, lab_plan=lab_plan, **more)


def equal_findings(outcome):
    """The verdict on each optimizer's rule."""
    found = [each for each in findings_in(outcome.folder) if each["claim"] == "own_equal"]
    return {each["numbers"]["part"]: each["verdict"] for each in found}


def test_a_right_solution_in_the_courses_shape_holds(tmp_path):
    files = {"task1/pytorch/MyOptimizer.py": COURSE_OPTIMIZER, "task1/pytorch/model.py": COURSE_MODEL}
    outcome, words = report(hand_in(tmp_path / "in", files=files), tmp_path / "out", tasks=TASKS)
    assert set(equal_findings(outcome).values()) == {"holds"}
    text = text_of(outcome.folder)
    assert_whole(outcome.folder, words)
    assert "class MySGD(GdOptimizer)" in text  # the student's file, and none of ours
    assert "class SgdOptimizer" not in text
    claims = {row["claim"] for row in rows(outcome.folder, "findings")}
    assert claims == {"own_equal", *(claim.name for claim in CLAIMS)}
    assert {row["optimizer"] for row in rows(outcome.folder, "results")} == {"gd", "sgd", "adam"}


def test_adam_without_bias_correction_is_found_in_its_numbers_and_explained(tmp_path):
    folder = written_by_student(tmp_path / "in", "1", adam_step=UNCORRECTED)
    outcome, words = report(folder, tmp_path / "out", lang="zh")
    assert equal_findings(outcome) == {"你的 GD": "holds", "你的 SGD": "holds", "你的 Adam": "fails"}
    assert words("check.adam_uncorrected") in text_of(outcome.folder)
    assert_whole(outcome.folder, words)


def test_code_that_stops_in_training_leaves_one_sentence_and_no_folder(tmp_path):
    body = "if self.lr > 0.2: raise OverflowError('too far')\nparam -= self.lr * param.grad"
    folder = written_by_student(tmp_path / "in", "1", gd_step=body)
    with pytest.raises(ConfigError, match=r"OverflowError: too far \(MyOptimizer.py:\d+\)"):
        report(folder, tmp_path / "out", tasks=TASKS)
    assert not (tmp_path / "out").exists()


def test_an_optimizer_that_never_trains_is_named(tmp_path):
    folder = written_by_student(tmp_path / "in", "1", sgd_step="param += float('nan')")
    with pytest.raises(ConfigError, match=r"MyOptimizer.py: sgd diverges at every learning rate"):
        report(folder, tmp_path / "out", tasks=TASKS)


def test_runs_of_other_code_are_not_reused(tmp_path):
    folders = [
        written_by_student(tmp_path / "a", "1"),
        written_by_student(tmp_path / "b", "1", gd_step="pass"),
    ]
    plans = [lab_plan(read_submission("1", folder, "MyOptimizer.py")) for folder in folders]
    first, second = (plan.config("sgd", 0.1, 0, 1, test=False) for plan in plans)
    assert first != second
