"""Deep Gradient Compression: top-k of gradients with momentum, accumulated on each worker."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from shoal.codecs.codec import Form, Payload
from shoal.codecs.top_k import TopK


@dataclass(frozen=True)
class Dgc(TopK):
    """Top-k with feedback, whose residual accumulates the momentum u and not the gradient g::

        g ← g·min(1, clip / (√W·‖g‖))      local clipping (clip = 0: none), for each parameter
        u ← momentum·u + g                 momentum correction
        v ← v + u                          v is the residual
        send the k largest of v; where sent, v ← 0 and u ← 0 (momentum factor masking)

    With plain feedback, an element that waits m steps is sent as the sum of its gradients, and its momentum begins only
    then. Here it is sent as the sum of its velocities, as if it had been updated in every step. Use it with an
    optimizer without momentum. Two tensors of the gradient's size are kept: u and the residual. Bytes as for top-k.

    Lin, Han, Mao, Wang and Dally, Deep Gradient Compression: Reducing the Communication Bandwidth for Distributed
    Training, 2018. Its warm-up lowers the ratio exponentially, as `--exchange.warmup` does.
    """

    MEMORY: ClassVar[str] = "4Ψ"
    momentum: float
    clip: float

    def new_memory(self, form: Form, seed: int) -> Tensor:
        """The velocity u."""
        del seed
        return torch.zeros(form.shape, dtype=form.dtype, device=form.device)

    def correct(self, gradient: Tensor, memory: Tensor | None, workers: int) -> Tensor:
        """Clip the gradient and make it the velocity."""
        if self.clip:
            most = self.clip / math.sqrt(workers)
            gradient.mul_((most / torch.linalg.vector_norm(gradient)).clamp(max=1.0))
        if memory is not None:
            gradient.add_(memory, alpha=self.momentum)
        return gradient.clone()

    def remember(self, x: Tensor, payload: Payload, memory: Tensor | None, seed: int) -> Tensor | None:
        """The velocity, 0 where it was sent."""
        del x, seed
        if memory is not None:
            memory.view(-1)[payload[1].long()] = 0
        return memory
