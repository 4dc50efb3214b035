"""Batches per second: index selections of a uint8 tensor against torch's DataLoader.

    python bench/data.py            a table for MNIST's and one for CIFAR-10's shapes
    python bench/data.py --json     one line each

All rivals run with num_workers=0, the same shuffled order, batch 64 and one thread:
`per sample` indexes a sample, converts it to float and normalises it, (x/255 − mean) / std, in place, step by step;
`per sample, folded` does what we do, with the 255 folded into mean and std, which saves it one step;
`floats` has a TensorDataset that is normalised already, at four times the memory, and only collates.
"""

import math
import os
import sys

os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # before torch: rivals that differ in threads cannot be compared

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset

from common import Target, interleave, options, report
from shoal.data import DataSet, Split
from shoal.data.dataset import Augment
from shoal.data.division.order import epoch_order, step_indices

BATCH_SIZE = 64
SAMPLES = 6400
SHAPES = {
    "MNIST": ((1, 28, 28), (0.1307,), (0.3081,), 20.0, 7.0),
    "CIFAR-10": ((3, 32, 32), (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616), 10.0, 2.5),
}
"""Shape, mean, standard deviation, and how many times faster than `per sample` and than `floats` we promise to be."""


class PerSample(Dataset[tuple[Tensor, Tensor]]):
    """One sample at a time, as data sets with transforms are written."""

    def __init__(self, split: Split, mean: Tensor, std: Tensor) -> None:
        self.split = split
        self.mean = mean.view(-1, 1, 1)
        self.std = std.view(-1, 1, 1)

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        picture = self.split.inputs[index].float().div_(255).sub_(self.mean).div_(self.std)
        return picture, self.split.labels[index]


class PerSampleFolded(PerSample):
    """The same, with the 255 folded into mean and standard deviation."""

    def __init__(self, split: Split, mean: Tensor, std: Tensor) -> None:
        super().__init__(split, 255 * mean, 255 * std)
        self.scale = 1 / self.std

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        picture = self.split.inputs[index].float().sub_(self.mean).mul_(self.scale)
        return picture, self.split.labels[index]


def main() -> int:
    """Measure both shapes; 1 when a target is missed."""
    arguments = options("Batches per second against torch's DataLoader.", rounds=21).parse_args()
    met = [measure(name, arguments.rounds, arguments.json) for name in SHAPES]
    return 0 if all(met) else 1


def measure(name: str, rounds: int, as_json: bool) -> bool:
    """One table: an epoch of every rival in every round."""
    shape, mean, std, over_per_sample, over_floats = SHAPES[name]
    generator = torch.Generator().manual_seed(0)
    pictures = torch.randint(0, 256, (SAMPLES, *shape), dtype=torch.uint8, generator=generator)
    split = Split(pictures, torch.randint(0, 10, (SAMPLES,), generator=generator))
    data = DataSet(name, "classification", split, None, split, 10, torch.tensor(mean), torch.tensor(std))
    augmented = DataSet(
        name, "classification", split, None, split, 10, torch.tensor(mean), torch.tensor(std), Augment()
    )
    order = epoch_order(SAMPLES, seed=0, epoch=0)
    floats = TensorDataset(data.batch(split, torch.arange(SAMPLES)).inputs, split.labels)
    per_sample = PerSample(split, torch.tensor(mean), torch.tensor(std))
    folded = PerSampleFolded(split, torch.tensor(mean), torch.tensor(std))

    def ours(source: DataSet) -> None:
        for consumed in range(0, SAMPLES, BATCH_SIZE):
            source.training_batch(step_indices(order, consumed, BATCH_SIZE), seed=0, epoch=0)

    def theirs(dataset: Dataset[tuple[Tensor, ...]]) -> None:
        for _ in DataLoader(dataset, BATCH_SIZE, sampler=order.tolist(), num_workers=0):
            pass

    seconds = interleave(
        {
            "shoal": lambda: ours(data),
            "shoal, augmented": lambda: ours(augmented),
            "DataLoader, per sample": lambda: theirs(per_sample),
            "DataLoader, per sample, folded": lambda: theirs(folded),
            "DataLoader, floats": lambda: theirs(floats),
        },
        rounds,
    )
    batches = math.ceil(SAMPLES / BATCH_SIZE)
    per_batch = {case: [sample / batches for sample in samples] for case, samples in seconds.items()}
    targets = (
        Target("DataLoader, per sample", "shoal", at_least=over_per_sample),
        Target("DataLoader, floats", "shoal", at_least=over_floats),
    )
    return report(f"{name} shapes, seconds per batch of {BATCH_SIZE}", per_batch, "shoal", targets, as_json)


if __name__ == "__main__":
    sys.exit(main())
