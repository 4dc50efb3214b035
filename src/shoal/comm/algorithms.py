"""All-reduce seven ways, on send and recv alone: `f(group, buffer)` leaves the sum of all buffers in each.

Write W for the number of workers and n for the elements of the buffer. What the *busiest* worker sends::

    algorithm                  rounds        messages   elements         good for
    central                    2             W − 1      (W − 1) n        nothing: rank 0 is the bottleneck
    reduce_broadcast           2 (W − 1)     2          2 n              the fewest messages
    all_gather_sum             1             W − 1      (W − 1) n        tiny buffers: one latency
    reduce_scatter_all_gather  2             2 (W − 1)  2 n (W − 1) / W  large buffers, full mesh
    ring                       2 (W − 1)     2 (W − 1)  2 n (W − 1) / W  large buffers, any network
    tree                       ≤ 2 ⌈log₂ W⌉  ⌈log₂ W⌉   n ⌈log₂ W⌉       small buffers, many workers
    halving_doubling           2 log₂ W      2 log₂ W   2 n (W − 1) / W  both, where W is a power of two

No all-reduce can have its busiest worker send fewer than 2 n (W − 1) / W elements, nor finish in fewer
than log₂ W rounds. `costs.py` states what *each* worker sends, and a test compares it with what is really
sent.

central, all_gather_sum, reduce_scatter_all_gather and tree add in balanced-tree order, halving_doubling
does when W is a power of two; reduce_broadcast adds from the last rank to the first and ring around the
circle. In each of them one worker alone adds any given element, or all add in the same order: every
worker ends with the same bits.
"""

from collections.abc import Callable, Iterable
from functools import wraps

import torch
from torch import Tensor

from shoal.comm.group import Messenger, Work
from shoal.comm.reduction import COMBINE, Op, tree_reduce


def flat(tensor: Tensor) -> Tensor:
    """The elements in one row: the tensor's own memory where its strides allow that, else a copy."""
    if tensor.dim() == 1 and tensor.is_contiguous():
        return tensor
    return tensor.contiguous().view(-1)


def write_back(tensor: Tensor, row: Tensor) -> None:
    """Copy the elements of `row` to `tensor`, unless they share memory."""
    if row is not tensor and row.data_ptr() != tensor.data_ptr():
        tensor.copy_(row.view(tensor.shape))


Algorithm = Callable[[Messenger, Tensor], None]


def _on_flat(algorithm: Algorithm) -> Algorithm:
    """Hand the algorithm a flat view of the buffer; where strides forbid one, a copy that is written back."""

    @wraps(algorithm)
    def run(group: Messenger, buffer: Tensor) -> None:
        if group.size == 1:
            return
        buffer = buffer.detach()
        row = flat(buffer)
        algorithm(group, row)
        write_back(buffer, row)

    return run


def chunk_bounds(numel: int, size: int, index: int) -> tuple[int, int]:
    """Where chunk `index` of `size` begins and ends; lengths differ by one element at most."""
    return index * numel // size, (index + 1) * numel // size


def _chunks(buffer: Tensor, size: int) -> list[Tensor]:
    bounds = [chunk_bounds(buffer.numel(), size, index) for index in range(size)]
    return [buffer[start:stop] for start, stop in bounds]


def others(group: Messenger) -> list[int]:
    """The other ranks, beginning with the next one, so that not everyone writes to rank 0 first."""
    return [(group.rank + distance) % group.size for distance in range(1, group.size)]


def wait_for_all(works: Iterable[Work]) -> None:
    """Wait for these calls, in order."""
    for work in works:
        work.wait()


def _sum_with_arrivals(group: Messenger, mine: Tensor, senders: list[int]) -> None:
    """Make `mine` the balanced-tree sum of itself and one buffer from every sender."""
    contributions = {sender: torch.empty_like(mine) for sender in senders}
    wait_for_all([group.recv(tensor, sender) for sender, tensor in contributions.items()])
    contributions[group.rank] = mine
    tree_reduce(Op.SUM, [contributions[rank] for rank in sorted(contributions)], out=mine)


