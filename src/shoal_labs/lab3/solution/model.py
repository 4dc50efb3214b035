"""The network of the labs, trained by several nodes that divide the data set. Each node runs this script:

python model.py --n_devices=2 --rank=0
python model.py --n_devices=2 --rank=1
"""

import argparse
import gzip
import os
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from shoal_labs.lab3.solution.dist_utils import dist_init, init_parameters, sum_gradients, sum_over_nodes
from shoal_labs.lab3.solution.sampler import LabelSampler, MyRandomSampler, MySampler

SAMPLERS = {"partition": MySampler, "sampling": MyRandomSampler, "label": LabelSampler}


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


def load_data(folder: Path, part: str) -> TensorDataset:
    """Pictures and labels of `train` or `t10k`; the whole of MNIST has files of the same names."""

    def found(name: str) -> Path:
        packed = folder / f"{part}-{name}.gz"
        return packed if packed.exists() else packed.with_suffix("")

    pictures = read_idx(found("images-idx3-ubyte")).unsqueeze(1).float() / 255
    return TensorDataset((pictures - 0.1307) / 0.3081, read_idx(found("labels-idx1-ubyte")).long())


def equally_many(loader: DataLoader[tuple[Tensor, ...]], steps: int) -> Iterator[tuple[Tensor, ...]]:
    """Yield `steps` batches: a node with no samples left yields empty ones, or the others would wait forever."""
    yield from loader
    for _ in range(steps - len(loader)):
        yield torch.empty(0, 1, 28, 28), torch.empty(0, dtype=torch.int64)


def train_epoch(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: DataLoader[tuple[Tensor, ...]],
    epoch: int,
    steps: int,
    device: torch.device,
) -> float:
    """Go once through this node's samples, together with the others; gives back the mean loss over all nodes."""
    loss_sum, count = 0.0, 0
    # task: train_epoch
    assert isinstance(loader.sampler, MySampler)
    loader.sampler.set_epoch(epoch)  # without it, every epoch has the same order
    for pictures, labels in equally_many(loader, steps):
        total = sum_over_nodes(len(labels))
        scores = model(pictures.to(device))
        # The sum over this node's samples, divided by the number of all nodes' samples: added up it is the mean.
        loss = nn.functional.cross_entropy(scores, labels.to(device), reduction="sum") / total
        optimizer.zero_grad()
        loss.backward()
        sum_gradients(model)
        optimizer.step()
        loss_sum, count = loss_sum + loss.item() * total, count + len(labels)
    # end: train_epoch
    return sum_over_nodes(loss_sum) / sum_over_nodes(count)


@torch.no_grad()
def accuracy(model: nn.Module, data: TensorDataset, device: torch.device) -> float:
    """The part of the pictures that the model labels correctly."""
    correct = sum(
        int((model(pictures.to(device)).argmax(1) == labels.to(device)).sum())
        for pictures, labels in DataLoader(data, batch_size=1000)
    )
    return correct / len(data)


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
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    data, test = load_data(args.data_dir, "train"), load_data(args.data_dir, "t10k")
    sampler = SAMPLERS[args.division](data, args.n_devices, rank, shuffle=True, seed=args.seed)
    per_node = max(1, args.batch_size // args.n_devices)
    loader = DataLoader(data, batch_size=per_node, sampler=sampler)
    kind, nodes = SAMPLERS[args.division], range(args.n_devices)
    most_samples = max(len(kind(data, args.n_devices, node)) for node in nodes)  # of the node that has most
    steps = -(-most_samples // per_node)

    say(f"node {rank} starts training: {len(sampler):,} of {len(data):,} samples")
    seconds = 0.0
    for epoch in range(args.passes):
        start_s = time.perf_counter()
        loss = train_epoch(model, optimizer, loader, epoch, steps, device)
        seconds += time.perf_counter() - start_s
        if rank == 0:
            correct = accuracy(model, test, device)
            say(f"epoch {epoch + 1}  loss {loss:.4f}  test accuracy {100 * correct:.2f} %  {seconds:.2f} s")
    weights = sum(param.double().sum().item() for param in model.parameters())
    rate = args.passes * len(data) / seconds
    say(f"node {rank}  {rate:,.0f} samples/s over all nodes  sum of weights {weights:.6f}")
    dist.destroy_process_group()


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The flags of the course, and those of the experiment."""
    parser = argparse.ArgumentParser(description="Lab 3: train together on a divided data set.")
    parser.add_argument("--n_devices", type=int, default=1, help="how many nodes there are")
    parser.add_argument("--rank", type=int, default=0, help="which of them this is, from 0")
    parser.add_argument("--gpu", type=int, default=-1, help="number of the GPU; -1: the processor")
    parser.add_argument("--master_addr", default="localhost", help="where rank 0 is")
    parser.add_argument("--master_port", default="12355", help="and its port")
    parser.add_argument("--division", choices=SAMPLERS, default="partition", help="how the data are divided")
    parser.add_argument("--lr", type=float, default=0.1, help="learning rate")
    parser.add_argument("--passes", type=int, default=3, help="epochs")
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
