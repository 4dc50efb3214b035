"""Pipelines for the contracts of strategies: a small model of four layers, every schedule, any number of stages."""

import torch
from strategy_cases import SYNCS, Copy
from torch import nn

from shoal import optim
from shoal.comm.alone import alone
from shoal.comm.mesh import Mesh
from shoal.config.sections.model import CrossEntropyConfig
from shoal.events.spans import HostClock, SpanRecorder
from shoal.models import build_loss
from shoal.strategies.gradient_engine import build_engine
from shoal.strategies.pipeline.cut import cut_by_name, must_observe
from shoal.strategies.pipeline.observe import observed_order
from shoal.strategies.pipeline.pipeline import Pipelined
from shoal.strategies.update import Update

INPUTS, OUTPUTS = 6, 5
CUTS = {1: [], 2: ["4"], 3: ["2", "6"], 4: ["2", "4", "6"]}
"""Where stages begin, by their number; the sizes of stages differ."""


def deep_network():
    return nn.Sequential(
        nn.Linear(INPUTS, 8),
        nn.ReLU(),
        nn.Linear(8, 7, bias=False),
        nn.LayerNorm(7),
        nn.Linear(7, 6),
        nn.Tanh(),
        nn.Linear(6, OUTPUTS),
    )


class Block(nn.Module):
    """Works in place; then a skip connection around two layers with a function between them."""

    def __init__(self, width):
        super().__init__()
        self.act = nn.LeakyReLU(0.5, inplace=True)
        self.norm, self.fc1, self.fc2 = nn.LayerNorm(width), nn.Linear(width, 8), nn.Linear(8, width)

    def forward(self, x):
        x = self.act(x)
        return x + self.fc2(torch.tanh(self.fc1(self.norm(x))))


class BlockNetwork(nn.Module):
    """An ordinary module: its forward pass says the order, and nothing else does."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(INPUTS, 7)
        self.blocks = nn.ModuleList(Block(7) for _ in range(3))
        self.head = nn.Linear(7, OUTPUTS)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


BLOCK_CUTS = {2: ["blocks.1"], 3: ["blocks.1", "blocks.2"], 4: ["blocks.0", "blocks.2", "head"]}


def seeded(network, seed=0):
    """As `strategy_cases.replica` draws its weights."""
    draw = torch.Generator().manual_seed(seed)
    model = network().double()
    with torch.no_grad():
        for param in model.parameters():
            param.copy_(torch.randn(param.shape, generator=draw, dtype=torch.float64))
    return model


def pipelined(
    stages,
    plan,
    optimizer,
    clip_norm=None,
    network=deep_network,
    cuts=CUTS,
    precision="float32",
    sync="ddp",
):
    """A strategy of a pipeline with `stages` stages, and a sync over the other axis."""

    def build(world):
        mesh = Mesh(world, {"data": world.size // stages, "pipeline": stages})
        data, model, span = mesh.axis("data"), seeded(network), SpanRecorder(HostClock())
        engine = build_engine("torch", model, CrossEntropyConfig(), span, precision)
        sample = torch.ones(4, INPUTS, dtype=torch.float64)
        order = observed_order(model, sample) if must_observe(model, cuts[stages]) else None
        layout = Pipelined(
            model,
            cut_by_name(model, cuts[stages], order),
            mesh.axis("pipeline") or alone(),
            build_loss(CrossEntropyConfig()),
            engine.autocast,
            span,
            plan,
            replica=data.rank if data else 0,
        )
        copy = Copy(layout, Update(layout, lambda params: optim.build(optimizer, params), clip_norm))
        return SYNCS[sync](copy, data or alone())

    return build
