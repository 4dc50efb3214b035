"""A small network on MNIST with several workers: the shortest correct loop.

    torchrun --standalone --nproc-per-node 2 examples/mnist_ddp.py --digits
    shoal launch --workers 2 examples/mnist_ddp.py --digits
    python examples/mnist_ddp.py --digits                                           # one worker: the same losses

`--digits` uses the 12,000 digits that ship with shoal, `--synthetic` generated data. Without either, the program uses
MNIST: download it with `shoal data fetch mnist` first.

A common but wrong version of this program runs the loop of one machine on every worker and adds, after
`loss.backward()`:

    dist.all_reduce(loss.data, op=dist.ReduceOp.SUM)        # "synchronise the gradients"

This sums the *losses* after backward has used them, so no gradient is ever exchanged. Each worker trains a model of its
own. It appears to work, because every one of these models learns. The program also has these errors:

1. Every worker starts from its own weights. The wrapper copies rank 0's to all workers.
2. Every worker goes through the whole training set: as much work per worker as on one machine.
3. Every worker tests its own model on the whole test set and prints its own accuracy.
4. All workers write their models to the same file at the same time.
5. Three means and deviations for images with one channel; a backend that only supports GPUs; missing imports.
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
from shoal.config.sections.data import DigitsConfig, MnistConfig, SyntheticConfig
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
    initialise(network, SEED)  # not from torch's global random state, which threads of one process share
    model = shoal.DistributedDataParallel(network, group)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)

    train_set, test_set = as_torch(data.train), as_torch(data.test)
    sampler = shoal.DistributedSampler(train_set, group.size, group.rank, seed=SEED)
    per_worker = options.batch_size // group.size
    loader = DataLoader(train_set, per_worker, sampler=sampler)
    shoal.check_loader(loader, group.size)  # raises an error if every worker would get all samples
    # For testing, any division works that gives every image to exactly one worker.
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
        with model.batch(
            num_samples=num_samples
        ):  # exchanges gradients; afterwards all workers have the same
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
    """Test accuracy: correct predictions and samples are summed over the workers."""
    model.eval()
    totals = torch.zeros(2, dtype=torch.float64)
    for pictures, labels in loader:
        hits = (model(pictures).argmax(1) == labels).sum()
        totals += torch.tensor([hits.item(), len(labels)], dtype=torch.float64)
    group.all_reduce(totals).wait()
    return (totals[0] / totals[1]).item()


def steps_of(loader: DataLoader[Any], steps: int) -> Iterator[list[Tensor] | None]:
    """The loader's batches; None in a last step in which only other workers have samples."""
    batches = iter(loader)
    for _ in range(steps):
        yield next(batches, None)


def as_torch(split: Split) -> TensorDataset:
    """The samples as a torch data set."""
    return TensorDataset(split.inputs, split.labels)


def digits(options: argparse.Namespace) -> MnistConfig | DigitsConfig | SyntheticConfig:
    """MNIST, a part of it, or generated images of its shape."""
    if options.synthetic:
        return SyntheticConfig(samples=options.synthetic)
    return DigitsConfig() if options.digits else MnistConfig(dir=options.data_dir)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="A small network on MNIST with several workers.")
    parser.add_argument("--data-dir", default="", help="folder with MNIST's files")
    parser.add_argument("--digits", action="store_true", help="use the 12,000 digits that ship with shoal")
    parser.add_argument(
        "--synthetic", type=int, nargs="?", const=2000, default=0, help="use this many generated samples"
    )
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument(
        "--batch-size", type=int, default=60, help="global batch size: samples per step over all workers"
    )
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--save", default="", help="file for the weights, in safetensors format")
    parser.add_argument("--local-rank", "--local_rank", type=int, help="set by torch.distributed.launch")
    return parser.parse_args()


if __name__ == "__main__":
    main()
