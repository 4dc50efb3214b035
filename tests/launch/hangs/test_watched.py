"""What a worker notes of its calls of torch's groups."""

import contextlib
import json
import os

import pytest
import torch
import torch.distributed as dist

from shoal.launch.hangs.board import VARIABLE, Board
from shoal.launch.hangs.watched import _Group, watched
from shoal.launch.reports import Reporter


@pytest.fixture
def board(monkeypatch):
    board = Board.create(1)
    if board is None:
        pytest.skip("Linux only")
    for name, value in ((VARIABLE, board.path()), ("RANK", "0"), ("WORLD_SIZE", "1")):
        monkeypatch.setenv(name, value)
    yield board
    board.close()


@pytest.fixture
def reporter():
    read_end, write_end = os.pipe()
    yield Reporter(write_end), lambda: [json.loads(line) for line in os.read(read_end, 1 << 16).splitlines()]
    os.close(read_end)
    os.close(write_end)


@contextlib.contextmanager
def world():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def test_calls_have_numbers_and_sizes_and_a_second_world_is_another_group(board, reporter):
    before = vars(dist.ProcessGroup).copy(), dist.Work.wait
    with watched(reporter[0]):
        with world():
            dist.all_reduce(torch.ones(8))
            dist.broadcast(torch.ones(2, 3, dtype=torch.int64), 0)
        with world():
            dist.barrier()
    assert (vars(dist.ProcessGroup).copy(), dist.Work.wait) == before
    calls = sorted(board.calls(0), key=lambda call: (call.key, call.number))
    assert [str(call) for call in calls] == [
        "all_reduce #1 of world, float32[8]",
        "broadcast #2 of world, int64[6]",
        "barrier #1 of world",
    ]
    assert len({call.key for call in calls}) == 2


def test_a_call_that_torch_refuses_leaves_no_note(board, reporter):
    with watched(reporter[0]), world():
        with pytest.raises(RuntimeError):
            dist.all_gather([torch.ones(3)], torch.ones(4))
        assert board.calls(0) == []
        dist.all_reduce(torch.ones(4))
        assert [call.number for call in board.calls(0)] == [1]


def test_an_error_of_the_programs_own_is_not_taken_for_a_wait(board, reporter):
    def program():
        with watched(reporter[0]), world():
            dist.all_reduce(torch.ones(4))
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        program()
    reporter[0].send(kind="end")
    assert [report["kind"] for report in reporter[1]()] == ["end"]


class Counting(dist.ProcessGroup):
    """A world of one that counts messages among its calls, as gloo does."""

    def __init__(self):
        super().__init__(0, 1)
        self.count = 0

    def _get_sequence_number_for_group(self):
        return self.count


def test_messages_do_not_shift_the_numbers_of_collectives():
    group = Counting()
    known = _Group.__new__(_Group)
    known.messages, known.counts_messages = 0, None
    for _ in range(2):
        before = known.number_before(group)
        group.count += 1
        known.count_message(group, before)
    assert (known.number_before(group), known.counts_messages) == (0, True)
