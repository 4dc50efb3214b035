"""What the members of a world of processes run in the tests of data parallelism."""

import gc
import io
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from strategy_cases import copy_of, made, single
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import shoal
from shoal import models
from shoal.config.sections.data import DigitsConfig
from shoal.config.sections.model import LenetConfig
from shoal.config.sections.optimizer import AdamConfig, AdamWConfig, GdConfig, SgdConfig
from shoal.data.dataset import Batch
from shoal.data.division.order import even_shares
from shoal.data.load import load
from shoal.strategies.ddp.ddp import Ddp
from shoal.strategies.ddp.settings import DdpConfig
from shoal.strategies.dp import Dp
from shoal.strategies.naive import Naive
from shoal.strategies.onecopy.onecopy import OneCopySync
from shoal.strategies.onecopy.settings import OneCopyConfig
from shoal.strategies.pieces.piece import by_name
from shoal.strategies.settings import DpConfig, NaiveConfig
from shoal.strategies.strategy import Share

BATCH = 20
STRATEGIES = {
    "naive": (Naive, NaiveConfig()),
    "ddp": (Ddp, DdpConfig()),
    "ddp, small buckets": (Ddp, DdpConfig(bucket_mib=0.05, first_bucket_mib=0.001)),
    "dp": (Dp, DpConfig()),
    "onecopy": (OneCopySync, OneCopyConfig()),
}
OPTIMIZERS = {
    "gd": GdConfig(lr=0.05),
    "sgd": SgdConfig(lr=0.05, momentum=0.9),
    "adam": AdamConfig(lr=1e-3),
    "adamw": AdamWConfig(lr=1e-3),
}


def train_lenet(group, name, optimizer, steps):
    """The whole state after some steps of lenet in float64, as arrays; alone, of `single`."""
    data = load(DigitsConfig())
    model = models.build(LenetConfig(), data.input_shape, data.outputs, seed=0).double()
    mine = copy_of(model, OPTIMIZERS[optimizer], clip_norm=0.5)
    strategy = single(mine) if group is None else made(*STRATEGIES[name], mine, group)
    shares = even_shares(BATCH, strategy.data_size)
    for step in range(steps):
        start = step * BATCH + sum(shares[: strategy.data_rank])
        count = shares[strategy.data_rank]
        whole = data.batch(data.train, torch.arange(start, start + count))
        parts = [
            Batch(inputs.double(), labels, len(labels))
            for inputs, labels in zip(whole.inputs.split(4), whole.labels.split(4), strict=True)
        ]
        empty = lambda: Batch(whole.inputs[:0].double(), whole.labels[:0], 0)  # noqa: E731, B023
        strategy.step(Share(parts, BATCH, count, empty=empty), 0.05 if optimizer in ("gd", "sgd") else 1e-3)
    return {name: piece.numpy().copy() for name, piece in by_name(strategy.pieces()).items()}


class Detour(nn.Module):
    """Uses its second layer only on request."""

    def __init__(self):
        super().__init__()
        self.always, self.sometimes = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, inputs, detour):
        outputs = self.always(inputs)
        return outputs + self.sometimes(inputs) if detour else outputs


def one_worker_lacks_a_gradient(group):
    model = shoal.DistributedDataParallel(Detour(), group)
    for _ in range(2):
        model(torch.ones(2, 4), detour=group.rank == 0).sum().backward()


@contextmanager
def torchs_group(group, port, name):
    """A program that has initialised torch.distributed."""
    store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=20))
    store = dist.PrefixStore(name, store)
    dist.init_process_group("gloo", store=store, rank=group.rank, world_size=group.size)
    try:
        yield
    finally:
        dist.destroy_process_group()


def beside_torch(group, port):
    """A program that has initialised torch.distributed and only swaps the wrapper; two of them, one on a subgroup."""
    with torchs_group(group, port, "a program's own"):
        found = []
        for process_group in (None, dist.new_group([0, 1])):
            torch.manual_seed(group.rank)
            inner = nn.Linear(4, 3)
            model = shoal.DistributedDataParallel(
                inner, process_group=process_group, device_ids=None, find_unused_parameters=True
            )
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            inputs = torch.full((2, 4), 1.0 + group.rank)
            for _ in range(3):
                optimizer.zero_grad()
                F.cross_entropy(model(inputs), torch.tensor([0, 1])).backward()
                optimizer.step()
            dist.barrier()
            found.append((type(model._group).__name__, inner.weight.detach().numpy().tobytes()))
        return found


