"""Before torch connects: can the machines of a run reach each other? A closed port is named at once, on every worker.

The first worker of each machine listens on a port that the system hands out, as gloo and NCCL will do, and connects to
those of all other machines. So both directions are tried: who connects to whom is the library's choice.

Costs one round through the store and machines · (machines − 1) connections; nothing on one machine.
"""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from shoal.comm.rendezvous.meet import Card
from shoal.comm.rendezvous.network import free_ports, problem_of, way_out, why
from shoal.comm.rendezvous.store import listen, stored
from shoal.comm.rendezvous.tagged_store import TaggedStore
from shoal.errors import JoinError, JoinTimeoutError
from shoal.printable import counted, printable

CONNECT_S = 5.0
"""Seconds after which a connection without an answer counts as closed: the system has tried three times by then."""
WAIT_S = 60.0
AT_ONCE = 32
"""Connections that one worker tries at the same time."""


def machines_of(cards: Sequence[Card]) -> dict[int, Card]:
    """The first worker of each machine, by its rank."""
    found: dict[int, Card] = {}
    for card in cards:
        if not any(card.shares_machine_with(other) for other in found.values()):
            found[card.rank] = card
    return found


def check_reach(store: TaggedStore, cards: Sequence[Card], rank: int, host: str) -> None:
    """Raise on all workers if one machine cannot connect to another; `host` is this worker's address."""
    machines = machines_of(cards)
    if len(machines) == 1:
        return
    with listen(host, 0) as server:
        if rank in machines:
            store.set(f"listens/{rank}", json.dumps([host, server.getsockname()[1]]))
            ports = _read(store, "listens", machines)
            store.set(f"closed/{rank}", json.dumps(_closed(machines, rank, host, ports)))
        found = _read(store, "closed", machines)
    closed = [stored(found[rank], str, str) for rank in machines if found[rank] != "[]"]
    if closed:
        message, hint = map(printable, closed[0])
        more = f" ({counted(len(closed) - 1, 'other machine')} cannot either)" if len(closed) > 1 else ""
        raise JoinError(f"{message}{more}", hint)


def _closed(machines: dict[int, Card], rank: int, host: str, ports: dict[int, str]) -> list[str]:
    """The first machine that this one cannot connect to, as an error and its hint; empty if it reaches all."""

    def attempt(other: int) -> OSError | None:
        address, port = stored(ports[other], str, int)
        return problem_of(address, port, CONNECT_S)

    others = [other for other in machines if other != rank]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        problems = dict(zip(others, pool.map(attempt, others), strict=True))
    for other, problem in problems.items():
        if problem is not None:
            address, port = stored(ports[other], str, int)
            num_more = sum(each is not None for each in problems.values()) - 1
            more = f", and {counted(num_more, 'more machine')}" if num_more else ""
            message = (
                f"rank {rank} on {machines[rank].host} ({host}) cannot connect to rank {other} on "
                f"{machines[other].host} ({address}, port {port}){more}: {why(problem)}"
            )
            return [message, f"{way_out(problem, free_ports())} `shoal doctor --cluster` tries every pair."]
    return []


def _read(store: TaggedStore, key: str, machines: dict[int, Card]) -> dict[int, str]:
    """What the first worker of each machine has written."""
    found = store.read_from(key, machines, WAIT_S)
    if absent := ", ".join(str(rank) for rank in machines if rank not in found):
        raise JoinTimeoutError(
            f"rank {absent} has not tried its connections within {WAIT_S:g} s",
            "See the output of that worker.",
        )
    return found
