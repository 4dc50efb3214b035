"""Samples of one's own: every form becomes two tensors, and what does not fit is named."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from shoal.data.own.samples import split_of
from shoal.errors import DataError

INPUTS, LABELS = torch.arange(12.0).reshape(4, 3), torch.tensor([0, 1, 0, 2])


class Listed(Dataset):
    """Samples as arrays and plain numbers."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return INPUTS[index].numpy(), int(LABELS[index])


class Stream(IterableDataset):
    """One that knows its length, and still has no samples by index."""

    def __len__(self):
        return 4

    def __iter__(self):
        return iter(zip(INPUTS, LABELS, strict=True))


@pytest.mark.parametrize(
    "found",
    [
        (INPUTS, LABELS),
        (INPUTS, LABELS.unsqueeze(1)),
        Stream(),
        (INPUTS.numpy(), LABELS.numpy().astype(np.int16)),
        (INPUTS.double(), LABELS.int()),
        TensorDataset(INPUTS, LABELS),
        Listed(),
        [(row, label) for row, label in zip(INPUTS, LABELS, strict=True)],
        ((row, label) for row, label in zip(INPUTS.tolist(), LABELS.tolist(), strict=True)),
        DataLoader(TensorDataset(INPUTS, LABELS), batch_size=3),
    ],
    ids=[
        "tensors",
        "a column of labels",
        "IterableDataset",
        "arrays",
        "other dtypes",
        "TensorDataset",
        "Dataset",
        "list",
        "generator",
        "DataLoader",
    ],
)
def test_every_form_holds_the_same_samples(found):
    split = split_of(found, "mine")
    assert torch.equal(split.inputs, INPUTS)
    assert split.inputs.dtype == torch.float32
    assert torch.equal(split.labels, LABELS)
    assert split.labels.dtype == torch.int64


@pytest.mark.parametrize("labels", [INPUTS[:, 0], INPUTS[:, :1], INPUTS])
def test_numbers_as_labels_keep_their_shape(labels):
    """A program's own loss compares them with outputs of the same shape."""
    assert torch.equal(split_of((INPUTS, labels), "mine").labels, labels)


def test_grey_pictures_get_a_channel():
    pixels = torch.zeros(4, 8, 8, dtype=torch.uint8)
    assert split_of((pixels, LABELS), "mine").inputs.shape == (4, 1, 8, 8)
    assert split_of([(Image.new("RGB", (5, 8)), 1)], "mine").inputs.shape == (1, 3, 8, 5)


class Endless:
    def __iter__(self):
        while True:
            yield torch.zeros(2**22), 0


class NoLength(Dataset):
    def __getitem__(self, index):
        return INPUTS[index], 0


def padded(samples):
    """Sequences as long as the longest of their batch."""
    longest = 3 + max(int(label) for _, label in samples) // 2
    return torch.zeros(len(samples), longest), torch.tensor([int(label) for _, label in samples])


