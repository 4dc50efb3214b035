"""Models divided by tensor parallelism, as `train.build` makes them, in float64, and one machine's result."""

import functools

import torch
from strategy_cases import OPTIMIZERS, SYNCS, Copy, made, rate, single
from torch import nn

from shoal import models, optim
from shoal.comm.alone import alone
from shoal.comm.mesh import Mesh
from shoal.config.sections.model import (
    CrossEntropyConfig,
    LenetConfig,
    MlpConfig,
    Resnet18Config,
    TransformerConfig,
)
from shoal.data.dataset import Batch
from shoal.events.spans import HostClock, SpanRecorder
from shoal.models.initialise import initialise
from shoal.strategies.gradient_engine import build_engine
from shoal.strategies.layout.whole import Whole
from shoal.strategies.pieces.whole_tensors import WholeTensors
from shoal.strategies.replicas.sync import Sync
from shoal.strategies.strategy import Share
from shoal.strategies.tensor.divide import divide
from shoal.strategies.update import Update

STEPS, BATCH, OUTPUTS = 3, 6, 8


class TwoTowers(nn.Module):
    """A shared layer, two towers, and a layer that joins them."""

    def __init__(self):
        super().__init__()
        self.shared = nn.Linear(6, 8)
        self.user = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
        self.item = nn.Sequential(nn.Linear(8, 4), nn.Tanh())
        self.join = nn.Linear(8, OUTPUTS)
        initialise(self, seed=3)

    def forward(self, inputs):
        x = torch.tanh(self.shared(inputs))
        return self.join(torch.cat([self.user(x), self.item(x)], dim=-1))


class BagOfWords(nn.Module):
    """Two embeddings, whose columns stay divided until a row layer."""

    def __init__(self):
        super().__init__()
        first, second = samples((5,))[0][0, :2].tolist()  # words that occur
        self.words, self.more = nn.Embedding(256, 8, first), nn.Embedding(256, 4, second)
        self.fc, self.head = nn.Linear(8, 4), nn.Linear(4, OUTPUTS)
        redraw(self)

    def forward(self, text):
        return self.head(torch.tanh(self.fc(torch.tanh(self.words(text)))) + self.more(text))


def redraw(model):
    draw = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for param in model.parameters():
            param.copy_(torch.randn(param.shape, generator=draw))


class TextEncoder(nn.Module):
    """Torch's own layers: embeddings, an encoder of two layers, scores for each position."""

    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(256, 8), nn.Embedding(5, 8)
        layer = nn.TransformerEncoderLayer(8, 4, 12, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(8), enable_nested_tensor=False)
        self.head = nn.Linear(8, OUTPUTS)
        redraw(self)

    def forward(self, text):
        places = torch.arange(text.shape[1])
        x = self.tokens(text) + self.positions(places)
        return self.head(self.encoder(x, mask=places[:, None] < places, is_causal=True))


def ours(config, shape):
    return lambda: models.build(config, shape, OUTPUTS, seed=0), shape


MODELS = {
    "mlp": ours(MlpConfig(hidden=(8, 12, 4)), (6,)),
    "lenet": ours(LenetConfig(), (1, 12, 12)),
    "resnet18 batch": ours(Resnet18Config(width=4), (1, 16, 16)),
    "resnet18 group": ours(Resnet18Config(width=8, norm="group"), (1, 16, 16)),
    "transformer": ours(TransformerConfig(layers=1, width=8, heads=4), (5,)),
    "every cut": ours(TransformerConfig(layers=1, width=8, heads=4), (5,)),
    "gathered": ours(Resnet18Config(width=4, norm="group"), (1, 16, 16)),
    "by width": ours(TransformerConfig(layers=1, width=8, heads=4), (5,)),
    "by function": (TwoTowers, (6,)),
    "words": (BagOfWords, (5,)),
    "torch encoder": (TextEncoder, (5,)),
    "torch encoder, automatic": (TextEncoder, (5,)),
}
"""Each builds a model, and has the shape of its inputs."""

