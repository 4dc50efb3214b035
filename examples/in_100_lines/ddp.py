"""`ddp`: gradients are added up in buckets, each as soon as backward has filled it.

    computes    forward    backward 4    backward 2    backward 0                update
    moves                                bucket 0      bucket 1      bucket 2

    shoal launch --workers 2 examples/in_100_lines/ddp.py

Phase 1, plan: a bucket has the gradients of some parameters in flat memory; parameters are taken from the last to the
first, as backward reaches them. Then in every step: phase 2, backward: the last gradient of a bucket starts its
all-reduce; phase 3, wait for all buckets; phase 4, update.

Over gloo and NCCL a bucket moves while backward computes earlier layers, as above. Workers on one machine share memory,
where data moves only inside of calls: there the buckets move in phase 3.

Costs, for P bytes of parameters on W workers: each sends 2P·(W − 1)/W a step, in few messages. Each holds parameters,
gradients and optimizer state of the whole model. Not safe: a bucket whose parameters did not all get a gradient is
never sent; this program raises an error then.
"""

import torch
from single import Batches, MakeOptimizer, Weights, adam, batches, network, report
from torch import Tensor, nn
from torch.nn import functional as F

from shoal import join
from shoal.comm.group import Group, Work

BUCKET_BYTES = 512


class Bucket:
    """Gradients that share one all-reduce."""

    def __init__(self, group: Group, params: list[Tensor]) -> None:
        self.group, self.params = group, params
        self.missing = len(params)
        self.work: Work | None = None
        self.flat = torch.zeros(sum(param.numel() for param in params), dtype=params[0].dtype)
        for param, part in zip(params, self.flat.split([param.numel() for param in params]), strict=True):
            param.grad = part.view_as(param)  # backward adds to it in place
            param.register_post_accumulate_grad_hook(self.arrived)

    def arrived(self, param: Tensor) -> None:
        """Start the all-reduce with the last gradient."""
        self.missing -= 1
        if self.missing == 0:
            self.work = self.group.all_reduce(self.flat)

    def wait(self) -> None:
        """Return when the gradients are the sums over the workers."""
        if self.work is None:
            raise RuntimeError(f"{self.missing} parameters of a bucket got no gradient")
        self.work.wait()
        self.missing, self.work = len(self.params), None


def plan(group: Group, model: nn.Module) -> list[Bucket]:
    """Phase 1: a bucket is full as soon as it has BUCKET_BYTES."""
    buckets, params, num_bytes = [], [], 0
    for param in reversed(list(model.parameters())):
        params.append(param)
        num_bytes += param.nbytes
        if num_bytes >= BUCKET_BYTES:
            buckets.append(Bucket(group, params))
            params, num_bytes = [], 0
    return [*buckets, Bucket(group, params)] if params else buckets


def train(group: Group, model: nn.Module, batches: Batches, make_optimizer: MakeOptimizer) -> Weights:
    """This worker's weights after one step per batch."""
    for param in model.parameters():
        group.broadcast(param, root=0).wait()
    buckets = plan(group, model)
    optimizer = make_optimizer(model.parameters())
    for inputs, labels in batches:
        # Phase 2, backward: it calls `arrived` as gradients become final.
        x, y = (each.tensor_split(group.size)[group.rank] for each in (inputs, labels))
        for bucket in buckets:
            bucket.flat.zero_()  # not `zero_grad`, which would drop the views
        loss = F.cross_entropy(model(x), y, reduction="sum") / len(labels)
        loss.backward()
        # Phase 3, wait.
        for bucket in buckets:
            bucket.wait()
        # Phase 4, update.
        optimizer.step()
    return dict(model.named_parameters())


if __name__ == "__main__":
    group = join()
    did = f"ddp: {group.size} workers, buckets of {BUCKET_BYTES} bytes or more"
    report(group, did, train(group, network(), batches(), adam))
