"""How far two runs are apart, from their safetensors files alone: after one step, and at the end.

After one step from the same state only rounding may separate two correct runs, so that difference has a bound. At the
end of training it has none: a rounding flips a ReLU, and every later step amplifies the change.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from shoal.files import open_file

Weights = dict[str, NDArray[np.float64]]

FIRST_STEP_BOUND = 1e-4
"""The largest difference that rounding explains after one step: some 800 roundings of float32.

A sum over a batch, added in another order, differs by 1e-7 to 1e-5; without one of its 64 samples it differs by 1e-2.
"""
FIRST_MOMENTS = (".exp_avg", ".momentum_buffer")
"""Optimizer states that are the gradient after the first step, up to a factor."""


def largest_difference(path: Path, reference: Path) -> float | None:
    """max|a − b| / max|b| of the tensor in which it is largest; None if the two files cannot be compared.

    A ratio per element would mean nothing where b is close to zero. Counters are not weights and are left out.
    """
    return _largest(_weights(path), _weights(reference))


def first_step_difference(path: Path, reference: Path) -> float | None:
    """The same, of the states after the first step: of the optimizer's first moment, or of the weights without one.

    Adam divides the gradient by its own size. Where a gradient is close to zero, this turns a rounding into a whole
    update; the first moment shows the gradient itself.
    """
    return _largest(_gradients(_weights(path)), _gradients(_weights(reference)))


def _largest(ours: Weights | None, theirs: Weights | None) -> float | None:
    if ours is None or theirs is None or _shapes(ours) != _shapes(theirs):
        return None
    return max((_apart(ours[name], theirs[name]) for name in theirs if theirs[name].size), default=0.0)


def _apart(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    apart, largest = float(np.abs(a - b).max()), float(np.abs(b).max())
    return apart / largest if largest else apart


def _gradients(state: Weights | None) -> Weights | None:
    moments = {name: tensor for name, tensor in (state or {}).items() if name.endswith(FIRST_MOMENTS)}
    return moments or state


def _weights(path: Path) -> Weights | None:
    """The tensors in float64; None if the file is missing, damaged, or has a dtype that numpy does not know."""
    try:
        open_file(path).close()  # safetensors would wait for the writer of a pipe
        with safe_open(path, framework="np") as file:  # pyright: ignore[reportUnknownVariableType]
            tensors = {name: np.asarray(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, TypeError, AttributeError):
        return None
    return {name: tensor.astype(np.float64) for name, tensor in tensors.items() if tensor.dtype.kind == "f"}


def _shapes(weights: Weights) -> dict[str, tuple[int, ...]]:
    return {name: weight.shape for name, weight in weights.items()}
