"""Correct programs in many combinations: no difference may be found."""

from itertools import product

import torch
import torch.distributed as dist
from bugs.program import Accumulating, Program, Sums, Wrapped
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import shoal.verify


class Weighted(Program):
    """Uneven shares, weighted by their samples."""

    def loader(self, data):
        def collate(items):
            kept = items[: len(items) - 2 * (self.rank == self.size - 1 and self.size > 1)]
            return tuple(map(torch.stack, zip(*kept, strict=True)))

        return DataLoader(data, self.batch_size, sampler=self.sampler(data), collate_fn=collate)

    def loss(self, output, labels):
        counts = [torch.zeros(1) for _ in range(self.size)]
        dist.all_gather(counts, torch.tensor([float(len(labels))]))
        return super().loss(output, labels) * (len(labels) * self.size / sum(counts))


class Gathered(Program):
    """Gradients are gathered, and added by every worker."""

    def exchange(self, model):
        for param in model.parameters():
            found = [torch.zeros_like(param) for _ in range(self.size)]
            dist.all_gather(found, param.grad)
            param.grad.copy_(sum(found) / self.size)


class Flat(Program):
    """One bucket, reduced to rank 0 and broadcast."""

    def exchange(self, model):
        flat = torch.cat([param.grad.reshape(-1) for param in model.parameters()])
        dist.reduce(flat, 0)
        dist.broadcast(flat, 0)
        for param, part in zip(
            model.parameters(), flat.split([p.numel() for p in model.parameters()]), strict=True
        ):
            param.grad = part.reshape(param.shape) / self.size


class Clipped(Program):
    def update(self, model, optimizer):
        nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        super().update(model, optimizer)


class Scheduled(Program):
    """A schedule over the number of batches of all passes."""

    def optimizer(self, model):
        made = super().optimizer(model)
        total = self.passes * len(self.loader(self.dataset()))
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(made, total)
        return made

    def update(self, model, optimizer):
        super().update(model, optimizer)
        self.schedule.step()


class Padded(Wrapped):
    """37 samples: the sampler repeats some, so that all workers have as many."""

    samples = 37


class Dropped(Wrapped):
    samples = 40

    def loader(self, data):
        return DataLoader(data, self.batch_size, sampler=self.sampler(data), drop_last=True)


class InOrder(Wrapped):
    """No shuffle: every pass has the same order."""

    def sampler(self, data):
        return torch.utils.data.DistributedSampler(data, self.size, self.rank, shuffle=False)


class Views(Wrapped):
    def model(self):
        return DistributedDataParallel(
            self.network(), gradient_as_bucket_view=True, bucket_cap_mb=1e-4, static_graph=True
        )


class Unused(Wrapped):
    """A layer that no worker uses."""

    def network(self):
        model = super().network()
        model.spare = nn.Linear(2, 2)
        model.forward = lambda x: nn.Sequential(model[0], model[1], model[2])(x)
        return model

    def model(self):
        return DistributedDataParallel(self.network(), find_unused_parameters=True)


class NoSync(Accumulating, Wrapped):
    def backward(self, model, loss, last):
        if last:
            loss.backward()
        else:
            with model.no_sync():
                loss.backward()


class Convolutions(Wrapped):
    def dataset(self):
        draw = torch.Generator().manual_seed(1)
        images = torch.randn(self.samples, 1, 12, 12, generator=draw)
        return TensorDataset(images, torch.randint(0, 3, (self.samples,), generator=draw))

    def network(self):
        torch.manual_seed(0)
        body = nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 8, 3))
        return nn.Sequential(body, nn.ReLU(), nn.Flatten(), nn.Linear(128, 3))


class Attention(Wrapped):
    def dataset(self):
        draw = torch.Generator().manual_seed(1)
        tokens = torch.randint(0, 9, (self.samples, 7), generator=draw)
        return TensorDataset(tokens, tokens[:, 0] % 3)

    def network(self):
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        return nn.Sequential(nn.Embedding(9, 8), layer, nn.Flatten(), nn.Linear(56, 3))


class TwoModels(Program):
    """A body and a head that are called one after the other."""

    def model(self):
        found = self.network()
        self.body, self.head = found[:2], found[2]
        return found

    def forward(self, model, inputs):
        return self.head(self.body(inputs))


class Evaluating(Wrapped):
    """Rank 0 evaluates after each pass."""

    def begin_pass(self, loader, number):
        super().begin_pass(loader, number)
        self.others = getattr(self, "others", None) or DataLoader(self.dataset(), 5)

    def update(self, model, optimizer):
        super().update(model, optimizer)
        if self.rank == 0:
            with torch.no_grad():
                for inputs, _ in self.others:
                    model.module(inputs)


class Autocast(Wrapped):
    def forward(self, model, inputs):
        with torch.autocast("cpu", torch.bfloat16):
            return model(inputs)


