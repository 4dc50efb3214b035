"""Threads: a member that fails, leaves, hangs or is slow is named to those who wait for it."""

import sys
import threading
import time

import pytest
import torch

from shoal.comm.group import ANYONE, SlowMemberWarning
from shoal.comm.liveness import judge
from shoal.comm.threads.group import ThreadGroup, run_threads
from shoal.comm.traced import traced
from shoal.errors import MemberError


def test_the_first_failure_wins_and_ends_everyone():
    seen = []

    def work(group):
        if group.rank == 1:
            raise ValueError("no such file")
        try:
            group.all_reduce(torch.zeros(1)).wait()
        except MemberError as error:
            seen.append((error.rank, error.reason, "ValueError: no such file" in str(error)))
            raise

    with pytest.raises(ValueError, match="no such file"):
        run_threads(3, work)
    assert seen == [(1, "failed", True)] * 2


def test_a_member_that_only_asks_gets_the_error_too():
    def work(group):
        if group.rank == 1:
            raise ValueError("no such file")
        work = group.all_reduce(torch.zeros(1))
        while not work.done():
            time.sleep(0.001)

    with pytest.raises(ValueError, match="no such file"):
        run_threads(2, work)


def test_a_consequence_names_the_cause():
    """Rank 2 waits for rank 1, which gave up because of rank 0: rank 2's error names rank 0."""
    seen = {}

    def work(group):
        if group.rank == 0:
            raise ValueError("the cause")
        try:
            group.recv(torch.zeros(1), group.rank - 1).wait()
        except MemberError as error:
            seen[group.rank] = error.rank
            raise

    with pytest.raises(ValueError, match="the cause"):
        run_threads(3, work)
    assert seen == {1: 0, 2: 0}


def test_a_member_that_leaves_is_named():
    def work(group):
        if group.rank == 0:
            group.barrier().wait()

    with pytest.raises(MemberError, match=r"rank 1 finished earlier, before barrier #1"):
        run_threads(2, work)


def test_a_failure_reaches_every_group_of_the_thread():
    def work(group):
        pair = group.split([0, 1])
        if group.rank == 1:
            raise ValueError("in the outer group")
        pair.barrier().wait()

    with pytest.raises(ValueError, match="outer"):
        run_threads(2, work)


def test_no_progress_is_named_with_the_stack():
    ended = threading.Event()

    def work(group):
        if group.rank == 1:
            an_endless_loop(ended)
        else:
            try:
                group.all_reduce(torch.zeros(3)).wait()
            finally:
                ended.set()

    with pytest.raises(MemberError, match=r"rank 1 has not reached all_reduce #1: it is alive") as caught:
        run_threads(2, work, limit_s=0.3)
    assert caught.value.reason == "stuck"
    assert "an_endless_loop" in caught.value.hint


def an_endless_loop(ended):
    while not ended.wait(0.01):
        pass


def test_slow_is_not_stuck(monkeypatch):
    """A member that beats is waited for, longer than the limit, with one warning; so is who waits for it."""
    monkeypatch.setattr(judge, "SLOW_AFTER_S", 0.2)

    def work(group):
        if group.rank == 2:
            for _ in range(12):
                time.sleep(0.1)
                group.beat()
            group.send(torch.ones(1), 1).wait()
        elif group.rank == 1:
            group.recv(torch.zeros(1), 2).wait()
        group.barrier().wait()

    with pytest.warns(SlowMemberWarning, match="rank [12] is slow") as caught:
        run_threads(3, work, limit_s=0.5)
    assert sum("rank 2 is slow" in str(warning.message) for warning in caught) == 1


def test_a_member_that_says_it_is_busy_is_waited_for(monkeypatch, recwarn):
    """For as long as it said, also by who waits for one that waits for it, and without a warning."""
    monkeypatch.setattr(judge, "SLOW_AFTER_S", 0.2)

    def work(group):
        if group.rank == 2:
            traced(group).beat(busy_s=20.0)
            time.sleep(1.0)
            group.send(torch.ones(1), 1).wait()
        elif group.rank == 1:
            group.recv(torch.zeros(1), 2).wait()
        group.barrier().wait()

    run_threads(3, work, limit_s=0.4)
    assert [str(each.message) for each in recwarn if "rank 2" in str(each.message)] == []


def test_a_member_at_a_breakpoint_is_waited_for_and_so_is_who_waits_for_it(monkeypatch, recwarn):
    monkeypatch.setattr(judge, "WARN_AFTER_S", 0.2)

    def work(group):
        if group.rank == 2:
            sys._getframe().f_trace = lambda *_: None  # as a debugger leaves it
            time.sleep(1.5)
            sys._getframe().f_trace = None
            group.send(torch.ones(1), 1).wait()
        elif group.rank == 1:
            group.recv(torch.zeros(1), 2).wait()
            group.send(torch.ones(1), 0).wait()
        else:
            group.recv(torch.zeros(1), 1).wait()
        return True

    assert run_threads(3, work, limit_s=0.8) == [True] * 3
    assert not any("rank 2 has not" in str(each.message) for each in recwarn)


def test_two_that_wait_for_each_other_are_found():
    def work(group):
        group.recv(torch.zeros(1), 1 - group.rank).wait()

    with pytest.raises(MemberError, match="no progress"):
        run_threads(2, work, limit_s=0.3)


def test_a_world_of_one_needs_no_other():
    (group,) = ThreadGroup.world(1)
    buffer = torch.arange(3.0)
    group.all_reduce(buffer).wait()
    assert buffer.tolist() == [0, 1, 2]


def test_a_member_that_leaves_the_world_leaves_its_smaller_groups():
    def work(group):
        pair = group.split([0, 1])
        if group.rank == 0:
            pair.barrier().wait()

    with pytest.raises(MemberError, match="rank 1 finished earlier, before barrier #1"):
        run_threads(2, work)


def test_errors_in_a_smaller_group_name_ranks_of_the_world():
    def work(group):
        upper = group.split([0, 1] if group.rank < 2 else [2, 3])
        if group.rank == 3:
            return
        if group.rank == 2:
            upper.barrier().wait()

    with pytest.raises(MemberError) as caught:
        run_threads(4, work, limit_s=0.5)
    assert caught.value.rank == 3


def test_a_member_whose_message_has_just_come_may_send_although_its_thread_has_not_run_yet():
    def is_over(work, seconds=0.5):
        end = time.monotonic() + seconds
        while not (over := work.done()) and time.monotonic() < end:
            time.sleep(0.01)
        return over

    server, other, client = ThreadGroup.world(3)
    answer = client.recv(torch.empty(1), 0)
    assert not is_over(answer), "it has noted that it waits for the server"
    other.close()
    server.send(torch.ones(1), 2).wait()
    request = server.recv(torch.empty(1), ANYONE)
    assert not is_over(request), "nobody has sent yet, and the client may"
    client.send(torch.ones(1), 0).wait()
    request.wait()
    assert request.source == 2
