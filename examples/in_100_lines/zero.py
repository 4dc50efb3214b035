"""`zero`, stage 3: parameters, gradients and optimizer state are all divided among the workers (ZeRO, FSDP).

    worker i holds θᵢ ──▶ gather θ, forward, free ──▶ gather θ, backward, free ──▶ gᵢ = (Σ g)ᵢ ──▶ θᵢ ← update(θᵢ, gᵢ)
                          └───────────── layer by layer ─────────────────────────────────┘

    shoal launch --workers 2 examples/in_100_lines/zero.py

A unit is one layer. Phase 1, divide: each worker keeps 1/W of a unit's flat parameters. Then in every step: phase 2,
gather a unit's parameters for the forward pass of its layer, and free them after it; phase 3, gather them again for its
backward pass; phase 4, reduce-scatter the unit's gradients, which gives worker i the sum of part i, and free both;
phase 5, update this worker's parts.

Stage 2 differs in phases 2 and 3: it keeps all parameters, and gathers them once, after the update. Stage 1 also keeps
all gradients until the end of the step.

Costs, for P bytes of parameters on W workers with Adam: two all-gathers and one reduce-scatter of P a step, 1.5 times
the bytes of `ddp`. Each worker holds 4P/W, and one whole unit with its gradients at a time. No unit is gathered
before its layer needs it, so all workers wait for each gather.
"""

import torch
from single import Batches, MakeOptimizer, Weights, adam, batches, network, report
from torch import Tensor, nn
from torch.nn import functional as F

from shoal import join
from shoal.comm.group import Group


class Unit:
    """The parameters of one layer, whole only while the layer computes."""

    def __init__(self, group: Group, layer: nn.Module) -> None:
        self.group, self.params = group, list(layer.parameters())
        self.missing = len(self.params)
        # Phase 1, divide rank 0's weights: W equal parts; zeros fill up the last one.
        sizes = [param.numel() for param in self.params]
        padding = -sum(sizes) % group.size
        flats = [*(param.detach().flatten() for param in self.params), self.params[0].new_zeros(padding)]
        self.whole = torch.cat(flats).detach()
        group.broadcast(self.whole, root=0).wait()
        self.part = nn.Parameter(self.whole.chunk(group.size)[group.rank].clone())
        for param, view in zip(self.params, self.whole.split([*sizes, padding]), strict=False):
            param.data = view.view_as(param)
            param.register_post_accumulate_grad_hook(self.arrived)
        self.num_bytes = self.whole.nbytes
        self.free()
        layer.register_forward_pre_hook(lambda *_: self.gather())
        layer.register_forward_hook(self.computed)

    def gather(self) -> None:
        """Phases 2 and 3: join all workers' parts; the parameters are views of this memory."""
        self.whole.untyped_storage().resize_(self.num_bytes)
        self.group.all_gather(self.whole, self.part).wait()

    def free(self) -> None:
        """Return the memory; the parameters are empty views until `gather` is called again."""
        self.whole.untyped_storage().resize_(0)

    def computed(self, layer: nn.Module, inputs: tuple[Tensor, ...], outputs: Tensor) -> None:
        """The end of phase 2; phase 3 begins when the gradient of the outputs is there."""
        self.free()
        outputs.register_hook(lambda _: self.gather())

    def arrived(self, param: Tensor) -> None:
        """Phase 4, with the last gradient of the unit: sum, keep this worker's part."""
        self.missing -= 1
        if self.missing == 0:
            flats = [param.grad.flatten() for param in self.params]
            padding = self.whole.numel() - sum(flat.numel() for flat in flats)
            gradients = torch.cat([*flats, flats[0].new_zeros(padding)])
            self.part.grad = torch.empty_like(self.part)
            self.group.reduce_scatter(self.part.grad, gradients).wait()
            for param in self.params:
                param.grad = None
            self.missing = len(self.params)
            self.free()


def train(group: Group, model: nn.Module, batches: Batches, make_optimizer: MakeOptimizer) -> Weights:
    """All weights after one step per batch, gathered to look at them."""
    units = [Unit(group, layer) for layer in model if list(layer.parameters())]
    optimizer = make_optimizer([unit.part for unit in units])
    for inputs, labels in batches:
        # Phases 2 to 4 happen where `model` and `backward` reach a unit.
        x, y = (each.tensor_split(group.size)[group.rank] for each in (inputs, labels))
        loss = F.cross_entropy(model(x), y, reduction="sum") / len(labels)
        loss.backward()
        # Phase 5, update.
        optimizer.step()
    for unit in units:
        unit.gather()
    return dict(model.named_parameters())


if __name__ == "__main__":
    group = join()
    did = f"zero, stage 3: {group.size} workers, each layer gathered for forward and for backward"
    report(group, did, train(group, network(), batches(), adam))
