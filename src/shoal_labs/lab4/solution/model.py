"""Trains the network of the labs in two stages on different workers, over RPC. Each worker runs this script:

python model.py --n_devices=3 --rank=0
python model.py --n_devices=3 --rank=1
python model.py --n_devices=3 --rank=2

Rank 0 has the data, the loss and the optimizer; rank 1 holds the convolutions, rank 2 the fully connected layers.
Without --rank the script starts all workers itself.
"""

import argparse
import threading
import time
from collections.abc import Sequence

import torch
import torch.distributed.autograd as dist_autograd
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.distributed import rpc
from torch.distributed.optim import DistributedOptimizer

from shoal_labs.handout.common import (
    accuracy,
    convolutions,
    device_of,
    fully_connected,
    load_data,
    node_parser,
    say,
)
from shoal_labs.lab4.solution.dist_utils import dist_init, init_parameters, parameter_rrefs, run_stage

SAY_EVERY = 20


class Stage(nn.Module):
    """Layers that one worker holds."""

    def __init__(self, layers: nn.Sequential, device: str) -> None:
        super().__init__()
        self.layers = layers.to(device)
        self.device = device
        self.turn = threading.Lock()  # calls run in threads; one part of a batch at a time

    def forward(self, given: Tensor) -> Tensor:
        """The output for a batch, or for a part of it."""
        with self.turn:
            return self.layers(given.to(self.device)).cpu()


class ConvStage(Stage):
    """The first stage: the convolutions."""

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(convolutions(), device)


class FcStage(Stage):
    """The second stage: the fully connected layers."""

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(fully_connected(), device)


class ParallelNet:
    """The network; `stages` holds references to a ConvStage on one worker and an FcStage on another."""

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
        """Pictures become scores."""
        # task: forward
        conv, fc = self.stages
        shapes = rpc.rpc_sync(conv.owner(), run_stage, args=(conv, pictures))
        return rpc.rpc_sync(fc.owner(), run_stage, args=(fc, shapes))
        # end: forward

    def forward_microbatches(self, pictures: Tensor, count: int) -> Tensor:
        """The same scores in `count` parts: the second stage works while the first computes the next part."""
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
    """One step of all workers; returns the mean loss of the batch before the step."""
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


def stage_workers(n_devices: int) -> tuple[str, str]:
    """The workers that hold the stages; with three workers the driver holds none, with two the first one."""
    first = max(0, min(1, n_devices - 2))
    return f"worker{first}", f"worker{min(first + 1, n_devices - 1)}"


def drive(args: argparse.Namespace) -> None:
    """Create, train and test the model; runs on worker0."""
    device = str(device_of(args.gpu))
    model = ParallelNet(stage_workers(args.n_devices), device)
    init_parameters(model, args.seed)
    optimizer = DistributedOptimizer(torch.optim.SGD, parameter_rrefs(model), lr=args.lr)
    pictures, labels = load_data(args.data_dir, "train")

    say("worker0 starts training")
    steps, start_s = 0, time.perf_counter()
    for one_pass in range(args.passes):
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(args.seed + one_pass))
        for batch in order.split(args.batch_size):
            loss = train_step(model, optimizer, pictures[batch], labels[batch], args.microbatches)
            steps += 1
            if steps % SAY_EVERY == 0:
                say(f"pass {one_pass + 1}  step {steps}  loss {loss:.4f}")
    seconds = time.perf_counter() - start_s
    say(f"{1e3 * seconds / steps:.2f} ms per step")

    correct = accuracy(model.forward, *load_data(args.data_dir, "t10k"))
    weights = sum(reference.to_here().double().sum().item() for reference in parameter_rrefs(model))
    say(f"test accuracy {100 * correct:.2f} %  sum of weights {weights:.6f}")


def work(rank: int, args: argparse.Namespace) -> None:
    """Run one worker: worker0 drives, the others answer its calls."""
    dist_init(args.n_devices, rank, args.master_addr, args.master_port)
    if rank == 0:
        drive(args)
    rpc.shutdown()  # waits until all workers are done


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the flags."""
    parser = node_parser("Lab 4: train a model in two stages.", passes=2, n_devices=3, rank=-1)
    parser.add_argument("--microbatches", type=int, default=1, help="parts of a batch that are pipelined")
    return parser.parse_args(argv)


if __name__ == "__main__":
    given = parse_args()
    if given.rank >= 0:
        work(given.rank, given)
    else:
        mp.spawn(work, (given,), nprocs=given.n_devices)
