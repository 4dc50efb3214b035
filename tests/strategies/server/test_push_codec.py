"""Encoded pushes: nothing is lost, the declared bytes travel, and a lossless codec changes nothing."""

import pytest
import torch
from server_cases import bsp, history_of, members, strategy_of
from strategy_cases import OPTIMIZERS, assert_equal, on_threads, one_machine, replica

from shoal.comm.traced import traced
from shoal.config.sections.compression import CODEC_ROWS, CompressedConfig
from shoal.strategies.exchange.compressed import Compressed
from shoal.strategies.exchange.exchange import TrainingClock
from shoal.strategies.server.push_codec import PushEncoder, PushFormat
from shoal.strategies.server.shards import FlatCopy
from shoal.strategies.server.wire import Request
from shoal.training import checkpoint
from shoal.training.progress import Progress

pytestmark = pytest.mark.filterwarnings(
    "ignore:the workers' initial parameters differed", "ignore:--exchange.rank", "ignore:the norm of rank"
)


def compressed(codec, **settings):
    return Compressed(CompressedConfig(codec=codec, **settings), TrainingClock())


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize(
    ("codec", "settings"), [("topk", {"ratio": 1.0}), ("none", {}), ("powersgd", {"rank": 100})]
)
def test_a_neutral_codec_equals_one_machine(codec, settings, servers):
    found = members(
        lambda rank: replica(OPTIMIZERS["sgd"], seed=rank),
        bsp(servers=servers),
        (7, 5),
        exchange=lambda: compressed(codec, **settings),
    )
    assert_equal(found, one_machine("sgd"))


def formats(config, servers=2):
    def work(group):
        flat = FlatCopy(replica(OPTIMIZERS["sgd"]).params, servers, group)
        return flat, [PushFormat(config, flat.buckets, server, servers) for server in range(servers)]

    return on_threads(1, work)[0]


@pytest.mark.parametrize("codec", [codec for codec in CODEC_ROWS if codec != "none"])
def test_what_a_server_decodes_and_the_residual_are_the_gradient(codec):
    config = CompressedConfig(codec=codec, feedback=True)
    flat, pushes = formats(config)
    encoder = PushEncoder(pushes, rank=1, workers=2)
    torch.manual_seed(3)
    gradient = torch.randn_like(flat.flat_gradients[0])
    flat.flat_gradients[0].copy_(gradient)
    messages = encoder.encode(flat.gradients, step=5)
    decoded = torch.zeros_like(gradient)
    halves = decoded.split([ranges[0].numel() for ranges in flat.gradients])
    for push, message, half in zip(pushes, messages, halves, strict=True):
        assert message.numel() == push.empty_message(5).numel()
        push.decode(message, rank=1, step=5, out=[half])
    residual = torch.cat(
        [encoder.pieces()[f"residual.{unit.name}"].reshape(-1) for push in pushes for unit in push.units]
    )
    assert torch.allclose(decoded + residual, gradient, rtol=1e-12, atol=1e-14)
    assert codec in ("fp16", "bf16") or residual.abs().max() > 1e-3


def test_during_the_warm_up_the_message_becomes_shorter():
    _, (push, _) = formats(CompressedConfig(codec="topk", ratio=0.01, warmup=4))
    sizes = [push.empty_message(step).numel() for step in range(6)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[3] > sizes[4] == sizes[5]


@pytest.mark.parametrize("codec", ["int8", "topk", "terngrad"])
def test_the_declared_bytes_are_sent(codec):
    sent = []

    def work(world):
        group = traced(world)
        strategy = strategy_of(group, bsp(), replica(OPTIMIZERS["sgd"]), compressed(codec))
        history_of(strategy, (7, 5), steps=3)
        if world.rank == 1:
            sent.append(group.totals["send"].num_bytes)

    on_threads(3, work)
    _, (push,) = formats(CompressedConfig(codec=codec), servers=1)
    header = 8 * len(Request._fields)
    assert sent == [3 * (header + push.empty_message(0).numel())]


def test_a_resumed_run_has_the_bits_of_one_that_was_never_stopped(tmp_path):
    def strategy(world, seed=0):
        return strategy_of(
            world, bsp(servers=2), replica(OPTIMIZERS["adam"], seed=seed), compressed("topk", ratio=0.3)
        )

    def whole(world):
        return history_of(strategy(world), (7, 5))

    def cut(world):
        first = strategy(world)
        history_of(first, (7, 5), steps=4)
        checkpoint.save(tmp_path, first.pieces(), Progress(step=4), keep=1, group=world)
        resumed = strategy(world, seed=3)
        resumed.load(checkpoint.latest(tmp_path).pieces())
        return history_of(resumed, (7, 5), first=4)

    for never_stopped, found in zip(on_threads(4, whole)[:2], on_threads(4, cut)[:2], strict=True):
        for (expected, *_), (state, *_) in zip(never_stopped[4:], found, strict=True):
            assert all(torch.equal(state[key], expected[key]) for key in expected)


def test_a_gradient_that_is_not_finite_leaves_the_residuals_as_they_are():
    flat, pushes = formats(CompressedConfig(codec="topk", ratio=0.1), servers=1)
    encoder = PushEncoder(pushes, rank=0, workers=1)
    flat.flat_gradients[0].copy_(torch.randn_like(flat.flat_gradients[0]))
    encoder.encode(flat.gradients, step=0)
    before = {name: tensor.clone() for name, tensor in encoder.pieces().items()}
    flat.flat_gradients[0].fill_(torch.nan)
    (message,) = encoder.encode(flat.gradients, step=1)
    assert message.numel() == pushes[0].empty_message(1).numel()
    assert all(torch.equal(tensor, before[name]) for name, tensor in encoder.pieces().items())
