"""`pipeline`, schedule 1F1B: each worker holds consecutive layers, and micro-batches follow each other through them.

    rank 0    F0  F1  F2          B0  F3  B1      B2      B3   update
    rank 1        F0  F1      B0  F2  B1  F3  B2      B3       update
    rank 2            F0  B0  F1  B1  F2  B2  F3  B3           update          4 micro-batches, p = 3 stages

    shoal launch --workers 2 examples/in_100_lines/pipeline.py

Fₖ: receive the activations of micro-batch k, run the layers, send the result. Bₖ: receive the gradient of that result,
run backward, send the gradient of the input. Gradients of micro-batches add up.

Phase 1, warm-up: stage s (from 0) runs p − s − 1 forwards, until the first gradient can arrive. Phase 2, steady state:
one forward, one backward. Phase 3, cool-down: the backwards that are left. Phase 4, update: of this stage's layers.

Costs, with m micro-batches: one activation and one gradient per micro-batch and pair of neighbours; a stage is idle for
(p − 1) / (m + p − 1) of the time. A worker holds parameters, gradients and optimizer state of its own layers, and the
activations of at most p − s micro-batches.
"""

import torch
from single import Batches, MakeOptimizer, Weights, adam, batches, network, report, require
from torch import Tensor, nn
from torch.nn import functional as F

from shoal import join
from shoal.comm.group import Group


class Stage:
    """The layers of one worker, and what is in flight through them."""

    def __init__(self, group: Group, model: nn.Sequential, example: Tensor) -> None:
        first, last = (len(model) * each // group.size for each in (group.rank, group.rank + 1))
        self.layers = model[first:last]  # with the names of the whole
        self.group, self.width = group, model[:first](example).shape[1]
        self.before, self.after = group.rank - 1, group.rank + 1
        self.sent, self.in_flight = [], []

    def send(self, tensor: Tensor, to: int) -> None:
        """Do not wait: both neighbours may be sending. The memory is the group's until the end of the step."""
        self.sent.append((tensor, self.group.send(tensor, to)))

    def forward(self, inputs: Tensor, labels: Tensor, num_samples: int) -> None:
        """Fₖ. The last stage goes on to the loss."""
        if self.before >= 0:
            inputs = torch.empty(len(labels), self.width, dtype=inputs.dtype)
            self.group.recv(inputs, self.before).wait()
            inputs.requires_grad_()
        outputs = self.layers(inputs)
        if self.after < self.group.size:
            self.send(outputs.detach(), self.after)
        else:
            outputs = F.cross_entropy(outputs, labels, reduction="sum") / num_samples
        self.in_flight.append((inputs, outputs))

    def backward(self) -> None:
        """Bₖ, for the oldest micro-batch in flight; its activations are freed."""
        inputs, outputs = self.in_flight.pop(0)
        gradient = torch.ones_like(outputs)  # of the loss
        if self.after < self.group.size:
            self.group.recv(gradient, self.after).wait()
        outputs.backward(gradient)
        if self.before >= 0:
            self.send(inputs.grad, self.before)

    def step(self, inputs: Tensor, labels: Tensor, num_microbatches: int) -> None:
        """Phases 1 to 3, for one batch."""
        parts = list(zip(inputs.chunk(num_microbatches), labels.chunk(num_microbatches), strict=True))
        warm_up = min(self.group.size - self.group.rank - 1, len(parts))
        for number, (x, y) in enumerate(parts):
            self.forward(x, y, len(labels))
            if number >= warm_up:
                self.backward()
        while self.in_flight:
            self.backward()
        while self.sent:
            self.sent.pop()[1].wait()


def train(group: Group, model: nn.Sequential, batches: Batches, make_optimizer: MakeOptimizer) -> Weights:
    """The weights of this worker's layers after one step per batch."""
    stage = Stage(group, model, example=batches[0][0][:1])
    optimizer = make_optimizer(stage.layers.parameters())
    for inputs, labels in batches:
        optimizer.zero_grad()
        stage.step(inputs, labels, num_microbatches=4)
        optimizer.step()  # phase 4
    return dict(stage.layers.named_parameters())


if __name__ == "__main__":
    group = join()
    require(group.size <= 3, f"3 layers have parameters, so there cannot be {group.size} stages")
    weights = train(group, network(), batches(), adam)
    report(group, f"pipeline, 1f1b: {group.size} stages, 4 micro-batches", weights)
