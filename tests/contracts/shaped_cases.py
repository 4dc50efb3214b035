"""The contract's cases on a group with links, as functions of one member's group."""

from functools import lru_cache

import torch
from group_cases import (
    MISTAKES,
    a_closed_group_is_of_no_more_use_and_does_no_harm,
    message_of_another_length,
    run_case,
)
from launching import wait_until

from shoal.comm.links.shaped import shaped
from shoal.config.conditions import Link
from shoal.errors import MemberError

LINKS = (Link(None, bits_per_s=5e9, latency_s=0.0003), Link((0, 1), bits_per_s=2e9, latency_s=0.001))
"""Fast enough for a test, slow enough that nothing arrives at once; one link differs."""


@lru_cache
def linked(group):
    """One member's group with links, the same for all cases: a group is shaped once."""
    return shaped(group, LINKS)


def run_shaped_case(group, name, tree):
    run_case(linked(group), name, tree)


def a_closed_shaped_group(group):
    a_closed_group_is_of_no_more_use_and_does_no_harm(linked(group))


def make_shaped_mistake(group, name):
    MISTAKES[name][0](linked(group))


def shaped_message_of_another_length(group):
    message_of_another_length(linked(group))


def shaped_fault(group, fault, *arguments):
    """One of the faults of real processes, on a group with links."""
    return fault(linked(group), *arguments)


def send_much_and_compute(group, path):
    """Rank 0 sends more than fits in shared memory and calls nothing more; rank 1 has all of it nevertheless."""
    group = linked(group)
    if group.rank == 0:
        group.send(torch.arange(2_000_000), 1)
        wait_until(path.exists)
    elif group.rank == 1:
        received = torch.empty(2_000_000, dtype=torch.int64)
        group.recv(received, 0).wait()
        path.write_text(str(received.sum().item()))


def leave_a_split(group):
    """Rank 1 leaves the smaller group and lives on; a member that waits for it there gets an error."""
    group = linked(group)
    small = group.split([0, 1])
    if group.rank == 1:
        small.close()
        group.recv(torch.empty(1), 0).wait()
        return ""
    try:
        small.all_reduce(torch.ones(3)).wait()
    except MemberError as error:
        return error.message
    finally:
        group.send(torch.ones(1), 1).wait()
