"""Large gradients in chunks that fit the cache of a processor."""

from collections.abc import Iterator

from torch import Tensor

CHUNK = 1 << 16
"""Elements of a chunk: with its temporaries it fits the second-level cache, and no page is mapped anew."""


def chunks(flat: Tensor) -> Iterator[tuple[int, Tensor]]:
    """The chunks of a flat tensor, each with its start; on a GPU, the whole."""
    step = CHUNK if flat.is_cpu else max(1, flat.numel())
    for start in range(0, flat.numel(), step):
        yield start, flat[start : start + step]
