import pytest
import torch
from torch import nn

from shoal import average_gradients
from shoal.comm.traced import traced
from shoal.errors import ConfigError, WorkerError
from shoal.launch.threads import run
from shoal.models.initialise import initialise

INPUTS = torch.linspace(-1, 1, 36, dtype=torch.float64).reshape(12, 3).sin()


class TwoHeads(nn.Module):
    """Some workers use one head, some the other; `spare` is used by none."""

    def __init__(self, seed=0):
        super().__init__()
        self.body, self.left, self.right, self.spare = (nn.Linear(3, n) for n in (3, 1, 1, 1))
        self.double()
        initialise(self, seed)

    def forward(self, x, head):
        return (getattr(self, head)(torch.tanh(self.body(x)))).square()


def gradients(model):
    return {name: param.grad for name, param in model.named_parameters()}


def one_machine(split):
    """The gradient of the mean over all samples; each worker's samples go through its own head."""
    model = TwoHeads()
    parts = INPUTS.split(split)
    losses = [model(x, "left" if rank == 0 else "right").sum() for rank, x in enumerate(parts)]
    (sum(losses) / len(INPUTS)).backward()
    return gradients(model)


@pytest.mark.parametrize("split", [[6, 6], [9, 2, 1], [7, 5, 0]])
def test_uneven_batches_and_unused_parameters_equal_one_machine(split):
    def work(group):
        model, x = TwoHeads(), INPUTS.split(split)[group.rank]
        if len(x):
            model(x, "left" if group.rank == 0 else "right").mean().backward()
        average_gradients(model, group, num_samples=len(x))
        return gradients(model)

    expected = one_machine(split)
    for found in run(len(split), work):
        assert found["spare.weight"] is None
        for name, grad in expected.items():
            if grad is not None:
                torch.testing.assert_close(found[name], grad, rtol=1e-12, atol=0)


def test_without_samples_every_worker_counts_the_same_and_the_group_is_found():
    def work(group):
        model = nn.Linear(1, 1)
        initialise(model, 0)
        model.weight.grad = torch.full((1, 1), float(group.rank))
        average_gradients(model)
        return model.weight.grad.item(), model.bias.grad

    assert run(3, work) == [(1.0, None)] * 3


def test_one_all_reduce_moves_all_gradients_of_a_dtype():
    def work(group):
        group, model = traced(group), TwoHeads()
        model(INPUTS, "left").mean().backward()
        average_gradients(model, group, num_samples=12)
        return group.totals["all_reduce"].calls

    assert run(2, work) == [2, 2]  # the first one is small: samples, and who has which gradient


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": True}, "worker 1 starts from other weights than worker 0"),
        ({"samples": 0}, "no worker has samples"),
        ({"samples": -1}, "expected an integer ≥ 0 or none, got -1"),
    ],
)
def test_what_would_be_silently_wrong_is_an_error(change, message):
    def work(group):
        model = TwoHeads(seed=group.rank if "seed" in change else 0)
        average_gradients(model, group, num_samples=change.get("samples", 4))

    with pytest.raises(WorkerError, match=message):
        run(2, work)


def test_sparse_gradients_are_refused():
    model = nn.Embedding(3, 2, sparse=True)
    model(torch.tensor([1])).sum().backward()
    with pytest.raises(ConfigError, match="sparse"):
        average_gradients(model)
