"""The network of the labs, trained by several nodes that average their gradients. Each node runs this script:

python model.py --n_devices=2 --rank=0
python model.py --n_devices=2 --rank=1
"""

import argparse
import gzip
import os
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from shoal_labs.lab2.solution.dist_utils import (
    allgather_average_gradients,
    allreduce_average_gradients,
    average_parameters,
    dist_init,
    init_parameters,
    reduce_average_gradients,
)

AVERAGES: dict[str, Callable[[nn.Module], None]] = {
    "allreduce": allreduce_average_gradients,
    "allgather": allgather_average_gradients,
    "reduce": reduce_average_gradients,
}
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
}
SAY_EVERY = 20


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


def load_data(folder: Path, part: str) -> tuple[Tensor, Tensor]:
    """Pictures and labels of `train` or `t10k`; the whole of MNIST has files of the same names."""

    def found(name: str) -> Path:
        packed = folder / f"{part}-{name}.gz"
        return packed if packed.exists() else packed.with_suffix("")

    pictures = read_idx(found("images-idx3-ubyte")).unsqueeze(1).float() / 255
    return (pictures - 0.1307) / 0.3081, read_idx(found("labels-idx1-ubyte")).long()


def parts(batch_size: int, world_size: int, bottleneck: int, share: float) -> list[int]:
    """How many samples of a batch each node has: equally many, or `share` of the batch for the bottleneck."""
    if not share or world_size == 1:
        return [len(range(rank, batch_size, world_size)) for rank in range(world_size)]
    most = min(batch_size - world_size + 1, max(1, round(share * batch_size)))
    others = [len(range(rank, batch_size - most, world_size - 1)) for rank in range(world_size - 1)]
    return [*others[:bottleneck], most, *others[bottleneck:]]


def batches(num_samples: int, batch_size: int, sizes: Sequence[int], rank: int, seed: int) -> list[Tensor]:
    """This node's part of every batch of one pass: all nodes shuffle alike, and each takes its own samples."""
    order = torch.randperm(num_samples, generator=torch.Generator().manual_seed(seed))
    start, end = sum(sizes[:rank]), sum(sizes[: rank + 1])
    return [batch[start:end] for batch in order.split(batch_size) if len(batch) == batch_size]


def summed(average: Callable[[nn.Module], None], world_size: int) -> Callable[[nn.Module], None]:
    """The sum instead of the mean: all nodes' gradients added up."""

    def total(model: nn.Module) -> None:
        average(model)
        for param in model.parameters():
            if param.grad is not None:
                param.grad *= world_size

    return total


SENT: dict[str, Callable[[int, bool], float]] = {
    "all_reduce": lambda nodes, _: 2 * (nodes - 1) / nodes,  # around a ring: every node sends slices
    "all_gather": lambda nodes, _: nodes - 1,  # around a ring: every node passes on what it receives
    "all_gather_into_tensor": lambda nodes, _: (nodes - 1) / nodes,
    "reduce_scatter": lambda nodes, _: nodes - 1,
    "reduce_scatter_tensor": lambda nodes, _: nodes - 1,
    "reduce": lambda _, is_root: 0 if is_root else 1,  # towards the root
    "gather": lambda _, is_root: 0 if is_root else 1,
    "broadcast": lambda nodes, is_root: nodes - 1 if is_root else 0,  # away from the root
    "scatter": lambda nodes, is_root: nodes - 1 if is_root else 0,
    "send": lambda *_: 1,
    "isend": lambda *_: 1,
}
"""What a node sends, as a multiple of the call's first tensor, by the number of nodes and whether it is the root."""


def slow_link(mbit_per_s: float) -> None:
    """From now on, a node spends as long before each collective as its link of this rate needs for what it sends."""

    def slowed(name: str, collective: Callable[..., object]) -> Callable[..., object]:
        def call(*args: Any, **kwargs: Any) -> object:
            given = [*args, *kwargs.values()]
            tensor = next(each for each in given if isinstance(each, Tensor))
            root = kwargs.get(
                "src", kwargs.get("dst", next((each for each in given if type(each) is int), 0))
            )
            times = SENT[name](dist.get_world_size(), dist.get_rank() == root)
            time.sleep(times * 8 * tensor.nbytes / (1e6 * mbit_per_s))
            return collective(*args, **kwargs)

        return call

    for name in SENT:
        setattr(dist, name, slowed(name, getattr(dist, name)))


