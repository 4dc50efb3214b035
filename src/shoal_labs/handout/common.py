"""Code that several hand-outs share: the network, the digits, the test, the flags, how nodes meet.

A solution imports it from here. `shoal lab start` copies it into the student's files (see `assemble.py`).
"""

import argparse
import gzip
import os
import struct
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn


def convolutions() -> nn.Sequential:
    """Two convolutions with pooling: pictures `[samples, 1, 28, 28]` become features `[samples, 400]`."""
    return nn.Sequential(
        nn.Conv2d(1, 6, kernel_size=5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, kernel_size=5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
    )


def fully_connected() -> nn.Sequential:
    """Two fully connected layers: features `[samples, 400]` become scores `[samples, 10]`."""
    return nn.Sequential(nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 10))


class Net(nn.Module):
    """The network of all labs: convolutions, then fully connected layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = convolutions()
        self.fc = fully_connected()

    def forward(self, pictures: Tensor) -> Tensor:
        """Pictures become scores."""
        return self.fc(self.conv(pictures))


def read_idx(path: Path) -> Tensor:
    """The array in a file of MNIST's format, compressed or not."""
    content = path.read_bytes()
    content = gzip.decompress(content) if path.suffix == ".gz" else content
    dims = content[3]
    sizes = struct.unpack(f">{dims}I", content[4 : 4 + 4 * dims])
    return torch.frombuffer(bytearray(content), dtype=torch.uint8, offset=4 + 4 * dims).view(sizes)


def load_data(folder: Path, part: str) -> tuple[Tensor, Tensor]:
    """Pictures and labels of `train` or `t10k`; the full MNIST has files of the same names."""

    def read(name: str) -> Tensor:
        packed = folder / f"{part}-{name}.gz"
        return read_idx(packed if packed.exists() else packed.with_suffix(""))

    pictures = read("images-idx3-ubyte").unsqueeze(1).float() / 255
    return (pictures - 0.1307) / 0.3081, read("labels-idx1-ubyte").long()


@torch.no_grad()
def accuracy(model: Callable[[Tensor], Tensor], pictures: Tensor, labels: Tensor) -> float:
    """The fraction of the pictures that the model labels correctly."""
    parts = zip(pictures.split(1000), labels.split(1000), strict=True)
    return sum(int((model(part).argmax(1) == wanted).sum()) for part, wanted in parts) / len(labels)


def device_of(gpu: int) -> torch.device:
    """The GPU of this number; the processor for -1 and on machines without a GPU."""
    return torch.device(f"cuda:{gpu}" if gpu >= 0 and torch.cuda.is_available() else "cpu")


def say(line: str) -> None:
    """Print a line in one piece: several nodes may write to one terminal."""
    print(f"{line}\n", end="", flush=True)  # noqa: T201


def new_parser(description: str) -> argparse.ArgumentParser:
    """A parser of flags, with the one that torch.distributed.launch adds."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--local-rank", "--local_rank", type=int, help="set by torch.distributed.launch")
    return parser


def training_parser(description: str, passes: int) -> argparse.ArgumentParser:
    """The flags of every training."""
    parser = new_parser(description)
    parser.add_argument("--lr", type=float, default=0.1, help="learning rate")
    parser.add_argument("--passes", type=int, default=passes, help="passes over the training set")
    parser.add_argument("--batch_size", "--batch-size", type=int, default=64, help="samples of each step")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random numbers")
    data = Path(__file__).parent / "data"
    parser.add_argument("--data_dir", "--data-dir", type=Path, default=data, help="folder of the digits")
    return parser


def node_parser(description: str, passes: int, n_devices: int = 1, rank: int = 0) -> argparse.ArgumentParser:
    """The flags of a training on several nodes; torchrun and torch.distributed.launch set their defaults."""
    parser = training_parser(description, passes)
    parser.add_argument("--n_devices", type=int, default=n_devices, help="number of nodes")
    parser.add_argument("--rank", type=int, default=rank, help="number of this node, from 0")
    parser.add_argument("--gpu", type=int, default=-1, help="number of the GPU; -1: the processor")
    parser.add_argument("--master_addr", default="localhost", help="address of rank 0")
    parser.add_argument("--master_port", default="12355", help="port of rank 0")
    if "LOCAL_RANK" in os.environ:
        parser.set_defaults(n_devices=int(os.environ["WORLD_SIZE"]), rank=int(os.environ["RANK"]))
        parser.set_defaults(**{name: os.environ[name.upper()] for name in ("master_addr", "master_port")})
    return parser


def dist_init(world_size: int, rank: int, master_addr: str = "localhost", master_port: str = "12355") -> None:
    """Meet the other nodes at the address of rank 0; returns when all of them are there."""
    os.environ["MASTER_ADDR"] = master_addr
    os.environ["MASTER_PORT"] = str(master_port)
    dist.init_process_group("gloo", rank=rank, world_size=world_size)


def init_parameters(model: nn.Module) -> None:
    """Give every node the parameters of rank 0."""
    for param in model.parameters():
        dist.broadcast(param.data, src=0)
