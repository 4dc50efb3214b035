"""Runs programs of the gallery: all of them on workers that start once, and each in a world of one of this process."""

import contextlib
import importlib
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing

from shoal.verify.recorder import recorded
from shoal.verify.reference import compared

SIZE = 3
MODULES = ("bugs.exchanges", "bugs.samples", "bugs.updates", "bugs.correct")


def gallery():
    """Everything that can run, by name."""
    for module in MODULES:
        importlib.import_module(module)
    from bugs.correct import CORRECT
    from bugs.program import GALLERY

    return {**{name: made for name, (made, _) in GALLERY.items()}, **CORRECT}


def _work(rank, folder, names):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=SIZE)
    made = gallery()
    for name in names:
        Path(folder, name).mkdir(exist_ok=True)
        with contextlib.suppress(ArithmeticError), recorded(Path(folder, name), rank):
            made[name](rank, SIZE).train()
        dist.barrier()
    dist.destroy_process_group()


def record(folder, names):
    """Record these programs on all workers."""
    torch.multiprocessing.spawn(_work, (str(folder), names), nprocs=SIZE)


@contextlib.contextmanager
def world_of_one():
    """A process group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def outcome_of(folder, name):
    """Compare a recorded program with one machine."""
    with compared(Path(folder, name), SIZE) as outcome:
        gallery()[name](0, 1).train()
    return outcome