def ending_early(group, port):
    """The final state of torch's wrapper and of ours, after a loop that is shorter on one worker."""
    with torchs_group(group, port, "ending early"):
        found = []
        for lengths in ((1, 3), (3, 2)):
            for divides in (True, False):
                states = []
                for wrapper in (nn.parallel.DistributedDataParallel, shoal.DistributedDataParallel):
                    torch.manual_seed(0)
                    model = wrapper(nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)))
                    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
                    draw = torch.Generator().manual_seed(group.rank)
                    with model.join(divide_by_initial_world_size=divides):
                        for _ in range(lengths[group.rank]):
                            optimizer.zero_grad()
                            inputs = torch.randn(5, 4, generator=draw)
                            F.cross_entropy(model(inputs), torch.tensor([0, 1, 2, 0, 1])).backward()
                            optimizer.step()
                    states.append(
                        {name: tensor.numpy() for name, tensor in model.module.state_dict().items()}
                    )
                found.append(states)
        return found


def with_torchs_hooks(group, port):
    """The gradients' largest difference between torch's wrapper and ours, under hooks that torch ships."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power

    with torchs_group(group, port, "hooks"):
        found = {}
        for name in ("fp16", "power"):
            weights = []
            for wrapper in (nn.parallel.DistributedDataParallel, shoal.DistributedDataParallel):
                torch.manual_seed(0)
                model = wrapper(nn.Sequential(nn.Linear(40, 30), nn.ReLU(), nn.Linear(30, 3)))
                if name == "power":
                    state = power.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
                    model.register_comm_hook(state, power.powerSGD_hook)
                else:
                    model.register_comm_hook(None, getattr(default_hooks, f"{name}_compress_hook"))
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                draw = torch.Generator().manual_seed(group.rank)
                for _ in range(4):
                    optimizer.zero_grad()
                    inputs = torch.randn(5, 40, generator=draw)
                    F.cross_entropy(model(inputs), torch.tensor([0, 1, 2, 0, 1])).backward()
                    optimizer.step()
                weights.append(torch.cat([param.detach().flatten() for param in model.parameters()]))
            found[name] = (weights[0] - weights[1]).abs().max().item()
        dist.barrier()  # gloo's thread still holds what the last hook held: the group too, which must not die there
        return found


def _small():
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


class _Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, inputs):
        return checkpoint(self.second, checkpoint(self.first, inputs, use_reentrant=True), use_reentrant=True)


def _loop(model, batches, optimizer=None):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for inputs in batches:
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), torch.tensor([0, 1, 2])).backward()
        optimizer.step()
    return model


def _checkpointed(wrapper, batches):
    return _loop(wrapper(_Checkpointed()), [inputs.requires_grad_() for inputs in batches])


def _saved_and_loaded(wrapper, batches):
    file = io.BytesIO()
    torch.save(_loop(wrapper(_small()), batches), file)
    file.seek(0)
    return _loop(torch.load(file, weights_only=False), batches)


def _averaged(wrapper, batches):
    model = wrapper(_small())
    average = torch.optim.swa_utils.AveragedModel(model)
    for inputs in batches:
        average.update_parameters(_loop(model, [inputs]))
    return average


def _joined(wrapper, batches):
    model = wrapper(_small())
    for divides in (True, False):
        with Join([model], divide_by_initial_world_size=divides):
            _loop(model, batches[dist.get_rank() :])
    return model


def _joined_with_zero(wrapper, batches):
    """Under torch's wrapper a worker that has ended updates its part with old gradients: there, plain Adam is right."""
    from torch.distributed.optim import ZeroRedundancyOptimizer  # half a second, and only here

    model = wrapper(_small())
    if wrapper is nn.parallel.DistributedDataParallel:
        with Join([model]):
            return _loop(model, batches[dist.get_rank() :], torch.optim.Adam(model.parameters()))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam)
    with Join([model, optimizer]):
        return _loop(model, batches[dist.get_rank() :], optimizer)


def _switched_off(wrapper, batches):
    model = wrapper(_small())
    with Join([model], enable=False):
        return _loop(model, batches)


def _unwrapped(wrapper, batches):
    """One worker goes on alone with the module."""
    module = _small()
    _loop(wrapper(module), batches)
    gc.collect()
    return _loop(module, batches) if dist.get_rank() == 0 else module


def _sparse(wrapper, batches):
    """Only sparse gradients, of several passes."""
    model = wrapper(nn.EmbeddingBag(10, 3, sparse=True))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    words = [(inputs.abs() * 4).long().clamp(max=9) for inputs in batches]
    with model.no_sync():
        model(words[0]).square().sum().backward()
    for one in words[1:]:
        model(one).square().sum().backward()
    optimizer.step()
    return model


def _with_parameters_of_ones_own(wrapper, batches):
    module = _small()
    wrapper._set_params_and_buffers_to_ignore_for_model(module, ["0.weight"])
    return _loop(wrapper(module), batches)


