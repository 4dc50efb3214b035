"""Every collective on send and recv alone, in the plainest way.

Write W for the number of workers, n for the elements of a buffer or a piece. What the *busiest* worker sends::

    collective       how                                            rounds       messages     elements
    all_reduce       sums around a ring, the rest by all_gather     2 (W − 1)    2 (W − 1)    2 n (W − 1) / W
    reduce_scatter   every member sends piece i to member i         1            W − 1        (W − 1) n
    all_gather       every member sends its piece to all            1            W − 1        (W − 1) n
    broadcast        down a binomial tree from the root             ⌈log₂ W⌉     ⌈log₂ W⌉     n ⌈log₂ W⌉
    reduce           up the same tree                               ⌈log₂ W⌉     1            n
    all_to_all       every member sends piece i to member i         1            W − 1        (W − 1) n
    gather, scatter  every member with the root                     1            W − 1        (W − 1) n
    barrier          in round d = 1, 2, 4 … a word to d ranks on    ⌈log₂ W⌉     ⌈log₂ W⌉     0

Buffers and pieces are flat and contiguous; `rows` is a whole, one piece in each row.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from shoal.comm.algorithms import (
    broadcast_down_tree,
    distances,
    others,
    reduce_up_tree,
    ring,
    wait_for_all,
)
from shoal.comm.group import Messenger
from shoal.comm.reduction import Op, tree_reduce
from shoal.comm.signature import Signature


def all_reduce(group: Messenger, call: Signature, buffer: Tensor, rows: Tensor) -> None:
    """Make `buffer` the reduction of all: sums around a ring, anything else from all buffers at once."""
    op = call.op or Op.SUM
    if op in (Op.SUM, Op.AVERAGE):
        ring(group, buffer)
        if op is Op.AVERAGE:
            buffer.div_(group.size)
    else:
        gathered = buffer.new_empty(group.size, buffer.numel())
        all_gather(group, call, buffer, gathered)
        tree_reduce(op, list(gathered), out=buffer)


def reduce_scatter(group: Messenger, call: Signature, piece: Tensor, rows: Tensor) -> None:
    """Give member i the reduction, in balanced-tree order, of all members' row i."""
    arrived = torch.empty_like(rows)
    all_to_all(group, call, arrived, rows)
    tree_reduce(call.op or Op.SUM, list(arrived), out=piece)


def all_gather(group: Messenger, call: Signature, piece: Tensor, rows: Tensor) -> None:
    """Fill every row with a member's piece, on every member."""
    works = [group.send(piece, other) for other in others(group)]
    works += [group.recv(rows[other], other) for other in others(group)]
    rows[group.rank] = piece
    wait_for_all(works)


def all_to_all(group: Messenger, call: Signature, out: Tensor, rows: Tensor) -> None:
    """Give row i to member i, and fill `out` with the rows that all members give this one."""
    out = out.view(rows.shape)
    works = [group.send(rows[other], other) for other in others(group)]
    works += [group.recv(out[other], other) for other in others(group)]
    out[group.rank] = rows[group.rank]
    wait_for_all(works)


def broadcast(group: Messenger, call: Signature, buffer: Tensor, rows: Tensor) -> None:
    """Make `buffer` the root's. In round d = …, 4, 2, 1 members that have it send it d places on."""
    broadcast_down_tree(group, buffer, call.root or 0)


def reduce(group: Messenger, call: Signature, buffer: Tensor, rows: Tensor) -> None:
    """Make the root's `buffer` the reduction of all; the others' stay as they are."""
    partial = buffer.clone()
    reduce_up_tree(group, partial, call.root or 0, call.op or Op.SUM)
    if group.rank == call.root:
        buffer.copy_(partial.div_(group.size) if call.op is Op.AVERAGE else partial)


def gather(group: Messenger, call: Signature, piece: Tensor, rows: Tensor) -> None:
    """Fill the root's rows with the members' pieces."""
    if group.rank != call.root:
        group.send(piece, call.root or 0).wait()
        return
    rows[group.rank] = piece
    wait_for_all([group.recv(rows[other], other) for other in others(group)])


def scatter(group: Messenger, call: Signature, piece: Tensor, rows: Tensor) -> None:
    """Give member i the root's row i."""
    if group.rank != call.root:
        group.recv(piece, call.root or 0).wait()
        return
    piece.copy_(rows[group.rank])
    wait_for_all([group.send(rows[other], other) for other in others(group)])


def barrier(group: Messenger, call: Signature, piece: Tensor, rows: Tensor) -> None:
    """Return when all members have called it: after the last round each has heard, through others, of all."""
    word = torch.empty(0)
    for distance in distances(group):
        sent = group.send(word, (group.rank + distance) % group.size)
        group.recv(word, (group.rank - distance) % group.size).wait()
        sent.wait()


def _nothing(group: Messenger, call: Signature, piece: Tensor, rows: Tensor) -> None:
    """An operation without data."""


COLLECTIVES: dict[str, Callable[[Messenger, Signature, Tensor, Tensor], None]] = {
    "all_reduce": all_reduce,
    "reduce_scatter": reduce_scatter,
    "all_gather": all_gather,
    "all_to_all": all_to_all,
    "broadcast": broadcast,
    "reduce": reduce,
    "gather": gather,
    "scatter": scatter,
    "barrier": barrier,
    "empty": _nothing,
}
"""Every collective, as a function of (group, call, piece, rows)."""
