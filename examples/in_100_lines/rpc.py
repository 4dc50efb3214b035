"""`rpc`: a driver calls the layers that other workers hold, by remote procedure calls (torch's RPC framework).

    rank 0, the driver    x ──┐                                           ┌── y ──▶ loss
    rank 1, a stage           └──▶ layers 0 to 2 ── h ──┐                 │
    rank 2, a stage                                     └──▶ layers 3, 4 ─┘

    shoal launch --workers 3 examples/in_100_lines/rpc.py

Phase 1, place: the driver creates a stage on every other worker, and keeps a remote reference (RRef) to it. Then in
every step: phase 2, forward: a call of each stage, which gets a reference to the result of the call before, so
activations go from stage to stage; phase 3, loss: the driver fetches the outputs; phase 4, backward: distributed
autograd follows the calls back, and keeps gradients in a context; phase 5, update: on every stage.

Costs, for each step: inputs, activations and outputs move forward once, gradients of activations and outputs back. One
stage computes at a time. A stage holds parameters, gradients and optimizer state of its own layers.

Not safe: RPC executes what it receives, so it listens on loopback alone. Workers must be processes.
"""

import logging
import os
import secrets
import tempfile
import warnings
from collections import OrderedDict
from pathlib import Path

import torch
from single import Batches, MakeOptimizer, Weights, adam, batches, network, report, require
from torch import Tensor, nn
from torch.distributed import autograd, rpc
from torch.distributed.optim import DistributedOptimizer
from torch.nn import functional as F

from shoal import join
from shoal.comm.group import Group


class Stage(nn.Sequential):
    """Some layers, on the worker that constructs this."""

    def forward(self, inputs: "rpc.RRef[Tensor]") -> Tensor:
        """The outputs; `to_here` fetches the inputs from the worker that has them."""
        return super().forward(inputs.to_here())

    def references(self) -> "list[rpc.RRef[Tensor]]":
        """References to the parameters, for the optimizer."""
        return [rpc.RRef(param) for param in self.parameters()]


def connect(group: Group) -> Path:
    """Start this worker's agent. All meet at a file, for whose name rank 0 draws a number; its path is returned."""
    os.environ |= {"TP_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo"}
    number = torch.tensor(secrets.randbits(62))
    group.broadcast(number, root=0).wait()
    meeting = Path(tempfile.gettempdir(), f"rpc-{number.item()}")
    options = rpc.TensorPipeRpcBackendOptions(init_method=meeting.as_uri())
    rpc.init_rpc(f"worker{group.rank}", None, group.rank, group.size, options)
    return meeting


def drive(num_stages: int, model: nn.Sequential, batches: Batches, make_optimizer: MakeOptimizer) -> Weights:
    """Phases 1 to 5, on rank 0."""
    # Phase 1, place.
    length = -(-len(model) // num_stages)
    parts = [OrderedDict(model[n * length : (n + 1) * length].named_children()) for n in range(num_stages)]
    stages = [rpc.remote(f"worker{rank}", Stage, (part,)) for rank, part in enumerate(parts, start=1)]
    params = [reference for stage in stages for reference in stage.rpc_sync().references()]
    optimizer = DistributedOptimizer(make_optimizer, params)
    for inputs, labels in batches:
        with autograd.context() as context:
            # Phase 2, forward.
            value = rpc.RRef(inputs)
            for stage in stages:
                value = stage.remote().forward(value)
            # Phase 3, loss.
            loss = F.cross_entropy(value.to_here(), labels, reduction="sum") / len(labels)
            # Phase 4, backward.
            autograd.backward(context, [loss])
            # Phase 5, update.
            optimizer.step(context)
    return {name: weight for stage in stages for name, weight in stage.rpc_sync().state_dict().items()}


def train(group: Group, model: nn.Sequential, batches: Batches, make_optimizer: MakeOptimizer) -> Weights:
    """On the driver, all weights after one step per batch; the others answer calls until it is done."""
    meeting = connect(group)
    weights = drive(group.size - 1, model, batches, make_optimizer) if group.rank == 0 else {}
    rpc.shutdown()
    group.barrier().wait()
    meeting.unlink(missing_ok=True)
    return weights


if __name__ == "__main__":
    logging.disable()  # torch only maintains RPC, and warns about that in every worker
    warnings.simplefilter("ignore")
    group = join()
    require(group.size > 1, "a driver needs stages: shoal launch --workers 3 examples/in_100_lines/rpc.py")
    report(group, f"rpc: {group.size - 1} stages, one driver", train(group, network(), batches(), adam))
