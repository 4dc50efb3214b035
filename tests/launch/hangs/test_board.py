"""The board: what one worker writes, the others and the launcher read."""

import threading

import pytest

from shoal.launch.hangs.board import SLOTS, Board, checksum
from shoal.launch.hangs.calls import Call

CALL = Call("0.1", "world", 3, "all_reduce", "float32[8]", 32)


@pytest.fixture
def board():
    board = Board.create(3)
    if board is None:
        pytest.skip("Linux only")
    yield board
    board.close()


def noted(board, rank, call):
    at = board.slot(rank, checksum(call.key), call.number)
    board.note(at, call.number, call.packed())
    return at


def test_a_worker_that_opens_it_shares_it_with_the_launcher(board):
    theirs = Board.open(board.path(), 3)
    at = noted(theirs, 1, CALL)
    theirs.begin_wait(1, at)
    assert board.waits_in(1) == CALL
    assert board.waits_since_ns(1) > 0
    theirs.end_wait(1)
    assert (board.waits_in(1), board.calls(1)) == (None, [CALL])
    board.ask(1)
    assert [theirs.num_asked(rank) for rank in range(3)] == [0, 1, 0]
    theirs.close()


def test_a_board_that_is_gone_is_no_error():
    assert Board.open("/proc/self/fd/987654", 2) is None


def test_only_the_last_calls_are_kept(board):
    for number in range(1, 2 * SLOTS):
        noted(board, 0, CALL._replace(number=number))
    assert [call.number for call in board.calls(0)] == list(range(SLOTS, 2 * SLOTS))
    assert board.call(0, CALL.key, 1) is None


def test_only_another_call_of_the_same_number_differs(board):
    other = CALL._replace(operation="broadcast")
    at = noted(board, 0, other)
    assert not board.may_differ(at, CALL.number + 1, CALL.packed())
    assert board.may_differ(at, CALL.number, CALL.packed())
    noted(board, 1, CALL)
    board.issued(at, CALL.number)
    assert board.call(0, CALL.key, CALL.number) == other
    assert board.differing(1, CALL, [0, 1, 2], 0) == {0: other, 1: CALL}
    assert board.differing(1, other, [0, 1, 2], 0) == {}
    assert board.differing(1, CALL, [0, 1, 2], 2) == {}


def test_of_two_calls_that_are_not_issued_yet_the_lower_rank_goes_on(board):
    noted(board, 1, CALL._replace(operation="broadcast"))
    assert board.differing(0, CALL, [0, 1, 2], 1) == {}


def test_a_call_that_torch_refuses_is_no_mismatch(board):
    at = noted(board, 0, CALL._replace(operation="broadcast"))
    refuses = threading.Timer(0.05, board.withdraw, [at])
    refuses.start()
    assert board.differing(1, CALL, [0, 1, 2], 0) == {}
    refuses.join()


def test_a_very_long_group_fits(board):
    group = f"world[{','.join(map(str, range(500)))}]"
    noted(board, 0, CALL._replace(group=group))
    assert [(call.operation, call.number) for call in board.calls(0)] == [("all_reduce", 3)]
