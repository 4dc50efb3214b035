"""A small network on MNIST with several workers: the shortest loop that is right.

    torchrun --standalone --nproc-per-node 2 examples/mnist_ddp.py --digits
    shoal launch --workers 2 examples/mnist_ddp.py --digits
    python examples/mnist_ddp.py --digits                                           # alone: the same losses

`--digits` takes the 12,000 digits that come with shoal, `--synthetic` data made here; without either, all of MNIST,
which `shoal data fetch mnist` gets first.

A program that is often shown for this runs, on every worker, the loop of one machine, and after `loss.backward()`:

    dist.all_reduce(loss.data, op=dist.ReduceOp.SUM)        # "synchronise the gradients"

It sums the *losses*, when backward has already used them: no gradient is ever exchanged. What runs are as many separate
trainings as there are workers, and it looks as if it worked, because each of them learns. It also has these errors:

1. Every worker starts from weights of its own. The wrapper gives all of them rank 0's.
2. Every worker goes through the whole training set: as much work for each as for one machine alone.
3. Every worker tests its own model on the whole test set, and prints an accuracy of its own.
4. Every worker writes its own model into the same file, at the same time.
5. Three means and deviations for pictures of one channel; a backend that only GPUs have; names never imported.
"""

import argparse
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import shoal
from shoal.comm.group import Group
from shoal.config.schema import DigitsConfig, MnistConfig, SyntheticConfig
from shoal.data import Split, load
from shoal.errors import ConfigError
from shoal.models.initialise import initialise

SEED = 0


class Net(nn.Module):
    """Three layers: 784 → 128 → 64 → 10."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(784, 128), nn.Linear(128, 64), nn.Linear(64, 10)

    def forward(self, pictures: Tensor) -> Tensor:
        """Bytes [N, 1, 28, 28] → scores [N, 10]."""
        x = (pictures.flatten(1).float() / 255 - 0.1307) / 0.3081
        return self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x)))))


def main() -> None:
    """Train, evaluate after every epoch, and save the weights."""
    options = parse()
    group = shoal.join()
    if options.batch_size % group.size:
        raise ConfigError(f"--batch-size {options.batch_size} cannot be divided among {group.size} workers")
    data = load(digits(options))
    network = Net()
    initialise(network, SEED)  # torch's own random state would do too, but threads of one process share it
    model = shoal.DistributedDataParallel(network, group)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)

    train_set, test_set = as_torch(data.train), as_torch(data.test)
    sampler = shoal.DistributedSampler(train_set, group.size, group.rank, seed=SEED)
    per_worker = options.batch_size // group.size
    loader = DataLoader(train_set, per_worker, sampler=sampler)
    shoal.check_loader(loader, group.size)  # a loader that divides nothing is refused, not found out later
    # Nothing is learnt from the test set, so it matters only that every picture is looked at, once.
    test_loader = DataLoader(test_set, 100, sampler=range(group.rank, len(test_set), group.size))

    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        steps = len(sampler.step_sizes(per_worker))
        mean_loss = train(model, steps_of(loader, steps), optimizer, group)
        accuracy = evaluate(model, test_loader, group)
        if group.rank == 0:
            sys.stdout.write(
                f"epoch {epoch + 1}: training loss {mean_loss:.4f}, test accuracy {accuracy:.2%}\n"
            )
    if options.save and group.rank == 0:
        from safetensors.torch import save_file

        save_file(network.state_dict(), options.save)
    group.close()


def train(
    model: shoal.DistributedDataParallel,
    batches: Iterator[list[Tensor] | None],
    optimizer: torch.optim.Optimizer,
    group: Group,
) -> float:
    """One epoch; the mean loss over all samples of all workers."""
    model.train()
    totals = torch.zeros(2, dtype=torch.float64)
    for batch in batches:
        num_samples = len(batch[1]) if batch else 0
        optimizer.zero_grad()
        with model.batch(num_samples=num_samples):  # gradients are exchanged in here, and become everyone's
            if batch:
                pictures, labels = batch
                loss = F.cross_entropy(model(pictures), labels)
                loss.backward()
                totals += torch.tensor([loss.item() * num_samples, num_samples], dtype=torch.float64)
        optimizer.step()
    group.all_reduce(totals).wait()
    return (totals[0] / totals[1]).item()


@torch.no_grad()
def evaluate(model: shoal.DistributedDataParallel, loader: DataLoader[Any], group: Group) -> float:
    """The part of the test set that is predicted right: hits and samples are added up over the workers."""
    model.eval()
    totals = torch.zeros(2, dtype=torch.float64)
    for pictures, labels in loader:
        hits = (model(pictures).argmax(1) == labels).sum()
        totals += torch.tensor([hits.item(), len(labels)], dtype=torch.float64)
    group.all_reduce(totals).wait()
    return (totals[0] / totals[1]).item()


def steps_of(loader: DataLoader[Any], steps: int) -> Iterator[list[Tensor] | None]:
    """The loader's batches; None in a last step for which only other workers have samples left."""
    batches = iter(loader)
    for _ in range(steps):
        yield next(batches, None)


def as_torch(split: Split) -> TensorDataset:
    """The samples as torch's loaders want them."""
    return TensorDataset(split.inputs, split.labels)


def digits(options: argparse.Namespace) -> MnistConfig | DigitsConfig | SyntheticConfig:
    """MNIST, a part of it, or pictures of its shape that are made here."""
    if options.synthetic:
        return SyntheticConfig(samples=options.synthetic)
    return DigitsConfig() if options.digits else MnistConfig(dir=options.data_dir)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="A small network on MNIST with several workers.")
    parser.add_argument("--data-dir", default="", help="folder with MNIST's files")
    parser.add_argument("--digits", action="store_true", help="the 12,000 digits that come with shoal")
    parser.add_argument(
        "--synthetic", type=int, nargs="?", const=2000, default=0, help="made data, this many samples"
    )
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=60, help="samples of a step, over all workers")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--save", default="", help="file for the weights, in safetensors format")
    return parser.parse_args()


if __name__ == "__main__":
    main()
