"""Check the student's epoch on two nodes against one machine, with uneven batches and an empty one at the end."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from shoal_labs.check.fault import Fault, fault
from shoal_labs.check.nodes import Node
from shoal_labs.check.one_step import RATE, network, samples
from shoal_labs.check.student import written
from shoal_labs.check.trial import unlike_calls

SHARES = ((0, 2, 4, 6, 7), (1, 3, 5))
"""Samples of each node: in batches of two their steps have 2 + 2, 2 + 1 and 1 + 0."""
BATCH, STEPS, EPOCH = 2, 3, 7
COUNT = sum(map(len, SHARES))
TOLERANCE = 1e-4


def epoch(rank: int) -> dict[str, Any]:
    """One node's part: its weights afterwards, the loss it returned, and the epochs that its sampler was given."""
    base: Any = written("sampler", "MySampler")
    epochs: list[int] = []

    class Given(base):
        """The check's own division: what the student's samplers do is another task."""

        def __iter__(self) -> Iterator[int]:
            return iter(SHARES[rank])

        def __len__(self) -> int:
            return len(SHARES[rank])

        def set_epoch(self, epoch: int) -> None:
            epochs.append(epoch)

    data, model = TensorDataset(*samples(COUNT, seed=1)), network()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    loader = DataLoader(data, batch_size=BATCH, sampler=Given(data, len(SHARES), rank, True, 0))
    train_epoch = written("model", "train_epoch")
    loss = train_epoch(model, optimizer, loader, EPOCH, STEPS, torch.device("cpu"))
    return {"weights": _flat(model), "loss": float(loss), "epochs": epochs}


def _flat(model: nn.Module) -> list[float]:
    return torch.cat([param.detach().flatten() for param in model.parameters()]).tolist()


def reference(divisor: Callable[[int, int], float], keep: bool = False) -> tuple[list[float], float]:
    """One machine with all the nodes' samples: the weights, and the mean loss before each step.

    `divisor(own, all)` is what a node divides the sum of its losses by; `keep`: gradients are never cleared.
    """
    model, loss_sum = network(), 0.0
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    pictures, labels = samples(COUNT, seed=1)
    for step in range(STEPS):
        batches = [list(share[step * BATCH : (step + 1) * BATCH]) for share in SHARES]
        total = sum(map(len, batches))
        if not keep:
            optimizer.zero_grad()
        for param in model.parameters():
            if param.grad is not None:  # the earlier sum is on every node, and is summed again
                param.grad *= len(SHARES)
        losses = [_summed(model, pictures[batch], labels[batch]) for batch in batches if batch]
        sizes = [len(batch) for batch in batches if batch]
        torch.stack(
            [loss / divisor(own, total) for loss, own in zip(losses, sizes, strict=True)]
        ).sum().backward()
        optimizer.step()
        loss_sum += sum(loss.item() for loss in losses)
    return _flat(model), loss_sum / COUNT


def _summed(model: nn.Module, pictures: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(model(pictures), labels, reduction="sum")


WRONG: dict[str, tuple[Callable[[int, int], float], bool]] = {
    "mean_of_own": (lambda own, total: own, False),
    "mean_of_means": (lambda own, total: own * len(SHARES), False),
    "not_divided": (lambda own, total: 1.0, False),
    "divided_again": (lambda own, total: total * len(SHARES), False),
    "accumulates": (lambda own, total: total, True),
}
"""Fault: what the losses are divided by instead, and whether gradients are kept."""


OTHER_LOSSES = frozenset({*WRONG, "nodes_differ", "unmoved", "not_one_machine"})
"""Faults with which the loss of later steps is another one, too."""


def epoch_faults(nodes: Sequence[Node]) -> list[Fault]:
    """What is wrong with an epoch that finished."""
    if unlike := unlike_calls(nodes):
        return unlike
    called = all(EPOCH in node.answer["epochs"] for node in nodes)
    found = [] if called else [fault("set_epoch_not_called")]
    right, loss = reference(lambda own, total: total)
    found += weight_faults([node.answer["weights"] for node in nodes], right)
    given = nodes[0].answer["loss"]
    if not math.isfinite(given) and found:
        return found  # the loss of weights that are nan
    if abs(given - loss) >= TOLERANCE and not any(each.key in OTHER_LOSSES for each in found):
        found.append(fault("epoch_loss", given=given, loss=loss))
    return found


def weight_faults(weights: Sequence[Sequence[float]], right: Sequence[float]) -> list[Fault]:
    """What is wrong with the weights that the nodes end with."""
    if any(not math.isfinite(value) for value in weights[0]):
        return [fault("empty_batch")]
    if not _near(weights[0], weights[1]):
        return [fault("nodes_differ")]
    if _near(weights[0], right):
        return []
    if _near(weights[0], _flat(network())):
        return [fault("unmoved")]
    named = [key for key, wrong in WRONG.items() if _near(weights[0], reference(*wrong)[0])]
    return [fault(named[0] if named else "not_one_machine")]


def _near(a: Sequence[float], b: Sequence[float]) -> bool:
    return all(abs(x - y) < TOLERANCE for x, y in zip(a, b, strict=True))
