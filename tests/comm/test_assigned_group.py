"""`shoal.join()`: importing shoal loads no torch, and each thread gets its own group."""

import subprocess
import sys

import pytest
import torch

import shoal
from shoal.comm.threads.group import run_threads
from shoal.launch import threads as launch_threads


def test_importing_shoal_loads_no_torch_and_its_public_names_load_no_launchers():
    code = "import sys, shoal; assert 'torch' not in sys.modules; shoal.join; assert 'torch' in sys.modules; "
    code += "shoal.DistributedDataParallel, shoal.DistributedSampler; "
    code += "assert not any(name.startswith('shoal.launch') for name in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'jion'"):
        _ = shoal.jion


@pytest.mark.parametrize("run", [run_threads, launch_threads.run], ids=["run_threads", "launcher"])
def test_a_thread_worker_finds_its_own_group(run):
    def work(group):
        mine = shoal.join()
        value = torch.tensor(float(mine.rank))
        mine.all_reduce(value).wait()
        return mine is group, mine.rank, value.item()

    assert run(3, work) == [(True, 0, 3.0), (True, 1, 3.0), (True, 2, 3.0)]
    assert shoal.join().size == 1  # no assignment is left behind


@pytest.mark.parametrize("run", [run_threads, launch_threads.run], ids=["run_threads", "launcher"])
def test_a_wrapper_without_a_group_in_a_thread_worker_averages_over_all_workers(run):
    def work(group):
        model = shoal.DistributedDataParallel(torch.nn.Linear(1, 1, bias=False))
        model(torch.tensor([[float(group.rank)]])).backward()
        return model.module.weight.grad.item(), model.module.weight.item()

    results = run(3, work)
    assert [gradient for gradient, _ in results] == [1.0, 1.0, 1.0]  # (0 + 1 + 2) / 3
    assert len({weight for _, weight in results}) == 1  # rank 0's
