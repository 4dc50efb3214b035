"""Workers as threads: values in rank order, the first failure and not its consequences, and no thread left running."""

import sys
import threading
import time
from functools import partial

import pytest
import torch

from shoal.comm.group import ANYONE
from shoal.errors import MismatchError, WorkerError
from shoal.launch.supervise import Policy
from shoal.launch.threads import run


def living():
    return [thread for thread in threading.enumerate() if thread.name.startswith("rank ")]


def total(group):
    value = torch.tensor(float(group.rank))
    group.all_reduce(value).wait()
    return value.item(), torch.is_grad_enabled()


def test_values_come_in_rank_order_and_gradients_are_on_everywhere():
    with torch.no_grad():
        assert run(3, total) == [(3.0, True)] * 3


def test_the_first_failure_is_raised_not_what_others_suffered_from_it():
    def work(group):
        if group.rank == 2:
            raise ValueError("no such column")
        group.barrier().wait()

    with pytest.raises(WorkerError, match="rank 2 of 3 failed: ValueError: no such column") as caught:
        run(3, work)
    assert isinstance(caught.value.__cause__, ValueError)  # for a debugger
    assert living() == []


def test_members_that_call_different_things_are_shown_the_table():
    def work(group):
        group.all_reduce(torch.zeros(3 + group.rank)).wait()

    with pytest.raises(WorkerError, match="rank 1") as caught:
        run(2, work)
    assert isinstance(caught.value.__cause__, MismatchError)
    assert "3" in caught.value.message
    assert "4" in caught.value.message


@pytest.fixture
def impatient(monkeypatch):
    """A thread that never ends by itself is not waited for as long as in a user's program."""
    monkeypatch.setattr("shoal.launch.threads.Policy", partial(Policy, grace_s=1.0))


@pytest.mark.usefixtures("impatient")
def test_a_thread_in_an_endless_loop_is_named_with_its_stack_and_does_not_outlive_the_run():
    fired = threading.Event()

    def loop_for_ever(group):
        if group.rank == 1:
            fired.set()
            while True:
                time.sleep(0.001)
        group.barrier().wait()

    with pytest.raises(WorkerError, match="rank 1 has not reached barrier #1: it is alive") as caught:
        run(2, loop_for_ever, limit_s=0.3)
    assert fired.is_set()
    assert "in loop_for_ever" in caught.value.hint
    assert living() == []


@pytest.mark.usefixtures("impatient")
def test_a_thread_that_others_wait_for_through_a_server_is_named():
    def work(group):
        if group.rank == 2:
            while True:
                time.sleep(0.001)
        group.recv(torch.zeros(1), ANYONE if group.rank == 0 else 0).wait()

    with pytest.raises(WorkerError, match="rank 2 has not reached send to rank 0: it is alive"):
        run(3, work, limit_s=0.5)


def test_an_exit_code_is_kept():
    def work(group):
        sys.exit(7)

    with pytest.raises(WorkerError) as caught:
        run(2, work)
    assert caught.value.exit_code == 7
