"""A bell that wakes the one rank that sleeps."""

from shoal.comm.threads.group import run_threads
from shoal.strategies.server.mapped.bell import Bell

LONG_S = 3600.0


def test_a_ring_ends_the_wait_under_way_and_one_before_it_the_next():
    def work(group):
        bell = Bell(group, owner=1)
        if group.rank == 1:
            bell.wait(LONG_S)
            group.barrier().wait()
            bell.wait(LONG_S)
        else:
            bell.ring()
            group.barrier().wait()
            bell.ring()

    run_threads(2, work)


def test_a_wait_ends_without_a_ring_and_a_ring_without_an_owner():
    def work(group):
        bell = Bell(group, owner=1)
        if group.rank == 1:
            bell.wait(0.001)
            del bell
        group.barrier().wait()
        if group.rank == 0:
            bell.ring()

    run_threads(2, work)
