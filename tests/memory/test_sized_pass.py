"""The peak that a pass without memory predicts is the one that torch's allocator sees in a real pass."""

from contextlib import nullcontext

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from shoal import models
from shoal.config.read import read
from shoal.data.load import load
from shoal.memory.sized_pass import pass_peak, without_memory
from shoal.memory.trial import generated
from shoal.training.memory.checkpointing import checkpoint_blocks
from shoal.training.memory.offloading import OffloadedActivations

TOLERANCE = 0.05
OF_CONVOLUTIONS = 0.25
"""They have workspaces of their own, which no formula knows."""
TEXT = "--model transformer --data synthetic --data.task text --batch-size 16"


def allocated(work):
    """Bytes at the peak of what torch's allocator hands out while `work` runs."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        kept = work()
    events = [each for each in seen.profiler.kineto_results.events() if each.name() == "[memory]"]
    now = peak = 0
    for each in sorted(events, key=lambda each: each.start_ns()):
        now += each.nbytes()
        peak = max(peak, now)
    del kept
    return peak


@pytest.mark.parametrize(
    ("flags", "every", "offloads", "tolerance"),
    [
        (f"{TEXT} --model.layers 4", 0, False, TOLERANCE),
        (f"{TEXT} --model.layers 4", 1, False, TOLERANCE),
        (f"{TEXT} --model.layers 6 --model.width 32 --model.heads 2 --data.shape 128", 1, False, TOLERANCE),
        (f"{TEXT} --model.layers 4", 0, True, TOLERANCE),
        (f"{TEXT} --model.layers 4", 1, True, TOLERANCE),
        ("--model lenet --data synthetic --data.shape 1,28,28 --batch-size 64", 1, False, OF_CONVOLUTIONS),
        ("--model mlp --data synthetic --data.shape 784 --batch-size 512", 0, False, TOLERANCE),
    ],
)
def test_the_peak_of_a_pass_is_that_of_the_allocator(flags, every, offloads, tolerance):
    config = generated(read(None, f"{flags} --threads 1 --device cpu".split()))
    dataset = load(config.data)
    batch = dataset.batch(dataset.train, torch.arange(config.train.batch_size))
    model = models.build(config.model, dataset.input_shape, dataset.outputs, seed=0)
    without = without_memory(config, dataset)
    for each in (model, without):
        checkpoint_blocks(each, every)
    loss = models.build_loss(config.loss)
    elsewhere = OffloadedActivations("file", torch.device("cpu"), model.parameters()) if offloads else None

    def one_pass():
        with elsewhere.saving() if elsewhere else nullcontext():
            found = loss(model(batch.inputs), batch.labels)
        found.backward()

    one_pass()
    model.zero_grad()
    gradients = sum(param.nbytes for param in model.parameters())
    measured = allocated(one_pass) + batch.inputs.nbytes + batch.labels.nbytes
    predicted = pass_peak(without, config.loss, batch, offloads)
    # Gradients come as activations go: at the peak, some of them are there.
    assert predicted * (1 - tolerance) < measured < (predicted + gradients) * (1 + tolerance)


def test_a_model_with_weights_has_to_run():
    config = generated(read(None, ["--model=linear"]))
    dataset = load(config.data)
    batch = dataset.batch(dataset.train, torch.tensor([0]))
    assert pass_peak(torch.nn.Linear(784, 10), config.loss, batch) is None
