"""Torch's backends move memory of one kind; a group over them takes tensors that lie anywhere.

NCCL's kind is a GPU's. Here it is played by gloo behind a customs officer, who lets through only what was brought
within reach; on a machine with a GPU the real one is tried, with one member.
"""

import threading

import pytest
import torch
from group_cases import CASES, run_case
from torch.distributed import HashStore, PrefixStore

from shoal.comm.over_torch.checked import join_torch
from shoal.comm.over_torch.group import BACKENDS, NCCL, TorchGroup
from shoal.errors import JoinError

SPLITTING = "several_groups_at_once"


class Customs:
    """A backend that refuses every tensor that was not brought into its memory."""

    def __init__(self, gloo, admitted):
        self._gloo, self._admitted = gloo, admitted

    def __getattr__(self, name):
        operation = getattr(self._gloo, name)

        def call(*arguments):
            for tensor in _tensors(arguments):
                assert tensor.untyped_storage().data_ptr() in self._admitted, (
                    f"{name} got a tensor from elsewhere"
                )
            work = operation(*arguments)
            if name == "_reduce_scatter_base":  # gloo's work of it reports its completion only to a wait
                work.wait()
                return Completed()
            return work

        return call


class Completed:
    """A torch work that is over."""

    def is_completed(self):
        return True

    def wait(self):
        return True


def _tensors(things):
    for thing in things:
        if isinstance(thing, torch.Tensor):
            yield thing
        elif isinstance(thing, list | tuple):
            yield from _tensors(thing)


@pytest.fixture
def played_nccl(monkeypatch):
    """In place of NCCL: its memory is what was copied there, and a wait that runs out of time breaks it."""
    admitted, kept = set(), []

    def within_reach(tensor):
        copy = tensor.clone()
        kept.append(copy)  # so that no other tensor gets its address
        admitted.add(copy.untyped_storage().data_ptr())
        return copy

    def make(store, rank, size, host):
        gloo = BACKENDS["gloo"].make(store, rank, size, host)
        # A raw group that is closed at once would break the connection of a member that still connects.
        gloo.barrier().wait()
        return Customs(gloo, admitted)

    monkeypatch.setitem(BACKENDS, "nccl", NCCL._replace(make=make, within_reach=within_reach))


def on_threads(size, work):
    """Run `work(rank)` on a thread per rank; raise what any of them raised."""
    errors = []

    def run(rank):
        try:
            work(rank)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads), "a member hangs"


# A raw group's messages can only be waited for by blocking, in order: those cases are for the checked one.
@pytest.mark.parametrize("case", [name for name in CASES if "message" not in name and name != SPLITTING])
def test_every_collective_brings_its_tensors_within_reach(played_nccl, case):
    store = HashStore()

    def work(rank):
        group = TorchGroup(store, rank, 2, "nccl")
        run_case(group, case, True)
        group.close()

    on_threads(2, work)


def test_messages_are_brought_within_reach_too(played_nccl):
    store = HashStore()

    def work(rank):
        group = TorchGroup(store, rank, 2, "nccl")
        if rank == 0:
            group.send(torch.arange(6).view(2, 3).t(), 1).wait()
        else:
            table = torch.zeros(3, 4, dtype=torch.int64)
            group.recv(table[:, ::2], 0).wait()
            assert table[:, ::2].tolist() == [[0, 3], [1, 4], [2, 5]]
            assert not table[:, 1::2].any()
        group.close()

    on_threads(2, work)


@pytest.mark.parametrize("case", CASES)
def test_a_checked_group_keeps_the_whole_contract_there(played_nccl, case):
    store = HashStore()

    def work(rank):
        group = join_torch(PrefixStore(case, store), rank, 2, backend="nccl", timeout_s=20)
        run_case(group, case, True)
        group.close()

    on_threads(2, work)


def test_no_gpu_is_one_sentence(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(JoinError, match="rank 0 cannot use nccl: torch sees no GPU here"):
        join_torch(HashStore(), 0, 1, backend="nccl")


# The real NCCL, and gloo, beside a GPU.


@pytest.fixture(scope="module")
def alone_on():
    """A group of one member over that backend; one communicator for all tests."""
    made = {}

    def group(backend):
        if backend not in made:
            made[backend] = join_torch(HashStore(), 0, 1, backend=backend)
        return made[backend]

    yield group
    for each in made.values():
        each.close()


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES)
def test_nccl_takes_host_tensors_everywhere(alone_on, case):
    run_case(alone_on("nccl"), case, True)


@pytest.mark.gpu
@pytest.mark.parametrize("backend", BACKENDS)
def test_tensors_of_a_gpu_and_of_the_host_mix_everywhere(alone_on, backend):
    group = alone_on(backend)
    for piece in (torch.arange(5.0), torch.arange(5.0, device="cuda")):
        for whole in (torch.zeros(5), torch.zeros(5, device="cuda")):
            group.all_gather(whole, piece).wait()
            assert whole.tolist() == [0, 1, 2, 3, 4]
            for fill in (group.reduce_scatter, group.gather, group.scatter):
                fill(whole.zero_(), piece).wait()
                assert whole.tolist() == [0, 1, 2, 3, 4]
        for collective in (group.all_reduce, group.broadcast, group.reduce):
            collective(piece).wait()
            assert piece.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.gpu
def test_a_gpu_that_is_busy_for_long_breaks_nothing(alone_on):
    """A collective waits for the device's earlier work, far longer than we block in one piece."""
    value = torch.ones(3, device="cuda")
    for _ in range(3):
        torch.cuda._sleep(1_500_000_000)  # cycles: about a second
        value += 1
        alone_on("nccl").all_reduce(value).wait()
    assert value.tolist() == [4, 4, 4]
