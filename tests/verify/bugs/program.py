"""A correct distributed program in small methods: each bug of the gallery overrides one."""

from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Expected(NamedTuple):
    """What `shoal verify` must say."""

    step: int
    phase: str
    rank: int | None
    tensor: str
    """How the tensor's name begins."""
    says: str
    """A word of the cause."""


GALLERY: dict[str, tuple[type["Program"], Expected]] = {}
"""Every bug by name."""


def bug(step, phase, rank, tensor, says):
    """Put a program into the gallery."""

    def add(program):
        GALLERY[program.__name__] = (program, Expected(step, phase, rank, tensor, says))
        return program

    return add


class Program:
    """Gradients are averaged by all-reduce; shares are even, with one backward pass in a step."""

    samples, batch_size, passes, lr = 36, 4, 2, 0.1
    micro = 1
    """Backward passes of a step."""

    def __init__(self, rank, size):
        self.rank, self.size, self.step = rank, size, 0

    def dataset(self):
        draw = torch.Generator().manual_seed(1)
        inputs = torch.randn(self.samples, 6, generator=draw)
        return TensorDataset(inputs, torch.randint(0, 3, (self.samples,), generator=draw))

    def sampler(self, data):
        return DistributedSampler(data, self.size, self.rank)

    def loader(self, data):
        return DataLoader(data, self.batch_size, sampler=self.sampler(data))

    def network(self):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))

    def model(self):
        return self.network()

    def optimizer(self, model):
        return torch.optim.SGD(model.parameters(), self.lr, momentum=0.9)

    def loss(self, output, labels):
        return nn.functional.cross_entropy(output, labels) / self.micro

    def begin_pass(self, loader, number):
        loader.sampler.set_epoch(number)

    def forward(self, model, inputs):
        return model(inputs)

    def backward(self, model, loss, last):
        loss.backward()

    def exchange(self, model):
        for param in model.parameters():
            dist.all_reduce(param.grad)
            param.grad /= self.size

    def zero(self, optimizer):
        optimizer.zero_grad()

    def update(self, model, optimizer):
        optimizer.step()

    def train(self):
        loader = self.loader(self.dataset())
        model = self.model()
        optimizer = self.optimizer(model)
        for number in range(self.passes):
            self.begin_pass(loader, number)
            for count, (inputs, labels) in enumerate(loader, 1):
                last = count % self.micro == 0
                self.backward(model, self.loss(self.forward(model, inputs), labels), last)
                if last:
                    self.exchange(model)
                    self.update(model, optimizer)
                    self.zero(optimizer)
                    self.step += 1


class Sums(Program):
    """The loss is a sum over own samples divided by the number of all workers' samples; gradients are added."""

    def loss(self, output, labels):
        count = torch.tensor(float(len(labels)))
        dist.all_reduce(count)
        return nn.functional.cross_entropy(output, labels, reduction="sum") / count

    def exchange(self, model):
        for param in model.parameters():
            dist.all_reduce(param.grad)


class Accumulating(Program):
    """Two backward passes in a step."""

    micro, samples = 2, 72


class Wrapped(Program):
    """DistributedDataParallel exchanges."""

    def model(self):
        return nn.parallel.DistributedDataParallel(self.network())

    def exchange(self, model):
        pass
