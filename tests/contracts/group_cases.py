"""What every group must do: each case is a function of one member's group, and raises when something is wrong.

A member knows what every other member contributes, because contributions are drawn from (case, rank): so each checks
its own result against one it computed alone.
"""

import random
import time
from functools import lru_cache

import pytest
import torch

from shoal.comm.group import ANYONE, Group
from shoal.comm.reduction import Op, makes_sense, tree_reduce
from shoal.errors import GroupError

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int32, torch.int64, torch.bool)
LENGTHS = (0, 1, 7, 1000, 150_007)
"""From nothing to several blocks of any staging area, not divisible by any world size."""
PIECES = (0, 1, 7, 1000, 50_021)
"""The same for one member's piece of a whole."""


@lru_cache(maxsize=400)
def _drawn(seed, rank, numel, dtype):
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    if dtype.is_floating_point:
        return torch.randn(numel, generator=generator).to(dtype)
    return torch.randint(0, 2 if dtype is torch.bool else 7, (numel,), generator=generator).to(dtype)


def drawn(seed, rank, numel, dtype=torch.float32):
    """What `rank` contributes: a fresh tensor."""
    return _drawn(seed, rank, numel, dtype).clone()


def everyone(group, seed, numel, dtype=torch.float32):
    return [drawn(seed, rank, numel, dtype) for rank in range(group.size)]


def reduced(op, tensors):
    out = torch.empty_like(tensors[0])
    tree_reduce(op, tensors, out=out)
    return out


def same_bits_everywhere(group, tensor):
    """All members hold the same bits: compared as bytes, through the group itself."""
    mine = tensor.contiguous().view(-1).view(torch.uint8)
    whole = torch.empty(group.size * mine.numel(), dtype=torch.uint8)
    group.all_gather(whole, mine).wait()
    assert all(torch.equal(row, mine) for row in whole.view(group.size, -1))


def agrees(group, actual, expected, tree):
    """Bit for bit where sums follow the tree; else as close as rounding allows, and the same on every member."""
    if tree or not actual.dtype.is_floating_point:
        assert torch.equal(actual, expected), f"{actual.dtype}: {actual} is not {expected}"
    else:
        tolerance = {torch.bfloat16: 0.1, torch.float16: 0.02}.get(actual.dtype, 1e-5)
        torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def all_reduce_takes_every_dtype_and_op(group, tree):
    for dtype in DTYPES:
        for op in Op:
            if makes_sense(op, dtype):
                buffer = drawn(1, group.rank, 33, dtype)
                group.all_reduce(buffer, op).wait()
                agrees(group, buffer, reduced(op, everyone(group, 1, 33, dtype)), tree)
                if op in (Op.SUM, Op.AVERAGE):
                    same_bits_everywhere(group, buffer)


def all_reduce_of_any_length(group, tree):
    for numel in LENGTHS:
        expected = reduced(Op.SUM, everyone(group, 2, numel))
        for buffer in (drawn(2, group.rank, numel), group.empty(numel)):
            buffer.copy_(drawn(2, group.rank, numel))
            group.all_reduce(buffer).wait()
            agrees(group, buffer, expected, tree)


def reduce_scatter_of_any_length(group, tree):
    for numel in PIECES:
        wholes = everyone(group, 3, group.size * numel)
        expected = reduced(Op.SUM, [whole.view(group.size, numel)[group.rank] for whole in wholes])
        for whole in (wholes[group.rank].clone(), group.empty(group.size * numel)):
            whole.copy_(wholes[group.rank])
            piece = torch.full((numel,), -1.0)
            group.reduce_scatter(piece, whole).wait()
            agrees(group, piece, expected, tree)
            assert torch.equal(whole, wholes[group.rank]), "reduce_scatter must leave the whole as it is"


def reduce_scatter_takes_every_dtype_and_op(group, tree):
    for dtype in DTYPES:
        for op in Op:
            if makes_sense(op, dtype):
                wholes = everyone(group, 12, group.size * 9, dtype)
                piece = torch.zeros(9, dtype=dtype)
                group.reduce_scatter(piece, wholes[group.rank], op).wait()
                expected = reduced(op, [whole.view(group.size, 9)[group.rank] for whole in wholes])
                agrees(group, piece, expected, tree)


