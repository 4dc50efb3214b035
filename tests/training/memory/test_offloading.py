"""Off-loaded activations come back as the same bits, and are gone from memory in between."""

import gc
import os
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest
import torch
from activation_cases import MODELS, assert_same_bits, made, results

from shoal.errors import ConfigError
from shoal.training.memory.checkpointing import checkpoint_blocks
from shoal.training.memory.offloading import OffloadedActivations

CPU = torch.device("cpu")
pytestmark = pytest.mark.filterwarnings("ignore:the file of activations is in memory")


def in_file(model, folder):
    return OffloadedActivations("file", CPU, chain(model.parameters(), model.buffers()), str(folder))


@pytest.mark.parametrize("every", [0, 1])
@pytest.mark.parametrize("name", MODELS)
def test_the_bits_are_those_of_keeping_everything(tmp_path, name, every):
    model, inputs, labels = made(name)
    expected = results(model, inputs, labels)
    model, inputs, labels = made(name)
    checkpoint_blocks(model, every)
    assert_same_bits(results(model, inputs, labels, in_file(model, tmp_path).saving), expected)
    assert not list(tmp_path.iterdir())  # the file has no name


def live_bytes():
    gc.collect()
    found = {}
    for each in gc.get_objects():
        if type(each) in (torch.Tensor, torch.nn.Parameter):  # others may have no memory
            found[each.untyped_storage().data_ptr()] = each.untyped_storage().nbytes()
    return sum(found.values())


def test_saved_tensors_leave_memory_and_parameters_stay(tmp_path):
    model, inputs, _ = made("transformer")
    activations = in_file(model, tmp_path)
    before = live_bytes()
    with activations.saving():
        output = model(inputs)
    assert live_bytes() - before < 1.2 * output.nbytes + 4096
    file = activations._file
    written = file._size
    assert written > 0
    output.sum().backward()
    assert file._num_used == 0
    # The next step writes to the same places.
    with activations.saving():
        model(inputs).sum().backward()
    assert file._size == written


def test_memory_that_several_operations_save_is_written_once(tmp_path):
    activations = in_file(torch.nn.Linear(1, 1), tmp_path)
    x = torch.randn(64, 64, requires_grad=True)
    with activations.saving():
        y = x * 2
        z = y[:32].exp() * y[32:].t().sin().sum() + y.sigmoid().sum() + (y * y).sum()
    # y, and the results of exp, sin (its input is y), sigmoid; x·2 saves a number.
    assert activations._file._num_used <= 4
    z.sum().backward()
    grad, x.grad = x.grad, None
    y = x * 2
    (y[:32].exp() * y[32:].t().sin().sum() + y.sigmoid().sum() + (y * y).sum()).sum().backward()
    assert torch.equal(grad, x.grad)


def test_a_value_that_is_changed_in_place_is_stored_as_it_was(tmp_path):
    activations = in_file(torch.nn.Linear(1, 1), tmp_path)
    x = torch.randn(2048, requires_grad=True)
    with activations.saving():
        y = x * 1
        first = y.sin()
        y.mul_(2)
        second = y.sin()
    (first + second).sum().backward()
    assert torch.equal(x.grad, x.detach().cos() + 2 * (2 * x.detach()).cos())


FULL = """
import resource, sys, torch
from torch import nn
from shoal.errors import ConfigError
from shoal.training.memory.offloading import OffloadedActivations
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
model = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(9)))
activations = OffloadedActivations("file", torch.device("cpu"), model.parameters(), sys.argv[1])
try:
    with activations.saving():
        model(torch.zeros(128, 64))
except ConfigError as error:
    print(error)
"""


def test_a_disk_that_fills_is_one_sentence_and_leaves_nothing(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.startswith(f"cannot off-load activations to a file in {tmp_path}: File too large")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_used_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot create a file for activations in"):
        in_file(torch.nn.Linear(1, 1), tmp_path / "missing")


def test_host_memory_is_refused_on_a_cpu():
    with pytest.raises(ConfigError, match="activations are in the host's memory already"):
        OffloadedActivations("host", CPU, [])


@pytest.mark.gpu
@pytest.mark.parametrize("to", ["host", "file"])
def test_a_gpu_has_fewer_activations_and_the_same_bits(tmp_path, to):
    cuda = torch.device("cuda")
    model, inputs, labels = (each.to(cuda) for each in made("transformer"))
    expected = results(model, inputs, labels)
    model, inputs, labels = (each.to(cuda) for each in made("transformer"))
    folder = str(tmp_path) if to == "file" else ""
    activations = OffloadedActivations(to, cuda, model.parameters(), folder)
    assert_same_bits(results(model, inputs, labels, activations.saving), expected)
    before = torch.cuda.memory_allocated()
    with activations.saving():
        output = model(inputs)
    assert torch.cuda.memory_allocated() - before <= 2 * output.nbytes + 2**16
    assert os.listdir(Path(tmp_path)) == []
