"""What a name costs, from the formulas that runs are counted with: bytes that a worker sends in one step."""

import re
from collections.abc import Mapping

import torch

from shoal.codecs.build import build_codec
from shoal.codecs.codec import Form, Linear
from shoal.comm.costs import COLLECTIVES, mean_elements, sends
from shoal.config.sections.compression import CompressedConfig
from shoal.explain.names import Case

ACTIVATIONS = 64 * 512
"""Numbers that one layer hands to the next in the examples: 64 samples of 512 features."""
BYTES = 4
EXAMPLE = Form((1000, 1000), torch.float32)
"""The gradient that codecs encode in the examples."""
_BY_PIECE = ("reduce_scatter", "all_gather")
"""Collectives whose cost is a function of one worker's piece."""


def sent_bytes(case: Case, axes: Mapping[str, int], params: int) -> float:
    """The bytes that a worker sends in one step, as the mean over the workers."""
    return BYTES * sum(_elements(message, axes, params) for message in case.sends)


def _elements(message: str, axes: Mapping[str, int], params: int) -> float:
    operation, size = message.split()
    found = re.fullmatch(r"(\d*)([na])(?:/(\d+))?", size)
    assert found, message
    times = int(found[1] or 1) / int(found[3] or 1)
    stages, parts, copies = (axes.get(axis, 1) for axis in ("pipeline", "tensor", "data"))
    if found[2] == "n":
        return times * params / stages / parts * fraction(operation, copies)
    members = stages if operation in ("forward", "backward") else parts
    return times * ACTIVATIONS * fraction(operation, members)


def fraction(operation: str, workers: int) -> float:
    """What a worker sends of a buffer, as a fraction of it: the mean over the workers of a collective.

    >>> fraction("all_reduce", 4), fraction("all_gather", 4), fraction("push", 4)
    (1.5, 0.75, 1.0)
    """
    if operation not in COLLECTIVES:  # one message: to a server, or from each stage but the last
        return (workers - 1) / workers if operation in ("forward", "backward") else 1.0
    return mean_elements(operation, workers, 1 if operation in _BY_PIECE else workers) / workers


def of_codec(name: str, workers: int) -> tuple[str, int, float]:
    """For the gradient of the example: how payloads travel, the bytes of one, the bytes that a worker sends."""
    codec = build_codec(CompressedConfig(codec=name).encoding_of("weight")).fitted(EXAMPLE)
    num_bytes = codec.num_bytes(EXAMPLE)
    if isinstance(codec, Linear):
        return "all_reduce", num_bytes, num_bytes * fraction("all_reduce", workers)
    return "all_gather", num_bytes, mean_elements("all_gather", workers, num_bytes)


def of_rule(params: int, workers: int) -> float:
    """Bytes that a worker sends so that all have all gradients."""
    return BYTES * mean_elements("all_gather", workers, params)


def of_algorithm(name: str, params: int, workers: int) -> list[float]:
    """Bytes that each worker sends."""
    return [BYTES * sends(name, rank, workers, params).elements for rank in range(workers)]
