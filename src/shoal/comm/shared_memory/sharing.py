"""The first memory of a shared-memory group, which its members find through the store where they met."""

import json
import time
from collections.abc import Sequence

from shoal.comm.liveness.watch import Watch
from shoal.comm.rendezvous import Card, Store
from shoal.comm.shared_memory.arena import Address, Arena
from shoal.comm.shared_memory.board import Layout
from shoal.errors import JoinTimeoutError, MemberError


def share_arena(store: Store, rank: int, cards: Sequence[Card], timeout_s: float) -> Arena:
    """The arena of a new group: rank 0 makes it and tells where it is, the others open it."""
    if rank == 0:
        arena = Arena.create(Layout(len(cards)).num_bytes)
        store.set("arena", json.dumps(arena.address))
        return arena
    watch, maker = Watch(), cards[0].pid
    watch.add([maker])
    deadline = time.monotonic() + timeout_s
    try:
        while not store.check(["arena"]):
            if watch.dead(maker):
                raise _maker_is(f"died (process {maker} has ended)", "died")
            if watch.stopped(maker):
                raise _maker_is("is stopped (SIGSTOP)", "stopped")
            if time.monotonic() > deadline:
                raise JoinTimeoutError(f"rank 0 has not made the group's memory within {timeout_s:g} s")
            time.sleep(0.005)
        return Arena.open(Address(*json.loads(store.get("arena"))))
    except MemberError:
        raise
    except RuntimeError as error:
        # With rank 0 the store may go, and its memory does.
        if _dies_soon(watch, maker):
            raise _maker_is(f"died (process {maker} has ended)", "died") from error
        raise
    finally:
        watch.close()


def _dies_soon(watch: Watch, pid: int) -> bool:
    """Connections of a process break a little before it counts as dead."""
    deadline = time.monotonic() + 1.0
    while not watch.dead(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def _maker_is(what: str, reason: str) -> MemberError:
    return MemberError(f"rank 0 {what}: it has not made the group's memory", rank=0, reason=reason)
