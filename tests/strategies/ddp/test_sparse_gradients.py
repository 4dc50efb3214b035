"""Sparse gradients: the sum over all workers, still sparse, whatever rows each worker has."""

import pytest
import torch
from torch import nn

from shoal.comm.threads.group import run_threads
from shoal.strategies.ddp.distributed_data_parallel import DistributedDataParallel

WORDS = {0: [1, 1, 4], 1: [4], 2: []}


def filled(module):
    """With weights that do not depend on the thread that draws them."""
    draw = torch.Generator().manual_seed(0)
    module.double()
    with torch.no_grad():
        for param in module.parameters():
            param.copy_(torch.randn(param.shape, generator=draw, dtype=torch.float64))
    return module


def table():
    return filled(nn.Embedding(6, 2, sparse=True))


@pytest.mark.parametrize("overlaps", [False, True])
def test_rows_of_all_workers_are_summed_and_stay_sparse(overlaps):
    def work(group):
        group.overlaps = overlaps
        model = DistributedDataParallel(table(), group)
        model(torch.tensor(WORDS[group.rank], dtype=torch.int64)).square().sum().backward()
        return model.module.weight.grad

    one = table()
    one(torch.tensor([1, 1, 4, 4])).square().sum().backward()
    for grad in run_threads(3, work):
        assert grad.is_sparse
        assert grad.coalesce().indices().tolist() == [[1, 4]]
        torch.testing.assert_close(grad.to_dense(), one.weight.grad.to_dense() / 3, rtol=1e-12, atol=0)


class Words(nn.Module):
    """Two tables and a dense layer."""

    def __init__(self):
        super().__init__()
        self.words, self.rare = nn.Embedding(9, 4, sparse=True), nn.Embedding(3, 4, sparse=True)
        self.head = nn.Linear(4, 2)

    def forward(self, words):
        return self.head((self.words(words) + self.rare(words % 3)).sum(1))


@pytest.mark.parametrize("overlaps", [False, True])
def test_tables_beside_dense_layers_train_as_on_one_machine(overlaps):
    words = torch.randint(9, (3, 6, 2), generator=torch.Generator().manual_seed(0))

    def train(model, share):
        sparse = torch.optim.SparseAdam([model.module.words.weight, model.module.rare.weight])
        dense = torch.optim.SGD(model.module.head.parameters(), lr=0.1)
        for batch in words:
            model.zero_grad()
            model(batch[share]).square().mean().backward()
            sparse.step()
            dense.step()
        return {name: param.detach() for name, param in model.module.named_parameters()}

    def work(group):
        group.overlaps = overlaps
        model = DistributedDataParallel(filled(Words()), group, bucket_cap_mb=1e-5)
        return train(model, slice(3 * group.rank, 3 * group.rank + 3))

    expected = train(DistributedDataParallel(filled(Words())), slice(None))
    for found in run_threads(2, work):
        for name, param in found.items():
            torch.testing.assert_close(param, expected[name], rtol=1e-12, atol=1e-15)


def test_bags_of_words():
    def bags():
        return filled(nn.EmbeddingBag(6, 2, sparse=True))

    words = torch.tensor([[0, 3], [3, 5], [1, 3], [1, 1]])

    def work(group):
        model = DistributedDataParallel(bags(), group)
        model(words[2 * group.rank :][:2]).square().sum().backward()
        return model.module.weight.grad.to_dense()

    one = bags()
    one(words).square().sum().backward()
    for grad in run_threads(2, work):
        torch.testing.assert_close(grad, one.weight.grad.to_dense() / 2, rtol=1e-12, atol=0)


def test_a_worker_without_samples_takes_part():
    def work(group):
        model = DistributedDataParallel(table(), group)
        words = torch.tensor(WORDS[2 * group.rank], dtype=torch.int64)
        with model.batch(num_samples=len(words)):
            if len(words):
                model(words).square().mean(1).mean().backward()
        return model.module.weight.grad.to_dense()

    one = table()
    one(torch.tensor(WORDS[0])).square().mean(1).mean().backward()
    for grad in run_threads(2, work):
        torch.testing.assert_close(grad, one.weight.grad.to_dense(), rtol=1e-12, atol=0)


def test_a_table_that_a_dense_layer_shares():
    def network():
        words, head = nn.Embedding(6, 2, sparse=True), nn.Linear(2, 6, bias=False)
        head.weight = words.weight
        return filled(nn.Sequential(words, head))

    def work(group):
        model = DistributedDataParallel(network(), group)
        model(torch.tensor([group.rank])).square().sum().backward()
        return model.module[0].weight.grad.to_dense()

    one = network()
    one(torch.tensor([0, 1])).square().sum().backward()
    for grad in run_threads(2, work):
        torch.testing.assert_close(grad, one[0].weight.grad.to_dense() / 2, rtol=1e-12, atol=0)


def test_a_table_without_rows_anywhere_keeps_no_gradient():
    def work(group):
        module = nn.ModuleDict({"used": nn.Linear(1, 1), "unused": table()})
        module.forward = lambda inputs: module["used"](inputs)
        model = DistributedDataParallel(module, group)
        model(torch.ones(1, 1)).sum().backward()
        return module["unused"].weight.grad

    assert run_threads(2, work) == [None, None]


def test_a_deleted_wrapper_takes_its_hooks_along():
    def work(group):
        module = table()
        model = DistributedDataParallel(module, group)
        del model
        module(torch.tensor(WORDS[group.rank])).sum().backward()
        return module.weight.grad.to_dense()[1].tolist()

    assert run_threads(2, work) == [[2.0, 2.0], [0.0, 0.0]]
