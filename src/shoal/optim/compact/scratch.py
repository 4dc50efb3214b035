"""Memory for temporaries, used again for every chunk.

Memory that is allocated anew is mapped anew, page by page, which takes longer than an operation on it.
"""

from typing import final

import torch
from torch import Tensor


@final
class Scratch:
    """One buffer of float32 for each name and device.

    >>> scratch = Scratch()
    >>> buffer = scratch("moment", torch.zeros(3)).fill_(1)
    >>> scratch("moment", torch.zeros(2))
    tensor([1., 1.])
    """

    def __init__(self) -> None:
        self._buffers: dict[tuple[str, torch.device], Tensor] = {}

    def __call__(self, name: str, like: Tensor) -> Tensor:
        """A flat buffer with as many elements as a tensor has; its contents are arbitrary."""
        key, numel = (name, like.device), like.numel()
        buffer = self._buffers.get(key)
        if buffer is None or len(buffer) < numel:
            buffer = self._buffers[key] = torch.empty(numel, dtype=torch.float32, device=like.device)
        return buffer if len(buffer) == numel else buffer[:numel]
