"""How far the weights of two runs are apart, from their safetensors files alone."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from shoal.files import open_file

Weights = dict[str, NDArray[np.float64]]


def largest_difference(path: Path, reference: Path) -> float | None:
    """max|a − b| / max|b| of the tensor in which it is largest; none where the two files cannot be compared.

    A ratio per element would mean nothing where b is close to zero; counters are no weights and are left out.
    """
    ours, theirs = _weights(path), _weights(reference)
    if ours is None or theirs is None or _shapes(ours) != _shapes(theirs):
        return None
    return max((_apart(ours[name], theirs[name]) for name in theirs if theirs[name].size), default=0.0)


def _apart(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    apart, largest = float(np.abs(a - b).max()), float(np.abs(b).max())
    return apart / largest if largest else apart


def _weights(path: Path) -> Weights | None:
    """The weights in float64; none where the file is missing, broken, or of a kind that numpy has no word for."""
    try:
        open_file(path).close()  # safetensors would wait for the writer of a pipe
        with safe_open(path, framework="np") as file:  # pyright: ignore[reportUnknownVariableType]
            tensors = {name: np.asarray(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, TypeError, AttributeError):
        return None
    return {name: tensor.astype(np.float64) for name, tensor in tensors.items() if tensor.dtype.kind == "f"}


def _shapes(weights: Weights) -> dict[str, tuple[int, ...]]:
    return {name: weight.shape for name, weight in weights.items()}
