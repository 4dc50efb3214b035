"""Functions of a notebook, run by several workers."""

import os

import pytest
import torch

import shoal
from shoal.api.notebook import notebook_launch
from shoal.errors import ConfigError, WorkerError

SEEN = []


def summed(scale):
    SEEN.append(scale)  # a copy's own list, unless workers are threads
    group = shoal.join()
    value = torch.tensor([scale * (group.rank + 1)])
    group.all_reduce(value).wait()
    print(f"of {group.size}")
    return value.item(), os.getpid()


def test_processes_return_their_values_and_their_output(capsys):
    SEEN.clear()
    (first, one), (second, other) = notebook_launch(summed, 0.5, workers=2)
    assert first == second == 1.5
    assert len({one, other, os.getpid()}) == 3
    assert SEEN == []
    assert capsys.readouterr().out == "[rank 0] of 2\n[rank 1] of 2\n"


def test_threads_share_everything():
    SEEN.clear()
    values = notebook_launch(summed, 0.5, workers=3, launcher="threads")
    assert [value for value, _ in values] == [3.0, 3.0, 3.0]
    assert SEEN == [0.5] * 3


def test_gradients_in_a_copy_of_a_process_that_has_computed():
    weight = torch.ones(300, 300, requires_grad=True)
    (weight @ weight).sum().backward()

    def work():
        torch.ones(300, 300, requires_grad=True).matmul(weight).sum().backward()
        return torch.get_num_threads()

    assert notebook_launch(work, workers=2) == [1, 1]


def test_what_is_wrong_is_named():
    def broken():
        raise KeyError("a cell")

    with pytest.raises(WorkerError, match="KeyError: 'a cell'"):
        notebook_launch(broken, workers=2)
    with pytest.raises(WorkerError, match="returned a value of type function, which cannot be pickled"):
        notebook_launch(lambda: broken, workers=1)
    with pytest.raises(ConfigError, match="expected an integer ≥ 1, got 0"):
        notebook_launch(broken, workers=0)
