"""Every collective on send and recv alone, the plainest way that no link can be blamed for.

Write W for the number of workers, n for the elements of a buffer or a piece. What the *busiest* worker sends::

    collective       how                                            rounds       messages     elements
    all_reduce       sums by an algorithm, the rest by all_gather   (its own)    (its own)    (its own)
    reduce_scatter   everyone sends piece i to member i             1            W − 1        (W − 1) n
    all_gather       everyone sends its piece to everyone           1            W − 1        (W − 1) n
    broadcast        down a binomial tree from the root             ⌈log₂ W⌉     ⌈log₂ W⌉     n ⌈log₂ W⌉
    reduce           up the same tree                               ⌈log₂ W⌉     1            n
    gather, scatter  everyone with the root                         1            W − 1        (W − 1) n
    barrier          in round d = 1, 2, 4 … a word to d ranks on    ⌈log₂ W⌉     ⌈log₂ W⌉     0

Buffers and pieces are flat and contiguous; `rows` is a whole, one piece in each row.
"""

import torch
from torch import Tensor

from shoal.comm.algorithms import Algorithm
from shoal.comm.group import Messenger
from shoal.comm.reduction import COMBINE, Op, tree_reduce


def all_reduce(group: Messenger, buffer: Tensor, op: Op, algorithm: Algorithm) -> None:
    """Make `buffer` the reduction of all: sums by the algorithm, anything else from everyone's buffer at once."""
    if op in (Op.SUM, Op.AVERAGE):
        algorithm(group, buffer)
        if op is Op.AVERAGE:
            buffer.div_(group.size)
    else:
        rows = buffer.new_empty(group.size, buffer.numel())
        all_gather(group, rows, buffer)
        tree_reduce(op, list(rows), out=buffer)


def reduce_scatter(group: Messenger, piece: Tensor, rows: Tensor, op: Op) -> None:
    """Give member i the reduction, in balanced-tree order, of everyone's row i."""
    arrived = torch.empty_like(rows)
    arrived[group.rank] = rows[group.rank]
    works = [group.send(rows[other], other) for other in _others(group)]
    works += [group.recv(arrived[other], other) for other in _others(group)]
    for work in works:
        work.wait()
    tree_reduce(op, list(arrived), out=piece)


def all_gather(group: Messenger, rows: Tensor, piece: Tensor) -> None:
    """Fill every row with a member's piece, on every member."""
    works = [group.send(piece, other) for other in _others(group)]
    works += [group.recv(rows[other], other) for other in _others(group)]
    rows[group.rank] = piece
    for work in works:
        work.wait()


def broadcast(group: Messenger, buffer: Tensor, root: int) -> None:
    """Make `buffer` the root's. In round d = …, 4, 2, 1 who has it sends it to the one d places on."""
    place, distances = (group.rank - root) % group.size, _distances(group)
    for distance in reversed(distances):
        if place % (2 * distance) == distance:
            group.recv(buffer, (group.rank - distance) % group.size).wait()
        elif place % (2 * distance) == 0 and place + distance < group.size:
            group.send(buffer, (group.rank + distance) % group.size).wait()


def reduce(group: Messenger, buffer: Tensor, root: int, op: Op) -> None:
    """Make the root's `buffer` the reduction of all; the others' stay as they are."""
    place = (group.rank - root) % group.size
    partial, arrived = buffer.clone(), torch.empty_like(buffer)
    for distance in _distances(group):
        if place % (2 * distance) == distance:
            group.send(partial, (group.rank - distance) % group.size).wait()
            return
        if place + distance < group.size:
            group.recv(arrived, (group.rank + distance) % group.size).wait()
            COMBINE[op](partial, arrived, out=partial)
    buffer.copy_(partial.div_(group.size) if op is Op.AVERAGE else partial)


def gather(group: Messenger, rows: Tensor | None, piece: Tensor, root: int) -> None:
    """Fill the root's rows with the members' pieces."""
    if group.rank != root or rows is None:
        group.send(piece, root).wait()
        return
    rows[root] = piece
    for work in [group.recv(rows[other], other) for other in _others(group)]:
        work.wait()


def scatter(group: Messenger, piece: Tensor, rows: Tensor | None, root: int) -> None:
    """Give member i the root's row i."""
    if group.rank != root or rows is None:
        group.recv(piece, root).wait()
        return
    piece.copy_(rows[root])
    for work in [group.send(rows[other], other) for other in _others(group)]:
        work.wait()


def barrier(group: Messenger) -> None:
    """Return when everyone has called it: after the last round each has heard, through others, of all."""
    word = torch.empty(0)
    for distance in _distances(group):
        sent = group.send(word, (group.rank + distance) % group.size)
        group.recv(word, (group.rank - distance) % group.size).wait()
        sent.wait()


def _others(group: Messenger) -> list[int]:
    """The other ranks, beginning with the next one."""
    return [(group.rank + distance) % group.size for distance in range(1, group.size)]


def _distances(group: Messenger) -> list[int]:
    return [1 << level for level in range((group.size - 1).bit_length())]
