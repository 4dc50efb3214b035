"""Draws of a sample that follow from its purpose alone, and change nothing that others draw."""

import random

import numpy as np
import torch

from shoal.comm.threads.group import run_threads
from shoal.data.on_demand.seeded import seeded
from shoal.training.hooks.random_state import RandomState


def some():
    return (
        float(torch.rand(())),
        float(np.random.rand()),  # noqa: NPY002
        random.random(),
        float(torch.dropout(torch.ones(4), 0.5, True).sum()),
    )


def test_what_is_drawn_outside_goes_on_as_before():
    torch.manual_seed(0), np.random.seed(0), random.seed(0)  # noqa: NPY002
    before = [some(), some()]
    torch.manual_seed(0), np.random.seed(0), random.seed(0)  # noqa: NPY002
    first = some()
    with seeded("sample", 1):
        inside = some()
    assert [first, some()] == before
    with seeded("sample", 1):
        assert some() == inside
    with seeded("sample", 2):
        assert all(one != other for one, other in zip(some()[:3], inside[:3], strict=True))


def test_threads_with_a_random_state_of_their_own_draw_the_same_in_both():
    def work(group):
        with RandomState(7, group.rank, shared_by_threads=True):
            found = []
            for sample in range(50):
                found.append(float(torch.rand(())))
                with seeded("sample", sample):
                    found.append(some())
            return found

    first, second = run_threads(2, work)
    assert first[1::2] == second[1::2]
    assert first[::2] != second[::2]
    assert [first, second] == run_threads(2, work)
