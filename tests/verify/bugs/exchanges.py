"""Bugs of the exchange."""

import copy

import torch
import torch.distributed as dist
from bugs.program import Accumulating, Program, Sums, Wrapped, bug
from torch import nn


@bug(0, "exchange", None, "2.", "summed")
class SummedNotAveraged(Program):
    def exchange(self, model):
        for param in model.parameters():
            dist.all_reduce(param.grad)


@bug(0, "exchange", None, "", "once more")
class AveragedTwice(Wrapped):
    def exchange(self, model):
        for param in model.parameters():
            param.grad /= self.size


@bug(0, "exchange", None, "", "not exchanged")
class NeverExchanged(Program):
    def exchange(self, model):
        pass


@bug(0, "exchange", None, "0.weight", "not exchanged")
class OneParameterNotExchanged(Program):
    def exchange(self, model):
        for name, param in model.named_parameters():
            if name != "0.weight":
                dist.all_reduce(param.grad)
                param.grad /= self.size


@bug(0, "exchange", None, "0.", "not exchanged")
class OneLayerNotExchanged(Program):
    def exchange(self, model):
        for param in model[2].parameters():
            dist.all_reduce(param.grad)
            param.grad /= self.size


@bug(0, "exchange", 1, "", "counts 2 times")
class OneRankCountsTwice(Program):
    def exchange(self, model):
        for param in model.parameters():
            param.grad *= 1 + (self.rank == 1)
            dist.all_reduce(param.grad)
            param.grad /= self.size


@bug(0, "exchange", 2, "", "rank 2")
class OneRankLeftOut(Program):
    def exchange(self, model):
        for param in model.parameters():
            param.grad *= not (self.rank == 2 and self.size > 2)
            dist.all_reduce(param.grad)
            param.grad /= self.size


@bug(0, "exchange", None, "", "the weight of")
class MeanOfMeans(Program):
    """The last worker has fewer samples: its loader drops half of each batch."""

    def loader(self, data):
        def collate(items):
            kept = items[: len(items) - 2 * (self.rank == self.size - 1 and self.size > 1)]
            return tuple(map(torch.stack, zip(*kept, strict=True)))

        return torch.utils.data.DataLoader(
            data, self.batch_size, sampler=self.sampler(data), collate_fn=collate
        )


@bug(0, "exchange", None, "", "summed")
class LocalCount(Sums):
    def loss(self, output, labels):
        return nn.functional.cross_entropy(output, labels, reduction="sum") / len(labels)


@bug(0, "exchange", None, "", "only 2 counts")
class LastMicroBatchOnly(Accumulating):
    def backward(self, model, loss, last):
        model.zero_grad()
        loss.backward()

    def train(self):
        if self.size == 1:  # one machine needs no exchange, and accumulates
            self.backward = lambda model, loss, last: loss.backward()
        super().train()


@bug(0, "exchange", None, "", "different weights")
class SummedAfterEachMicroBatch(Accumulating):
    """Sums of the first pass are added up again with the second."""

    def backward(self, model, loss, last):
        loss.backward()
        for param in model.parameters():
            dist.all_reduce(param.grad)

    def exchange(self, model):
        for param in model.parameters():
            param.grad /= self.size


class NoSync(Accumulating, Wrapped):
    def backward(self, model, loss, last):
        if last:
            loss.backward()
        else:
            with model.no_sync():
                loss.backward()


@bug(0, "exchange", None, "", "once more")
class DividedByAccumulationTwice(NoSync):
    """Only where there are other workers: a branch that one machine does not take."""

    def loss(self, output, labels):
        return super().loss(output, labels) / (self.micro if self.size > 1 else 1)


@bug(0, "exchange", None, "", "not divided")
class NotDividedByAccumulation(NoSync):
    def loss(self, output, labels):
        return super().loss(output, labels) * (self.micro if self.size > 1 else 1)


@bug(1, "exchange", None, "", "step before")
class StaleStep(Program):
    """The optimizer gets the sum of the step before, which has just arrived."""

    kept = None

    def exchange(self, model):
        super().exchange(model)
        if self.size > 1:
            now = [param.grad.clone() for param in model.parameters()]
            for param, old in zip(model.parameters(), self.kept or now, strict=True):
                param.grad.copy_(old)
            self.kept = now


@bug(1, "exchange", None, "", "step before")
class BufferNotCleared(Program):
    """The flat buffer still has the last sum when the next gradients are added."""

    kept = None

    def exchange(self, model):
        super().exchange(model)
        if self.size > 1:
            for param, old in zip(model.parameters(), self.kept or (), strict=False):
                param.grad += old
            self.kept = [param.grad.clone() for param in model.parameters()]


@bug(0, "exchange", None, "", "wrong places")
class WrongBucketOffset(Program):
    def exchange(self, model):
        flat = torch.cat([param.grad.reshape(-1) for param in model.parameters()])
        dist.all_reduce(flat)
        flat /= self.size
        place = 1 if self.size > 1 else 0
        for param in model.parameters():
            param.grad.copy_(flat.roll(-place)[: param.numel()].reshape(param.shape))
            flat = flat[param.numel() :] if not place else flat.roll(-param.numel())


@bug(0, "exchange", None, "", "no sum of")
class Aliased(Program):
    """`[zeros] * size` is one tensor: the mean is whichever arrived last, of another shape of sum."""

    def exchange(self, model):
        for param in model.parameters():
            found = [torch.zeros_like(param.grad) for _ in range(self.size)]
            dist.all_gather(found, param.grad)
            largest = torch.stack(found).max(dim=0).values  # of each element
            param.grad.copy_(largest if self.size > 1 else found[0])


