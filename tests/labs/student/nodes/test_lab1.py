"""A student's optimizer in a loop that clears gradients itself."""

import sys

import pytest
import torch
from student_folders import written_by_student

from shoal_labs.student.loop import apart
from shoal_labs.student.nodes.lab1 import StudentOptimizer, torchs_optimizer


@pytest.fixture
def stepped(tmp_path, monkeypatch):
    """How far three steps by a student's optimizer are from torch's."""

    def difference(rule, **bodies):
        written_by_student(tmp_path, "1", **bodies)
        monkeypatch.syspath_prepend(str(tmp_path / "task1" / "pytorch"))
        monkeypatch.delitem(sys.modules, "MyOptimizer", raising=False)
        ends = []
        for own in (True, False):
            param = torch.linspace(-1, 1, 6).requires_grad_()
            rate = 3e-3 if rule == "adam" else 0.1
            optimizer = StudentOptimizer([param], rule, rate) if own else torchs_optimizer([param], rule)
            for step in range(3):
                optimizer.zero_grad()
                (param * param * (step + 1)).sum().backward()
                optimizer.step()
            ends.append(param.detach())
        return apart(*ends)

    return difference


@pytest.mark.parametrize("rule", ["gd", "sgd", "adam"])
def test_right_rules_are_torchs(stepped, rule):
    assert stepped(rule) < 1e-6


def test_gradients_that_are_not_cleared_are_not_hidden_by_our_loop(stepped):
    assert stepped("sgd", zero_grad="pass") > 1e-2