@_on_flat
def central(group: Messenger, buffer: Tensor) -> None:
    """Rank 0 gathers everything and sends the sum back: W − 1 messages of n elements, 1 from the others.

    Phase 1, gather: everyone sends its buffer to rank 0, which needs memory for all of them.
    Phase 2, broadcast: rank 0 sends the sum to everyone.
    """
    if group.rank == 0:
        _sum_with_arrivals(group, buffer, others(group))
        wait_for_all([group.send(buffer, other) for other in others(group)])
    else:
        group.send(buffer, 0).wait()
        group.recv(buffer, 0).wait()


@_on_flat
def reduce_broadcast(group: Messenger, buffer: Tensor) -> None:
    """Sums walk down the line of ranks, the result walks back: 2 messages of n elements, 1 at both ends.

    Phase 1, reduce: each worker adds what arrives from the next rank and hands the sum to the previous one.
    Phase 2, broadcast: rank 0 holds the sum; each worker hands it on to the next rank.
    """
    first, last = group.rank == 0, group.rank == group.size - 1
    if not last:
        arrived = torch.empty_like(buffer)
        group.recv(arrived, group.rank + 1).wait()
        buffer += arrived
    if not first:
        group.send(buffer, group.rank - 1).wait()
        group.recv(buffer, group.rank - 1).wait()
    if not last:
        group.send(buffer, group.rank + 1).wait()


@_on_flat
def all_gather_sum(group: Messenger, buffer: Tensor) -> None:
    """Everyone sends its buffer to everyone and adds for itself: W − 1 messages of n elements.

    Phase 1, all-gather: everyone needs memory for all buffers. Phase 2, local sum.
    """
    # The sum takes the place of the buffer that is being sent, so what is sent is a copy.
    mine = buffer.clone()
    sends = [group.send(mine, other) for other in others(group)]
    _sum_with_arrivals(group, buffer, others(group))
    wait_for_all(sends)


@_on_flat
def reduce_scatter_all_gather(group: Messenger, buffer: Tensor) -> None:
    """Each worker sums one chunk for everyone: 2 (W − 1) messages of n / W elements.

    Phase 1, reduce-scatter: everyone sends chunk i to worker i, which adds them.
    Phase 2, all-gather: worker i sends its finished chunk to everyone.
    """
    chunks = _chunks(buffer, group.size)
    mine = chunks[group.rank]
    scatter = [group.send(chunks[other], other) for other in others(group)]
    _sum_with_arrivals(group, mine, others(group))
    wait_for_all(scatter)
    gather = [group.send(mine, other) for other in others(group)]
    wait_for_all([group.recv(chunks[other], other) for other in others(group)] + gather)


@_on_flat
def ring(group: Messenger, buffer: Tensor) -> None:
    """Chunks go round a ring: 2 (W − 1) messages of n / W elements from each worker, to one neighbour only.

    Phase 1, reduce-scatter: after W − 1 rounds each worker holds the sum of one chunk.
    Phase 2, all-gather: W − 1 more rounds carry the finished chunks round to everyone.
    """
    rank, size = group.rank, group.size
    after, before = (rank + 1) % size, (rank - 1) % size
    chunks = _chunks(buffer, size)
    arrived = torch.empty_like(max(chunks, key=Tensor.numel))

    for step in range(size - 1):
        sending, growing = chunks[(rank - step) % size], chunks[(rank - step - 1) % size]
        sent = group.send(sending, after)
        group.recv(arrived[: growing.numel()], before).wait()
        growing += arrived[: growing.numel()]
        sent.wait()

    for step in range(size - 1):
        finished, next_one = chunks[(rank + 1 - step) % size], chunks[(rank - step) % size]
        sent = group.send(finished, after)
        group.recv(next_one, before).wait()
        sent.wait()


@_on_flat
def tree(group: Messenger, buffer: Tensor) -> None:
    """Sums climb a binomial tree to rank 0 and come down again: at most ⌈log₂ W⌉ messages of n elements.

    Phase 1, reduce: in round d = 1, 2, 4 … every second survivor hands its sum to the one d ranks below,
    and rests. Phase 2, broadcast: the same edges backwards.
    """
    reduce_up_tree(group, buffer)
    broadcast_down_tree(group, buffer)


