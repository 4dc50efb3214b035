"""The network of the lab, and the script that trains it with one of your optimizers.

python model.py --optimizer sgd --lr 0.1 --passes 3
python model.py --plot
"""

import argparse
import csv
import gzip
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from shoal_labs.lab1.solution.MyOptimizer import AdamOptimizer, BaseOptimizer, GdOptimizer, SgdOptimizer

OPTIMIZERS: dict[str, type[BaseOptimizer]] = {"gd": GdOptimizer, "sgd": SgdOptimizer, "adam": AdamOptimizer}
EVALUATION_BATCH = 1000
Part = tuple[Tensor, Tensor]
"""Pictures and labels."""


class Net(nn.Module):
    """Two convolutions with pooling, two fully connected layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, kernel_size=5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, kernel_size=5)
        self.fc1 = nn.Linear(400, 120)
        self.fc2 = nn.Linear(120, 10)
        self.pool = nn.MaxPool2d(2)

    def forward(self, pictures: Tensor) -> Tensor:
        """Pictures [samples, 1, 28, 28] become scores [samples, 10]."""
        strokes = self.pool(torch.relu(self.conv1(pictures)))
        shapes = self.pool(torch.relu(self.conv2(strokes)))
        return self.fc2(torch.relu(self.fc1(shapes.flatten(1))))


def read_idx(path: Path) -> Tensor:
    """The array in a file of MNIST's format, packed or not."""
    content = path.read_bytes()
    content = gzip.decompress(content) if path.suffix == ".gz" else content
    dims = content[3]
    sizes = struct.unpack(f">{dims}I", content[4 : 4 + 4 * dims])
    return torch.frombuffer(bytearray(content), dtype=torch.uint8, offset=4 + 4 * dims).view(sizes)


def load_data(folder: Path, part: str) -> Part:
    """Pictures and labels of `train` or `t10k`; the whole of MNIST has files of the same names."""

    def found(name: str) -> Path:
        packed = folder / f"{part}-{name}.gz"
        return packed if packed.exists() else packed.with_suffix("")

    pictures = read_idx(found("images-idx3-ubyte")).unsqueeze(1).float() / 255
    return (pictures - 0.1307) / 0.3081, read_idx(found("labels-idx1-ubyte")).long()


def batches(
    optimizer: str, num_samples: int, batch_size: int, generator: torch.Generator
) -> Iterator[Tensor]:
    """The batches of one pass over the training set: indices of the samples of each."""
    order = torch.randperm(num_samples, generator=generator)
    # task: batches
    if optimizer == "gd":
        yield order
    else:
        yield from order.split(batch_size)
    # end: batches


def train_step(
    model: nn.Module,
    loss_fn: nn.Module,
    optimizer: BaseOptimizer,
    pictures: Tensor,
    labels: Tensor,
) -> float:
    """One step on one batch; gives back the loss of the batch before the step."""
    # task: train_step
    loss = loss_fn(model(pictures), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()
    # end: train_step


def train(
    data: Part,
    optimizer: str,
    lr: float,
    passes: int,
    batch_size: int,
    seed: int,
    max_steps: int | None = None,
) -> tuple[nn.Module, list[tuple[int, float]]]:
    """The trained model, and (samples seen, loss) of every step."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model, loss_fn = Net(), nn.CrossEntropyLoss()
    chosen = OPTIMIZERS[optimizer](model.parameters(), lr)
    curve: list[tuple[int, float]] = []
    (pictures, labels), samples = data, 0
    for one_pass in range(passes):
        for indices in batches(optimizer, len(labels), batch_size, generator):
            loss = train_step(model, loss_fn, chosen, pictures[indices], labels[indices])
            samples += len(indices)
            curve.append((samples, loss))
            if max_steps is not None and len(curve) >= max_steps:
                return model, curve
        say(f"pass {one_pass + 1}/{passes}  step {len(curve)}  loss {curve[-1][1]:.4f}")
    return model, curve


@torch.no_grad()
def accuracy(model: nn.Module, pictures: Tensor, labels: Tensor) -> float:
    """The part of the pictures that the model labels correctly."""
    correct = sum(
        int((model(part).argmax(1) == wanted).sum())
        for part, wanted in zip(pictures.split(EVALUATION_BATCH), labels.split(EVALUATION_BATCH), strict=True)
    )
    return correct / len(labels)


def plot(folder: Path) -> Path:
    """All loss curves in one figure."""
    from matplotlib import pyplot as plt

    for path in sorted(folder.glob("loss-*.csv")):
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        plt.plot(
            [int(row["samples"]) for row in rows], [float(row["loss"]) for row in rows], label=path.stem[5:]
        )
    plt.xscale("log")
    plt.yscale("log")
    plt.xlabel("samples seen")
    plt.ylabel("training loss (nats)")
    plt.legend()
    plt.savefig(folder / "loss.png", dpi=150)
    return folder / "loss.png"


def say(line: str) -> None:
    """A line on the terminal."""
    print(line, flush=True)  # noqa: T201


def main(argv: Sequence[str] | None = None) -> None:
    """Train with one optimizer and keep its curve, or draw the curves."""
    parser = argparse.ArgumentParser(description="Lab 1: train the network with an optimizer of your own.")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="sgd")
    parser.add_argument("--lr", type=float, default=0.1, help="learning rate")
    parser.add_argument("--passes", type=int, default=3, help="times the training set is gone through")
    parser.add_argument(
        "--batch-size", type=int, default=64, help="samples of a step; gd takes the whole set"
    )
    parser.add_argument(
        "--data-dir",
        type=Path,
        default=Path(__file__).parent / "data",
        help="folder of the digits, or of the four files of MNIST",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", action="store_true", help="draw the curves that were kept")
    parser.add_argument("--local-rank", "--local_rank", type=int, help="set by torch.distributed.launch")
    args = parser.parse_args(argv)
    if args.plot:
        say(f"written: {plot(Path())}")
        return
    data = load_data(args.data_dir, "train")
    model, curve = train(data, args.optimizer, args.lr, args.passes, args.batch_size, args.seed)
    with Path(f"loss-{args.optimizer}.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("samples", "loss"), *curve])
    say(f"test accuracy {100 * accuracy(model, *load_data(args.data_dir, 't10k')):.2f} %")


if __name__ == "__main__":
    main()