class Double(Wrapped):
    def dataset(self):
        inputs, labels = super().dataset().tensors
        return TensorDataset(inputs.double(), labels)

    def network(self):
        return super().network().double()


class Hooked(Wrapped):
    """A communication hook that does what DDP does itself."""

    def model(self):
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

        made = super().model()
        made.register_comm_hook(None, allreduce_hook)
        return made


class Mappings(Wrapped):
    """Batches are dictionaries, and the model returns a loss."""

    def loader(self, data):
        def collate(items):
            inputs, labels = map(torch.stack, zip(*items, strict=True))
            return {"inputs": inputs, "labels": labels, "names": ["sample"] * len(items)}

        loader = DataLoader(data, self.batch_size, sampler=self.sampler(data), collate_fn=collate)
        return Pairs(loader)


class Pairs:
    def __init__(self, loader):
        self.loader, self.sampler = loader, loader.sampler

    def __iter__(self):
        return ((batch["inputs"], batch["labels"]) for batch in self.loader)


class Prefetching(Wrapped):
    def loader(self, data):
        return DataLoader(data, self.batch_size, sampler=self.sampler(data), num_workers=1)


class Slicing(Program):
    """No DataLoader: each worker takes its part of every batch of one permutation."""

    def loader(self, data):
        return Slices(self, data)

    def begin_pass(self, loader, number):
        loader.seed = number


class Slices:
    def __init__(self, program, data):
        self.program, self.data, self.seed = program, data, 0

    def __iter__(self):
        draw = torch.Generator().manual_seed(self.seed)
        inputs, labels = self.data.tensors
        order = torch.randperm(len(inputs), generator=draw)
        for batch in order.split(12):
            mine = batch[self.program.rank :: self.program.size]
            yield inputs[mine], labels[mine]


class Repeated(Program):
    """No DataLoader, and nothing is divided: every worker has the whole batch."""

    def loader(self, data):
        inputs, labels = data.tensors
        return [*zip(inputs.split(12), labels.split(12), strict=True)]

    def begin_pass(self, loader, number):
        pass


class TwoOptimizers(Program):
    """A second model is trained after the first, whose gradients stay; each has an optimizer."""

    def train(self):
        super().train()
        super().train()

    def zero(self, optimizer):
        pass

    def backward(self, model, loss, last):
        model.zero_grad()
        super().backward(model, loss, last)


class ParametersAveraged(Program):
    """Every worker makes its own step, and then the parameters are averaged: the same for plain SGD."""

    def optimizer(self, model):
        return torch.optim.SGD(model.parameters(), self.lr)

    def exchange(self, model):
        pass

    def update(self, model, optimizer):
        super().update(model, optimizer)
        for param in model.parameters():
            dist.all_reduce(param.data)
            param.data /= self.size


class Descent:
    """An optimizer that is not torch's, as students write one."""

    def __init__(self, params, lr):
        self.params, self.lr = list(params), lr

    def step(self):
        with torch.no_grad():
            for param in self.params:
                param -= self.lr * param.grad

    def zero_grad(self):
        for param in self.params:
            param.grad = None


class OwnOptimizer(Program):
    def optimizer(self, model):
        made = Descent(model.parameters(), self.lr)
        shoal.verify.watch(model, made)
        return made


def _sgd(params):
    return torch.optim.SGD(params, 0.1, momentum=0.9, nesterov=True, weight_decay=0.01)


OPTIMIZERS = {
    "sgd": _sgd,
    "adam": lambda params: torch.optim.Adam(params, 0.01),
    "adamw": lambda params: torch.optim.AdamW(params, 0.01, foreach=True),
    "rmsprop": lambda params: torch.optim.RMSprop(params, 0.01, momentum=0.5),
    "adagrad": lambda params: torch.optim.Adagrad(params, 0.1),
    "sharded": lambda params: ZeroRedundancyOptimizer(params, torch.optim.Adam, lr=0.01),
}
ONE_EACH = (
    *(Weighted, Gathered, Flat, Scheduled, Padded, Dropped, InOrder, Unused, TwoModels, Evaluating, Hooked),
    *(OwnOptimizer, Mappings, Prefetching, Slicing, ParametersAveraged, Double, Repeated, TwoOptimizers),
)
EVERY_OPTIMIZER = (Program, Sums, Wrapped, NoSync, Views, Clipped, Convolutions, Attention, Autocast)


def _with(program, optimizer):
    return type(
        f"{program.__name__}_{optimizer}",
        (program,),
        {"optimizer": lambda self, model: OPTIMIZERS[optimizer](model.parameters())},
    )


CORRECT = {each.__name__: each for each in ONE_EACH}
CORRECT |= {made.__name__: made for pair in product(EVERY_OPTIMIZER, OPTIMIZERS) for made in [_with(*pair)]}