def distances(group: Messenger) -> list[int]:
    """1, 2, 4 …: the distances that connect all members, in rounds."""
    return [1 << level for level in range((group.size - 1).bit_length())]


def reduce_up_tree(group: Messenger, partial: Tensor, root: int = 0, op: Op = Op.SUM) -> None:
    """Combine the members' tensors along a binomial tree; the root's ends as the result, the others' are used up."""
    rank, size = group.rank, group.size
    place, arrived = (rank - root) % size, torch.empty_like(partial)
    for distance in distances(group):
        if place % (2 * distance) == distance:
            group.send(partial, (rank - distance) % size).wait()
            return
        if place + distance < size:
            group.recv(arrived, (rank + distance) % size).wait()
            COMBINE[op](partial, arrived, out=partial)


def broadcast_down_tree(group: Messenger, buffer: Tensor, root: int = 0) -> None:
    """Give all members the root's tensor along the same tree."""
    rank, size = group.rank, group.size
    place = (rank - root) % size
    for distance in reversed(distances(group)):
        if place % (2 * distance) == distance:
            group.recv(buffer, (rank - distance) % size).wait()
        elif place % (2 * distance) == 0 and place + distance < size:
            group.send(buffer, (rank + distance) % size).wait()


@_on_flat
def halving_doubling(group: Messenger, buffer: Tensor) -> None:
    """Partners exchange ever smaller, then ever larger parts: 2 log₂ W messages, 2 n (W − 1) / W elements.

    Phase 0, when W is no power of two: the surplus workers hand their buffer to a neighbour and rest.
    Phase 1, reduce-scatter by halving: in round d = 1, 2, 4 … each keeps one half of its part of the
    buffer and sends the other half to the partner whose number differs in bit d. Phase 2, all-gather by
    doubling: the same partners in reverse order exchange their finished parts. Phase 3: the surplus
    workers get the result.
    """
    power = 1 << group.size.bit_length() - 1
    surplus = group.size - power
    if group.rank < 2 * surplus and group.rank % 2 == 1:
        group.send(buffer, group.rank - 1).wait()
        group.recv(buffer, group.rank - 1).wait()
        return

    arrived = torch.empty_like(buffer)
    has_surplus = group.rank < 2 * surplus
    if has_surplus:
        group.recv(arrived, group.rank + 1).wait()
        buffer += arrived

    number = group.rank // 2 if has_surplus else group.rank - surplus
    start, stop = 0, buffer.numel()
    exchanges: list[tuple[int, int, int]] = []
    for bit in [1 << level for level in range(power.bit_length() - 1)]:
        partner = number ^ bit
        partner = 2 * partner if partner < surplus else partner + surplus
        exchanges.append((partner, start, stop))
        middle = (start + stop) // 2
        kept, given = (
            ((start, middle), (middle, stop)) if number & bit == 0 else ((middle, stop), (start, middle))
        )
        sent = group.send(buffer[slice(*given)], partner)
        start, stop = kept
        group.recv(arrived[start:stop], partner).wait()
        buffer[start:stop] += arrived[start:stop]
        sent.wait()

    for partner, outer_start, outer_stop in reversed(exchanges):
        sent = group.send(buffer[start:stop], partner)
        other = (outer_start, start) if start > outer_start else (stop, outer_stop)
        group.recv(buffer[slice(*other)], partner).wait()
        sent.wait()
        start, stop = outer_start, outer_stop

    if has_surplus:
        group.send(buffer, group.rank + 1).wait()


ALGORITHMS: dict[str, Algorithm] = {
    "central": central,
    "reduce_broadcast": reduce_broadcast,
    "all_gather_sum": all_gather_sum,
    "reduce_scatter_all_gather": reduce_scatter_all_gather,
    "ring": ring,
    "tree": tree,
    "halving_doubling": halving_doubling,
}
"""Every all-reduce by name."""
