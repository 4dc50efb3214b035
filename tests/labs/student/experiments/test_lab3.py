"""Lab 3 with a student's samplers: what they divide, and what training with them learns."""

from dataclasses import replace

from reports import assert_whole, findings_in
from student_folders import report_of, written_by_student

from shoal.config.sections.data import DigitsConfig
from shoal_labs.lab3.plan import QUICK, Lab3Plan
from shoal_labs.student.experiments.lab3 import RIGHT

TASKS = ("random_partition", "random_sampling")


def lab_plan(_):
    data = DigitsConfig(samples=240, validation=1 / 3)
    return Lab3Plan((2,), replace(QUICK, epochs=2), quick=True, data=data)


def report(folder, out, **more):
    outcome, words = report_of(folder, "3", "sampler.py", out, lab_plan=lab_plan, tasks=TASKS, **more)
    assert_whole(outcome.folder, words)
    return {(each["claim"], each["numbers"]["part"]): each for each in findings_in(outcome.folder)}


def test_a_right_sampler_divides_the_data_once(tmp_path):
    found = report(written_by_student(tmp_path / "in", "3"), tmp_path / "out")
    assert found["own_covers", "MySampler"]["verdict"] == "holds"
    assert found["own_draws", "MyRandomSampler"]["verdict"] == "holds"
    assert found["own_epochs", "MySampler"]["verdict"] == "holds"
    assert ("own_accuracy", "MySampler (W = 2)") in found


def test_a_range_of_one_nodes_length_sees_half_of_the_data(tmp_path):
    folder = written_by_student(tmp_path / "in", "3", random_partition="return iter(range(len(self)))")
    found = report(folder, tmp_path / "out", lang="zh")
    covers = found["own_covers", "MySampler"]
    assert covers["verdict"] == "fails"
    assert covers["numbers"]["coverage"] == "50.0"
    assert found["own_epochs", "MySampler"]["verdict"] == "fails"


def test_a_sampler_that_gives_everything_to_every_node_still_trains(tmp_path):
    body = "return iter(torch.randperm(len(self.dataset)).tolist())"
    folder = written_by_student(tmp_path / "in", "3", random_partition=body)
    covers = report(folder, tmp_path / "out")["own_covers", "MySampler"]
    assert (covers["verdict"], covers["numbers"]["times"]) == ("fails", "2")


def test_each_sampler_is_compared_with_one_of_its_own_kind():
    def taken(name):
        return sorted(
            index for rank in range(2) for index in RIGHT[name].sampler(range(100), None, 2, rank, 0)
        )

    assert taken("partition") == list(range(100))
    assert len(taken("sampling")) == 100
    assert 50 < len(set(taken("sampling"))) < 75