WITH_NAN = torch.where(INPUTS == 7.0, torch.nan, INPUTS)


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        ((INPUTS, LABELS[:3]), "mine has 4 inputs and 3 labels"),
        ((WITH_NAN, LABELS), "the input of sample 2 is not finite"),
        ([], "mine has no samples"),
        ([1, 2], "sample 0 is a value of type int, and no pair"),
        (
            [(INPUTS[0], 0), (INPUTS[0, :2], 0)],
            r"the input of sample 1 has shape \[2\], and that of sample 0 \[3\]",
        ),
        (
            [(INPUTS[0], 0), (INPUTS[0].int(), 0)],
            r"the input of sample 1 is torch.int32, and that of sample 0 torch.float32",
        ),
        ([("text", 0)], "the input of sample 0 is a value of type str, and cannot become a tensor"),
        ([(INPUTS[0], "cat")], "the label of sample 0 is a value of type str"),
        ([({"name": "text"}, 0)], "the input of sample 0, 'name', is a value of type str"),
        ([(INPUTS[0], INPUTS[1], 0)], "sample 0 has 3 values, and is no pair"),
        (
            [{"image": INPUTS[0], "label": 0}, {"image": INPUTS[0, :2], "label": 0}],
            r"the input\['image'\] of sample 1 has shape \[2\], and that of sample 0 \[3\]",
        ),
        (
            [{"image": INPUTS[0], "label": 0}, {"image": INPUTS[0]}],
            "the input of sample 1 is a dictionary with the keys 'image', and that of sample 0 a dictionary with the "
            "keys 'image', 'label'",
        ),
        ([(INPUTS[0], 0), (INPUTS[0],)], "the label of sample 1 is absent, and that of sample 0 a tensor"),
        (
            ({"x": INPUTS, "mask": INPUTS[:2]}, LABELS),
            r"mine has 4 inputs\['x'\], 2 inputs\['mask'\] and 4 labels",
        ),
        (
            DataLoader(TensorDataset(INPUTS, LABELS), batch_size=2, collate_fn=padded),
            r"the inputs of batch 1 have shape \[2, 4\], and those of batch 0 \[2, 3\]",
        ),
        (NoLength(), "NoLength has no length"),
        (7, "mine is a value of type int, and no samples"),
    ],
)
def test_what_does_not_fit_is_named(found, sentence):
    with pytest.raises(DataError, match=sentence):
        split_of(found, "mine")


def test_an_endless_iterable_ends_before_memory_does(monkeypatch):
    monkeypatch.setattr("shoal.data.own.samples.memory_bytes", lambda: 2**26)
    with pytest.raises(DataError, match="mine has more than 1 samples, 0.0 GiB: too many"):
        split_of(Endless(), "mine")


def test_random_samples_are_warned_of():
    class Random(Listed):
        def __getitem__(self, index):
            return torch.rand(3), 0

    with pytest.warns(UserWarning, match="sample 0 differs when it is read again"):
        split_of(Random(), "mine")


@dataclass
class Pair:
    """A sample of two tensors."""

    x: torch.Tensor
    label: torch.Tensor


NESTED = {"x": INPUTS, "label": LABELS}
SAMPLES = [{"x": row, "label": int(label)} for row, label in zip(INPUTS, LABELS, strict=True)]


@pytest.mark.parametrize(
    "found",
    [
        NESTED,
        {"x": INPUTS.numpy(), "label": LABELS.numpy()},
        {"x": INPUTS.tolist(), "label": LABELS.tolist()},
        SAMPLES,
        DataLoader(SAMPLES, batch_size=3),
        [Pair(row, label) for row, label in zip(INPUTS, LABELS, strict=True)],
        Pair(INPUTS, LABELS),
    ],
    ids=["tensors", "arrays", "lists", "list", "DataLoader", "dataclasses", "dataclass of tensors"],
)
def test_a_dictionary_or_a_dataclass_is_an_input_that_holds_its_label(found):
    split = split_of(found, "mine")
    assert split.labels is None
    assert len(split) == 4
    held = vars(split.inputs) if isinstance(split.inputs, Pair) else split.inputs
    assert held["x"].dtype is torch.float32
    assert all(torch.equal(held[key], NESTED[key]) for key in NESTED)


@pytest.mark.parametrize(
    "found",
    [
        ((INPUTS, INPUTS > 5), LABELS),
        [((row, row > 5), label) for row, label in zip(INPUTS, LABELS, strict=True)],
    ],
    ids=["tensors", "list"],
)
def test_several_inputs_with_a_label_beside_them(found):
    split = split_of(found, "mine")
    assert torch.equal(split.inputs[0], INPUTS)
    assert torch.equal(split.inputs[1], INPUTS > 5), "a mask stays one"
    assert torch.equal(split.labels, LABELS)


@pytest.mark.parametrize("found", [INPUTS, TensorDataset(INPUTS), list(INPUTS), INPUTS.numpy()])
def test_samples_without_labels(found):
    split = split_of(found, "mine")
    assert torch.equal(split.inputs, INPUTS)
    assert split.labels is None
