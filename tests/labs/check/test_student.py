"""What a student has written: found by name, known to be not done, or still as it was handed out."""

import sys

import pytest
import torch
from hand_ins import OPTIMIZER, hand_in

from shoal.report.folder import write_files
from shoal_labs.check.solution import check_folders, is_untouched
from shoal_labs.check.student import NotWrittenError, class_like, with_method, written
from shoal_labs.handout.start import skeleton


@pytest.fixture
def file(tmp_path, monkeypatch):
    (tmp_path / "their_file.py").write_text(
        "import torch\n"
        "def full(x):\n    return x\n"
        "def empty(x):\n    '''Does it.'''\n    pass\n"
        "class MySGD:\n    @torch.no_grad()\n    def step(self):\n        pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield "their_file"
    sys.modules.pop("their_file", None)


def test_what_is_missing_or_empty_is_not_written(file):
    assert written(file, "full")(3) == 3
    assert written(file, "other", "full")(3) == 3
    for name in ("empty", "absent"):
        with pytest.raises(NotWrittenError, match=f"their_file.py {name}"):
            written(file, name)


def test_a_class_may_have_another_name_and_needs_its_method(file):
    kind = class_like(file, "sgd", "SgdOptimizer")
    assert kind.__name__ == "MySGD"
    with pytest.raises(NotWrittenError, match=r"MySGD\.step"):
        with_method(kind, "step")
    assert with_method(torch.optim.SGD, "step") is torch.optim.SGD


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("number", ["1", "2", "3", "4", "autograd"])
def test_a_skeleton_is_known_without_running_it(tmp_path, number, lang, monkeypatch):
    def none_is_run(tasks, jobs):
        assert tasks == []
        yield from ()

    write_files(tmp_path, skeleton(number, lang))
    monkeypatch.setattr("shoal_labs.check.solution.answers", none_is_run)
    (checked,) = check_folders(number, [tmp_path])
    assert {each.word for each in checked.verdicts} == {"open"}
    assert {fault.key for each in checked.verdicts for fault in each.faults} == {"not_done"}


def test_a_task_that_was_begun_or_defined_again_is_run(tmp_path):
    for name, (old, new) in {
        "begun": ('("Task gd_step: see README.md")', '("Task gd_step") if param.grad is None else None'),
        "again": ("class AdamOptimizer(", "class GdOptimizer(BaseOptimizer): pass\n\n\nclass AdamOptimizer("),
    }.items():
        file = hand_in(tmp_path / name, (old, new), files=skeleton("1", "en")) / OPTIMIZER
        assert not is_untouched("1", file, ["gd_step"])
        assert is_untouched("1", file, ["sgd_step"])
