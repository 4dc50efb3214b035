"""Select the elements of largest magnitude: exact, and fast on large gradients by a sampled threshold."""

import math

import numpy as np
import torch
from torch import Tensor

from shoal.codecs.chunks import CHUNK, chunks
from shoal.codecs.codec import generator

SMALL = 1 << 16
"""Up to this many elements, torch.topk alone is fast."""
HITS = 1000
"""Expected number of sampled elements among the largest: their number is then known to 3 %."""
MARGIN = 1.2
"""Candidates per selected element: six standard deviations above what is needed."""


def count(ratio: float, numel: int) -> int:
    """How many elements a ratio selects: at least one, unless there are none.

    >>> count(0.01, 1000), count(0.01, 10), count(1.0, 7), count(0.5, 0)
    (10, 1, 7, 0)
    """
    # The product may exceed a whole number by a rounding error.
    return min(numel, max(1, math.ceil(ratio * numel - 1e-9)))


def largest(x: Tensor, k: int, seed: int) -> Tensor:
    """The positions of the k elements of largest magnitude, in no particular order.

    On large gradients: phase 1, a sample gives a threshold that about 1.2·k elements reach. Phase 2, one pass collects
    these candidates. Phase 3, the k largest of them. If fewer than k reach the threshold, all elements are sorted, so
    the result is always exact.
    """
    numel = x.numel()
    if k >= numel:
        return torch.arange(numel, device=x.device)
    if numel > SMALL and MARGIN * k < numel / 4:
        candidates = reaching(x, sampled_threshold(x, MARGIN * k / numel, seed))
        if candidates.numel() >= k:
            return candidates[x[candidates].abs_().topk(k, sorted=False).indices]
    return x.abs().topk(k, sorted=False).indices


def sampled_threshold(x: Tensor, ratio: float, seed: int) -> Tensor:
    """A magnitude that about this fraction of the elements reaches, estimated from a sample."""
    size = min(x.numel(), math.ceil(HITS / ratio))
    if size < x.numel():
        x = x[torch.randint(x.numel(), (size,), generator=generator(seed, x.device), device=x.device)]
    return x.abs().topk(count(ratio, size), sorted=False).values.amin()


def reaching(x: Tensor, threshold: Tensor | float) -> Tensor:
    """The positions of the elements whose magnitude reaches a threshold, ascending.

    On a CPU, chunk by chunk: no temporary is as large as the gradient.
    """
    if not x.is_cpu:
        return (x.abs() >= threshold).nonzero().view(-1)
    found = [np.empty(0, dtype=np.int64)]
    magnitudes, reaches = x.new_empty(min(CHUNK, x.numel())), torch.empty(CHUNK, dtype=torch.bool)
    for start, chunk in chunks(x):
        size = chunk.numel()
        torch.ge(torch.abs(chunk, out=magnitudes[:size]), threshold, out=reaches[:size])
        # Numpy finds the few that are true several times as fast as torch does.
        found.append(reaches[:size].numpy().nonzero()[0] + start)
    return torch.from_numpy(np.concatenate(found))
