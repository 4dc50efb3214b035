"""One machine in the parts of the nodes: a right average of two nodes has the same bits, a wrong one does not."""

import pytest
import torch

from shoal_labs.student.loop import RATE, apart, batches, digits, flat, network, train_in_parts

STEPS = 4


def averaged(dataset, seed, steps, combine):
    """The weights after the nodes' mean gradients were combined in every step, as nodes do it one by one."""
    model = network(dataset, seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for parts in steps:
        grads = []
        for numbers in parts:
            model.zero_grad()
            batch = dataset.batch(dataset.train, numbers)
            torch.nn.functional.cross_entropy(model(batch.inputs), batch.labels).backward()
            grads.append([param.grad.clone() for param in model.parameters()])
        for param, first, second in zip(model.parameters(), *grads, strict=True):
            param.grad = combine(first, second)
        optimizer.step()
    return flat(model)


@pytest.mark.parametrize(
    "combine", [lambda a, b: (b + a) / 2, lambda a, b: a / 2 + b / 2, lambda a, b: a + b]
)
def test_the_mean_of_two_nodes_is_exact_however_it_is_written_and_the_sum_is_not(combine):
    dataset, right = digits(192), combine(1, 1) == 1
    steps = [[batch[0::2], batch[1::2]] for batch in batches(dataset, 0, STEPS)]
    model = network(dataset, 0)
    train_in_parts(dataset, model, steps)
    difference = apart(averaged(dataset, 0, steps, combine), flat(model))
    assert (difference == 0) if right else (difference > 1e-2)


def test_uneven_parts_count_by_their_samples():
    dataset = digits(192)
    steps = [batch.split([48, 16]) for batch in batches(dataset, 0, 2)]
    model = network(dataset, 0)
    train_in_parts(dataset, model, steps)
    weighted = averaged(dataset, 0, steps, lambda a, b: 0.75 * a + 0.25 * b)
    means = averaged(dataset, 0, steps, lambda a, b: (a + b) / 2)
    assert apart(weighted, flat(model)) < 1e-5
    assert apart(means, flat(model)) > 1e-3