def all_to_all_of_any_length_and_dtype(group, tree):
    for numel in PIECES:
        for dtype in DTYPES if numel == 7 else (torch.float32,):
            wholes = everyone(group, 13, group.size * numel, dtype)
            expected = torch.cat([whole.view(group.size, numel)[group.rank] for whole in wholes])
            for whole in (wholes[group.rank].clone(), group.empty(group.size * numel, dtype)):
                whole.copy_(wholes[group.rank])
                for out in (torch.zeros_like(whole), group.empty(group.size * numel, dtype)):
                    group.all_to_all(out, whole).wait()
                    assert torch.equal(out, expected)
                    assert torch.equal(whole, wholes[group.rank]), "all_to_all must leave the whole as it is"


def all_to_all_twice_is_the_identity(group, tree):
    """Also with strides, and with nothing waited for in between by the others."""
    table = drawn(14, group.rank, group.size * 40).view(group.size, 40)
    there = torch.zeros(40, group.size).t()
    back = torch.zeros(group.size, 80)[:, ::2]
    group.all_to_all(there, table).wait()
    group.all_to_all(back, there).wait()
    assert torch.equal(back, table)


def all_gather_of_any_length(group, tree):
    for numel in PIECES:
        pieces = everyone(group, 4, numel)
        for piece in (pieces[group.rank].clone(), group.empty(numel)):
            piece.copy_(pieces[group.rank])
            for whole in (torch.empty(group.size * numel), group.empty(group.size * numel)):
                group.all_gather(whole, piece).wait()
                assert torch.equal(whole, torch.cat(pieces))


def all_gather_in_place(group, tree):
    numel = 50_001
    for whole in (torch.empty(group.size * numel), group.empty(group.size * numel)):
        mine = whole.view(group.size, numel)[group.rank]
        mine.copy_(drawn(5, group.rank, numel))
        group.all_gather(whole, mine).wait()
        assert torch.equal(whole, torch.cat(everyone(group, 5, numel)))


def roots_give_and_take(group, tree):
    for root in {0, group.size - 1}:
        for numel in LENGTHS:
            contributions = everyone(group, 6, numel)
            mine = contributions[group.rank]

            for buffer in (mine.clone(), group.empty(numel)):
                buffer.copy_(mine)
                group.broadcast(buffer, root).wait()
                assert torch.equal(buffer, contributions[root])

                buffer.copy_(mine)
                group.reduce(buffer, root).wait()
                if group.rank == root:
                    agrees(group, buffer, reduced(Op.SUM, contributions), tree)
                else:
                    assert torch.equal(buffer, mine), "reduce must leave the others' buffers as they are"

            whole = torch.empty(group.size * numel) if group.rank == root else None
            group.gather(whole, mine, root).wait()
            assert whole is None or torch.equal(whole, torch.cat(contributions))

            piece = torch.empty(numel)
            group.scatter(piece, whole, root).wait()
            assert torch.equal(piece, mine)


def moves_every_dtype(group, tree):
    for dtype in DTYPES:
        pieces = everyone(group, 7, 11, dtype)
        whole = torch.empty(group.size * 11, dtype=dtype)
        group.all_gather(whole, pieces[group.rank]).wait()
        assert torch.equal(whole, torch.cat(pieces))
        buffer = pieces[group.rank].clone()
        group.broadcast(buffer, group.size - 1).wait()
        assert torch.equal(buffer, pieces[-1])


def shapes_and_strides_do_not_matter(group, tree):
    for shape in ((), (3, 4), (2, 0, 5)):
        buffer = torch.full(shape, float(group.rank + 1))
        group.all_reduce(buffer).wait()
        assert torch.equal(buffer, torch.full(shape, float(sum(range(1, group.size + 1)))))
    for numel in (40, 90_000):
        table = torch.zeros(numel, 3)
        column = table[:, 1]
        column.copy_(drawn(8, group.rank, numel))
        group.all_reduce(column).wait()
        agrees(group, column.contiguous(), reduced(Op.SUM, everyone(group, 8, numel)), tree)
        assert not table[:, [0, 2]].any(), "the neighbours of a strided buffer must not be touched"
        whole = torch.zeros(numel, group.size, 2)[:, :, 0].t()
        group.all_gather(whole, column).wait()
        assert torch.equal(whole, column.expand(group.size, numel))
    whole = torch.empty(group.size * 50)
    group.all_gather(whole, torch.tensor(float(group.rank)).expand(50)).wait()
    assert whole.view(group.size, 50)[:, 0].tolist() == list(range(group.size)), (
        "inputs may overlap themselves"
    )


def parameters_can_be_broadcast(group, tree):
    param = torch.nn.Parameter(drawn(9, group.rank, 12))
    group.broadcast(param).wait()
    assert torch.equal(param.data, drawn(9, 0, 12))
    assert param.requires_grad


