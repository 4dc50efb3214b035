"""Engines: what is computed in bfloat16, and what never is; what is trained, and what never is."""

import torch
from strategy_cases import OPTIMIZERS, copy_of, made, network, on_threads, share, single, state_of
from torch import nn

from shoal.config.sections.sync import DdpConfig
from shoal.strategies.ddp.ddp import Ddp

BATCH = 12


def replica(precision, model=None):
    draw = torch.Generator().manual_seed(0)
    model = model or network()
    with torch.no_grad():
        for param in model.parameters():
            param.copy_(0.5 * torch.randn(param.shape, generator=draw))
    return copy_of(model, OPTIMIZERS["sgd"], precision=precision)


def outputs_of(model):
    """The kinds of numbers that the layers put out."""
    kinds = []
    for layer in model:
        layer.register_forward_hook(lambda layer, inputs, output: kinds.append(output.dtype))
    return kinds


def test_bf16_computes_in_bfloat16_and_keeps_weights_gradients_and_loss():
    mine = replica("bf16")
    kinds = outputs_of(mine.model)
    loss = mine.layout.gradients(share(0, 0, BATCH, dtype=torch.float32))
    assert set(kinds) == {torch.bfloat16}
    assert loss.dtype is torch.float32
    exact = replica("float32")
    wanted = exact.layout.gradients(share(0, 0, BATCH, dtype=torch.float32))
    assert loss != wanted
    torch.testing.assert_close(loss, wanted, rtol=0.02, atol=0)
    for name, param in mine.params.items():
        assert param.dtype is param.grad.dtype is torch.float32
        torch.testing.assert_close(param.grad, exact.params[name].grad, rtol=0.1, atol=0.01)


def test_bf16_is_evaluated_in_float32_as_the_saved_weights_will_be():
    mine = replica("bf16")
    kinds = outputs_of(mine.model)
    (batch,) = share(0, 0, BATCH, dtype=torch.float32).parts
    assert torch.equal(mine.layout.evaluate(batch).loss, replica("float32").layout.evaluate(batch).loss)
    assert set(kinds) == {torch.float32}


def test_bf16_under_ddp_is_what_one_machine_has_up_to_its_rounding():
    def work(group):
        strategy = made(Ddp, DdpConfig(), replica("bf16"), group)
        strategy.step(share(0, 6 * group.rank, 6, dtype=torch.float32), 0.1)
        return state_of(strategy)

    alone = single(replica("bf16"))
    alone.step(share(0, 0, BATCH, dtype=torch.float32), 0.1)
    first, second = on_threads(2, work)
    for name, piece in state_of(alone).items():
        assert torch.equal(first[name], second[name])
        torch.testing.assert_close(first[name], piece, rtol=0.05, atol=0.005)


def test_frozen_parameters_are_no_ones_to_update():
    model = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 5))
    model[0].weight.requires_grad_(False)
    assert list(replica("float32", model).params) == ["0.bias", "1.weight", "1.bias"]
