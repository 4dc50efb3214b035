"""Strategies on a GPU that workers share, through gloo or as threads; NCCL wants one for each. Only where one is."""

import pytest
import torch
from torch.nn import functional

import shoal
from shoal import models
from shoal.config.read import read
from shoal.config.schema import Resnet18Config
from shoal.launch import threads
from shoal.launch.start import start
from shoal.train.observer import Silent
from shoal.train.weights import read_model

pytestmark = pytest.mark.gpu

STEPS = 12


def trained(tmp_path, flags):
    """The final weights of a short run on the GPU."""
    common = f"--device cuda --model lenet --data digits --optimizer sgd --momentum 0.9 --steps {STEPS}"
    config = read(None, [*common.split(), *flags.split(), "--runs-dir", str(tmp_path)])
    result = start(config, Silent())
    assert result.device == "cuda:0"
    return read_model(tmp_path / result.run.rpartition("/")[2] / "model.safetensors")[0]


@pytest.mark.parametrize("launcher", ["threads", "processes"])
@pytest.mark.parametrize("strategy", ["naive", "dp", "ddp"])
def test_equals_one_machine(tmp_path, strategy, launcher):
    expected = trained(tmp_path, "--name single")
    weights = trained(tmp_path, f"--name it --strategy {strategy} --workers 3 --launcher {launcher}")
    for name, tensor in expected.items():
        # float32, free-running: a few steps, so that rounding has not yet grown.
        assert (weights[name] - tensor).abs().max() / tensor.abs().max() < 1e-4, name


@pytest.mark.parametrize("flags", ["--exchange by:ring", "--exchange robust:median", "--precision bf16"])
def test_other_ways_work_there_too(tmp_path, flags):
    weights = trained(tmp_path, f"--strategy ddp --workers 3 --launcher threads {flags}")
    assert all(tensor.isfinite().all() for tensor in weights.values())


def test_the_wrapper_on_a_model_with_batch_norm():
    """A network with synchronised batch statistics, in float64: two workers' gradients are one machine's."""

    def network():
        return models.build(Resnet18Config(width=8), (3, 8, 8), 10, seed=0).double().cuda()

    draw = torch.Generator().manual_seed(0)
    inputs = torch.randn(12, 3, 8, 8, generator=draw, dtype=torch.float64).cuda()
    labels = torch.randint(10, (12,), generator=draw).cuda()
    expected = network()
    functional.cross_entropy(expected(inputs), labels).backward()

    def work(group):
        model = shoal.DistributedDataParallel(shoal.SyncBatchNorm.convert_sync_batchnorm(network()), group)
        mine = slice(0, 8) if group.rank == 0 else slice(8, 12)
        with model.batch(num_samples=len(labels[mine])):
            functional.cross_entropy(model(inputs[mine]), labels[mine]).backward()
        return {name: param.grad.clone() for name, param in model.module.named_parameters()}

    for gradients in threads.run(2, work):
        for name, param in expected.named_parameters():
            assert (gradients[name] - param.grad).abs().max() / param.grad.abs().max() < 1e-10, name
