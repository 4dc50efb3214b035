"""Threads that ask for an operator of torch first, at the same moment, take the same object."""

import sys
import threading

import pytest
import torch

from shoal.training.hooks.random_state import make_operator_objects_once

SELDOM = (
    *(
        "arccos_",
        "arctanh_",
        "bartlett_window",
        "cartesian_prod",
        "chain_matmul",
        "column_stack",
        "corrcoef",
        "cov",
    ),
    *(
        "diagflat",
        "fliplr",
        "flipud",
        "ger",
        "hamming_window",
        "isreal",
        "kaiser_window",
        "logdet",
        "matrix_power",
    ),
    *(
        "moveaxis",
        "msort",
        "nanquantile",
        "negative_",
        "nuclear_norm",
        "orgqr",
        "pinverse",
        "polygamma_",
        "positive",
    ),
    *(
        "q_scale",
        "quantile",
        "resize_as_sparse_",
        "row_stack",
        "slogdet",
        "smm",
        "sspaddmm",
        "stft",
        "swapdims_",
    ),
)
"""Operators that nothing else here asks for."""


@pytest.fixture
def eager_switching():
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


def test_every_thread_takes_the_same_object_of_an_operator(eager_switching):
    make_operator_objects_once()
    taken = [[] for _ in range(4)]
    together = threading.Barrier(len(taken))

    def take(mine):
        for name in SELDOM:
            together.wait()
            packet = getattr(torch.ops.aten, name)
            mine.append(getattr(packet, packet.overloads()[0]))

    threads = [threading.Thread(target=take, args=[mine]) for mine in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(len({id(each) for each in same}) == 1 for same in zip(*taken, strict=True))
