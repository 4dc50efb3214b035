"""The network of the labs in two stages on different workers, trained over RPC. Each worker runs this script:

python model.py --n_devices=3 --rank=0      drives: has the data, the loss, the optimizer
python model.py --n_devices=3 --rank=1      holds the convolutions
python model.py --n_devices=3 --rank=2      holds the fully connected layers

Without --rank it starts all of them itself.
"""

import argparse
import gzip
import os
import struct
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed.autograd as dist_autograd
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.distributed import rpc
from torch.distributed.optim import DistributedOptimizer

from shoal_labs.lab4.solution.dist_utils import dist_init, init_parameters, parameter_rrefs, run_stage

SAY_EVERY = 20


class ConvStage(nn.Module):
    """The first stage: two convolutions with pooling."""

    def __init__(self, device: str = "cpu") -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, kernel_size=5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, kernel_size=5)
        self.pool = nn.MaxPool2d(2)
        self.device = device
        self.turn = threading.Lock()  # calls arrive in threads: one at a time, or the first part is done last
        self.to(device)

    def forward(self, pictures: Tensor) -> Tensor:
        """Pictures [samples, 1, 28, 28] become shapes [samples, 400]."""
        with self.turn:
            strokes = self.pool(torch.relu(self.conv1(pictures.to(self.device))))
            shapes = self.pool(torch.relu(self.conv2(strokes)))
            return shapes.flatten(1).cpu()


class FcStage(nn.Module):
    """The second stage: two fully connected layers."""

    def __init__(self, device: str = "cpu") -> None:
        super().__init__()
        self.fc1 = nn.Linear(400, 120)
        self.fc2 = nn.Linear(120, 10)
        self.device = device
        self.turn = threading.Lock()
        self.to(device)

    def forward(self, shapes: Tensor) -> Tensor:
        """Shapes [samples, 400] become scores [samples, 10]."""
        with self.turn:
            return self.fc2(torch.relu(self.fc1(shapes.to(self.device)))).cpu()


class ParallelNet:
    """The network: `stages` refers to a ConvStage on one worker and an FcStage on another."""

    def __init__(self, workers: Sequence[str], device: str = "cpu") -> None:
        first, second = workers
        self.stages: tuple[rpc.RRef[nn.Module], ...]
        # task: stages
        self.stages = (
            rpc.remote(first, ConvStage, args=(device,)),
            rpc.remote(second, FcStage, args=(device,)),
        )
        # end: stages

    def forward(self, pictures: Tensor) -> Tensor:
        """Pictures become scores, through both stages."""
        # task: forward
        conv, fc = self.stages
        shapes = rpc.rpc_sync(conv.owner(), run_stage, args=(conv, pictures))
        return rpc.rpc_sync(fc.owner(), run_stage, args=(fc, shapes))
        # end: forward

    def forward_microbatches(self, pictures: Tensor, count: int) -> Tensor:
        """The same scores from `count` parts of the batch; the second stage works while the first is still busy."""
        # task: forward_microbatches
        conv, fc = self.stages
        parts = pictures.chunk(count)
        shapes = [rpc.rpc_async(conv.owner(), run_stage, args=(conv, part)) for part in parts]
        # The first part goes on to the second stage while the first stage works on the next one.
        scores = [rpc.rpc_async(fc.owner(), run_stage, args=(fc, part.wait())) for part in shapes]
        return torch.cat([part.wait() for part in scores])
        # end: forward_microbatches


def train_step(
    model: ParallelNet, optimizer: DistributedOptimizer, pictures: Tensor, labels: Tensor, microbatches: int
) -> float:
    """One step of all workers; gives back the mean loss of the batch before it."""
    # task: train_step
    with dist_autograd.context() as context_id:
        scores = (
            model.forward(pictures)
            if microbatches == 1
            else model.forward_microbatches(pictures, microbatches)
        )
        loss = nn.functional.cross_entropy(scores, labels)
        dist_autograd.backward(context_id, [loss])
        # Still inside: the context holds the gradients, on every worker, and leaving it frees them.
        optimizer.step(context_id)
    return loss.item()
    # end: train_step


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


@torch.no_grad()
def accuracy(model: ParallelNet, pictures: Tensor, labels: Tensor) -> float:
    """The part of the pictures that the model labels correctly."""
    correct = sum(
        int((model.forward(part).argmax(1) == wanted).sum())
        for part, wanted in zip(pictures.split(1000), labels.split(1000), strict=True)
    )
    return correct / len(labels)


def stage_workers(n_devices: int) -> tuple[str, str]:
    """Where the stages are: with three workers the driver holds none, with two it holds the first."""
    first = max(0, min(1, n_devices - 2))
    return f"worker{first}", f"worker{min(first + 1, n_devices - 1)}"


def drive(args: argparse.Namespace) -> None:
    """What worker0 does: make the model, train it, test it."""
    device = f"cuda:{args.gpu}" if args.gpu >= 0 and torch.cuda.is_available() else "cpu"
    model = ParallelNet(stage_workers(args.n_devices), device)
    init_parameters(model, args.seed)
    optimizer = DistributedOptimizer(torch.optim.SGD, parameter_rrefs(model), lr=args.lr)
    pictures, labels = load_data(args.data_dir, "train")

    print("worker0 starts training")  # noqa: T201
    steps, start_s = 0, time.perf_counter()
    for one_pass in range(args.passes):
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(args.seed + one_pass))
        for batch in order.split(args.batch_size):
            loss = train_step(model, optimizer, pictures[batch], labels[batch], args.microbatches)
            steps += 1
            if steps % SAY_EVERY == 0:
                print(f"pass {one_pass + 1}  step {steps}  loss {loss:.4f}", flush=True)  # noqa: T201
    seconds = time.perf_counter() - start_s
    print(f"{1e3 * seconds / steps:.2f} ms per step")  # noqa: T201

    correct = accuracy(model, *load_data(args.data_dir, "t10k"))
    weights = sum(reference.to_here().double().sum().item() for reference in parameter_rrefs(model))
    print(f"test accuracy {100 * correct:.2f} %  sum of weights {weights:.6f}")  # noqa: T201


def work(rank: int, args: argparse.Namespace) -> None:
    """What one worker does: drive, or answer the driver's calls until it is done."""
    dist_init(args.n_devices, rank, args.master_addr, args.master_port)
    if rank == 0:
        drive(args)
    rpc.shutdown()  # returns when all workers are here and no call is under way


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The flags of the course, and those of the experiment."""
    parser = argparse.ArgumentParser(description="Lab 4: train a model in two stages.")
    parser.add_argument("--n_devices", type=int, default=3, help="how many workers there are")
    parser.add_argument("--rank", type=int, default=-1, help="which of them this is; -1: start all of them")
    parser.add_argument("--gpu", type=int, default=-1, help="number of the GPU; -1: the processor")
    parser.add_argument("--master_addr", default="localhost", help="where rank 0 is")
    parser.add_argument("--master_port", default="12355", help="and its port")
    parser.add_argument("--microbatches", type=int, default=1, help="parts of a batch that overlap")
    parser.add_argument("--lr", type=float, default=0.1, help="learning rate")
    parser.add_argument("--passes", type=int, default=2, help="times the training set is gone through")
    parser.add_argument("--batch_size", type=int, default=64, help="samples of a step")
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
    if given.rank >= 0:
        work(given.rank, given)
    else:
        mp.spawn(work, (given,), nprocs=given.n_devices)
