import pytest
import torch

from shoal.comm.reduction import Op
from shoal.measure_collectives.measure import fill, num_wrong

SIZE, EACH = 3, 2


def filled(operation):
    """Each worker's piece and whole before a call."""
    long = SIZE * EACH if operation == "all_to_all" else EACH
    buffers = [(torch.empty(long), torch.empty(SIZE * EACH)) for _ in range(SIZE)]
    for rank, (piece, whole) in enumerate(buffers):
        fill(operation, rank, SIZE, 4, piece, whole)
    return buffers


def wrong(operation, rank, piece, whole):
    return num_wrong(operation, Op.SUM, rank, SIZE, 4, piece, whole)


def test_a_part_that_reaches_the_wrong_worker_is_counted():
    wholes = [whole for _, whole in filled("scatter")]
    parts = wholes[0].view(SIZE, EACH)
    assert [wrong("scatter", rank, parts[rank], wholes[rank]) for rank in range(SIZE)] == [0, 0, 0]
    assert wrong("scatter", 1, parts[2], wholes[1]) == EACH
    assert wrong("scatter", 1, wholes[1].view(SIZE, EACH)[1], wholes[1]) == EACH  # not from the root


@pytest.mark.parametrize("rank", range(SIZE))
def test_an_all_to_all_must_come_in_the_order_of_the_senders(rank):
    wholes = [whole for _, whole in filled("all_to_all")]
    out = torch.cat([whole.view(SIZE, EACH)[rank] for whole in wholes])
    assert wrong("all_to_all", rank, out, wholes[rank]) == 0
    assert wrong("all_to_all", rank, out.roll(EACH), wholes[rank]) == SIZE * EACH
    assert wrong("all_to_all", rank, wholes[rank], wholes[rank]) >= (SIZE - 1) * EACH


def test_a_gather_fills_the_root_and_leaves_the_pieces_as_they_are():
    buffers = filled("gather")
    gathered = torch.cat([piece for piece, _ in buffers])
    assert wrong("gather", 0, buffers[0][0], gathered) == 0
    assert wrong("gather", 0, buffers[0][0], buffers[0][1]) == (SIZE - 1) * EACH
    assert wrong("gather", 1, *buffers[1]) == 0
    assert wrong("gather", 1, buffers[2][0], buffers[1][1]) == EACH