class _Tied(nn.Module):
    """Embedding and last layer share a table that is large enough to be computed in its bucket."""

    def __init__(self):
        super().__init__()
        self.table, self.last = nn.Embedding(300, 260), nn.Linear(260, 300, bias=False)
        self.last.weight = self.table.weight

    def forward(self, inputs):
        return self.last(torch.tanh(self.table((inputs.abs() * 9).long()).mean(1)))


def _tied(wrapper, batches):
    module = _Tied()
    optimizer = torch.optim.AdamW(module.parameters(), fused=True)  # before the module is wrapped
    return _loop(wrapper(module), batches, optimizer)


def _in_bfloat16(wrapper, batches):
    model = wrapper(nn.Sequential(nn.Linear(4, 300), nn.ReLU(), nn.Linear(300, 300), nn.Linear(300, 3)))
    with torch.autocast("cpu", torch.bfloat16):
        return _loop(model, batches)


def _scaled(wrapper, batches):
    """The first scales are too large for the loss: its steps are left out."""
    model = wrapper(_small())
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu", 2.0**127)
    for inputs in batches * 2:
        optimizer.zero_grad()
        scaler.scale(8 * F.cross_entropy(model(inputs), torch.tensor([0, 1, 2]))).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
    return model


class _OfSeveralTypes(nn.Module):
    """Parameters in three dtypes, one without elements, one without dimensions."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 6).bfloat16(), nn.Linear(6, 3).double()
        self.empty, self.scale = nn.Linear(4, 0), nn.Parameter(torch.tensor(2.0))

    def forward(self, inputs):
        hidden = self.first(inputs.bfloat16()).tanh().double()
        return self.second(hidden).float() * self.scale + self.empty(inputs).sum()


def _of_several_types(wrapper, batches):
    return _loop(wrapper(_OfSeveralTypes()), batches)


def _second_derivatives(wrapper, batches):
    """Penalties on gradients; graphs of gradients that are not exchanged, or do not depend on weights."""
    model = wrapper(_small())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for inputs in batches:
        inputs = inputs.clone().requires_grad_()
        outputs = model(inputs)
        slopes = torch.autograd.grad(outputs.sum(), inputs, create_graph=True)
        (outputs.square().mean() + slopes[0].square().mean()).backward()
        of_weights = torch.autograd.grad(
            model(inputs).square().mean(), [*model.parameters()], create_graph=True
        )
        sum(slope.square().sum() for slope in of_weights).backward()
        optimizer.step()
        optimizer.zero_grad()
    with model.no_sync():
        model(batches[0]).square().mean().backward(create_graph=True)
    model(batches[1]).square().mean().backward()
    optimizer.step()
    linear = wrapper(nn.Linear(4, 3))
    linear(batches[0]).sum().backward(create_graph=True)
    torch.optim.SGD(linear.parameters(), lr=0.1).step()
    return nn.ModuleList([model, linear])


def _two_networks(wrapper, batches):
    """As in a GAN: one network is trained with outputs of the other, frozen in turns."""
    maker, judge = (
        wrapper(nn.Linear(4, 4)),
        wrapper(nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))),
    )
    optimizers = [torch.optim.Adam(each.parameters(), lr=0.05) for each in (maker, judge)]
    for inputs in batches:
        judge.requires_grad_(True)
        optimizers[1].zero_grad()
        judge(inputs).mean().backward()
        (-judge(maker(inputs).detach())).mean().backward()
        optimizers[1].step()
        judge.requires_grad_(False)
        optimizers[0].zero_grad()
        judge(maker(inputs)).mean().backward()
        optimizers[0].step()
    return nn.ModuleList([maker, judge])


class _OwnBuffers(nn.Module):
    """Replaces a buffer, lets another one grow from nothing to three rows; buffers of several types."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("seen", None)
        self.register_buffer("scale", torch.full((4,), 1.0 + dist.get_rank()).double(), persistent=False)
        self.register_buffer("odd", torch.tensor(dist.get_rank() == 1))

    def forward(self, inputs):
        self.mean = 0.5 * self.mean + 0.5 * inputs.mean(0).detach()
        self.seen = torch.cat([inputs[:1], *([] if self.seen is None else [self.seen[:2]])]).detach()
        self.odd.logical_not_()
        self.scale += inputs.detach().double().mean()
        return self.layer((inputs - self.mean + self.seen.mean(0)) * self.scale.float())


def _image(norm):
    return nn.Sequential(nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 4, 2), norm, nn.Flatten())


