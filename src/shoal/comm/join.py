"""Gives any program its group, however it was started (`shoal.join` calls this).

Shared memory where all members are on one machine, gloo otherwise; without a launcher the workers of torch's process
group, or a group of one. Tensors of GPUs use a group of their own beside it (`by_device.py`).
"""

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from shoal import __version__
from shoal.comm.assigned_group import assignment
from shoal.comm.by_device import ByDevice
from shoal.comm.group import Group
from shoal.comm.liveness.limits import limit_of
from shoal.comm.over_torch.checked import join_torch
from shoal.comm.rendezvous.jobs import take_job
from shoal.comm.rendezvous.meet import Card, meet
from shoal.comm.rendezvous.network import is_loopback, own_address, tell_nccl, wait_for_name
from shoal.comm.rendezvous.reach import check_reach
from shoal.comm.rendezvous.secret import warn_without_secret
from shoal.comm.rendezvous.store import answers_within, check_master, connect, listen, serve
from shoal.comm.rendezvous.tagged_store import tagged
from shoal.comm.shared_memory.group import SharedMemoryGroup, shared_memory_works_here
from shoal.comm.threads.group import ThreadGroup
from shoal.config.arguments import checks_arguments
from shoal.config.sections.values import Seconds
from shoal.errors import ConfigError, JoinError, unknown
from shoal.printable import shortened

KINDS = ("auto", "shm", "gloo", "nccl")


@dataclass(frozen=True)
class WorkerAddress:
    """A worker's place in the world, as its launcher gives it."""

    rank: int
    size: int
    host: str = "127.0.0.1"
    port: int = 0
    launcher_holds_store: bool = False
    """Whether the launcher holds the store; otherwise rank 0 makes it."""
    attempt: str = "0"
    """Different for every restart, so that no attempt reads what another left in the store."""


