"""The launcher's eye: when it asks, what it makes of the answers, and when it stays silent."""

import pytest

from shoal.errors import WorkerError
from shoal.launch import threads
from shoal.launch.hangs import watch as watch_module
from shoal.launch.hangs.board import Board, checksum
from shoal.launch.hangs.calls import Call
from shoal.launch.hangs.watch import Watch

CALL = Call("0.1", "world", 1, "all_reduce", "float32[8]", 32)
STACK = [("/home/me/train.py", 7, "validate", "sleep()", True)]


class Worker:
    def __init__(self, rank):
        self.rank = rank
        self.finished, self.failure, self.answer, self.waited, self.made = False, None, None, None, ()
        self.code = None

    def poll(self):
        return self.code

    def stack(self):
        return []


@pytest.fixture
def board(monkeypatch):
    board = Board.create(2)
    if board is None:
        pytest.skip("Linux only")
    monkeypatch.setattr(watch_module, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(watch_module, "GONE_AFTER_S", 0.0)
    at = board.slot(0, checksum(CALL.key), 1)
    board.note(at, 1, CALL.packed())
    board.begin_wait(0, at)
    yield board
    board.close()


def looks(board, workers, limit_s, timeout_s=0.0):
    """What the watch finds, with workers that answer as soon as they are asked."""
    watch, found = Watch(board, limit_s), None
    for _ in range(3):
        found = found or watch.look(workers)
        for worker in workers:
            worker.answer = {
                "asked": board.num_asked(worker.rank),
                "stack": STACK,
                "calls": [],
                "waits": None,
            }
            worker.answer |= {"age_s": 0.0, "timeout_s": timeout_s}
    return found


def test_the_missing_worker_is_named_once_the_limit_is_over(board):
    error = looks(board, [Worker(0), Worker(1)], 0.0)
    assert isinstance(error, WorkerError)
    assert error.message.startswith("rank 1 has not reached all_reduce #1 of world")
    assert "train.py:7 in validate" in error.message


def test_before_the_limit_nobody_is_asked(board):
    assert looks(board, [Worker(0), Worker(1)], 60.0) is None
    assert board.num_asked(0) == 0


def test_a_worker_that_has_left_is_named_at_once(board):
    gone = Worker(1)
    gone.finished, gone.code = True, 0
    error = looks(board, [Worker(0), gone], 60.0)
    assert isinstance(error, WorkerError)
    assert error.message.startswith("rank 1 has finished without all_reduce #1")


def test_a_longer_limit_of_torchs_own_counts_where_none_is_set(board, monkeypatch):
    monkeypatch.setattr(watch_module, "NO_PROGRESS_LIMIT_S", 0.0)
    assert looks(board, [Worker(0), Worker(1)], 0.0, timeout_s=7200.0) is None
    assert board.num_asked(0) > 0


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::shoal.comm.group.SlowMemberWarning")
def test_of_threads_all_places_are_shown():
    def validate():
        while True:
            pass

    def work(group):
        if group.rank == 1:
            validate()
        group.barrier().wait()

    with pytest.raises(WorkerError, match="rank 1") as caught:
        threads.run(3, work, 0.5)
    assert [line.split("  ")[0] for line in caught.value.hint.splitlines()[-2:]] == ["ranks 0, 2", "rank 1"]
