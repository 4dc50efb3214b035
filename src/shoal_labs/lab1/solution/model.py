"""Trains the network of the labs with one of your optimizers.

python model.py --optimizer sgd --lr 0.1 --passes 3
python model.py --plot
"""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from shoal_labs.handout.common import Net, accuracy, load_data, say, training_parser
from shoal_labs.lab1.solution.MyOptimizer import AdamOptimizer, BaseOptimizer, GdOptimizer, SgdOptimizer

OPTIMIZERS: dict[str, type[BaseOptimizer]] = {"gd": GdOptimizer, "sgd": SgdOptimizer, "adam": AdamOptimizer}


def batches(
    optimizer: str, num_samples: int, batch_size: int, generator: torch.Generator
) -> Iterator[Tensor]:
    """The batches of one pass over the training set, as indices of their samples."""
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
    """One step on a batch; returns its loss before the step."""
    # task: train_step
    loss = loss_fn(model(pictures), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()
    # end: train_step


def train(
    data: tuple[Tensor, Tensor],
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


def plot(folder: Path) -> Path:
    """Draw all loss curves in one figure."""
    from matplotlib import pyplot as plt

    for path in sorted(folder.glob("loss-*.csv")):
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        plt.plot(
            [int(row["samples"]) for row in rows], [float(row["loss"]) for row in rows], label=path.stem[5:]
        )
    plt.xscale("log")
    plt.yscale("log")
    plt.xlabel("samples")
    plt.ylabel("loss (nats)")
    plt.legend()
    plt.savefig(folder / "loss.png", dpi=150)
    return folder / "loss.png"


def main(argv: Sequence[str] | None = None) -> None:
    """Train with one optimizer and save its loss curve, or draw the saved curves."""
    parser = training_parser("Lab 1: train the network with an optimizer of your own.", passes=3)
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="sgd", help="your optimizer")
    parser.add_argument("--plot", action="store_true", help="draw the saved curves")
    args = parser.parse_args(argv)
    if args.plot:
        say(f"figure: {plot(Path())}")
        return
    data = load_data(args.data_dir, "train")
    model, curve = train(data, args.optimizer, args.lr, args.passes, args.batch_size, args.seed)
    with Path(f"loss-{args.optimizer}.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("samples", "loss"), *curve])
    say(f"test accuracy {100 * accuracy(model, *load_data(args.data_dir, 't10k')):.2f} %")


if __name__ == "__main__":
    main()