def place_from_environment(environment: Mapping[str, str]) -> WorkerAddress | None:
    """The place that torchrun's variables give; None without them.

    >>> place_from_environment({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "29501"})
    WorkerAddress(rank=1, size=2, host='a', port=29501, launcher_holds_store=False, attempt='0')
    """
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    given = [name for name in names if name in environment]
    if "RANK" not in given and "WORLD_SIZE" not in given:
        return None
    if len(given) < len(names):
        missing = ", ".join(name for name in names if name not in given)
        raise JoinError(
            f"the environment has {', '.join(given)}, but not {missing}", "Set all four, or none."
        )
    try:
        rank, size, port = (int(environment[name]) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
    except ValueError as error:
        values = ", ".join(f"{name}={shortened(environment[name])}" for name in names)
        raise JoinError(f"expected integers in the environment, got {values}") from error
    if not 0 <= port < 65536:
        raise JoinError(f"MASTER_PORT is {port}", "Ports go from 0 to 65535.")
    if not 0 <= rank < size:
        raise JoinError(f"rank {rank} is not in a world of {size}", f"Ranks go from 0 to {size - 1}.")
    return WorkerAddress(
        rank,
        size,
        environment["MASTER_ADDR"],
        port,
        environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        environment.get("TORCHELASTIC_RESTART_COUNT", "0"),
    )


def own_place() -> WorkerAddress | None:
    """The place of this process, from its launcher's or its job's variables; None without them."""
    take_job()
    return place_from_environment(os.environ)


@dataclass
class _World:
    """What this process has joined at one place."""

    store: dist.Store | None
    num_joins: int = 0
    groups: list[Group] = field(default_factory=list[Group])


_worlds: dict[tuple[int, WorkerAddress | None], _World] = {}
"""By process (a forked child has joined nothing) and place."""


@checks_arguments
def join(
    place: WorkerAddress | None = None,
    *,
    kind: str = "auto",
    limit_s: Seconds | None = None,
    timeout_s: Seconds | None = None,
    facts: Mapping[str, str] | None = None,
) -> Group:
    """The group of this worker, however it was started; a group of one if no launcher started it.

    Without a `place`, the launcher's assignment counts, then the environment (torchrun's variables, also set by hand,
    or those of Slurm, MPI or Kubernetes), then torch's process group, which the program may have made by
    `init_process_group(rank=…, world_size=…)`.
    `kind` is auto, shm, gloo or nccl; auto takes shared memory on one machine and gloo elsewhere. `facts`
    (settings, parameter names …) must be the same on all workers, and so must the versions of shoal and torch.

    With auto the group also takes tensors of GPUs: it moves them over NCCL where every worker has a GPU of its own, and
    through host memory where workers share one. On a machine with several GPUs the variable LOCAL_RANK, which launchers
    set, chooses torch's current one, unless the program has used CUDA before.

    A member without progress for `limit_s` is an error, and so are members missing after `timeout_s`. Both default to
    the variable SHOAL_TIMEOUT_S, or to 1800 s; after 10 s there is a warning.

    A process that joins again gets the same group as long as that is open and of the `kind` asked for; the other
    arguments then have no effect. After `close`, or with another kind, it joins anew, and so must all other workers.

    >>> import torch
    >>> group = join()
    >>> total = torch.tensor([1.0])
    >>> group.all_reduce(total).wait()
    >>> group.rank, group.size, total
    (0, 1, tensor([1.]))
    >>> join() is group
    True
    """
    given = assignment()
    if place is None and given.group is not None:
        return given.group
    if place is None and kind == "auto":
        kind = given.kind
    if kind not in KINDS:
        raise ConfigError(unknown("kind of group", kind, KINDS))
    limit_s, timeout_s = limit_of(limit_s), limit_of(timeout_s)
    place = place or own_place()
    if kind in ("auto", "nccl"):
        take_gpu(os.environ)
    world = _world_at(place, timeout_s)
    world.groups = [group for group in world.groups if not group.closed]
    for group in world.groups:
        if kind in ("auto", group.kind) or (place is None and group.size == 1):
            return group
    if place is None or world.store is None:
        group = _without_launcher(kind, limit_s)
    else:
        store = dist.PrefixStore(f"shoal/{place.attempt}/{world.num_joins}", world.store)
        group = _of_launched(place, store, kind, limit_s, timeout_s, facts)
    world.num_joins += 1
    world.groups.append(group)
    _worlds[os.getpid(), place] = world
    return group


def texts_before_joining(
    place: WorkerAddress, text: str, timeout_s: float, facts: Mapping[str, str]
) -> list[str]:
    """Every worker's text, in rank order. All workers of the place call it before they join, with the same `facts`.

    It counts as a join: a worker that joins at once meets the others here, and facts that differ are an error on all.
    """
    rank, size, world = place.rank, place.size, _world_at(place, timeout_s)
    assert world.store is not None  # there is a place
    ours = tagged(dist.PrefixStore(f"shoal/{place.attempt}/{world.num_joins}", world.store), rank)
    with ours.kept(), answers_within(timeout_s, rank, place.host, place.port):
        cards = meet(ours.within("meet"), rank, size, timeout_s, facts, text)
    world.num_joins += 1
    _worlds[os.getpid(), place] = world
    return [card.able for card in cards]


def _world_at(place: WorkerAddress | None, timeout_s: float) -> _World:
    """What this process has joined at a place, to be noted once it has joined."""
    world = _worlds.get((os.getpid(), place))
    return world or _World(None if place is None else store_at(place, timeout_s))


def _of_launched(
    place: WorkerAddress,
    store: dist.Store,
    kind: str,
    limit_s: float,
    timeout_s: float,
    facts: Mapping[str, str] | None,
) -> Group:
    return join_in(
        store,
        place.rank,
        place.size,
        kind=kind,
        host=own_address(place.host, place.port),
        limit_s=limit_s,
        timeout_s=timeout_s,
        facts=facts,
        holder=None if place.launcher_holds_store else 0,
        answering=lambda: answers_within(timeout_s, place.rank, place.host, place.port),
    )


def _without_launcher(kind: str, limit_s: float) -> Group:
    """The workers of torch's process group; without one, a group of one."""
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        return group_beside(None, kind, limit_s)
    return ThreadGroup.world(1, limit_s)[0]


def take_gpu(environment: Mapping[str, str]) -> None:
    """Make the GPU of LOCAL_RANK torch's current one, unless the program has used one already.

    Only once CUDA starts: before that, choosing a device takes some 500 MiB of it, also from programs for CPUs.
    """
    local_rank, gpus = environment.get("LOCAL_RANK", ""), torch.cuda.device_count()
    if gpus > 1 and local_rank.isdecimal() and not torch.cuda.is_initialized():
        number = int(local_rank) % gpus
        torch.cuda._lazy_call(lambda: torch.cuda.set_device(number))  # pyright: ignore[reportPrivateUsage]


def store_at(place: WorkerAddress, timeout_s: float) -> dist.Store:
    """The store where the workers of this place meet: rank 0 makes it, unless the launcher holds it."""
    wait_for_name(place.host, timeout_s)
    if not place.launcher_holds_store:
        check_master(place.host, place.size, os.environ.get("LOCAL_WORLD_SIZE", ""))
    if place.rank == 0 and not place.launcher_holds_store:
        return serve(listen(place.host, place.port), timeout_s)
    return connect(place.host, place.port, place.rank, timeout_s)


def join_in(
    store: dist.Store,
    rank: int,
    size: int,
    *,
    kind: str = "auto",
    host: str = "127.0.0.1",
    limit_s: float | None = None,
    timeout_s: float | None = None,
    facts: Mapping[str, str] | None = None,
    holder: int | None = None,
    answering: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Group:
    """The group of all workers that meet in this store, which is fresh for it; `host` is this machine's address.

    Each phase, meeting and connecting, takes place in its own context of `answering`, which limits its time.
    """
    limit_s, timeout_s = limit_of(limit_s), limit_of(timeout_s)
    ours = tagged(store, rank)

    def over_torch(store: object, rank: int, size: int, backend: str) -> Group:
        return join_torch(
            store,
            rank,
            size,
            backend=backend,
            host=host,
            limit_s=limit_s,
            timeout_s=timeout_s,
            holder=holder if size == len(cards) else None,  # a rank of the whole world
        )

    with ours.kept():
        able = "1" if shared_memory_works_here() else "0"
        with answering():
            equal = {"group": kind, "shoal": __version__, "torch": torch.__version__.split("+")[0]}
            cards = meet(ours.within("meet"), rank, size, timeout_s, {**equal, **(facts or {})}, able, host)
        if rank == 0 and (holder == 0 or not _together(cards)):
            warn_without_secret(host)
        chosen = _choose(cards, rank) if kind == "auto" else kind
        inner = ours.within(chosen)
        host = reached_by_others(cards[rank], cards)
        with answering():
            if chosen == "shm":
                group = SharedMemoryGroup.join(inner, rank, size, limit_s=limit_s, timeout_s=timeout_s)
            else:
                check_reach(ours.within("reach"), cards, rank, host)
                tell_nccl(host)
                group = over_torch(inner, rank, size, chosen)
    if kind != "auto" or not torch.cuda.device_count():
        return group
    return ByDevice(
        group, lambda name, rank, size, backend: over_torch(ours.for_torch(name), rank, size, backend)
    )


def _choose(cards: Sequence[Card], rank: int) -> str:
    """Shared memory if all members support it, else gloo: the same answer on every member."""
    together = _together(cards)
    if together and all(card.able == "1" for card in cards):
        return "shm"
    if together and rank == 0:
        warnings.warn(
            "this machine does not support shared-memory groups (they need Linux on x86-64 or ARM): using gloo",
            stacklevel=3,
        )
    return "gloo"


def reached_by_others(mine: Card, cards: Sequence[Card]) -> str:
    """This machine's address for its own connections; not loopback, if a worker of another machine has a way to it.

    Where the master's name is 127.0.1.1 on its own machine, as in Debian's /etc/hosts, that way is the answer.
    """
    for card in cards if is_loopback(mine.address) else ():
        if not card.shares_machine_with(mine) and card.address and not is_loopback(card.address):
            return own_address(card.address, 0)
    return mine.address


def _together(cards: Sequence[Card]) -> bool:
    return all(card.shares_machine_with(cards[0]) for card in cards)


def group_beside(process_group: Any = None, kind: str = "auto", limit_s: float | None = None) -> Group:
    """A group with the members and ranks of a torch process group (None: the default one). All its members call.

    The members meet in torch's own store. The group has connections of its own, so neither disturbs the order of the
    other's calls. `limit_s` is the limit for members that are late or silent.
    """
    process_group = process_group or dist.group.WORLD
    rank, size = dist.get_rank(process_group), dist.get_world_size(process_group)
    store: Any = distributed_c10d._get_default_store()  # pyright: ignore[reportPrivateUsage]
    store = dist.PrefixStore(f"shoal/beside/{process_group.group_name}", store)
    # A program may call this several times: the n-th call of each member meets the n-th of all others.
    turn = tagged(store, rank).count(f"turn of rank {rank}")
    inside = dist.PrefixStore(str(turn), store)
    return join_in(inside, rank, size, kind=kind, host=_own_host(store), limit_s=limit_s, timeout_s=limit_s)


def _own_host(store: Any) -> str:
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    return own_address(store.host, store.port) if isinstance(store, dist.TCPStore) else "127.0.0.1"
