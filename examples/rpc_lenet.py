"""Lenet on three processes over torch's own RPC: what `shoal train --strategy rpc --workers 3` does, written out.

`worker0` drives, `worker1` has the convolutions, `worker2` the fully connected layers: python examples/rpc_lenet.py
"""

import os
import sys

import torch
from torch import Tensor, multiprocessing, nn
from torch.distributed import autograd, rpc
from torch.distributed.optim import DistributedOptimizer

from shoal.config.sections.data import DigitsConfig
from shoal.data import load
from shoal.models.lenet import lenet


class Part(nn.Module):
    """Some layers of lenet, on the worker that constructs it."""

    def __init__(self, first: int, last: int) -> None:
        super().__init__()
        self.layers = lenet()[first:last]

    def forward(self, inputs: "rpc.RRef[Tensor]") -> Tensor:
        """The outputs; another worker has the inputs."""
        return self.layers(inputs.to_here())

    def references(self) -> list["rpc.RRef[Tensor]"]:
        """References to all parameters, for the optimizer."""
        return [rpc.RRef(param) for param in self.parameters()]


def work(rank: int, steps: int) -> None:
    """One of the three workers; those that do not drive answer until `shutdown`."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29541"}
    os.environ |= {"TP_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo"}  # RPC executes what it receives
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=3)
    if rank == 0:
        data = load(DigitsConfig())
        parts = [rpc.remote("worker1", Part, (0, 7)), rpc.remote("worker2", Part, (7, 10))]
        params = [param for part in parts for param in part.rpc_sync().references()]
        optimizer = DistributedOptimizer(torch.optim.SGD, params, lr=0.1)
        for step in range(steps):
            batch = data.batch(data.train, torch.arange(64) + 64 * (step % 100))
            with autograd.context() as context:
                features = parts[0].remote().forward(rpc.RRef(batch.inputs))
                loss = nn.functional.cross_entropy(parts[1].rpc_sync().forward(features), batch.labels)
                autograd.backward(context, [loss])
                optimizer.step(context)
            sys.stdout.write(f"step {step + 1}: loss {loss.item():.4f}\n")
    rpc.shutdown()


if __name__ == "__main__":
    multiprocessing.spawn(work, (int(sys.argv[1]) if len(sys.argv) > 1 else 50,), nprocs=3)
