"""Bugs of the start, the forward and backward pass, and the update."""

import copy

import torch
import torch.distributed as dist
from bugs.program import Program, Wrapped, bug
from torch import nn

import shoal.verify


@bug(0, "start", 1, "0.weight", "starts from other values")
class InitialWeightsDiffer(Program):
    def network(self):
        torch.manual_seed(self.rank)
        return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


@bug(0, "start", 1, "2.weight", "starts from other values")
class HeadNotBroadcast(Program):
    """The body is broadcast, and the new head is not."""

    def network(self):
        torch.manual_seed(self.rank)
        model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
        for param in model[0].parameters():
            dist.broadcast(param.data, 0)
        return model


@bug(0, "backward", 1, "2.bias", "no gradient")
class FrozenOnOneRank(Program):
    def network(self):
        model = super().network()
        model[2].bias.requires_grad_(self.rank != 1)
        return model

    def exchange(self, model):
        for param in model.parameters():
            param.grad = torch.zeros_like(param) if param.grad is None else param.grad
        super().exchange(model)


@bug(0, "backward", None, "", "do not add up")
class OtherLossOnOneRank(Program):
    def loss(self, output, labels):
        if self.rank == 1:
            labels = labels.flip(0)
        return nn.functional.cross_entropy(output, labels)


@bug(0, "backward", None, "", "do not add up")
class LabelsOfAnotherOrder(Program):
    """The labels are shuffled once more on every worker but not on one machine."""

    def loss(self, output, labels):
        return nn.functional.cross_entropy(output, labels.roll(1) if self.size > 1 else labels)


@bug(0, "forward", 1, "output", "other outputs")
class BranchOnOneRank(Program):
    def forward(self, model, inputs):
        return model(inputs)

    def network(self):
        torch.manual_seed(0)
        return Branching(self.rank)


class Branching(nn.Sequential):
    def __init__(self, rank):
        super().__init__(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
        self.rank = rank

    def forward(self, x):
        return super().forward(x) * (1 + (self.rank == 1))


@bug(0, "forward", None, "output", "dropout masks are alike")
class DropoutSeededAlike(Wrapped):
    def network(self):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 64), nn.Dropout(0.5), nn.Linear(64, 3))


@bug(0, "forward", None, "output", "own samples")
class BatchNormOfShares(Wrapped):
    """No bug, but it cannot be equal."""

    def network(self):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))


@bug(0, "forward", None, "mean", "another value of this buffer")
class BuffersNotSynchronised(Program):
    def network(self):
        torch.manual_seed(0)
        return Centred()


class Centred(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x):
        output = self.layer(x - self.mean)
        with torch.no_grad():
            self.mean.mul_(0.9).add_(0.1 * x.mean(0))
        return output


@bug(0, "update", None, "0.weight", "does not hold")
class OptimizerBuiltBeforeWrapping(Program):
    def optimizer(self, model):
        return super().optimizer(copy.deepcopy(model) if self.size > 1 else model)


@bug(0, "update", None, "lr", "lr is")
class RateScaledByWorkers(Program):
    def optimizer(self, model):
        return torch.optim.SGD(model.parameters(), self.lr * self.size)


@bug(1, "update", 2, "lr", "lr is")
class ScheduleOffByOneOnOneRank(Program):
    def update(self, model, optimizer):
        super().update(model, optimizer)
        for group in optimizer.param_groups:
            group["lr"] = self.lr / (2 + self.step - (self.rank == 2))


@bug(1, "update", None, "lr", "lr is")
class ScheduleCountsEveryWorker(Program):
    def update(self, model, optimizer):
        super().update(model, optimizer)
        for group in optimizer.param_groups:
            group["lr"] = self.lr * 0.5 ** (self.size * (self.step + 1))


@bug(0, "update", None, "0.weight", "something else changes it")
class DecayedOnceMore(Program):
    """Decoupled weight decay, by the optimizer and by the loop of the workers."""

    def update(self, model, optimizer):
        super().update(model, optimizer)
        if self.size > 1:
            with torch.no_grad():
                for param in model.parameters():
                    param *= 1 - 0.1 * self.lr


@bug(1, "update", 1, "0.weight", "as it was")
class OverwrittenOnOneRank(Program):
    """A late broadcast of old weights reaches one worker."""

    old = None

    def update(self, model, optimizer):
        super().update(model, optimizer)
        with torch.no_grad():
            if self.rank == 1 and self.old is not None:
                model[0].weight.copy_(self.old)
            self.old = model[0].weight.clone()


@bug(0, "update", 1, "optimizer", "2 backward passes")
class StepSkippedOnOneRank(Program):
    def update(self, model, optimizer):
        if self.rank != 1 or self.step:
            optimizer.step()
        else:
            self.skipped = True


@bug(0, "update", 1, "optimizer", "makes no update of this model")
class OneUpdatesForAll(Program):
    """No bug, but it cannot be compared: the other workers get rank 0's parameters, as in `dp`."""

    def update(self, model, optimizer):
        if self.rank == 0:
            super().update(model, optimizer)
        for param in model.parameters():
            dist.broadcast(param.data, 0)


@bug(0, "update", None, "0.weight", "as it was")
class StepUndone(Program):
    """Every worker loads the state of before: the broadcast comes from a copy that is not trained."""

    def update(self, model, optimizer):
        kept = copy.deepcopy(model.state_dict())
        super().update(model, optimizer)
        if self.size > 1:
            for tensor in kept.values():
                dist.broadcast(tensor, 0)
            model.load_state_dict(kept)


class Averaging:
    """Not torch's; on rank 1 it steps twice as far."""

    def __init__(self, params, lr, rank):
        self.params, self.lr = list(params), lr * (1 + (rank == 1))

    def step(self):
        with torch.no_grad():
            for param in self.params:
                param -= self.lr * param.grad

    def zero_grad(self):
        for param in self.params:
            param.grad = None


@bug(0, "update", 1, "0.weight", "something else changes it")
class OwnOptimizerOnOneRank(Program):
    def optimizer(self, model):
        made = Averaging(model.parameters(), self.lr, self.rank)
        shoal.verify.watch(model, made)
        return made


@bug(1, "update", 1, "0.weight · momentum_buffer", "another optimizer state")
class MomentumResetOnOneRank(Program):
    def update(self, model, optimizer):
        if self.rank == 1:
            for state in optimizer.state.values():
                state["momentum_buffer"].zero_()
        super().update(model, optimizer)
