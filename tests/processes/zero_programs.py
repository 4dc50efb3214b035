"""What the members of a world of processes run in the tests of ZeRO."""

import torch
from strategy_cases import copy_of, made, single
from torch import nn
from torch.nn import functional as F

import shoal
from shoal import models
from shoal.config.sections.data import DigitsConfig
from shoal.config.sections.model import LenetConfig
from shoal.config.sections.optimizer import AdamConfig
from shoal.data.dataset import Batch
from shoal.data.load import load
from shoal.strategies.pieces.whole_tensors import WholeTensors
from shoal.strategies.strategy import Share
from shoal.strategies.zero.settings import ZeroConfig
from shoal.strategies.zero.zero import Zero

BATCH, STEPS, LR, SEED = 12, 3, 1e-3, 5


def lenet(device):
    data = load(DigitsConfig()).to(torch.device(device))
    return data, models.build(LenetConfig(), data.input_shape, data.outputs, seed=0).double().to(device)


def part_of(data, step, rank, size):
    """Every size-th sample of a step's batch."""
    batch = data.batch(data.train, torch.arange(step * BATCH + rank, (step + 1) * BATCH, size))
    return batch.inputs.double(), batch.labels


def as_arrays(state):
    return {name: tensor.cpu().numpy().copy() for name, tensor in state}


def train_in_stages(group, stages, device="cpu"):
    """The whole state after some steps of lenet in float64, on rank 0, for each stage; alone, of `single`."""
    found = []
    for stage in stages:
        data, model = lenet(device)
        mine = copy_of(model, AdamConfig(lr=LR), clip_norm=0.5)
        if group is None:
            strategy, pieces_of = (
                single(mine),
                lambda strategy: [(p.name, p.tensor) for p in strategy.pieces()],
            )
        else:
            strategy = made(Zero, ZeroConfig(stage=stage, unit_mib=0.05), mine, group)
            pieces_of = lambda strategy: WholeTensors(strategy.pieces(), group, prefix="")  # noqa: E731
        for step in range(STEPS):
            inputs, labels = part_of(data, step, strategy.data_rank, strategy.data_size)
            parts = [Batch(x, y, len(y)) for x, y in zip(inputs.split(4), labels.split(4), strict=True)]
            strategy.step(Share(parts, BATCH, len(labels)), LR)
        found.append(as_arrays(pieces_of(strategy)))
    return found


def loop_of_a_user(group, stages, device="cpu"):
    """The same with `shoal.zero`, in batches."""
    found = []
    for stage in stages:
        data, model = lenet(device)
        sharded = shoal.zero(
            model, lambda params: torch.optim.Adam(params, lr=LR), stage, group, unit_mib=0.05
        )
        for step in range(STEPS):
            inputs, labels = part_of(data, step, group.rank, group.size)
            with sharded.batch(num_samples=len(labels)):
                F.cross_entropy(model(inputs), labels).backward()
            sharded.step(clip_norm=0.5)
        found.append(as_arrays(sharded.state_dict().items()))
    return found


def from_meta(group, stages, device="cpu"):
    """The weights after some steps of a network that was built on the meta device; alone, built as usual."""
    found = []
    for stage in stages:
        if group is None:
            torch.manual_seed(SEED)
        with torch.device("cpu" if group is None else "meta"):
            model = nn.Sequential(nn.Linear(16, 40), nn.Tanh(), nn.BatchNorm1d(40), nn.Linear(40, 4)).double()
        source = {"seed": SEED, "device": device}
        sharded = None if group is None else shoal.zero(model, None, stage, group, unit_mib=1e-3, **source)
        optimizer = torch.optim.Adam(model.parameters(), lr=LR)
        draw = torch.Generator().manual_seed(1)
        for _ in range(STEPS):
            # The same samples on all workers: batch statistics are those of one machine.
            inputs = torch.randn(8, 16, generator=draw, dtype=torch.float64).to(device)
            labels = torch.randint(4, (8,), generator=draw).to(device)
            F.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
        state = model.state_dict() if sharded is None else sharded.model_state_dict()
        found.append(as_arrays(state.items()))
    return found
