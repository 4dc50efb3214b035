"""What members do when something goes wrong, as functions of their group."""

import os
import signal
import time
import warnings

import torch

from shoal.comm.group import ANYONE, SlowMemberWarning
from shoal.errors import GroupError, MemberError

VICTIM = 1


def reduce_until_trouble(group, steps=100_000):
    """All-reduce over and over; the victim keeps a file of how far it came, as proof that it was at work."""
    buffer = torch.ones(20_000)
    for _ in range(steps):
        group.all_reduce(buffer).wait()
        buffer.fill_(1.0)
        time.sleep(0.001)


def end_in_the_middle(group, victim, how):
    """After a few steps the victim ends, in the way named, while the others are in a collective with it."""
    buffer = torch.ones(1000)
    for _ in range(5):
        group.all_reduce(buffer).wait()
    if group.rank == victim:
        if how == "fork":
            if os.fork() == 0:
                time.sleep(12)
                os._exit(0)
            how = "SIGKILL"
        if how == "exit":
            os._exit(3)
        os.kill(os.getpid(), getattr(signal, how))
    reduce_until_trouble(group)


def loop_for_ever(group, victim):
    group.barrier().wait()
    if group.rank == victim:
        an_endless_loop()
    group.all_reduce(torch.ones(10)).wait()


def die():
    os._exit(3)


def an_endless_loop():
    while True:
        pass


def pause(group, victim, seconds):
    """The victim is slow; everyone gives the result and the warnings it saw."""
    buffer = torch.full((1000,), float(group.rank))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        group.barrier().wait()
        if group.rank == victim:
            time.sleep(seconds)
        group.all_reduce(buffer).wait()
    slow = [str(warning.message) for warning in caught if issubclass(warning.category, SlowMemberWarning)]
    return buffer[0].item(), slow


def fail(group, victim):
    """The victim's own code raises, and says so before it goes."""
    group.barrier().wait()
    if group.rank == victim:
        error = ValueError("no such column")
        group.fail(error)
        raise error
    group.all_reduce(torch.ones(10)).wait()


def leave(group, victim):
    group.barrier().wait()
    if group.rank == victim:
        group.close()
        return
    group.all_reduce(torch.ones(10)).wait()


def leave_a_smaller_group(group, victim):
    """The victim leaves a smaller group and lives on."""
    smaller = group.split(range(group.size))
    if group.rank == victim:
        smaller.close()
        time.sleep(1.5)
        return
    smaller.all_reduce(torch.ones(10)).wait()


def wait_in_a_group_that_was_left(group):
    """A member that has left a group cannot wait for what it began there; gives the errors of waiting and of asking."""
    smaller = group.split(range(group.size))
    works = [smaller.all_reduce(torch.ones(10)) for _ in range(2)] if group.rank == 0 else []
    smaller.close()
    said = []
    for wait in [works[0].wait, works[1].done] if works else []:
        try:
            wait()
        except GroupError as error:
            said.append(error.message)
    return said


def ask_again_and_again(group, victim, message):
    """The victim dies; the others ask whether a work is done, and never wait."""
    group.barrier().wait()
    if group.rank == victim:
        os._exit(3)
    work = group.recv(torch.zeros(1), victim) if message else group.all_reduce(torch.zeros(10))
    while not work.done():
        time.sleep(0.001)


def send_again_and_again(group, victim):
    """The victim dies; another goes on to send to it."""
    group.barrier().wait()
    if group.rank == victim:
        os._exit(3)
    while group.rank == 0:
        group.send(torch.ones(10), victim).wait()
        time.sleep(0.001)


def leave_the_world(group, victim):
    """The victim leaves the group of all, and with it the pair that was split off."""
    pair = group.split(range(group.size))
    if group.rank == victim:
        group.close()
        return
    pair.all_reduce(torch.ones(10)).wait()


