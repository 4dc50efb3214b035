"""`shoal.join()`: importing shoal loads no torch, and each thread gets its own group."""

import subprocess
import sys

import pytest
import torch

import shoal
from shoal.comm.assigned_group import Assignment, assigned
from shoal.comm.threads import run_threads


def test_importing_shoal_loads_no_torch_and_knows_join():
    code = "import sys, shoal; assert 'torch' not in sys.modules; shoal.join; assert 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_public_names_do_not_load_the_launchers():
    code = "import sys, shoal; shoal.join, shoal.DistributedDataParallel, shoal.DistributedSampler; "
    code += "assert not any(name.startswith('shoal.launch') for name in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'jion'"):
        _ = shoal.jion


def test_every_thread_finds_its_own_group():
    def work(group):
        with assigned(Assignment(group)):
            mine = shoal.join()
            value = torch.tensor(float(mine.rank))
            mine.all_reduce(value).wait()
            return mine.rank, value.item()

    assert run_threads(3, work) == [(0, 3.0), (1, 3.0), (2, 3.0)]
    assert shoal.join().size == 1  # no assignment is left behind