@bug(0, "exchange", 0, "", "does not count")
class LastOfGathered(Program):
    """An aliased list of gathered tensors: only the last one counts."""

    def exchange(self, model):
        for param in model.parameters():
            found = [torch.zeros_like(param.grad) for _ in range(self.size)]
            dist.all_gather(found, param.grad)
            param.grad.copy_(found[-1])


@bug(0, "exchange", None, "", "parameters are added")
class DecayOnEveryWorker(Program):
    """Each worker adds the decay, and the sums are not averaged."""

    def exchange(self, model):
        for param in model.parameters():
            param.grad /= self.size
            param.grad += 0.1 * param.detach()
            dist.all_reduce(param.grad)


@bug(0, "exchange", None, "", "wrong number")
class WrongDivisor(Program):
    """A worker has left, and the sum is still divided by the old number."""

    def exchange(self, model):
        for param in model.parameters():
            dist.all_reduce(param.grad)
            param.grad /= self.size + (self.size > 1)


@bug(0, "exchange", None, "", "float16")
class Rounded(Program):
    def exchange(self, model):
        for param in model.parameters():
            half = param.grad.to(torch.float16 if self.size > 1 else torch.float32)
            dist.all_reduce(half)
            param.grad.copy_(half / self.size)


@bug(0, "exchange", None, "", "scaled differently")
class ClippedBeforeTheExchange(Program):
    def exchange(self, model):
        nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        super().exchange(model)


@bug(0, "exchange", None, "0.", "wrong number")
class ClippedPerShard(Program):
    """Each worker clips by the norm of its own half of the parameters."""

    def exchange(self, model):
        super().exchange(model)
        if self.size > 1:
            nn.utils.clip_grad_norm_(model[0].parameters(), 0.01)
        else:
            nn.utils.clip_grad_norm_(model.parameters(), 100.0)


@bug(0, "update", 1, "0.weight", "scaled between its exchange and the update")
class ClippedOnOneRank(Wrapped):
    """After the wrapper's exchange, rank 1 clips by the norm of some of the parameters."""

    def exchange(self, model):
        nn.utils.clip_grad_norm_([*model.parameters()][self.rank == 1 :], 0.01)


@bug(0, "update", 2, "", "changed between its exchange and the update")
class NoiseOnOneRank(Wrapped):
    """After the wrapper's exchange, one worker adds noise."""

    def exchange(self, model):
        if self.rank == 2:
            for param in model.parameters():
                param.grad += torch.linspace(-1, 1, param.numel()).reshape(param.shape)


@bug(0, "exchange", 1, "", "factor of its own")
class ClippedByTensorOnOneRank(Program):
    """After an exchange of the program's own, rank 1 clips each tensor by its norm."""

    def exchange(self, model):
        super().exchange(model)
        if self.rank == 1:
            for param in model.parameters():
                nn.utils.clip_grad_norm_([param], 0.01)


@bug(0, "exchange", None, "", "zero")
class ReducedToOneRank(Program):
    """`reduce` where `all_reduce` is meant, into a buffer of zeros that nobody fills."""

    def exchange(self, model):
        for param in model.parameters():
            found = torch.zeros_like(param.grad)
            if self.size == 1:
                found.copy_(param.grad)
            param.grad.copy_(found)


@bug(0, "exchange", 1, "", "rank 1")
class ReducedToRankZero(Program):
    """Only rank 0 has the sum; the others go on with their own."""

    size_limit = 2

    def exchange(self, model):
        for param in model.parameters():
            total = param.grad.clone()
            dist.all_reduce(total)
            if self.rank != 1:
                param.grad.copy_(total / self.size)


@bug(0, "exchange", None, "2.bias", "not exchanged")
class BiasForgotten(Program):
    def exchange(self, model):
        for param in [*model.parameters()][:-1]:
            dist.all_reduce(param.grad)
            param.grad /= self.size


@bug(0, "exchange", None, "", "summed")
class LossTimesWorkers(Wrapped):
    """A factor for a wrapper that adds; this one averages."""

    def loss(self, output, labels):
        return super().loss(output, labels) * self.size


@bug(0, "exchange", None, "embed", "")
class TiedWeightsOnce(Program):
    """The gradient of a tied weight is exchanged under its first name before its second use has been added."""

    def network(self):
        torch.manual_seed(0)
        return Tied()

    def exchange(self, model):
        if self.size == 1:
            return
        for param in model.parameters():
            dist.all_reduce(param.grad)
            # The tied weight appears twice in a list of modules: it is divided for each of them.
            param.grad /= self.size * (2 if param is model.embed else 1)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.bias = nn.Parameter(torch.randn(3, 6) / 3), nn.Parameter(torch.zeros(3))

    def forward(self, x):
        return torch.tanh(x @ self.embed.T + self.bias) @ self.embed @ self.embed.T


@bug(0, "exchange", None, "", "")
class InPlaceDuringOverlap(Program):
    """The gradient is scaled while its sum is on the way: the sum and a rest of the own gradient mix."""

    def exchange(self, model):
        for param in model.parameters():
            own = copy.copy(param.grad.detach().clone())
            dist.all_reduce(param.grad)
            param.grad /= self.size
            if self.size > 1:
                half = param.grad.numel() // 2
                param.grad.reshape(-1)[:half] = own.reshape(-1)[:half]
