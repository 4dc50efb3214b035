"""Replicas begin alike, and it is said when they would not have."""

import warnings

import pytest
import torch

from shoal.comm.threads.group import run_threads
from shoal.errors import MismatchError
from shoal.strategies.pieces.piece import Piece
from shoal.strategies.replicas.initial_state import sync_initial_state


def pieces(rank, differing=()):
    drawn = torch.Generator().manual_seed(rank if rank in differing else 0)
    return {
        "model.first.weight": torch.ones(3),
        "model.first.bias": torch.randn(2, generator=drawn),
        "model.count": torch.tensor(7 + (rank in differing)),
    }


def as_pieces(tensors):
    return [Piece.whole(name, tensor) for name, tensor in tensors.items()]


def begun(size, differing=(), refuse=False):
    def work(group):
        mine = pieces(group.rank, differing)
        sync_initial_state(group, as_pieces(mine), refuse)
        return mine

    return run_threads(size, work)


def test_all_get_rank_0s_and_the_first_piece_that_differed_is_named():
    with pytest.warns(
        UserWarning, match=r"'first.bias' of ranks 1, 3 is not rank 0's; now all have rank 0's"
    ):
        members = begun(4, differing=(1, 3))
    for member in members:
        for name, piece in pieces(0).items():
            assert torch.equal(member[name], piece)


def test_nothing_is_said_where_they_agree():
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "the workers' initial parameters")
        begun(3)


def test_refused_instead_if_asked_by_all_of_them():
    refusals = []

    def work(group):
        mine = pieces(group.rank, differing=(2,))
        with pytest.raises(
            MismatchError, match="initial parameters differ: 'first.bias' of rank 2"
        ) as raised:
            sync_initial_state(group, as_pieces(mine), refuse=True)
        refusals.append(raised.value.message)

    run_threads(3, work)
    assert len(refusals) == 3
    assert len(set(refusals)) == 1
