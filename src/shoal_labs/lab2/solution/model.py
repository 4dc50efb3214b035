"""Trains the network of the labs on several nodes that average their gradients. Each node runs this script:

python model.py --n_devices=2 --rank=0
python model.py --n_devices=2 --rank=1
"""

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from shoal_labs.handout.common import Net, accuracy, device_of, load_data, node_parser, say
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


def parts(batch_size: int, world_size: int, bottleneck: int, share: float) -> list[int]:
    """Each node's number of samples in a batch: equal numbers, or `share` of the batch for the bottleneck."""
    if not share or world_size == 1:
        return [len(range(rank, batch_size, world_size)) for rank in range(world_size)]
    most = min(batch_size - world_size + 1, max(1, round(share * batch_size)))
    others = [len(range(rank, batch_size - most, world_size - 1)) for rank in range(world_size - 1)]
    return [*others[:bottleneck], most, *others[bottleneck:]]


def batches(num_samples: int, batch_size: int, sizes: Sequence[int], rank: int, seed: int) -> list[Tensor]:
    """This node's part of every batch of one pass. All nodes use the same random order."""
    order = torch.randperm(num_samples, generator=torch.Generator().manual_seed(seed))
    start, end = sum(sizes[:rank]), sum(sizes[: rank + 1])
    return [batch[start:end] for batch in order.split(batch_size) if len(batch) == batch_size]


def summed(average: Callable[[nn.Module], None], world_size: int) -> Callable[[nn.Module], None]:
    """A function for the sum of the gradients, made from a function for their mean."""

    def total(model: nn.Module) -> None:
        average(model)
        for param in model.parameters():
            if param.grad is not None:
                param.grad *= world_size

    return total


SENT: dict[str, Callable[[int, bool], float]] = {
    "all_reduce": lambda nodes, _: 2 * (nodes - 1) / nodes,  # a ring of slices
    "all_gather": lambda nodes, _: nodes - 1,  # a ring of whole tensors
    "all_gather_into_tensor": lambda nodes, _: (nodes - 1) / nodes,
    "reduce_scatter": lambda nodes, _: nodes - 1,
    "reduce_scatter_tensor": lambda nodes, _: nodes - 1,
    **dict.fromkeys(("reduce", "gather"), lambda _, is_root: 0 if is_root else 1),
    **dict.fromkeys(("broadcast", "scatter"), lambda nodes, is_root: nodes - 1 if is_root else 0),
    **dict.fromkeys(("send", "isend"), lambda *_: 1),
}
"""What a node sends, in units of the call's first tensor: depends on the number of nodes and on who is the root."""


def slow_link(mbit_per_s: float) -> None:
    """Simulate a slow link: before each collective, sleep for as long as the link would need to send the data."""

    def slowed(name: str, collective: Callable[..., object]) -> Callable[..., object]:
        def call(*args: Any, **kwargs: Any) -> object:
            given = [*args, *kwargs.values()]
            tensor = next(each for each in given if isinstance(each, Tensor))
            root = next((each for each in given if type(each) is int), 0)
            times = SENT[name](dist.get_world_size(), dist.get_rank() == root)
            time.sleep(times * 8 * tensor.nbytes / (1e6 * mbit_per_s))
            return collective(*args, **kwargs)

        return call

    for name in SENT:
        setattr(dist, name, slowed(name, getattr(dist, name)))


def synchronised(device: torch.device) -> float:
    """The time at which the device has finished its work; a GPU would otherwise still be computing."""
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
    """One step; returns the loss on this node's samples and the seconds of averaging. `delay_s` makes a node slow."""
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


def work(args: argparse.Namespace, rank: int) -> None:
    """Train on one node, from meeting the others to the test."""
    dist_init(args.n_devices, rank, args.master_addr, args.master_port)
    device = device_of(args.gpu)
    torch.manual_seed(args.seed + rank)  # nodes start with different weights until init_parameters
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
            else:  # first the step with the node's own gradients, then the average of the parameters
                loss, _ = train_step(model, optimizer, inputs, wanted, lambda model: None, delay_s)
                before_s = synchronised(device)
                average(model)
                seconds = synchronised(device) - before_s
            averaging_s, steps = averaging_s + seconds, steps + 1
            if steps % SAY_EVERY == 0:
                say(f"node {rank}  pass {one_pass + 1}  step {steps}  loss {loss:.4f}")
    averaging_ms, step_ms = (
        1e3 * seconds / steps for seconds in (averaging_s, time.perf_counter() - start_s)
    )
    say(f"node {rank}  {args.average}: {averaging_ms:.3f} ms of {step_ms:.3f} ms per step")
    test_pictures, test_labels = load_data(args.data_dir, "t10k")
    correct = accuracy(model, test_pictures.to(device), test_labels.to(device))
    weights = sum(param.double().sum().item() for param in model.parameters())
    say(f"node {rank}  test accuracy {100 * correct:.2f} %  sum of weights {weights:.6f}")
    dist.destroy_process_group()


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the flags."""
    parser = node_parser("Lab 2: train together, averaging gradients.", passes=2)
    parser.add_argument("--average", choices=AVERAGES, default="allreduce", help="collective that averages")
    choices = ("gradients", "parameters")
    parser.add_argument("--aggregate", choices=choices, default="gradients", help="what the nodes average")
    parser.add_argument("--combine", choices=("mean", "sum"), default="mean", help="mean or sum of gradients")
    parser.add_argument("--bottleneck", type=int, default=-1, help="rank of the slow node; -1: none")
    parser.add_argument("--delay", type=float, default=0.02, help="seconds by which a step is slower")
    parser.add_argument("--share", type=float, default=0.0, help="its fraction of a batch; 0: equal parts")
    parser.add_argument("--link", type=float, default=0.0, help="rate of a slow link in Mbit/s; 0: none")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="sgd", help="optimizer of every node")
    return parser.parse_args(argv)


if __name__ == "__main__":
    given = parse_args()
    work(given, given.rank)