def works_are_waited_for_in_any_order(group, tree):
    order = random.Random(group.rank)
    for numel in (5, 60_000):
        buffers = [drawn(20 + i, group.rank, numel) for i in range(12)]
        works = [group.all_reduce(buffer) for buffer in buffers]
        for i in order.sample(range(12), 12):
            works[i].wait()
            agrees(group, buffers[i], reduced(Op.SUM, everyone(group, 20 + i, numel)), tree)
            works[i].wait()


def done_becomes_true(group, tree):
    buffer = drawn(10, group.rank, 150_007)
    work = group.all_reduce(buffer)
    deadline = time.monotonic() + 20
    while not work.done():
        assert time.monotonic() < deadline, "a polled work never got done"
    agrees(group, buffer, reduced(Op.SUM, everyone(group, 10, 150_007)), tree)


def every_collective_can_be_polled_while_a_member_computes(group, tree):
    """Rank 0 starts and computes; the others poll meanwhile, or wait for longer than any wait blocks at a time."""
    whole, piece, out = torch.ones(group.size * 5), torch.ones(5), torch.empty(group.size * 5)
    for polled in (True, False):
        for start in (
            lambda: group.all_reduce(piece.clone()),
            lambda: group.reduce_scatter(torch.empty(5), whole),
            lambda: group.all_gather(out, piece),
            lambda: group.all_to_all(out, whole),
            lambda: group.broadcast(piece),
        ):
            work = start()
            if group.rank == 0 and group.size > 1:
                time.sleep(0.03 if polled else 0.12)
            deadline = time.monotonic() + 20
            while polled and not work.done():
                assert time.monotonic() < deadline, "a polled work never got done"
            work.wait()


def several_groups_at_once(group, tree):
    """Two halves, and a second group of everybody; ranks start and wait in opposite orders."""
    half = group.size // 2
    lower = tuple(range(half)) or (0,)
    mine = lower if group.rank in lower else tuple(r for r in range(group.size) if r not in lower)
    small, again = group.split(mine), group.split(range(group.size))
    assert (small.size, small.rank) == (len(mine), mine.index(group.rank))
    for numel in (9, 80_000):
        for turn in range(4):
            buffers = [drawn(30 + turn, group.rank, numel) for _ in range(3)]
            pairs = list(zip((group, small, again), buffers, strict=True))
            backwards = (group.rank + turn) % 2 == 1
            works = {g: g.all_reduce(buffer) for g, buffer in (reversed(pairs) if backwards else pairs)}
            for g in (group, small, again) if turn < 2 else (again, small, group):
                works[g].wait()
            agrees(group, buffers[0], reduced(Op.SUM, everyone(group, 30 + turn, numel)), tree)
            agrees(group, buffers[1], reduced(Op.SUM, [drawn(30 + turn, r, numel) for r in mine]), tree)
            assert torch.equal(buffers[2], buffers[0])
    small.close()
    again.close()


def delays_change_nothing(group, tree):
    pause = random.Random(group.rank)
    for turn in range(6):
        buffer = drawn(40 + turn, group.rank, 3000 * turn)
        time.sleep(pause.random() * 0.01)
        work = group.all_reduce(buffer)
        time.sleep(pause.random() * 0.01)
        work.wait()
        agrees(group, buffer, reduced(Op.SUM, everyone(group, 40 + turn, 3000 * turn)), tree)


def buffers_are_free_after_wait(group, tree):
    """Overwriting at once must not reach anyone's result: not this call's, not the next one's."""
    for numel in (16, 30_000):
        for make in (torch.empty, group.empty):
            buffer, whole = make(numel), make(group.size * numel)
            for turn in range(12):
                buffer.fill_(float(group.rank + turn))
                group.all_reduce(buffer).wait()
                total = buffer.clone()
                buffer.fill_(float("nan"))
                assert torch.equal(
                    total, torch.full((numel,), float(sum(range(group.size)) + turn * group.size))
                )
                buffer.fill_(float(group.rank * turn))
                group.all_gather(whole, buffer).wait()
                gathered = whole.clone()
                buffer.fill_(float("nan"))
                whole.fill_(float("nan"))
                assert gathered.view(group.size, numel)[:, -1].tolist() == [
                    float(r * turn) for r in range(group.size)
                ]
                root = turn % group.size
                buffer.fill_(float(turn))
                group.broadcast(buffer, root).wait()
                buffer.fill_(float("nan"))


