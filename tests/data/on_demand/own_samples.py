"""Data sets of a user's own for these tests: 60 samples of 16 numbers, whose noise is drawn anew in each epoch."""

import os
import random
import signal
import tempfile

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset, IterableDataset, get_worker_info

GENERATOR = torch.Generator().manual_seed(0)
INPUTS = torch.randn(60, 16, generator=GENERATOR)
LABELS = INPUTS[:, :3].argmax(1)
SEEN = []
"""What `Samples` was asked for in this process."""


class Net(nn.Module):
    """In float64, and it draws nothing."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(16, 8).double(), nn.Linear(8, 3).double()

    def forward(self, inputs):
        return self.last(torch.tanh(self.first(inputs.double())))


class Dropping(Net):
    """It draws from torch's generator too."""

    def forward(self, inputs):
        return self.last(torch.dropout(torch.tanh(self.first(inputs.double())), 0.5, self.training))


def plain(number):
    return INPUTS[number], int(LABELS[number])


def drawn(number):
    noise = torch.rand(()) + random.random() + float(np.random.rand())  # noqa: NPY002
    return INPUTS[number] + noise.float(), int(LABELS[number])


class Samples(Dataset):
    def __init__(self, sample, numbers):
        self.sample, self.numbers = sample, list(numbers)
        self.targets = LABELS[self.numbers]

    def __len__(self):
        return len(self.numbers)

    def __getitem__(self, index):
        SEEN.append(self.numbers[index])
        return self.sample(self.numbers[index])


class Lines(IterableDataset):
    """The same samples, one after the other."""

    def __init__(self, sample, numbers, length=None):
        self.sample, self.numbers = sample, list(numbers)
        self.length = len(self.numbers) if length is None else length

    def __len__(self):
        return self.length

    def __iter__(self):
        return map(self.sample, self.numbers)


class Labelled(Lines):
    """Their labels in one place."""

    def __init__(self, sample, numbers):
        super().__init__(sample, numbers)
        self.labels = LABELS[self.numbers].tolist()


def in_memory():
    return {"train": (INPUTS[:50], LABELS[:50]), "test": (INPUTS[50:], LABELS[50:])}


def named(number):
    return {"inputs": INPUTS[number]}, {"classes": int(LABELS[number])}


def named_by_index():
    return Samples(named, range(50)), Samples(named, range(50, 60))


def named_in_memory():
    return tuple(
        ({"inputs": INPUTS[part]}, {"classes": LABELS[part]}) for part in (slice(0, 50), slice(50, 60))
    )


def loss_of_named(outputs, labels):
    return cross_entropy(outputs, labels["classes"], reduction="sum")


def of(kind, sample):
    return {"train": kind(sample, range(50)), "test": kind(plain, range(50, 60))}


def by_index():
    return of(Samples, plain)


def with_draws():
    return of(Samples, drawn)


def in_a_row():
    return of(Lines, plain)


def in_a_row_with_labels():
    return of(Labelled, plain)


def in_a_row_with_draws():
    return of(Lines, drawn)


def that_know_a_folder():
    return of(
        Samples, lambda number: (torch.full((16,), float(tempfile.tempdir is not None)), int(LABELS[number]))
    )


def too_short():
    return {"train": Lines(plain, range(50), length=55), "test": Lines(plain, range(50, 60))}


def broken(number):
    if number == 17:
        raise KeyError("no such crop")
    return plain(number)


def reshaped(number):
    return (INPUTS[number, :9], 0) if number == 17 else plain(number)


def retyped(number):
    return (INPUTS[number], 0.5) if number == 17 else plain(number)


def misnumbered(number):
    return (INPUTS[number], 7) if number == 17 else plain(number)


def deadly(number):
    if number == 17 and get_worker_info() is not None:
        os.kill(os.getpid(), signal.SIGKILL)
    return plain(number)


def of_bad(sample: str):
    kinds = {
        "broken": broken,
        "reshaped": reshaped,
        "retyped": retyped,
        "misnumbered": misnumbered,
        "deadly": deadly,
    }
    return of(Samples, kinds[sample])
