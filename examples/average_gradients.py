"""Data parallelism by hand: a part of the data for every worker, and the mean of their gradients.

    shoal launch --workers 2 examples/average_gradients.py
    torchrun --standalone --nproc-per-node 3 examples/average_gradients.py
    python examples/average_gradients.py                        # one worker: the same losses

`--sizes` makes the parts uneven: `shoal launch --workers 2 examples/average_gradients.py -- --sizes 0.9,0.1`.
`--plain-mean` takes the mean of the workers' means, which is then not the mean over the samples: the losses differ.

Programs of this kind are often wrong without an error message:

1. The parts are cut with `int(fraction * len(dataset))`: the samples that remain belong to no worker. With random
   parts, workers that shuffle with different seeds also overlap. `DatasetPartitioner` gives every sample to one part.
2. `grad /= world_size` after uneven batches weighs every worker the same, so the samples of a small batch count more.
   `average_gradients(model, num_samples=n)` weighs by samples.
3. A worker whose last batch is missing makes fewer calls than the others, and these wait forever. Here a worker
   without samples takes part with a weight of zero.
4. A parameter that a worker did not use has `grad = None`: that worker skips a call, and from then on the workers sum
   gradients of different parameters. `average_gradients` counts a missing gradient as zeros.
5. Models made without a common seed start from different weights and stay different. `average_gradients` compares them.
6. Each worker prints the loss of its own part. Here the losses of all samples are summed.
"""

import argparse
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import shoal
from shoal.models.initialise import initialise

SAMPLES, STEPS, RATE = 300, 5, 0.5


def main() -> None:
    """Train by gradient descent; every step uses all samples, so the losses do not depend on the division."""
    options = parse()
    group = shoal.join()
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(SAMPLES, 8, generator=generator)
    labels = (inputs.sum(dim=1) > 0).long()
    sizes = options.sizes or [1 / group.size] * group.size
    part = shoal.DatasetPartitioner(TensorDataset(inputs, labels), sizes).use(group.rank)
    own_inputs, own_labels = (torch.stack(column) for column in zip(*part, strict=True))

    model = nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 2))
    initialise(model, seed=0)  # the same weights on every worker
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(own_inputs), own_labels)
        loss.backward()
        shoal.average_gradients(model, group, num_samples=None if options.plain_mean else len(part))
        optimizer.step()
        total = torch.tensor([loss.item() * len(part)], dtype=torch.float64)
        group.all_reduce(total).wait()
        if group.rank == 0:
            sys.stdout.write(f"step {step + 1}: loss {total.item() / SAMPLES:.6f}\n")
    group.close()


def parse() -> argparse.Namespace:
    """The flags."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=lambda text: [float(size) for size in text.split(",")])
    parser.add_argument("--plain-mean", action="store_true")
    parser.add_argument("--local-rank", "--local_rank", type=int, help="set by torch.distributed.launch")
    return parser.parse_args()


if __name__ == "__main__":
    main()
