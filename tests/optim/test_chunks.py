"""Pieces of large tensors share their memory and cover them once."""

import torch

from shoal.optim import Adam
from shoal.optim.chunks import BYTES_PER_THREAD, chunks


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
