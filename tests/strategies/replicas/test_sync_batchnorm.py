"""Synchronised batch norm: statistics, gradients and running values are those of one machine with the whole batch."""

import pytest
import torch
from strategy_cases import (
    BATCH,
    OPTIMIZERS,
    assert_equal,
    made,
    on_threads,
    one_machine,
    replica,
    samples,
    train,
)
from torch import nn
from torch.nn import functional as F

from shoal.comm.threads.group import run_threads
from shoal.config.sections.sync import DdpConfig
from shoal.errors import ConfigError
from shoal.strategies.ddp.ddp import Ddp
from shoal.strategies.ddp.distributed_data_parallel import DistributedDataParallel
from shoal.strategies.replicas.sync_batchnorm import SyncBatchNorm

SHARES = [(6, 6), (11, 1), (0, 12), (7, 0, 5), (1, 8, 1, 2)]


def normed():
    # Without a bias: batch norm takes it out again, so its gradient is nothing but rounding, which Adam enlarges.
    return nn.Sequential(nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 5))


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("shares", SHARES)
def test_a_model_with_batch_norm_equals_one_machine(shares, early):
    def work(group):
        group.overlaps = early
        mine = replica(OPTIMIZERS["adam"], network=normed)
        config = DdpConfig(sync_batchnorm=True, bucket_mib=1e-4)
        return train(made(Ddp, config, mine, group), shares)

    assert_equal(on_threads(len(shares), work), one_machine("adam", network=normed))


def test_parts_are_normalised_together_also_when_some_workers_have_fewer():
    """Rank 0 has parts of 6 and 6, rank 1 none: as one machine with two parts."""

    def work(group):
        mine = replica(OPTIMIZERS["sgd"], network=normed)
        return train(made(Ddp, DdpConfig(sync_batchnorm=True), mine, group), (12, 0), parts=2)

    assert_equal(on_threads(2, work), one_machine("sgd", network=normed, parts=2))


def test_without_it_workers_normalise_by_their_own_samples():
    def work(group):
        return train(made(Ddp, DdpConfig(), replica(OPTIMIZERS["sgd"], network=normed), group), (6, 6))

    members = on_threads(2, work)
    with pytest.raises(AssertionError):
        assert_equal(members, one_machine("sgd", network=normed))


def pictures(count=12):
    draw = torch.Generator().manual_seed(0)
    return torch.randn(count, 3, 4, 4, generator=draw, dtype=torch.float64) * 5 + 100


@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shares", [(7, 5), (0, 12), (1, 10, 1)])
def test_output_gradients_and_running_values(shares, affine, momentum):
    """Also where the mean is large beside the spread: sums of squares would lose it."""

    def through(norm, inputs, slope):
        inputs = inputs.clone().requires_grad_()
        outputs = norm(inputs)
        outputs.backward(slope)
        grads = [norm.weight.grad, norm.bias.grad] if affine else []
        return outputs.detach(), inputs.grad, grads, (norm.running_mean, norm.running_var)

    norm = nn.BatchNorm2d(3, affine=affine, momentum=momentum).double()
    slope = pictures().cos()
    outputs, slopes, grads, running = through(norm, pictures(), slope)

    def work(group):
        start = sum(shares[: group.rank])
        mine = slice(start, start + shares[group.rank])
        copy = nn.BatchNorm2d(3, affine=affine, momentum=momentum).double()
        layer = SyncBatchNorm.convert_sync_batchnorm(copy, group)
        return through(layer, pictures()[mine], slope[mine])

    members = run_threads(len(shares), work)
    close = {"rtol": 1e-10, "atol": 1e-10}
    torch.testing.assert_close(torch.cat([member[0] for member in members]), outputs, **close)
    torch.testing.assert_close(torch.cat([member[1] for member in members]), slopes, **close)
    for number, grad in enumerate(grads):
        torch.testing.assert_close(sum(member[2][number] for member in members), grad, **close)
    for member in members:
        torch.testing.assert_close(member[3], running, **close)


def test_float32_statistics_survive_a_large_mean():
    def work(group):
        layer = SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm2d(3), group)
        values = (pictures() + 1000).float()[6 * group.rank : 6 * group.rank + 6]
        return layer(values).detach()

    wanted = nn.BatchNorm2d(3)((pictures() + 1000).float())
    torch.testing.assert_close(torch.cat(run_threads(2, work)), wanted, rtol=1e-3, atol=1e-3)


def test_half_precision_is_normalised_in_float32():
    def work(group):
        layer = SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm2d(3), group)
        values = pictures().bfloat16()[6 * group.rank : 6 * group.rank + 6].requires_grad_()
        outputs = layer(values)
        outputs.float().square().sum().backward()
        return outputs.dtype, values.grad.dtype, layer.weight.grad.dtype

    assert run_threads(2, work) == [(torch.bfloat16, torch.bfloat16, torch.float32)] * 2


@pytest.mark.parametrize("shares", [(6, 6), (9, 3), (12, 0)])
def test_under_the_wrapper_uneven_shares_are_exact_too(shares):
    """The loss of a small share counts less, and so must what it says about everyone's statistics."""
    model = normed_network()
    inputs, labels = samples()[0][:BATCH], samples()[1][:BATCH]
    F.cross_entropy(model(inputs), labels).backward()

    def work(group):
        mine = SyncBatchNorm.convert_sync_batchnorm(normed_network())
        wrapped = DistributedDataParallel(mine, group)
        start = sum(shares[: group.rank])
        at = slice(start, start + shares[group.rank])
        with wrapped.batch(num_samples=shares[group.rank]):
            # A worker without samples runs the model on none: the others wait for it in every layer.
            F.cross_entropy(wrapped(inputs[at]), labels[at]).backward()
        return {name: param.grad for name, param in mine.named_parameters()}

    for grads in run_threads(2, work):
        for name, param in model.named_parameters():
            torch.testing.assert_close(grads[name], param.grad, rtol=1e-10, atol=1e-12)


def normed_network():
    draw = torch.Generator().manual_seed(0)
    model = normed().double()
    with torch.no_grad():
        for param in model.parameters():
            param.copy_(torch.randn(param.shape, generator=draw, dtype=torch.float64))
    return model


def test_in_evaluation_it_is_ordinary_and_alone():
    def work(group):
        layer = SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm2d(3).double(), group).eval()
        return layer(pictures()) if group.rank == 0 else None

    outputs, _ = run_threads(2, work)
    torch.testing.assert_close(outputs, nn.BatchNorm2d(3).double().eval()(pictures()))


def test_converting_keeps_names_tensors_and_everything_else():
    model = nn.ModuleDict(
        {"a": nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)), "b": nn.GroupNorm(2, 4)}
    )
    before = {name: tensor.data_ptr() for name, tensor in model.state_dict().items()}
    converted = SyncBatchNorm.convert_sync_batchnorm(model)
    assert {name: tensor.data_ptr() for name, tensor in converted.state_dict().items()} == before
    assert isinstance(converted["a"][1], SyncBatchNorm)
    assert isinstance(converted["b"], nn.GroupNorm)


def test_one_value_has_no_variance():
    def work(group):
        layer = SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm1d(3), group)
        layer(torch.ones(1 - group.rank, 3))

    with pytest.raises(ConfigError, match="all workers together have 1"):
        run_threads(2, work)
