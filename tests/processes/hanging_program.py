"""Programs of torch's, that hang or abort in a way that the first argument names."""

import contextlib
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def wrong_order(rank):
    total, copy = torch.ones(1000), torch.ones(1000)
    first, second = (dist.all_reduce, broadcast) if rank else (broadcast, dist.all_reduce)
    first(total)
    second(copy)


def broadcast(tensor):
    dist.broadcast(tensor, 0)


def other_shape(rank):
    dist.all_reduce(torch.ones(500 if rank == 1 else 1000))


def missing(rank):
    dist.all_reduce(torch.ones(10))
    if rank == 1:
        validate()
    dist.all_reduce(torch.ones(10))


def validate():
    while True:
        time.sleep(0.01)


def left(rank):
    if rank != 1:
        dist.all_reduce(torch.ones(10))


def caught(rank):
    try:
        if rank == 1:
            raise ValueError("no such column")
        dist.all_reduce(torch.ones(10))
    except ValueError:
        validate()


def alone(rank):
    dist.all_reduce(torch.ones(10))
    if rank == 0:
        dist.barrier()
    dist.all_reduce(torch.ones(10))


def branch(rank):
    model = DistributedDataParallel(nn.Linear(30, 30))
    loss = model(torch.ones(2, 30)).sum()
    if rank == 0:
        loss.backward()
    dist.all_reduce(torch.ones(1))


def skipped_backward(rank):
    model = DistributedDataParallel(nn.Linear(30, 30))
    loss = model(torch.ones(2, 30)).sum()
    if rank == 0:
        loss.backward()
    else:
        validate()


def torch_gives_up(rank):
    if rank == 1:
        validate()
    dist.all_reduce(torch.ones(10))


def refused(rank):
    """One rank tries what torch refuses, and goes on."""
    if rank == 0:
        with contextlib.suppress(RuntimeError):
            dist.all_gather([torch.empty(3)], torch.ones(4))
    for _ in range(3):
        dist.all_reduce(torch.ones(10))


def send(rank):
    if rank == 0:
        dist.send(torch.ones(1000), 1)
    elif rank == 1:
        validate()


def wrong_member(rank):
    pairs = [dist.new_group([0, 1]), dist.new_group([1, 2])]
    dist.all_reduce(torch.ones(3), group=pairs[0 if rank == 0 else 1])
    dist.barrier()


def sharded(rank):
    from torch.distributed.fsdp import fully_shard

    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    for part in (*model, model):
        fully_shard(part)
    model(torch.ones(2, 8)).sum().backward()
    if rank == 1:
        validate()
    model(torch.ones(2, 8)).sum().backward()


def asynchronous(rank):
    work = dist.all_reduce(torch.ones(10), async_op=True)
    work.wait()
    if rank == 0:
        dist.all_reduce(torch.ones(10), async_op=True).wait()
    validate()


def healthy(rank):
    """Everything that may look like a mistake: uneven pieces, messages, groups made twice, a slow rank."""
    size = dist.get_world_size()
    for _ in range(2):
        pieces = [torch.empty(3) for _ in range(size)]
        dist.all_gather(pieces, torch.ones(3))
        objects = [None] * size
        dist.all_gather_object(objects, "x" * (rank + 1))
        if rank == 0:
            time.sleep(1)
        if rank == 0:
            dist.send(torch.ones(4), 1)
        elif rank == 1:
            dist.recv(torch.ones(4), 0)
        pair = dist.new_group([0, 1])
        if rank < 2:
            dist.all_reduce(torch.ones(5), group=pair)
        dist.barrier()
        dist.broadcast(torch.ones(2), 0)
    model = DistributedDataParallel(nn.Linear(3, 3))
    with model.join():
        for _ in range(2 + rank):
            model(torch.ones(2, 3)).sum().backward()


def ours():
    """The same in a group of shoal's."""
    import shoal

    group = shoal.join()
    if group.rank == 1:
        validate()
    group.all_reduce(torch.ones(10)).wait()


if __name__ == "__main__":
    if sys.argv[1] == "ours":
        ours()
    if sys.argv[1] == "no_group" and int(os.environ["RANK"]) == 1:
        validate()
    limit_s = 2 if sys.argv[1] == "torch_gives_up" else 600
    dist.init_process_group("gloo", timeout=timedelta(seconds=limit_s))
    globals()[sys.argv[1]](dist.get_rank())
