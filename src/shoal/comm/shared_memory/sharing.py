"""The first memory of a shared-memory group, which its members find through the store where they met."""

import json
import time
from collections.abc import Sequence

from shoal.comm.liveness.judge import BROKEN_FOR_S, Facts, verdict
from shoal.comm.liveness.watch import ProcessWatch
from shoal.comm.rendezvous.meet import Card
from shoal.comm.rendezvous.store import stored
from shoal.comm.rendezvous.tagged_store import TaggedStore
from shoal.comm.shared_memory.arena import Address, Arena
from shoal.comm.shared_memory.board import ArenaLayout
from shoal.errors import JoinError, JoinTimeoutError, MemberError


def share_arena(store: TaggedStore, rank: int, cards: Sequence[Card], timeout_s: float) -> Arena:
    """The arena of a new group: rank 0 makes it and publishes its address, the others open it."""
    if rank == 0:
        arena = Arena.create(ArenaLayout(len(cards)).num_bytes)
        store.set("arena", json.dumps(arena.address))
        return arena
    watch, pid = ProcessWatch(), cards[0].pid
    watch.add([pid])
    facts = Facts(0, "sharing the group's memory", 0.0, pid=pid)
    deadline = time.monotonic() + timeout_s
    try:
        while (address := store.read("arena", 0)) is None:
            error = verdict(facts._replace(dead=watch.dead(pid), stopped_s=watch.stopped_s(pid)), timeout_s)
            if error is not None:
                raise error
            if time.monotonic() > deadline:
                raise JoinTimeoutError(f"rank 0 has not shared the group's memory within {timeout_s:g} s")
            time.sleep(0.005)
        return Arena.open(Address(*stored(address, int, int, int, int)))
    except MemberError:
        raise
    except (RuntimeError, JoinError) as error:
        # The store may end with rank 0, and its memory does.
        if _dies_soon(watch, pid):
            raise verdict(facts._replace(dead=True), timeout_s) or error from error
        raise
    finally:
        watch.close()


def _dies_soon(watch: ProcessWatch, pid: int) -> bool:
    """Whether a process ends within a moment: its connections break a little before that."""
    deadline = time.monotonic() + BROKEN_FOR_S
    while not watch.dead(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