def messages_arrive_in_order(group, tree):
    if group.size == 1:
        return
    after, before = (group.rank + 1) % group.size, (group.rank - 1) % group.size
    for numel in LENGTHS:
        sent = [drawn(50 + i, group.rank, numel) for i in range(3)]
        received = [torch.empty(numel) for _ in range(3)]
        asks = [group.recv(tensor, before) for tensor in received[:2]]
        sends = [group.send(tensor, after) for tensor in sent]
        asks.append(group.recv(received[2], before))
        for work in reversed(asks + sends):
            work.wait()
        for tensor in sent:
            tensor.fill_(float("nan"))
        for i, tensor in enumerate(received):
            assert torch.equal(tensor, drawn(50 + i, before, numel))


def everyone_writes_to_everyone(group, tree):
    others = [rank for rank in range(group.size) if rank != group.rank]
    received = {rank: torch.empty(2, 3000, dtype=torch.int64).t() for rank in others}
    works = [group.recv(received[rank], rank) for rank in others]
    works += [group.send(torch.full((6000,), 10 * group.rank + rank), rank) for rank in others]
    for work in works:
        work.wait()
    for rank in others:
        assert (received[rank] == 10 * rank + group.rank).all()


def messages_and_collectives_mix(group, tree):
    """A message between issue and wait of a large collective must not block either."""
    buffer = drawn(60, group.rank, 200_000)
    work = group.all_reduce(buffer)
    if group.size > 1:
        if group.rank == 0:
            group.send(torch.arange(300_000), 1).wait()
        elif group.rank == 1:
            message = torch.empty(300_000, dtype=torch.int64)
            work.wait()
            group.recv(message, 0).wait()
            assert torch.equal(message, torch.arange(300_000))
    work.wait()
    agrees(group, buffer, reduced(Op.SUM, everyone(group, 60, 200_000)), tree)


def a_server_receives_from_anyone(group, tree):
    """Rank 0 answers requests in the order in which they come; each worker's own requests come in order."""
    requests = 5
    if group.rank > 0:
        for turn in range(requests):
            group.send(torch.tensor([group.rank, turn]), 0).wait()
            answer = torch.empty(30_000)
            receipt = group.recv(answer, 0)
            receipt.wait()
            assert receipt.source == 0
            assert (answer == 100 * group.rank + turn).all()
        return
    served = {rank: [] for rank in range(1, group.size)}
    for _ in range(requests * (group.size - 1)):
        request = torch.empty(2, dtype=torch.int64)
        receipt = group.recv(request, sender=ANYONE)
        receipt.wait()
        rank, turn = request.tolist()
        assert receipt.source == rank
        served[rank].append(turn)
        group.send(torch.full((30_000,), float(100 * rank + turn)), receipt.source).wait()
    assert all(turns == list(range(requests)) for turns in served.values())


def messages_from_anyone_may_be_large_and_asked_for_first(group, tree):
    """Rank 0 asks before any message is sent, once by polling; the messages go through in several chunks."""
    numel = 150_007
    if group.rank > 0:
        group.barrier().wait()
        group.send(drawn(80, group.rank, numel), 0).wait()
    else:
        received = [torch.zeros(numel, 2)[:, 1] for _ in range(1, group.size)]
        works = [group.recv(tensor, ANYONE) for tensor in received]
        group.barrier().wait()
        deadline = time.monotonic() + 20
        while works and not works[0].done():
            assert time.monotonic() < deadline, "a polled message never came"
        for work, tensor in zip(works, received, strict=True):
            work.wait()
            assert torch.equal(tensor, drawn(80, work.source, numel))
        assert sorted(work.source for work in works) == list(range(1, group.size))


def a_named_sender_and_anyone_share_its_messages(group, tree):
    """Two messages, one `recv` that names the sender, one from anyone: each gets one of them, whole."""
    if group.size < 2:
        return
    if group.rank == 0:
        named, anyone = torch.zeros(3), torch.zeros(3)
        works = group.recv(anyone, ANYONE), group.recv(named, 1)
        group.barrier().wait()
        for work in works:
            work.wait()
        assert {tuple(named.tolist()), tuple(anyone.tolist())} == {(1.0,) * 3, (2.0,) * 3}
        assert [work.source for work in works] == [1, 1]
    else:
        group.barrier().wait()
        if group.rank == 1:
            for value in (1.0, 2.0):
                group.send(torch.full((3,), value), 0).wait()


