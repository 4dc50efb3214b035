from dataclasses import replace

import pytest
import torch

from shoal.config.sections.data import DigitsConfig, SyntheticConfig
from shoal.data import DataSet, Split, load
from shoal.data.dataset import Augment


def colourful() -> DataSet:
    generator = torch.Generator().manual_seed(0)
    split = Split(
        torch.randint(0, 256, (300, 3, 8, 8), dtype=torch.uint8, generator=generator), torch.arange(300) % 7
    )
    mean, std = torch.tensor([0.1, 0.5, 0.9]), torch.tensor([0.2, 0.3, 0.4])
    return DataSet("colourful", "classification", split, None, split, 7, mean, std)


def test_a_batch_is_the_chosen_samples_normalised_channel_by_channel():
    data, indices = colourful(), torch.tensor([7, 299, 7, 0])
    batch = data.batch(data.train, indices)
    wanted = data.train.inputs[indices].double() / 255
    wanted = (wanted - data.mean.double().view(3, 1, 1)) / data.std.double().view(3, 1, 1)
    torch.testing.assert_close(batch.inputs.double(), wanted, rtol=1e-5, atol=5e-5)
    assert batch.inputs.dtype == torch.float32
    assert batch.labels.tolist() == [0, 5, 0, 0]
    assert batch.num_samples == 4


@pytest.mark.parametrize("augment", [None, Augment()])
def test_dividing_a_batch_does_not_change_a_bit(augment):
    data = replace(colourful(), augment=augment)
    indices = torch.randperm(300, generator=torch.Generator().manual_seed(1))
    whole = data.training_batch(indices, seed=1, epoch=1)
    for size in (1, 7, 64, 299):
        parts = [data.training_batch(part, seed=1, epoch=1) for part in indices.split(size)]
        assert torch.equal(torch.cat([part.inputs for part in parts]), whole.inputs)
        assert torch.equal(torch.cat([part.labels for part in parts]), whole.labels)


def test_only_training_batches_are_augmented():
    data = replace(colourful(), augment=Augment())
    indices = torch.arange(50)
    plain = data.batch(data.train, indices)
    assert not torch.equal(plain.inputs, data.training_batch(indices, 0, 0).inputs)
    assert torch.equal(plain.inputs, replace(data, augment=None).training_batch(indices, 0, 0).inputs)


def test_an_empty_share_is_an_empty_batch():
    for augment in (None, Augment()):
        batch = replace(colourful(), augment=augment).training_batch(torch.arange(0), 0, 0)
        assert (batch.inputs.shape, batch.labels.shape, batch.num_samples) == ((0, 3, 8, 8), (0,), 0)


def test_a_batch_never_writes_into_the_data_set():
    data = colourful()
    before = data.train.inputs.clone()
    data.batch(data.train, torch.arange(300)).inputs.zero_()
    assert torch.equal(data.train.inputs, before)


def test_text_becomes_tokens_and_the_bytes_that_follow():
    data = load(SyntheticConfig(task="text", shape=(12,), samples=20))
    batch = data.batch(data.train, torch.tensor([3, 4]))
    assert batch.inputs.dtype == batch.labels.dtype == torch.int64
    assert batch.inputs.shape == batch.labels.shape == (2, 12)
    assert torch.equal(batch.inputs[:, 1:], batch.labels[:, :-1])


def test_inputs_that_are_no_pictures_have_one_mean():
    data = load(SyntheticConfig(shape=(10,), samples=64))
    inputs = data.batch(data.train, torch.arange(64)).inputs
    assert inputs.shape == (64, 10)
    assert inputs.mean().abs() < 0.3


def test_moving_a_data_set_keeps_it():
    data = load(DigitsConfig(validation=0.1))
    moved = data.to("cpu")
    assert (moved.name, moved.input_shape, moved.outputs) == ("digits", (1, 28, 28), 10)
    assert torch.equal(
        moved.batch(moved.test, torch.arange(9)).inputs, data.batch(data.test, torch.arange(9)).inputs
    )
    assert data.nbytes == 12_000 * (784 + 8)


@pytest.mark.gpu
@pytest.mark.parametrize("augment", [None, Augment()])
def test_batches_on_a_gpu_are_those_of_the_cpu(augment):
    data = replace(colourful(), augment=augment)
    moved, indices = data.to("cuda"), torch.arange(100)
    there, here = moved.training_batch(indices, 1, 2), data.training_batch(indices, 1, 2)
    assert there.inputs.is_cuda
    assert there.labels.is_cuda
    assert torch.equal(there.inputs.cpu(), here.inputs)
    assert torch.equal(there.labels.cpu(), here.labels)
