"""Workers that are threads, each with a folder on the disk that the test gives it: machines without a shared disk."""

import shutil
from pathlib import Path

import torch

from shoal.comm.threads.group import run_threads
from shoal.strategies.pieces.piece import Piece, Place
from shoal.training import checkpoint
from shoal.training.disks.disks import Disks
from shoal.training.disks.latest import latest_of_all
from shoal.training.progress import Progress

WHOLE = torch.arange(24.0)
KEEPERS = (0, 1, 1, 3)
"""Four workers on three disks."""


def folder_of(parent, keepers, rank):
    """The checkpoints that a worker sees."""
    return Path(parent) / f"disk{keepers[rank]}" / "run" / "checkpoints"


def disks_of(keepers):
    return Disks(keepers, tuple(f"node{keeper}" for keeper in keepers))


def save(parent, *steps, keepers=KEEPERS, keep=3):
    """Checkpoints of a tensor that is divided among the workers."""
    size = len(keepers)

    def work(group):
        folder = folder_of(parent, keepers, group.rank)
        folder.parent.mkdir(parents=True, exist_ok=True)
        part = len(WHOLE) // size
        begin = group.rank * part
        for step in steps:
            mine = (WHOLE * step)[begin : begin + part]
            pieces = [Piece("model.w", mine, Place((len(WHOLE),), begin))]
            progress = Progress(step=step, seconds=0.1 * group.rank)  # each worker measures its own
            checkpoint.save(folder, pieces, progress, keep, group, disks=disks_of(keepers))

    run_threads(size, work)


def load(parent, keepers=KEEPERS, check=lambda progress: None):
    """What each worker gets from `latest_of_all`: its checkpoint and the whole tensor."""

    def work(group):
        folder = folder_of(parent, keepers, group.rank)
        folder.parent.mkdir(parents=True, exist_ok=True)
        found = latest_of_all(folder, group, disks_of(keepers), check)
        return found, found.pieces()["model.w"]

    return run_threads(len(keepers), work)


def lose(parent, keeper):
    shutil.rmtree(Path(parent) / f"disk{keeper}")