def it_states_what_it_can_do(group, tree):
    assert isinstance(group, Group)
    assert isinstance(group.overlaps, bool)
    assert isinstance(group.shares_memory, bool)
    assert "cpu" in group.devices
    smaller = group.split(range(group.size))
    for name in ("overlaps", "shares_memory", "devices"):
        assert getattr(smaller, name) == getattr(group, name)
    smaller.close()
    if "meta" not in group.devices:
        with pytest.raises(GroupError, match=r"all_reduce: this group does not support tensors on meta"):
            group.all_reduce(torch.zeros(3, device="meta"))
    group.barrier().wait()


def tensors_that_are_not_dense_are_refused(group, tree):
    sparse, nested = (
        torch.eye(2).to_sparse(),
        torch.nested.nested_tensor([torch.ones(1)], layout=torch.jagged),
    )
    for tensor in (sparse, nested):
        with pytest.raises(GroupError, match=r"all_reduce cannot move a (nested )?tensor"):
            group.all_reduce(tensor)
    with pytest.raises(GroupError, match=r"all_gather cannot move a tensor of layout torch\.sparse_coo"):
        group.all_gather(torch.ones(2 * group.size, 2), sparse)
    group.barrier().wait()


def zero_copy_views_mix_with_ordinary_tensors(group, tree):
    """Some members give views of the group's memory at various places, some give ordinary tensors."""
    numel = 70_000
    memory = group.empty(3 * numel)
    for turn in range(4):
        start = (group.rank + turn) % 3 * numel
        buffer = memory[start : start + numel] if (turn + group.rank) % 4 else torch.empty(numel)
        buffer.copy_(drawn(70 + turn, group.rank, numel))
        group.all_reduce(buffer).wait()
        agrees(group, buffer, reduced(Op.SUM, everyone(group, 70 + turn, numel)), tree)


def members_see_each_others_memory(group, tree):
    if not group.maps_memory:
        with pytest.raises(GroupError, match="do not see each other's memory"):
            group.views_of_all(group.empty(3))
        return
    mine = group.empty(group.size)
    views = group.views_of_all(mine)
    for view in views:
        view[group.rank] = float(group.rank + 1)
    group.barrier().wait()
    assert mine.tolist() == [float(rank + 1) for rank in range(group.size)]


def one_memory_for_all_members(group, tree):
    if not group.maps_memory:
        with pytest.raises(GroupError, match="do not see each other's memory"):
            group.common(3)
        return
    memory = group.common(2 * group.size, torch.float64)
    assert not memory.any()
    group.barrier().wait()
    memory[2 * group.rank :][:2] = group.rank + 1.0
    group.barrier().wait()
    assert memory.tolist() == [rank + 1.0 for rank in range(group.size) for _ in range(2)]


def misuse_is_refused_before_anything_moves(group, tree):
    tensor = torch.zeros(3)
    with pytest.raises(GroupError, match="root 99"):
        group.broadcast(tensor, 99)
    with pytest.raises(GroupError, match="average of torch.int64"):
        group.all_reduce(torch.zeros(3, dtype=torch.int64), Op.AVERAGE)
    with pytest.raises(GroupError, match="whole has 1 "):
        group.all_gather(torch.zeros(1), tensor)
    with pytest.raises(GroupError, match="cannot reach"):
        group.send(tensor, group.rank)
    with pytest.raises(GroupError, match="cannot reach"):
        group.recv(tensor, group.size)
    if group.size > 1:
        with pytest.raises(GroupError, match="all_to_all: out has 3 .* whole has 6 "):
            group.all_to_all(tensor, torch.zeros(6))
        with pytest.raises(GroupError, match=f"must be {group.size} equal pieces"):
            group.all_to_all(torch.zeros(2 * group.size + 1), torch.zeros(2 * group.size + 1))
    with pytest.raises(GroupError, match="cannot split"):
        group.split([group.size])
    group.barrier().wait()


def a_closed_group_is_of_no_more_use_and_does_no_harm(group):
    smaller = group.split(range(group.size))
    group.barrier().wait()
    smaller.close()
    smaller.close()
    for call in (lambda: smaller.all_reduce(torch.zeros(3)), smaller.barrier):
        with pytest.raises(GroupError, match="this member has left the group"):
            call()
    if group.size > 1:
        with pytest.raises(GroupError, match="this member has left the group"):
            smaller.send(torch.zeros(3), (group.rank + 1) % group.size)
        with pytest.raises(GroupError, match="this member has left the group"):
            smaller.recv(torch.zeros(3), (group.rank + 1) % group.size)
    group.barrier().wait()


