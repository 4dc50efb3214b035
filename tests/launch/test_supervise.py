"""Starting and supervising, with workers of a kind that exists only here: each reports what it is made to report."""

import json
import os

import pytest

from shoal.errors import WorkerError
from shoal.launch.handles import WorkerHandle, start
from shoal.launch.supervise import Listener, Policy, supervise


class ScriptedHandle(WorkerHandle):
    def __init__(self, rank, reports, code, stopped_s=0.0, ends=True):
        read_end, self._write_end = os.pipe()
        super().__init__(rank, read_end)
        os.write(self._write_end, "".join(json.dumps(each) + "\n" for each in reports).encode())
        self.code, self.log = code, []
        self._stopped_s, self._ends = stopped_s, ends

    def poll(self):
        return self.code

    def send_signal(self, number):
        self.log.append(number)

    def kill(self):
        self.log.append("kill")

    def stopped_s(self):
        return self._stopped_s

    def close(self, wait_s):
        self.log.append("close")
        os.close(self._write_end)
        super().close(wait_s)
        return self._ends


def scripted(code, *reports, **behaviour):
    return lambda rank: ScriptedHandle(rank, reports, code, **behaviour)


def broken(rank):
    raise OSError("no more processes")


class Noting(Listener):
    def __init__(self):
        self.notes = []

    def heard(self, rank, report):
        self.notes.append((rank, report["kind"]))

    def advice(self):
        return ["Try again."]


FINISHED = {"kind": "finished", "result": None}


def failed(message, blames=None, hint=""):
    about = {"name": "ValueError", "message": message, "hint": hint, "expected": False, "blames": blames}
    about |= {"reason": "", "where": "user.py:3", "traceback": "…", "exit_code": 7}
    return {"kind": "failed", "failure": about}


def test_ranks_follow_the_order_and_reports_reach_the_listener():
    listener = Noting()
    handles = start([scripted(0, {"kind": "hello"}, FINISHED), scripted(0, FINISHED)])
    supervise(handles, Policy(), listener)
    assert [handle.rank for handle in handles] == [0, 1]
    assert listener.notes == [(0, "hello"), (0, "finished"), (1, "finished")]
    assert [handle.log for handle in handles] == [["kill", "close"]] * 2


def test_a_worker_that_cannot_start_ends_the_workers_before_it(monkeypatch):
    closed = []
    monkeypatch.setattr(ScriptedHandle, "close", lambda handle, wait_s: closed.append(handle.rank))
    with pytest.raises(OSError, match="no more processes"):
        start([scripted(None), scripted(None), broken])
    assert closed == [0, 1]


def test_a_failure_that_blames_another_rank_gives_way_to_that_ranks_own():
    handles = start([scripted(None, failed("rank 1 is gone", blames=1)), scripted(3)])
    with pytest.raises(WorkerError, match="rank 1 of 2 exited with code 3") as caught:
        supervise(handles, Policy(grace_s=0.05), Noting())
    assert caught.value.hint == "Try again."
    assert caught.value.exit_code == 3


def test_a_failure_that_is_repeated_gives_way_to_that_of_the_worker_that_saw_it():
    """The worker that saw where the stuck one is may be the second to report it."""
    seen, repeated = failed("rank 2 is stuck", 2, hint="in a loop"), failed("rank 2 is stuck", 2)
    for order in ((seen, repeated), (repeated, seen)):
        handles = start([scripted(1, report) for report in order])
        with pytest.raises(WorkerError, match="rank 2 is stuck") as caught:
            supervise(handles, Policy(grace_s=0.05))
        assert "in a loop" in caught.value.hint


class Continuing(Noting):
    def goes_on_without(self, handle):
        self.notes.append((handle.rank, "lost"))
        return True


def test_a_rank_without_which_the_others_continue_is_the_failure_if_they_blame_it():
    handles = start([scripted(3), scripted(0, FINISHED)])
    supervise(handles, Policy(), listener := Continuing())
    assert listener.notes == [(0, "lost"), (1, "finished")]
    handles = start([scripted(3), scripted(2, failed("rank 0 is gone", blames=0))])
    with pytest.raises(WorkerError, match="rank 0 of 2 exited with code 3"):
        supervise(handles, Policy(grace_s=0.05), Continuing())
    handles = start([scripted(2, failed("rank 1 is gone", blames=1)), scripted(3)])
    with pytest.raises(WorkerError, match="rank 1 of 2 exited with code 3"):
        supervise(handles, Policy(grace_s=0.05), listener := Continuing())
    assert listener.notes == [], "the failure was known before"


def test_after_a_failure_the_others_have_their_grace_and_are_ended():
    handles = start([scripted(1, failed("no such column")), scripted(None)])
    with pytest.raises(WorkerError, match="rank 0 of 2 failed: ValueError: no such column"):
        supervise(handles, Policy(grace_s=0.05))
    assert handles[1].log == ["kill", "close"]


def test_how_a_process_ends_after_its_work_is_done_does_not_matter():
    supervise(start([scripted(-11, FINISHED)]), Policy())


# No wait without end.

HASTY = Policy(grace_s=0.05, stopped_s=0.2, end_s=0.2, finish_s=0.2)


def test_a_worker_that_is_stopped_before_it_has_finished_is_given_up():
    """After its last collective, or while it starts: no other worker waits for it."""
    handles = start([scripted(0, FINISHED), scripted(None, stopped_s=60.0)])
    with pytest.raises(WorkerError, match=r"rank 1 of 2 is stopped \(SIGSTOP\)") as caught:
        supervise(handles, Policy(grace_s=0.05, stopped_s=0.2), Noting())
    assert "SHOAL_TIMEOUT_S" in caught.value.hint
    assert handles[1].log == ["kill", "close"]


@pytest.mark.parametrize(("stopped_s", "state"), [(60.0, "stopped"), (0.0, "still there")])
def test_a_worker_that_has_done_its_work_and_does_not_end_is_killed_and_the_run_counts(stopped_s, state):
    handles = start([scripted(0, FINISHED), scripted(None, FINISHED, stopped_s=stopped_s)])
    with pytest.warns(UserWarning, match=f"rank 1 had done its work, but was {state}.* killed"):
        supervise(handles, HASTY)
    assert handles[1].log == ["kill", "kill", "close"]


def test_a_run_of_ours_does_not_wait_for_ever_for_the_last_worker():
    handles = start([scripted(0, FINISHED), scripted(None)])
    with pytest.raises(WorkerError, match="rank 1 of 2 has not finished 0 s after the first worker"):
        supervise(handles, HASTY)


def test_a_worker_that_cannot_be_killed_is_named_and_left():
    """As a process in state D."""
    handles = start([scripted(1, failed("no such column")), scripted(None, ends=False)])
    with (
        pytest.warns(UserWarning, match="rank 1 was killed and has not ended: it waits in the kernel"),
        pytest.raises(WorkerError, match="no such column"),
    ):
        supervise(handles, Policy(grace_s=0.05))
