"""Carries parts of files from one disk to another: in blocks, as messages of the group, compared with their sha256."""

import errno
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from io import BufferedReader, BufferedWriter
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from shoal.comm.group import Group
from shoal.errors import GroupError
from shoal.files import complete_file, flush, open_file, open_to_append
from shoal.training.disks.disks import Disks

BLOCK_BYTES = 4 * 2**20
"""The memory that a file of any size needs on its way."""


class Transfer(NamedTuple):
    """Bytes of a file of the sender's that become the file, or its end, of the receiver."""

    sender: int
    receiver: int
    source: Path
    """On the sender's disk."""
    target: Path
    """On the receiver's disk."""
    begin: int
    """From 0 on, the receiver gets a new file; otherwise what it has is continued."""
    end: int
    sha256: str = ""
    """Of a new file, if it is known."""


def to_next_disk(disks: Disks, files: Iterable[tuple[int, Path, int, str]]) -> list[Transfer]:
    """A copy of each worker's file, given as (rank, path, bytes, sha256), at the same path of the next disk.

    Neighbours in the ring take turns, so that many pairs are busy at once.
    """
    in_turn = sorted(files, key=lambda file: (disks.turn_of(file[0]), file[0]))
    return [
        Transfer(rank, disks.copier_of(rank), path, path, 0, size, sha256)
        for rank, path, size, sha256 in in_turn
    ]


def carry_out(group: Group, transfers: Sequence[Transfer]) -> None:
    """Make the transfers, which all workers list in the same order; then raise this worker's first OSError.

    Each worker makes its own, one after the other: so the first in the list that is not finished can always go on. A
    worker that cannot read or write goes through its messages to the end: the other side waits for them.
    """
    failure: OSError | None = None
    for transfer in transfers:
        try:
            if group.rank == transfer.sender:
                _send(group, transfer)
            elif group.rank == transfer.receiver:
                _receive(group, transfer)
        except GroupError:  # some are OSErrors: a time limit
            raise
        except OSError as error:
            failure = failure or error
    if failure is not None:
        raise failure


def _blocks(transfer: Transfer) -> Iterator[Tensor]:
    for begin in range(transfer.begin, transfer.end, BLOCK_BYTES):
        yield torch.zeros(min(BLOCK_BYTES, transfer.end - begin), dtype=torch.uint8)


def _send(group: Group, transfer: Transfer) -> None:
    failure: OSError | None = None
    with ExitStack() as stack:
        file: BufferedReader | None = None
        for block in _blocks(transfer):
            try:
                if file is None and failure is None:
                    file = stack.enter_context(open_file(transfer.source))
                    file.seek(transfer.begin)
                if file is not None and file.readinto(block.numpy().data) < len(block):
                    raise OSError(errno.EIO, "it has become shorter", str(transfer.source))
            except OSError as error:
                failure, file = failure or error, None
            group.send(block, transfer.receiver).wait()
    if failure is not None:
        raise failure


def _receive(group: Group, transfer: Transfer) -> None:
    blocks, digest = _blocks(transfer), hashlib.sha256()
    try:
        with _opened(transfer) as file:
            for block in blocks:
                group.recv(block, transfer.sender).wait()
                digest.update(block.numpy().data)
                file.write(block.numpy().data)
            if transfer.sha256 not in ("", digest.hexdigest()):
                problem = f"rank {transfer.sender} sent content with sha256 {digest.hexdigest()}, not {transfer.sha256}"
                raise OSError(errno.EIO, problem, str(transfer.target))
        flush(transfer.target)
    except OSError as error:
        if not isinstance(error, GroupError):
            for block in blocks:
                group.recv(block, transfer.sender).wait()
        raise


def _opened(transfer: Transfer) -> AbstractContextManager[BufferedWriter]:
    """The file to write; a new one has its name once it is complete."""
    return open_to_append(transfer.target) if transfer.begin else complete_file(transfer.target)
