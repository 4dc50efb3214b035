"""A group beside a process group of torch's, for programs that have called `init_process_group`."""

from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

from shoal.comm.group import Group
from shoal.comm.join import join_in
from shoal.comm.rendezvous.store import own_address
from shoal.comm.rendezvous.tagged_store import tagged


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
