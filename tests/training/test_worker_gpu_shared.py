"""Strategies on a GPU that workers share, through gloo or as threads; NCCL wants one for each. Only where one is."""

import pytest
import torch

import shoal
from shoal.config.read import read
from shoal.errors import ConfigError, WorkerError
from shoal.launch import threads
from shoal.launch.programs import by_processes
from shoal.launch.run import launch_run
from shoal.training.observer import Silent
from shoal.training.weights import read_model

pytestmark = pytest.mark.gpu

STEPS = 4
"""After some eight, rounding in cuDNN's convolutions has flipped a ReLU: one worker that takes its batch in parts then
differs from itself by 1e-3 too."""


def trained(tmp_path, flags):
    """The final weights of a short run on the GPU."""
    common = f"--device cuda --model lenet --data digits --optimizer sgd --momentum 0.9 --steps {STEPS}"
    config = read(None, [*common.split(), *flags.split(), "--runs-dir", str(tmp_path)])
    result = launch_run(config, Silent())
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


@pytest.mark.parametrize("launcher", ["threads", "processes"])
@pytest.mark.parametrize("schedule", ["1f1b", "zero-bubble"])
def test_stages_communicate_through_host_memory(tmp_path, schedule, launcher):
    expected = trained(tmp_path, "--name single")
    flags = f"--strategy pipeline --workers 2 --pipeline.schedule {schedule} --launcher {launcher}"
    with pytest.warns(UserWarning, match="2 workers share 1 GPU: .* goes through host memory"):
        weights = trained(tmp_path, f"--name it {flags}")
    for name, tensor in expected.items():
        assert (weights[name] - tensor).abs().max() / tensor.abs().max() < 1e-4, name


def test_batch_statistics_of_all_workers(tmp_path):
    """One step: batch norm makes more of every rounding."""
    flags = "--model resnet18 --model.width 8 --data synthetic --data.shape 3,8,8 --data.samples 96 --steps 1"
    expected = trained(tmp_path, f"--name single {flags}")
    weights = trained(tmp_path, f"--name it {flags} --strategy ddp --workers 3 --strategy.sync_batchnorm")
    for name, tensor in expected.items():
        if tensor.is_floating_point():
            assert (weights[name] - tensor).abs().max() / tensor.abs().max() < 1e-3, name


def test_batch_statistics_of_threads_are_refused(tmp_path):
    flags = "--model resnet18 --model.width 8 --data synthetic --data.shape 3,8,8 --data.samples 96 --steps 3"
    with pytest.raises(ConfigError, match="threads on a GPU does not support --strategy.sync_batchnorm"):
        trained(tmp_path, f"{flags} --strategy ddp --workers 2 --launcher threads --strategy.sync_batchnorm")


def test_layers_divided_among_workers_of_one_gpu(tmp_path):
    expected = trained(tmp_path, "--name single")
    with pytest.warns(UserWarning, match="goes through the host's memory"):
        weights = trained(tmp_path, "--name it --strategy tensor --workers 2")
    for name, tensor in expected.items():
        # A divided layer sums in another order, and rounding may flip single ReLUs: the norm of the difference counts.
        assert (weights[name] - tensor).norm() / tensor.norm() < 1e-4, name


def test_layers_divided_among_threads_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="layout tensor does not support --launcher threads on a GPU"):
        trained(tmp_path, "--strategy tensor --workers 2 --launcher threads")


def test_the_wrapper_refuses_threads():
    def work(group):
        return shoal.DistributedDataParallel(torch.nn.Linear(6, 3).cuda(), group)

    with pytest.raises(WorkerError, match="thread workers cannot exchange gradients on a GPU"):
        threads.run(2, work)


PROGRAM = """
import torch, shoal
from torch.nn import functional
torch.manual_seed(0)
network = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3)).double().cuda()
inputs, labels = torch.randn(12, 6, dtype=torch.float64).cuda(), torch.randint(3, (12,)).cuda()
functional.cross_entropy(network(inputs), labels).backward()
expected = [param.grad.clone() for param in network.parameters()]
network.zero_grad()
group = shoal.join(kind="gloo")
model = shoal.DistributedDataParallel(network, group)
mine = slice(0, 8) if group.rank == 0 else slice(8, 12)
with model.batch(num_samples=len(labels[mine])):
    functional.cross_entropy(model(inputs[mine]), labels[mine]).backward()
for param, gradient in zip(network.parameters(), expected):
    assert (param.grad - gradient).abs().max() / gradient.abs().max() < 1e-12
group.close()
"""


def test_the_wrapper_in_processes(tmp_path):
    """Gradients of two workers with uneven shares, in float64, are one machine's."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    by_processes(str(path), [], workers=2)


BESIDE_GLOO = """
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

import shoal

dist.init_process_group("gloo")
ends = []
for wrapper in (nn.parallel.DistributedDataParallel, shoal.DistributedDataParallel):
    torch.manual_seed(0)
    model = wrapper(nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 5)).cuda())
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    draw = torch.Generator().manual_seed(dist.get_rank())
    with model.join():
        for _ in range(3 + dist.get_rank()):
            optimizer.zero_grad()
            inputs, labels = torch.randn(8, 20, generator=draw), torch.randint(5, (8,), generator=draw)
            F.cross_entropy(model(inputs.cuda()), labels.cuda()).backward()
            optimizer.step()
    ends.append(torch.cat([param.detach().flatten() for param in model.parameters()]))
torch.testing.assert_close(ends[1], ends[0])
"""


def test_a_program_that_chose_gloo_for_its_gpu_keeps_it(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(BESIDE_GLOO)
    by_processes(str(program), [], 2, "auto")