def wait_for_a_message(group, victim, act):
    """The victim dies or loops between two messages; all that wait, directly or not, get an error."""
    if group.rank == 0:
        time.sleep(0.5)  # so that the victim has waited for it before
    group.barrier().wait()
    if group.rank == victim:
        act()
    group.recv(torch.zeros(1), (group.rank - 1) % group.size).wait()


def serve_anyone(group, victim, act):
    """Rank 0 receives from anyone; the victim dies or loops without having sent."""
    group.barrier().wait()
    if group.rank == victim:
        act()
    if group.rank == 0:
        group.recv(torch.zeros(1), ANYONE).wait()
    else:
        group.recv(torch.zeros(1), 0).wait()


def serve_until_all_have_left(group):
    """The others leave one after the other, each with a last message; rank 0 receives until that is all."""
    group.barrier().wait()
    if group.rank > 0:
        time.sleep(0.5 * group.rank)
        group.send(torch.tensor([float(group.rank)]), 0).wait()
        group.close()
        return None
    served, message = [], torch.zeros(1)
    for _ in range(1, group.size):
        group.recv(message, ANYONE).wait()
        served.append(message.item())
    try:
        group.recv(message, ANYONE).wait()
    except MemberError as error:
        return served, error.reason


def work_long(group, seconds):
    """Everyone works without a sign of life; rank 1 a little longer."""
    group.barrier().wait()
    time.sleep(seconds + 0.3 * group.rank)
    total = torch.tensor(float(group.rank))
    group.all_reduce(total).wait()
    return total.item()


def be_busy(group, told_s, seconds):
    """Rank 0 says that it will be busy, and is; everyone gives the warnings it saw."""
    group.barrier().wait()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if group.rank == 0:
            group.beat(told_s)
            time.sleep(seconds)
        group.barrier().wait()
        group.barrier().wait()
    return [str(warning.message) for warning in caught]


def be_busy_and_loop_for_ever(group, told_s):
    """Rank 0 says that it will be busy, and then never comes again."""
    group.barrier().wait()
    if group.rank == 0:
        group.beat(told_s)
        an_endless_loop()
    group.all_reduce(torch.ones(10)).wait()


def be_busy_in_another_group(group, seconds):
    """All but rank 0 work in a group of their own; rank 0 waits for them in the group of all."""
    smaller = group.split([0] if group.rank == 0 else range(1, group.size))
    if group.rank > 0:
        until = torch.tensor(time.monotonic() + seconds, dtype=torch.float64)
        smaller.broadcast(until).wait()
        while True:
            now = torch.tensor(time.monotonic(), dtype=torch.float64)
            smaller.broadcast(now).wait()
            if now > until:
                break
            time.sleep(0.01)
    group.barrier().wait()
    smaller.close()


def count_steps(group, seconds):
    """All-reduce for so long, and give the last sum. The others wait for rank 1 most of the time."""
    until = torch.tensor(time.monotonic() + seconds, dtype=torch.float64)
    group.broadcast(until).wait()
    going, total = torch.tensor([True]), torch.zeros(1)
    while going:
        total.fill_(1.0)
        group.all_reduce(total).wait()
        going = torch.tensor([time.monotonic() < until])
        group.broadcast(going).wait()
        time.sleep(0.4 if group.rank == 1 else 0.0)
    return total.item()


def split_over_and_over(group):
    """Make groups until trouble."""
    while True:
        smaller = group.split(range(group.size))
        smaller.barrier().wait()
        smaller.close()


def count_stale(group, num_rounds):
    """Members write, reduce, and check every element at once: data must never be older than its flag."""
    stale = 0
    small, large = torch.empty(64), group.empty(60_000)
    for turn in range(num_rounds):
        for buffer in (small, large) if turn % 8 == 0 else (small,):
            buffer.fill_(float(turn + group.rank))
            group.all_reduce(buffer).wait()
            expected = float(group.size * turn + sum(range(group.size)))
            stale += int((buffer != expected).sum().item())
    return stale