PLANS = {
    "every cut": {
        "tokens": "row",
        "blocks.*.attention": "heads",
        "blocks.*.fc1": "column",
        "blocks.*.fc2": "row",
        "head": "gather",
    },
    "gathered": {
        "conv1": "gather",
        "stage*.*.conv1": "gather",
        "stage*.*.shortcut.conv": "gather",
        "fc": "gather",
    },
    "words": {"words": "column", "fc": "row", "more": "row"},
    "torch encoder": {"tokens": "row", "positions": "gather", "encoder": "heads", "head": "gather"},
    "by width": {"tokens": "gather", "blocks.0.fc1": "gather"},
    "by function": {"user": "worker 1", "item": "worker 0", "shared": "gather"},
}
"""The plans that are not automatic."""


@functools.cache
def samples(shape):
    draw = torch.Generator().manual_seed(1)
    count = STEPS * BATCH
    if len(shape) == 1 and shape != (6,):  # text
        labels = torch.randint(OUTPUTS, (count, *shape), generator=draw)
        return torch.randint(256, (count, *shape), generator=draw), labels
    inputs = torch.randn(count, *shape, generator=draw, dtype=torch.float64)
    return inputs, torch.randint(OUTPUTS, (count,), generator=draw)


def share_of_step(shape, step, shares, rank, parts=2):
    inputs, labels = samples(shape)
    first, count = step * BATCH + sum(shares[:rank]), shares[rank]
    cuts = torch.arange(first, first + count).split(-(-count // parts)) if count else []
    batches = [Batch(inputs[cut], labels[cut], len(cut)) for cut in cuts]
    return Share(batches, BATCH, count, empty=lambda: Batch(inputs[:0], labels[:0], 0))


def copy_of_model(name, optimizer, clip_norm=None, tensor=None, replica=0, plan=None):
    """A model and its update, divided among the members of `tensor` if there is such a group."""
    build, shape = MODELS[name]
    model, loss, span = build().double(), CrossEntropyConfig(), SpanRecorder(HostClock())
    example = samples(shape)[0][:2]
    parts = divide(model, tensor, plan or PLANS.get(name), example) if tensor else None
    engine = build_engine("torch", model, loss, span)
    layout = Whole(model, models.build_loss(loss), engine, span, replica=replica, parts=parts)
    return Copy(layout, Update(layout, lambda params: optim.build(optimizer, params), clip_norm))


def tensor_strategy(name, optimizer, world, along, clip_norm=None, plan=None, sync="ddp"):
    """`along` workers divide the model; the others of the world are further replicas, under a sync."""
    mesh = Mesh(world, {"data": world.size // along, "tensor": along})
    tensor = mesh.axis("tensor") if along > 1 else None
    data = mesh.axis("data") if world.size > along else None
    copy = copy_of_model(name, optimizer, clip_norm, tensor, data.rank if data else 0, plan)
    if data is None:
        return made(lambda parts, config: Sync(parts), None, copy, alone())
    return SYNCS[sync](copy, data)


def wholes_of(strategy, world):
    """The whole state, put together from all workers' pieces; on the others than rank 0 nothing."""
    return {name: tensor.clone() for name, tensor in WholeTensors(strategy.pieces(), world, prefix="")}


def train(name, strategy, world, shares=(BATCH,), first=0, last=STEPS, parts=2):
    """The whole state after every step, and the loss."""
    history = []
    for step in range(first, last):
        share = share_of_step(MODELS[name][1], step, shares, strategy.data_rank, parts)
        loss = strategy.step(share, rate(step)).loss.item()
        history.append((wholes_of(strategy, world), loss))
    return history


@functools.cache
def one_machine_of(name, optimizer, clip_norm=None, parts=2):
    strategy = single(copy_of_model(name, OPTIMIZERS[optimizer], clip_norm))
    return train(name, strategy, alone(), parts=parts)
