"""Data, models and disks for `shoal train`, each slow in one way."""

import os
import resource
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset


class SlowSamples(TensorDataset):
    """Each sample takes 2 ms to read."""

    def __getitem__(self, index):
        time.sleep(0.002)
        return super().__getitem__(index)


def slow_data():
    """Images that are read when they are needed."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(2000, 1, 16, 16, generator=generator)
    return SlowSamples(images, torch.arange(2000) % 4), SlowSamples(images[:20], torch.arange(20) % 4)


def net():
    """A small network of convolutions."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)
    )


def on_slow_disk():
    """The network, on a machine that takes 150 ms to flush a file."""
    before = os.fsync

    def slow(file):
        time.sleep(0.15)
        before(file)

    os.fsync = slow
    return net()


class Limited(nn.Sequential):
    """Limits the memory of its process once it has trained for some steps."""

    passes = 0

    def forward(self, x):
        self.passes += 1
        if self.passes == 5:
            lines = Path("/proc/self/status").read_text().splitlines()
            peak = next(int(line.split()[1]) for line in lines if line.startswith("VmPeak"))
            resource.setrlimit(resource.RLIMIT_AS, (int(1024 * peak * 1.03),) * 2)
        return super().forward(x)


def near_the_limit():
    """The network, in a process that may hardly grow."""
    return Limited(*net())
