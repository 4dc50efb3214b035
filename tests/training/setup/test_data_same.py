"""Workers whose functions return other samples than rank 0's are refused, by all workers."""

import pytest
import torch

from shoal.comm.threads.group import run_threads
from shoal.data.own.load import data_set
from shoal.data.own.samples import split_of
from shoal.errors import DataError
from shoal.training.setup.data import check_same_data

INPUTS, LABELS = torch.arange(12.0).reshape(6, 2), torch.tensor([0, 1, 0, 1, 0, 1])


def data_of(order, test=LABELS):
    train = split_of((INPUTS[order], LABELS[order]), "train")
    return data_set("mine:data", {"train": train, "test": split_of((INPUTS, test), "test")})


def check(of_rank):
    """What each of three workers raises."""

    def work(group):
        try:
            check_same_data(group, of_rank(group.rank))
        except DataError as error:
            return error.message
        return ""

    return run_threads(3, work)


def test_the_same_samples_pass():
    assert check(lambda rank: data_of(torch.arange(6))) == ["", "", ""]


@pytest.mark.parametrize(
    ("of_rank", "sentence"),
    [
        (
            lambda rank: data_of(torch.arange(6).roll(2 * (rank == 2))),
            "data mine:data: rank 2 has other samples of train than rank 0, or in another order",
        ),
        (
            lambda rank: data_of(torch.arange(6 - (rank == 1))),
            "data mine:data: rank 1 has 5 samples of train, and rank 0 has 6",
        ),
        (
            lambda rank: data_of(torch.arange(6), LABELS if rank == 0 else 1 - LABELS),
            "data mine:data: rank 1 has other samples of test than rank 0, or in another order",
        ),
    ],
)
def test_other_samples_are_an_error_on_all_workers(of_rank, sentence):
    assert check(of_rank) == [sentence] * 3
