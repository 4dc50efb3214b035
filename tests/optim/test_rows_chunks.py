"""Pieces of large tensors share their memory and cover them once."""

import pytest
import torch
from torch import Tensor

from shoal.optim import Adam
from shoal.optim.rows import BYTES_PER_THREAD, chunks, is_dense


def too_large_for_one_chunk() -> int:
    """Float64 elements: two chunks and an odd remainder."""
    return 2 * BYTES_PER_THREAD // 8 * torch.get_num_threads() + 37


def test_small_rows_come_as_they_are() -> None:
    row = (torch.zeros(3, 4).T, torch.zeros(3, 4).T)
    (chunk,) = chunks([row])
    assert chunk is row


def test_pieces_cover_a_large_tensor_once_and_in_the_order_of_memory() -> None:
    numel = too_large_for_one_chunk()
    matrix = torch.zeros(2, numel, dtype=torch.float64).T  # dense, and not contiguous
    for (piece,) in chunks([(matrix,)]):
        assert piece.nbytes <= BYTES_PER_THREAD * torch.get_num_threads()
        piece += torch.arange(piece.numel(), dtype=torch.float64) + 1
    assert (matrix > 0).all()
    sizes = [piece.numel() for (piece,) in chunks([(matrix,)])]
    assert torch.equal(matrix.T.reshape(-1)[: sizes[0]], torch.arange(1, sizes[0] + 1, dtype=torch.float64))


def test_a_parameter_of_many_chunks_is_updated_as_its_parts_would_be() -> None:
    numel = too_large_for_one_chunk()
    generator = torch.Generator().manual_seed(0)
    value, grad = (torch.randn(numel, dtype=torch.float64, generator=generator) for _ in range(2))
    whole = value.clone().requires_grad_()
    parts = [part.clone().requires_grad_() for part in value.split(10_007)]
    whole.grad = grad
    for part, piece in zip(parts, grad.split(10_007), strict=True):
        part.grad = piece
    for params in ([whole], parts):
        optimizer = Adam(params, lr=0.1, weight_decay=0.1)
        optimizer.step()
        optimizer.step()
    assert torch.equal(whole, torch.cat(parts))


def test_a_large_row_that_cannot_be_flattened_stays_whole() -> None:
    numel = too_large_for_one_chunk()
    row = (torch.zeros(2, numel, dtype=torch.float64).T, torch.zeros(numel, 2, dtype=torch.float64))
    assert list(chunks([row])) == [row]


@pytest.mark.parametrize(
    ("tensor", "dense"),
    [
        (torch.zeros(()), True),
        (torch.zeros(0, 4), True),
        (torch.zeros(2, 3, 4).permute(1, 2, 0), True),
        (torch.zeros(2, 3, 4, 4).contiguous(memory_format=torch.channels_last), True),
        (torch.zeros(9).as_strided((1, 9), (40, 1)), True),
        (torch.zeros(4, 6)[:, 1:], False),
        (torch.zeros(12)[::3], False),
        (torch.zeros(1).expand(3), False),
        (torch.zeros(8).as_strided((3, 3), (2, 1)), False),  # overlaps itself
    ],
)
def test_dense_means_no_gaps_and_no_overlaps(tensor: Tensor, dense: bool) -> None:
    assert is_dense(tensor) is dense
