import threading
import typing

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from shoal.config.sections.model import (
    LenetConfig,
    LinearConfig,
    MlpConfig,
    ModelConfig,
    Resnet18Config,
    TransformerConfig,
)
from shoal.config.sections.values import Custom
from shoal.models import build
from shoal.models.builder import MODELS
from shoal.models.lenet import lenet

EACH = [
    (LinearConfig(), (1, 28, 28), 10),
    (MlpConfig(), (1, 28, 28), 10),
    (LenetConfig(), (1, 28, 28), 10),
    (Resnet18Config(width=4), (3, 32, 32), 10),
    (Resnet18Config(width=4, norm="group"), (3, 32, 32), 10),
    (TransformerConfig(width=16, heads=2), (12,), 256),
]
each_model = pytest.mark.parametrize(
    ("config", "shape", "outputs"), EACH, ids=lambda value: getattr(value, "name", "")
)


def state(config, shape, outputs, seed=0):
    return build(config, shape, outputs, seed).state_dict()


def assert_same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


def test_every_choice_of_the_schema_can_be_built():
    names = {choice.name for choice in typing.get_args(ModelConfig) if choice is not Custom}
    assert names == MODELS.keys() == {config.name for config, _, _ in EACH}


@each_model
def test_the_same_seed_gives_the_same_weights_whatever_torch_has_drawn(config, shape, outputs):
    torch.manual_seed(1)
    first = state(config, shape, outputs)
    torch.manual_seed(2)
    torch.rand(100)
    assert_same(first, state(config, shape, outputs))


@each_model
def test_another_seed_gives_other_weights(config, shape, outputs):
    first, second = state(config, shape, outputs, seed=0), state(config, shape, outputs, seed=1)
    drawn = [name for name in first if first[name].min() < first[name].max()]
    assert drawn
    assert all(not torch.equal(first[name], second[name]) for name in drawn)


@each_model
def test_building_leaves_the_global_random_state_alone(config, shape, outputs):
    before = torch.get_rng_state()
    build(config, shape, outputs, seed=3)
    assert torch.equal(before, torch.get_rng_state())


@each_model
def test_everything_is_on_the_cpu_finite_and_trainable(config, shape, outputs):
    net = build(config, shape, outputs, seed=0)
    for name, tensor in net.state_dict().items():
        assert tensor.device.type == "cpu", name
        assert torch.isfinite(tensor).all(), name
    assert all(param.requires_grad and param.dtype == torch.float32 for param in net.parameters())


def test_threads_that_build_at_once_get_the_same_weights():
    states = [None] * 4
    start = threading.Barrier(4)

    def work(rank):
        start.wait()
        states[rank] = state(LenetConfig(), (1, 28, 28), 10)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for other in states[1:]:
        assert_same(states[0], other)


def test_a_saved_model_loads_into_the_plain_function(tmp_path):
    built = build(LenetConfig(), (1, 28, 28), 10, seed=0)
    save_file(built.state_dict(), tmp_path / "model.safetensors")

    net = lenet()
    net.load_state_dict(load_file(tmp_path / "model.safetensors"))

    pictures = torch.rand(3, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    assert torch.equal(net(pictures), built(pictures))


@pytest.mark.parametrize(
    "config", [LinearConfig(), MlpConfig(), LenetConfig()], ids=lambda config: config.name
)
def test_small_models_are_sequences_of_plain_layers(config):
    net = build(config, (1, 28, 28), 10, seed=0)
    assert type(net) is nn.Sequential
    assert {type(layer) for layer in net} <= {nn.Flatten, nn.Linear, nn.Conv2d, nn.ReLU, nn.MaxPool2d}
    assert "fc1.weight" in net.state_dict()
