"""Real processes that die, stop, hang, pause or leave: every wait ends, in time, with an error that names them."""

import os
import signal
import time
from pathlib import Path

import group_faults as faults
import pytest
from group_worlds import World

KINDS = ["shm", "gloo"]

pytestmark = pytest.mark.parametrize("kind", KINDS)


def others(outcomes, victim=faults.VICTIM):
    return [outcome for rank, outcome in enumerate(outcomes) if rank != victim]


@pytest.mark.parametrize("how", ["SIGKILL", "SIGSEGV", "exit", "fork"])
def test_a_death_in_mid_collective_is_named_at_once(kind, how):
    with World(kind, 3) as world:
        outcomes = world.run(faults.end_in_the_middle, faults.VICTIM, how, victim=faults.VICTIM, timeout_s=20)
        assert outcomes[faults.VICTIM].gone, "the fault must have happened"
        for outcome in others(outcomes):
            assert (outcome.error, outcome.rank, outcome.reason) == ("MemberError", faults.VICTIM, "died")
            assert "rank 1 died before all_reduce #" in outcome.message
            assert outcome.seconds < 10, "before the forked child ends"


def test_the_death_of_rank_0_is_no_different(kind):
    with World(kind, 3) as world:
        outcomes = world.run(faults.end_in_the_middle, 0, "SIGKILL", victim=0, timeout_s=20)
        assert outcomes[0].gone
        assert all("rank 0 died" in outcome.message for outcome in others(outcomes, 0))


def test_a_stop_is_distinguished_from_a_death(kind):
    with World(kind, 3, limit_s=1.5) as world:
        world.ask(faults.reduce_until_trouble)
        time.sleep(0.5)
        os.kill(world.pids[faults.VICTIM], signal.SIGSTOP)
        stopped_at = time.monotonic()
        while "\nState:\tT" not in Path(f"/proc/{world.pids[faults.VICTIM]}/status").read_text():
            assert time.monotonic() < stopped_at + 2, "the fault must have happened"
        outcomes = world.answers(30, faults.VICTIM)
        for outcome in others(outcomes):
            assert (outcome.rank, outcome.reason) == (faults.VICTIM, "stopped"), outcome.message
            assert f"kill -CONT {world.pids[faults.VICTIM]}" in outcome.message
        os.kill(world.pids[faults.VICTIM], signal.SIGCONT)


def test_a_stop_that_is_continued_in_time_changes_nothing(kind):
    with World(kind, 3) as world:
        world.ask(faults.count_steps, 4.0)
        time.sleep(0.5)
        os.kill(world.pids[faults.VICTIM], signal.SIGSTOP)
        time.sleep(2.5)
        assert "\nState:\tT" in Path(f"/proc/{world.pids[faults.VICTIM]}/status").read_text()
        os.kill(world.pids[faults.VICTIM], signal.SIGCONT)
        outcomes = world.answers(20)
        assert [outcome.value for outcome in outcomes] == [3.0] * 3, outcomes


def test_an_endless_loop_is_no_progress_and_its_stack_is_shown(kind):
    with World(kind, 2, limit_s=0.8) as world:
        outcomes = world.run(faults.loop_for_ever, faults.VICTIM, victim=faults.VICTIM, timeout_s=30)
        assert outcomes[faults.VICTIM].gone
        assert (outcomes[0].rank, outcomes[0].reason) == (faults.VICTIM, "stuck")
        assert "alive, but has made no progress" in outcomes[0].message
        assert "an_endless_loop" in outcomes[0].message


def test_slow_is_not_stuck(kind):
    with World(kind, 3) as world:
        outcomes = world.run(faults.pause, faults.VICTIM, 2.6, timeout_s=20)
        for outcome in outcomes:
            total, _ = outcome.value
            assert total == 0 + 1 + 2
        (warning,) = [
            each for outcome in outcomes for each in outcome.value[1]
        ]  # one line, of the first to come
        assert "rank 1 is slow" in warning


def test_an_error_of_the_user_reaches_everyone(kind):
    with World(kind, 3) as world:
        outcomes = world.run(faults.fail, faults.VICTIM, timeout_s=20)
        assert outcomes[faults.VICTIM].error == "ValueError"
        for outcome in others(outcomes):
            assert (outcome.rank, outcome.reason) == (faults.VICTIM, "failed")
            assert "ValueError: no such column" in outcome.message


@pytest.mark.parametrize("how", [faults.leave, faults.leave_the_world, faults.leave_a_smaller_group])
def test_leaving_is_not_dying(kind, how):
    with World(kind, 2) as world:
        outcomes = world.run(how, faults.VICTIM, timeout_s=30)
        assert outcomes[faults.VICTIM].error is None
        assert (outcomes[0].rank, outcomes[0].reason) == (faults.VICTIM, "left")


def test_no_member_waits_in_a_group_it_has_left(kind):
    """Who it is that left, oneself or another, depends on who looks first; the wait ends."""
    with World(kind, 2) as world:
        first, _ = world.run(faults.wait_in_a_group_that_was_left, timeout_s=30)
        assert len(first.value) == 2
        ends = ("left the group", "finished earlier")
        assert all(any(end in said for end in ends) for said in first.value), first.value


