"""Lab 2 with a student's averages: two real nodes against one machine."""

import math

from reports import assert_whole, findings_in, rows, text_of
from student_folders import TINY, report_of, written_by_student

from shoal_labs.student.experiments.lab2 import findings
from shoal_labs.student.part import StudentMeasured, StudentPart, StudentPlan, StudentRun

TASKS = ("allreduce_average_gradients", "allgather_average_gradients", "reduce_average_gradients")


def verdicts(outcome):
    """The verdict on every claim, by claim and function."""
    found = {}
    for each in findings_in(outcome.folder):
        part = next(iter(each["numbers"].values())).removesuffix("_average_gradients")
        found[each["claim"], part] = each["verdict"]
    return found


def test_right_averages_equal_one_machine(tmp_path):
    folder = written_by_student(tmp_path / "in", "2")
    outcome, words = report_of(folder, "2", "dist_utils.py", tmp_path / "out", tasks=TASKS)
    found = verdicts(outcome)
    for name in ("allreduce", "allgather", "reduce"):
        assert {found[claim, name] for claim in ("own_equal", "own_nodes", "own_calls")} == {"holds"}
        assert found["own_uneven", name] == "fails"  # a mean of means
    assert_whole(outcome.folder, words)
    assert "def reduce_average_gradients" in text_of(outcome.folder)
    assert len(rows(outcome.folder, "runs")) == 3 * 2 * 2


def test_wrong_averages_are_found_by_their_numbers(tmp_path):
    folder = written_by_student(
        tmp_path / "in",
        "2",
        allreduce_average_gradients="for param in model.parameters():\n    dist.all_reduce(param.grad)",
        allgather_average_gradients="""
        for param in model.parameters():
            dist.all_reduce(param.grad)
            param.grad /= dist.get_world_size()
        """,
        reduce_average_gradients="""
        for param in model.parameters():
            dist.reduce(param.grad, 0)
            param.grad /= dist.get_world_size()
        """,
    )
    outcome, words = report_of(folder, "2", "dist_utils.py", tmp_path / "out", lang="zh", tasks=TASKS)
    found = verdicts(outcome)
    assert found["own_equal", "allreduce"] == "fails"  # a sum
    assert (found["own_equal", "allgather"], found["own_calls", "allgather"]) == ("holds", "fails")
    assert found["own_nodes", "reduce"] == "fails"  # one node has the mean
    assert_whole(outcome.folder, words)


def test_the_courses_hand_out_has_two_averages(tmp_path):
    folder = written_by_student(tmp_path / "in", "2")
    outcome, _ = report_of(folder, "2", "dist_utils.py", tmp_path / "out", tasks=TASKS[:2])
    assert {row["part"] for row in rows(outcome.folder, "runs")} == {"allreduce", "allgather"}


def test_nodes_whose_weights_are_not_numbers_are_not_said_to_differ():
    def claims(between):
        times = {"even_ms": [1.0] * 4, "slow_ms": [6.0] * 4, "calls": {"all_reduce": 8}}
        numbers = {"difference": math.inf, "uneven": math.inf, "between": between, **times}
        runs = (StudentRun([2.0, 1.0], 0.1),) * 4
        part = StudentPart("allreduce", "Yours", runs, runs, [64, 128], numbers)
        found = findings(StudentMeasured(StudentPlan(None, TINY), {"allreduce": part}, ()))
        return [finding.claim for finding in found]

    assert "own_nodes" in claims(between=0.5)
    assert "own_nodes" not in claims(between=math.inf)
