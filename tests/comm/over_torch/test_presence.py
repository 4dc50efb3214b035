"""Members who have come to a collective and then stop moving its data; and those who are merely busy."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from torch.distributed import HashStore

from shoal.comm.over_torch.presence import Presence
from shoal.comm.rendezvous.meet import Card

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


@contextlib.contextmanager
def two_members(limit_s, **of_the_other):
    """We and another, both come to collective 5 of the world."""
    store, mine = HashStore(), Card.of_this_process(0, {}, "")
    cards = [mine, replace(mine, rank=1, **of_the_other)]
    members = [Presence(store, rank, cards, limit_s) for rank in range(2)]
    for member in members:
        member.signs.wait_in("world", 0)
        member.signs.wait_in("world", 5)
    yield members
    for member in members:
        member.close()


def look(member, waited_s, sequence=5):
    return member.look("world", [0, 1], sequence, f"all_reduce #{sequence}", waited_s)


def found(member):
    """What we find while we wait, however long it takes."""
    started = time.monotonic()
    while time.monotonic() < started + 20:
        error = look(member, time.monotonic() - started)
        if error is not None:
            return error
        time.sleep(0.02)
    raise AssertionError("nothing was found")


def test_a_member_stopped_while_data_moves_is_named():
    process = subprocess.Popen(SLEEP)
    try:
        with two_members(0.5, pid=process.pid) as (we, _):
            assert look(we, 1.0) is None
            os.kill(process.pid, signal.SIGSTOP)
            error = found(we)
            assert (error.rank, error.reason) == (1, "stopped")
    finally:
        process.kill()
        process.wait()


def test_a_member_of_another_machine_that_falls_silent_while_data_moves_is_named():
    with two_members(0.3, boot="another", host="far") as (we, _):
        error = found(we)
        assert (error.rank, error.reason) == (1, "stuck")
        assert "rank 1 on far has not reached all_reduce #5: silent for 0." in error.message
        assert "the network to far is down" in error.hint


def test_data_that_moves_for_long_is_no_reason_to_give_anybody_up():
    """Each of them looks around meanwhile, and so is not silent."""
    with two_members(0.3, boot="another", host="far") as (we, other):
        started = time.monotonic()
        while (waited_s := time.monotonic() - started) < 1.0:
            assert look(we, waited_s) is None
            assert look(other, waited_s) is None
            time.sleep(0.02)


@pytest.mark.parametrize("sequence", [5, 6])
def test_only_silence_while_we_wait_counts(sequence):
    """Both compute for longer than the limit, without a word; we come first, and have seen the other's last word."""
    with two_members(0.3, boot="another", host="far") as (we, _):
        assert look(we, 0.0, sequence) is None
        time.sleep(0.5)
        assert look(we, 0.1, sequence) is None


def test_a_live_peer_that_hangs_up_has_left_and_a_far_one_is_unknown():
    with two_members(10.0) as (we, _):
        error = we.hung_up(1, "all_reduce #5")
        assert (error.message, error.reason) == ("rank 1 finished earlier, before all_reduce #5", "left")
    with two_members(10.0, boot="another", host="far") as (we, _):
        error = we.hung_up(1, "all_reduce #5")
        assert error.message == "rank 1 on far hung up before all_reduce #5"