@pytest.mark.parametrize("message", [False, True])
def test_a_member_that_only_asks_gets_the_error_too(kind, message):
    with World(kind, 3) as world:
        outcomes = world.run(
            faults.ask_again_and_again, faults.VICTIM, message, victim=faults.VICTIM, timeout_s=30
        )
        assert outcomes[faults.VICTIM].gone
        assert [(outcome.rank, outcome.reason) for outcome in others(outcomes)] == [
            (faults.VICTIM, "died")
        ] * 2


def test_a_member_that_only_sends_gets_the_error_too(kind):
    with World(kind, 2) as world:
        outcomes = world.run(faults.send_again_and_again, faults.VICTIM, victim=faults.VICTIM, timeout_s=30)
        assert (outcomes[0].rank, outcomes[0].reason) == (faults.VICTIM, "died"), outcomes[0]


@pytest.mark.parametrize("waits", [faults.wait_for_a_message, faults.serve_anyone])
@pytest.mark.parametrize(("act", "reason"), [(faults.die, "died"), (faults.an_endless_loop, "stuck")])
def test_a_chain_of_waits_names_the_first_cause(kind, waits, act, reason):
    """Also where members wait for one that waits for any of them, as a server does."""
    with World(kind, 4, limit_s=1.5) as world:
        outcomes = world.run(waits, faults.VICTIM, act, victim=faults.VICTIM, timeout_s=40)
        found = [(outcome.rank, outcome.reason) for outcome in others(outcomes)]
        assert found == [(faults.VICTIM, reason)] * 3, [outcome.message for outcome in others(outcomes)]


def test_two_that_wait_for_each_other_do_not_wait_for_ever(kind):
    with World(kind, 2, limit_s=1.0) as world:
        outcomes = world.run(faults.wait_for_a_message, None, None, timeout_s=30)
        assert {outcome.reason for outcome in outcomes} == {"stuck"}, outcomes


def test_a_wait_for_anyone_ends_when_all_have_left_and_not_before(kind):
    with World(kind, 3) as world:
        outcomes = world.run(faults.serve_until_all_have_left, timeout_s=20)
        assert outcomes[0].value == ([1.0, 2.0], "left"), outcomes[0]


def test_long_work_of_all_is_not_a_standstill(kind):
    """All are busy for longer than the limit and report nothing; the first one done must not blame the others."""
    with World(kind, 2, limit_s=0.5) as world:
        outcomes = world.run(faults.work_long, 1.2, timeout_s=20)
        assert [outcome.value for outcome in outcomes] == [1.0, 1.0]


def test_a_member_that_says_it_is_busy_is_waited_for(kind):
    with World(kind, 3, limit_s=0.4) as world:
        outcomes = world.run(faults.be_busy, 20.0, 2.5, timeout_s=20)
        assert [outcome.error for outcome in outcomes] == [None] * 3, outcomes
        assert [outcome.value for outcome in outcomes] == [[]] * 3, "announced work causes no warning"


def test_to_be_busy_is_not_for_ever(kind):
    with World(kind, 3, limit_s=0.5) as world:
        outcomes = world.run(faults.be_busy_and_loop_for_ever, 0.7, victim=0, timeout_s=20)
        assert outcomes[0].gone
        for outcome in others(outcomes, 0):
            assert (outcome.rank, outcome.reason) == (0, "stuck")
            assert "an_endless_loop" in outcome.message


def test_progress_in_one_group_is_seen_by_who_waits_in_another(kind):
    with World(kind, 3, limit_s=0.5) as world:
        outcomes = world.run(faults.be_busy_in_another_group, 1.5, timeout_s=20)
        assert [outcome.error for outcome in outcomes] == [None] * 3, outcomes


def test_a_pause_of_all_members_does_no_harm(kind):
    """As when a container is frozen: all stop, for longer than any limit, and go on."""
    with World(kind, 3, limit_s=2.0) as world:
        world.ask(faults.count_steps, 4.5)
        time.sleep(0.5)
        for pid in world.pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(3.0)
        assert all("\nState:\tT" in Path(f"/proc/{pid}/status").read_text() for pid in world.pids)
        for pid in world.pids:
            os.kill(pid, signal.SIGCONT)
        outcomes = world.answers(20)
        assert [outcome.value for outcome in outcomes] == [3.0] * 3, outcomes


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_fault_while_groups_are_made_is_named_too(kind, number):
    with World(kind, 3, limit_s=4.0) as world:
        world.ask(faults.split_over_and_over)
        time.sleep(0.1)
        os.kill(world.pids[faults.VICTIM], number)
        outcomes = world.answers(30, faults.VICTIM)
        for outcome in others(outcomes):
            assert outcome.rank == faults.VICTIM, outcome
            assert outcome.reason == ("died" if number == signal.SIGKILL else "stopped")


def test_killing_everybody_leaves_nothing_behind(kind):
    before = set(os.listdir("/dev/shm"))
    with World(kind, 3) as world:
        world.ask(faults.reduce_until_trouble)
        time.sleep(0.3)
        # Stopped first: the last to be killed must not have the time to report the death of another.
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in world.pids:
                os.kill(pid, number)
        assert all(outcome.gone for outcome in world.answers(5))
    assert set(os.listdir("/dev/shm")) <= before
    assert not any(Path(f"/proc/{pid}").exists() for pid in world.pids)
