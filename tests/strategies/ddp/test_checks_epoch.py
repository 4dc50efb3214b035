"""Workers with unequal numbers of steps: an error at the first step that has no counterpart, and no other step."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import shoal
from shoal.comm.threads.group import run_threads
from shoal.comm.traced import traced
from shoal.errors import MemberError, MismatchError

DATA = TensorDataset(torch.randn(9, 3, generator=torch.Generator().manual_seed(0)), torch.arange(9) % 2)
"""For two workers: 5 samples and 4, so three batches of two and two."""


def loader_of(group, dataset=DATA, **options):
    sampler = shoal.PartitionSampler(dataset, group.size, group.rank, **options)
    return DataLoader(dataset, batch_size=2, sampler=sampler), sampler


def step(model, inputs, labels):
    F.cross_entropy(model(inputs), labels).backward()


def weighted_step(model, inputs, labels):
    with model.batch(num_samples=len(labels)):
        step(model, inputs, labels)


def accumulating_step(model, inputs, labels):
    with model.no_sync():
        step(model, inputs, labels)
    step(model, inputs, labels)


@pytest.mark.parametrize("make_step", [step, weighted_step, accumulating_step])
def test_a_step_meets_no_step_of_the_next_epoch(make_step):
    steps = [0, 0]

    def work(group):
        model = shoal.DistributedDataParallel(nn.Linear(3, 2), group)
        loader, sampler = loader_of(group)
        for epoch in range(3):
            sampler.set_epoch(epoch)
            for inputs, labels in loader:
                make_step(model, inputs, labels)
                steps[group.rank] += 1

    with pytest.raises(MismatchError, match="the workers made unequal numbers of steps") as caught:
        run_threads(2, work)
    assert "rank 1: barrier()" in caught.value.message
    assert "rank 0: all_reduce" in caught.value.message
    assert "step_sizes" in caught.value.hint
    assert steps == [2, 2], "the third step of rank 0 has no counterpart"


def test_without_epochs_the_end_of_a_worker_is_noticed():
    def work(group):
        model = shoal.DistributedDataParallel(nn.Linear(3, 2), group)
        for _ in range(2):
            for batch in loader_of(group)[0]:
                step(model, *batch)

    with pytest.raises(MemberError, match="rank 1 finished earlier"):
        run_threads(2, work)


def test_correct_loops_pass_with_one_barrier_per_epoch():
    """Rank 1 has no sample at all; rank 0 alone evaluates between steps."""

    def work(group):
        counted = traced(group)
        model = shoal.DistributedDataParallel(nn.Linear(3, 2), counted)
        loader, sampler = loader_of(group, sizes=[1.0, 0.0], allow_empty=True)
        for epoch in range(3):
            sampler.set_epoch(epoch)
            batches = iter(loader)
            for _ in sampler.step_sizes(2):
                inputs, labels = next(batches, (None, ()))
                with model.batch(num_samples=len(labels)):
                    if len(labels):
                        step(model, inputs, labels)
                if group.rank == 0:
                    model.eval()
                    model(DATA.tensors[0])
                    model.train()
        return counted.totals["barrier"].calls

    assert run_threads(2, work) == [3, 3]


def test_join_allows_unequal_numbers_of_steps():
    def work(group):
        model = shoal.DistributedDataParallel(nn.Linear(3, 2), group)
        loader, sampler = loader_of(group)
        for epoch in range(2):
            sampler.set_epoch(epoch)
            with model.join():
                for inputs, labels in loader:
                    step(model, inputs, labels)
        return True

    assert run_threads(2, work) == [True, True]


def test_another_mismatch_keeps_its_own_words():
    def work(group):
        model = shoal.DistributedDataParallel(nn.Linear(3, 2), group)
        if group.rank:
            group.barrier().wait()
        step(model, *DATA[:2])

    with pytest.raises(MismatchError, match="members called different things"):
        run_threads(2, work)
