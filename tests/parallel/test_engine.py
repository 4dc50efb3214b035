"""Engines: what is computed in bfloat16, and what never is; what is trained, and what never is."""

import torch
from strategy_cases import OPTIMIZERS, network, on_threads, share
from torch import nn

from shoal import optim
from shoal.config.schema import CrossEntropyConfig, DdpConfig
from shoal.events.spans import HostClock, SpanRecorder
from shoal.models import build_loss
from shoal.parallel.engine import build_engine
from shoal.parallel.exchange.linear import AllReduce
from shoal.parallel.guard import Guard
from shoal.parallel.replica import Replica
from shoal.parallel.single import Single
from shoal.parallel.sync.ddp import Ddp

BATCH = 12


def replica(precision, model=None):
    draw = torch.Generator().manual_seed(0)
    model = model or network()
    with torch.no_grad():
        for param in model.parameters():
            param.copy_(0.5 * torch.randn(param.shape, generator=draw))
    loss, span = CrossEntropyConfig(), SpanRecorder(HostClock())
    engine = build_engine("torch", model, loss, span, precision)
    return Replica(
        model, build_loss(loss), engine, optim.build(OPTIMIZERS["sgd"], engine.params.values()), None, span
    )


def outputs_of(model):
    """The kinds of numbers that the layers put out."""
    kinds = []
    for layer in model:
        layer.register_forward_hook(lambda layer, inputs, output: kinds.append(output.dtype))
    return kinds


def test_bf16_computes_in_bfloat16_and_keeps_weights_gradients_and_loss():
    mine = replica("bf16")
    kinds = outputs_of(mine.model)
    loss = mine.gradients(share(0, 0, BATCH, dtype=torch.float32))
    assert set(kinds) == {torch.bfloat16}
    assert loss.dtype is torch.float32
    exact = replica("float32")
    wanted = exact.gradients(share(0, 0, BATCH, dtype=torch.float32))
    assert loss != wanted
    torch.testing.assert_close(loss, wanted, rtol=0.02, atol=0)
    for name, param in mine.params.items():
        assert param.dtype is param.grad.dtype is torch.float32
        torch.testing.assert_close(param.grad, exact.params[name].grad, rtol=0.1, atol=0.01)


def test_bf16_is_evaluated_in_float32_as_the_saved_weights_will_be():
    mine = replica("bf16")
    kinds = outputs_of(mine.model)
    (batch,) = share(0, 0, BATCH, dtype=torch.float32).parts
    assert torch.equal(mine.evaluate(batch).loss, replica("float32").evaluate(batch).loss)
    assert set(kinds) == {torch.float32}


def test_bf16_under_ddp_is_what_one_machine_has_up_to_its_rounding():
    def work(group):
        mine, exchange = replica("bf16"), AllReduce()
        strategy = Ddp(mine, group, exchange, Guard(group, exchange, "stop"), DdpConfig())
        strategy.step(share(0, 6 * group.rank, 6, dtype=torch.float32), 0.1)
        return strategy.pieces()

    single = Single(replica("bf16"))
    single.step(share(0, 0, BATCH, dtype=torch.float32), 0.1)
    first, second = on_threads(2, work)
    for name, piece in single.pieces().items():
        assert torch.equal(first[name], second[name])
        torch.testing.assert_close(first[name], piece, rtol=0.05, atol=0.005)


def test_frozen_parameters_are_no_ones_to_update():
    model = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 5))
    model[0].weight.requires_grad_(False)
    assert list(replica("float32", model).params) == ["0.bias", "1.weight", "1.bias"]
