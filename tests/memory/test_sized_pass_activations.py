"""Activations that are counted without a pass are those of a real one."""

import pytest
import torch

from shoal import models
from shoal.config.read import read
from shoal.data.load import load
from shoal.memory.process import MemoryWatch
from shoal.memory.sized_pass import activation_bytes, without_memory
from shoal.memory.sizes import small_run


@pytest.mark.parametrize(
    "flags",
    [
        "--model mlp",
        "--model lenet",
        "--model resnet18",
        "--model transformer --data synthetic --data.task text",
    ],
)
def test_activations_are_those_that_a_real_pass_saves(flags):
    config = small_run(read(None, flags.split()))
    dataset = load(config.data)
    batch = dataset.batch(dataset.train, torch.tensor([0]))
    model = models.build(config.model, dataset.input_shape, dataset.outputs, seed=0)
    watch = MemoryWatch(torch.device("cpu"))
    with watch.watching(model.parameters()) as seen:
        loss = models.build_loss(config.loss)(model(batch.inputs), batch.labels)
    assert loss.requires_grad
    counted = activation_bytes(without_memory(config, dataset), config.loss, batch)
    assert counted == pytest.approx(seen.activations, rel=0.02)


def test_a_model_with_weights_has_to_run():
    config = small_run(read(None, ["--model=linear"]))
    dataset = load(config.data)
    batch = dataset.batch(dataset.train, torch.tensor([0]))
    assert activation_bytes(torch.nn.Linear(784, 10), config.loss, batch) is None