BUFFERED = {
    "1d": lambda: nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh()),
    "2d": lambda: _image(nn.BatchNorm2d(4)),
    "cumulative": lambda: nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, momentum=None)),
    "not affine": lambda: nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, affine=False)),
    "without statistics": lambda: nn.Sequential(
        nn.Linear(4, 6), nn.BatchNorm1d(6, track_running_stats=False)
    ),
    "instances": lambda: nn.Sequential(
        nn.Unflatten(1, (2, 2)),
        nn.Conv1d(2, 3, 1),
        nn.InstanceNorm1d(3, track_running_stats=True),
        nn.Flatten(),
    ),
    "own buffers": lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), _OwnBuffers()),
}


def _states_in_a_busy_loop(model, batches):
    """Parameters and buffers after every step: of all kinds of passes that may come between two updates."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    states = []

    def note():
        states.extend(tensor.detach().clone() for tensor in (*model.parameters(), *model.buffers()))

    def update(loss):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        note()

    update(model(batches[0]).square().mean())
    update(model(batches[1]).square().mean() + model(batches[2]).square().mean())  # two passes, one backward
    with torch.no_grad():
        model.eval()(batches[3])
        note()
        model.train()(batches[0])  # moves statistics
        note()
    model.eval()(batches[1])  # records gradients that nobody asks for
    note()
    model.train()
    for inputs in batches[:2]:
        with model.no_sync():
            model(inputs).square().mean().backward()
        note()
    update(model(batches[2]).square().mean())
    if dist.get_rank() == 0:  # one worker changes its buffers: the others take them over
        for buffer in model.buffers():
            buffer.zero_()
    with torch.inference_mode():
        model(batches[0])
    if dist.get_rank() == 0:  # alone: a broadcast that the others meet in their next pass
        with torch.no_grad():
            model.eval()(batches[3])
    model.train()
    with model.join():
        for inputs in batches[2 * dist.get_rank() :]:
            update(model(inputs).square().mean())
    note()
    update(model(batches[3]).square().mean())
    return states


def _ignoring(wrapper, module, **options):
    wrapper._set_params_and_buffers_to_ignore_for_model(module, ["1.running_mean"])
    return wrapper(module, **options)


WITH_BUFFERS = {
    **{name: (lambda wrapper, make=make: wrapper(make())) for name, make in BUFFERED.items()},
    "ignored": lambda wrapper: _ignoring(wrapper, BUFFERED["1d"]()),
    **{
        str(options): (lambda wrapper, options=options: wrapper(BUFFERED["1d"](), **options))
        for options in (
            {"broadcast_buffers": False},
            {"forward_sync_buffers": False},
            {"forward_sync_buffers": True, "broadcast_buffers": False},
            {"init_sync": False},
            {"static_graph": True},
            {"find_unused_parameters": True},
        )
    },
}


def buffers_under_either_wrapper(group, port):
    """For each model, which tensors differ between torch's wrapper and ours after a step, and how many are equal."""
    with torchs_group(group, port, "buffers"):
        found = {}
        for name, wrap in WITH_BUFFERS.items():
            states = []
            for wrapper in (nn.parallel.DistributedDataParallel, shoal.DistributedDataParallel):
                torch.manual_seed(0)
                model = wrap(wrapper)
                for buffer in model.buffers():  # each worker's own, as if a loop had made some steps
                    if buffer.is_floating_point() and "init_sync" not in name:
                        buffer += group.rank
                draw = torch.Generator().manual_seed(group.rank)
                states.append(
                    _states_in_a_busy_loop(model, [torch.randn(3, 4, generator=draw) for _ in range(4)])
                )
                dist.barrier()
            same = [
                torch.equal(torchs, ours) and torchs.dtype == ours.dtype
                for torchs, ours in zip(*states, strict=True)
            ]
            found[name] = ([index for index, is_same in enumerate(same) if not is_same], sum(same))
        return found


DROP_IN = [
    _tied,
    _in_bfloat16,
    _scaled,
    _of_several_types,
    _second_derivatives,
    _two_networks,
    _checkpointed,
    _saved_and_loaded,
    _averaged,
    _joined,
    _joined_with_zero,
    _switched_off,
    _unwrapped,
    _sparse,
    _with_parameters_of_ones_own,
]


def with_either_wrapper(group, port):
    """The weights after each of these programs, under torch's wrapper and under ours."""
    with torchs_group(group, port, "either"):
        found = {}
        for program in DROP_IN:
            weights = []
            for wrapper in (nn.parallel.DistributedDataParallel, shoal.DistributedDataParallel):
                torch.manual_seed(0)
                draw = torch.Generator().manual_seed(group.rank)
                model = program(wrapper, [torch.randn(3, 4, generator=draw) for _ in range(4)])
                weights.append(torch.cat([param.detach().flatten() for param in model.parameters()]).numpy())
                dist.barrier()
            found[program.__name__] = weights
        return found
