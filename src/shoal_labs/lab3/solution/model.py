"""Trains the network of the labs on several nodes that divide the data set. Each node runs this script:

python model.py --n_devices=2 --rank=0
python model.py --n_devices=2 --rank=1
"""

import argparse
import time
from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from shoal_labs.handout.common import Net, accuracy, device_of, load_data, node_parser, say
from shoal_labs.lab3.solution.dist_utils import dist_init, init_parameters, sum_gradients, sum_over_nodes
from shoal_labs.lab3.solution.sampler import LabelSampler, MyRandomSampler, MySampler

SAMPLERS = {"partition": MySampler, "sampling": MyRandomSampler, "label": LabelSampler}


def equally_many(loader: DataLoader[tuple[Tensor, ...]], steps: int) -> Iterator[tuple[Tensor, ...]]:
    """Yield `steps` batches; those after this node's last sample are empty, so that no other node waits forever."""
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
    """Train one epoch on this node's samples, together with the others; returns the mean loss over all nodes."""
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


def work(args: argparse.Namespace, rank: int) -> None:
    """Train on one node, from meeting the others to the test."""
    dist_init(args.n_devices, rank, args.master_addr, args.master_port)
    device = device_of(args.gpu)
    torch.manual_seed(args.seed + rank)  # nodes start with different weights until init_parameters
    model = Net().to(device)
    init_parameters(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    data = TensorDataset(*load_data(args.data_dir, "train"))
    pictures, labels = (tensor.to(device) for tensor in load_data(args.data_dir, "t10k"))
    sampler = SAMPLERS[args.division](data, args.n_devices, rank, shuffle=True, seed=args.seed)
    per_node = max(1, args.batch_size // args.n_devices)
    loader = DataLoader(data, batch_size=per_node, sampler=sampler)
    kind, nodes = SAMPLERS[args.division], range(args.n_devices)
    most_samples = max(len(kind(data, args.n_devices, node)) for node in nodes)
    steps = -(-most_samples // per_node)

    say(f"node {rank} starts training: {len(sampler):,} of {len(data):,} samples")
    seconds = 0.0
    for epoch in range(args.passes):
        start_s = time.perf_counter()
        loss = train_epoch(model, optimizer, loader, epoch, steps, device)
        seconds += time.perf_counter() - start_s
        if rank == 0:
            correct = accuracy(model, pictures, labels)
            say(f"epoch {epoch + 1}  loss {loss:.4f}  test accuracy {100 * correct:.2f} %  {seconds:.2f} s")
    weights = sum(param.double().sum().item() for param in model.parameters())
    rate = args.passes * len(data) / seconds
    say(f"node {rank}  {rate:,.0f} samples/s over all nodes  sum of weights {weights:.6f}")
    dist.destroy_process_group()


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the flags."""
    parser = node_parser("Lab 3: train together on a divided data set.", passes=3)
    parser.add_argument("--division", choices=SAMPLERS, default="partition", help="division of the data set")
    return parser.parse_args(argv)


if __name__ == "__main__":
    given = parse_args()
    work(given, given.rank)