def synchronised(device: torch.device) -> float:
    """The time, once everything given to the device is done: without waiting for a GPU, its work is not timed."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def train_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    pictures: Tensor,
    labels: Tensor,
    average: Callable[[nn.Module], None],
    delay_s: float,
) -> tuple[float, float]:
    """One step; gives back the loss on this node's samples, and the seconds that averaging took.

    A node with a delay is the bottleneck: it is ready to average so much later than the others.
    """
    # task: train_step
    loss = nn.functional.cross_entropy(model(pictures), labels)
    optimizer.zero_grad()
    loss.backward()
    time.sleep(delay_s)  # before the collective: after it no node would wait for this one
    start_s = synchronised(pictures.device)
    average(model)
    seconds = synchronised(pictures.device) - start_s
    optimizer.step()
    return loss.item(), seconds
    # end: train_step


@torch.no_grad()
def accuracy(model: nn.Module, pictures: Tensor, labels: Tensor) -> float:
    """The part of the pictures that the model labels correctly."""
    correct = sum(
        int((model(part).argmax(1) == wanted).sum())
        for part, wanted in zip(pictures.split(1000), labels.split(1000), strict=True)
    )
    return correct / len(labels)


def say(line: str) -> None:
    """A line on the terminal, in one piece: several nodes may write there."""
    print(f"{line}\n", end="", flush=True)  # noqa: T201


def work(args: argparse.Namespace, rank: int) -> None:
    """What one node does, from meeting the others to the test."""
    dist_init(args.n_devices, rank, args.master_addr, args.master_port)
    device = torch.device(f"cuda:{args.gpu}" if args.gpu >= 0 and torch.cuda.is_available() else "cpu")
    torch.manual_seed(args.seed + rank)  # every node begins elsewhere: init_parameters is needed
    model = Net().to(device)
    init_parameters(model)
    optimizer = OPTIMIZERS[args.optimizer](model.parameters(), lr=args.lr)
    gradients = args.aggregate == "gradients"
    average = AVERAGES[args.average] if gradients else average_parameters
    if gradients and args.combine == "sum":
        average = summed(average, args.n_devices)
    if args.link:
        slow_link(args.link)
    delay_s = args.delay if rank == args.bottleneck else 0.0
    pictures, labels = load_data(args.data_dir, "train")
    sizes = parts(args.batch_size, args.n_devices, max(0, args.bottleneck), args.share)

    say(f"node {rank} starts training")
    averaging_s, steps, start_s = 0.0, 0, time.perf_counter()
    for one_pass in range(args.passes):
        for mine in batches(len(labels), args.batch_size, sizes, rank, args.seed + one_pass):
            inputs, wanted = pictures[mine].to(device), labels[mine].to(device)
            if gradients:
                loss, seconds = train_step(model, optimizer, inputs, wanted, average, delay_s)
            else:  # every node updates with its own gradients, and then the parameters are averaged
                loss, _ = train_step(model, optimizer, inputs, wanted, lambda model: None, delay_s)
                before_s = synchronised(device)
                average(model)
                seconds = synchronised(device) - before_s
            averaging_s, steps = averaging_s + seconds, steps + 1
            if steps % SAY_EVERY == 0:
                say(f"node {rank}  pass {one_pass + 1}  step {steps}  loss {loss:.4f}")
    total_s = time.perf_counter() - start_s
    say(
        f"node {rank}  {args.average}: {1e3 * averaging_s / steps:.3f} ms of {1e3 * total_s / steps:.3f} ms per step"
    )
    test_pictures, test_labels = load_data(args.data_dir, "t10k")
    correct = accuracy(model, test_pictures.to(device), test_labels.to(device))
    weights = sum(param.double().sum().item() for param in model.parameters())
    say(f"node {rank}  test accuracy {100 * correct:.2f} %  sum of weights {weights:.6f}")
    dist.destroy_process_group()


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The flags of the course, and those of the experiment."""
    parser = argparse.ArgumentParser(description="Lab 2: train together, averaging gradients.")
    parser.add_argument("--n_devices", type=int, default=1, help="how many nodes there are")
    parser.add_argument("--rank", type=int, default=0, help="which of them this is, from 0")
    parser.add_argument("--gpu", type=int, default=-1, help="number of the GPU; -1: the processor")
    parser.add_argument("--master_addr", default="localhost", help="where rank 0 is")
    parser.add_argument("--master_port", default="12355", help="and its port")
    parser.add_argument("--average", choices=AVERAGES, default="allreduce", help="by which collective")
    parser.add_argument(
        "--aggregate",
        choices=("gradients", "parameters"),
        default="gradients",
        help="average gradients before the step, or parameters after it",
    )
    parser.add_argument("--combine", choices=("mean", "sum"), default="mean", help="of the nodes' gradients")
    parser.add_argument("--bottleneck", type=int, default=-1, help="rank of the slow node; -1: none")
    parser.add_argument("--delay", type=float, default=0.02, help="seconds it is slower in every step")
    parser.add_argument(
        "--share", type=float, default=0.0, help="its part of every batch, such as 0.8; 0: equal parts"
    )
    parser.add_argument("--link", type=float, default=0.0, help="rate of a slow link in Mbit/s; 0: none")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="sgd")
    parser.add_argument("--lr", type=float, default=0.1, help="learning rate")
    parser.add_argument("--passes", type=int, default=2, help="times the training set is gone through")
    parser.add_argument("--batch_size", type=int, default=64, help="samples of a step, over all nodes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data_dir", type=Path, default=Path(__file__).parent / "data")
    parser.add_argument("--local-rank", "--local_rank", type=int, help="set by torch.distributed.launch")
    if "LOCAL_RANK" in os.environ:  # torch.distributed.launch and torchrun say which worker this is
        names = {
            "n_devices": "WORLD_SIZE",
            "rank": "RANK",
            "master_addr": "MASTER_ADDR",
            "master_port": "MASTER_PORT",
        }
        parser.set_defaults(**{flag: os.environ[name] for flag, name in names.items()})
    return parser.parse_args(argv)


if __name__ == "__main__":
    given = parse_args()
    work(given, given.rank)