CASES = {
    case.__name__: case
    for case in (
        all_reduce_takes_every_dtype_and_op,
        all_reduce_of_any_length,
        reduce_scatter_of_any_length,
        reduce_scatter_takes_every_dtype_and_op,
        all_to_all_of_any_length_and_dtype,
        all_to_all_twice_is_the_identity,
        all_gather_of_any_length,
        all_gather_in_place,
        roots_give_and_take,
        moves_every_dtype,
        shapes_and_strides_do_not_matter,
        parameters_can_be_broadcast,
        works_are_waited_for_in_any_order,
        done_becomes_true,
        every_collective_can_be_polled_while_a_member_computes,
        several_groups_at_once,
        delays_change_nothing,
        buffers_are_free_after_wait,
        messages_arrive_in_order,
        everyone_writes_to_everyone,
        messages_and_collectives_mix,
        a_server_receives_from_anyone,
        messages_from_anyone_may_be_large_and_asked_for_first,
        a_named_sender_and_anyone_share_its_messages,
        it_states_what_it_can_do,
        tensors_that_are_not_dense_are_refused,
        zero_copy_views_mix_with_ordinary_tensors,
        members_see_each_others_memory,
        one_memory_for_all_members,
        misuse_is_refused_before_anything_moves,
    )
}


SLOW = every_collective_can_be_polled_while_a_member_computes.__name__
"""It sleeps: groups that pass calls on need not be asked."""
QUICK = [name for name in CASES if name != SLOW]


def run_case(group, name, tree):
    """One case on one member."""
    CASES[name](group, tree)


# Wrong on purpose: what rank 1 does differs from what the others do.


def different_dtype(group):
    group.all_reduce(torch.zeros(8, dtype=torch.float64 if group.rank == 1 else torch.float32)).wait()


def different_length(group):
    group.all_reduce(torch.zeros(9 if group.rank == 1 else 8)).wait()


def different_large_length(group):
    group.all_reduce(torch.zeros(900_000 if group.rank == 1 else 8)).wait()


def different_op(group):
    group.all_reduce(torch.zeros(8), Op.MAX if group.rank == 1 else Op.SUM).wait()


def different_root(group):
    group.broadcast(torch.zeros(8), 1 if group.rank == 1 else 0).wait()


def different_order(group):
    buffer = torch.zeros(8)
    first, second = group.all_reduce, group.broadcast
    for collective in (second, first) if group.rank == 1 else (first, second):
        collective(buffer).wait()


def different_split(group):
    group.split([0, 1] if group.rank == 0 else [group.rank])


def different_memory(group):
    group.empty(9 if group.rank == 1 else 8)


MISTAKES = {
    mistake.__name__: (mistake, shown)
    for mistake, shown in (
        (different_dtype, ("rank 0: all_reduce(8 × float32, sum)", "rank 1: all_reduce(8 × float64, sum)")),
        (different_length, ("rank 0: all_reduce(8 × float32, sum)", "rank 1: all_reduce(9 × float32, sum)")),
        (different_large_length, ("rank 1: all_reduce(900000 × float32, sum)",)),
        (different_op, ("rank 1: all_reduce(8 × float32, max)",)),
        (
            different_root,
            ("rank 0: broadcast(8 × float32, root 0)", "rank 1: broadcast(8 × float32, root 1)"),
        ),
        (different_order, ("rank 0: all_reduce(8 × float32, sum)", "rank 1: broadcast(8 × float32, root 0)")),
        (different_split, ("rank 0: [0, 1]", "rank 1: [1]")),
        (different_memory, ("rank 0: empty(8 × ", "rank 1: empty(9 × ")),
    )
}


def message_of_another_length(group):
    if group.rank == 0:
        group.send(torch.zeros(8), 1).wait()
    elif group.rank == 1:
        group.recv(torch.zeros(9), 0).wait()


def a_message_from_anyone_is_there_when_first_asked_for(group, path):
    """For shared memory, whose messages move only when a member calls: a server may ask a few times a second."""
    word = torch.zeros(1)
    if group.rank == 0:
        receipt = group.recv(word, ANYONE)
        path.with_suffix(".asked").touch()
        _wait_for(path)
        assert receipt.done()
    elif group.rank == 1:
        _wait_for(path.with_suffix(".asked"))
        group.send(word + 1, 0).wait()
        path.touch()


def _wait_for(path):
    """Until a file is there, without a call of the group."""
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.005)
