"""Values for a model on the meta device, from a safetensors file: each worker reads its part of every tensor."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from shoal.errors import CheckpointError, ConfigError
from shoal.events.fingerprint import DTYPES
from shoal.files import open_file
from shoal.strategies.pieces.state import check_names
from shoal.strategies.zero.meta import Keep, Part, Slot


@final
class WeightsFile:
    """The values in a safetensors file, under the names of the model's `state_dict()`; tied tensors need one of theirs.

    The file is mapped, and a worker touches the pages of its own parts. A file of another model is refused before
    anything is changed: with a tensor too many or too few, of another shape or dtype.
    """

    def __init__(self, path: Path, model: nn.Module, slots: Sequence[Slot]) -> None:
        self._path = path
        saved: Any = model.state_dict(keep_vars=True)
        state: dict[str, Tensor] = {name: each for name, each in saved.items() if isinstance(each, Tensor)}
        for slot in slots:
            if slot.name not in state:
                raise ConfigError(
                    f"'{slot.attribute}' of {slot.owner} is a buffer that is not saved, so {path} gives it no values",
                    'Make this buffer with device="cpu", or register it with persistent=True.',
                )
        try:
            open_file(path).close()  # safetensors would wait for the writer of a pipe
            with self._opened() as file:
                shapes = {key: tuple(file.get_slice(key).get_shape()) for key in file.keys()}  # noqa: SIM118
                dtypes = {key: file.get_slice(key).get_dtype() for key in shapes}
        except OSError as error:
            raise CheckpointError(f"cannot read weights from {path}: {error}") from None
        except SafetensorError as error:
            raise CheckpointError(
                f"cannot read weights from {path}: it is no whole safetensors file ({error})",
                "Copy it again if it was cut off. One file has all weights: "
                "safetensors.torch.save_file(model.state_dict(), path).",
            ) from None
        names: dict[int, list[str]] = {}
        for name, tensor in state.items():
            names.setdefault(id(tensor), []).append(name)
        self._keys = {
            each[0]: next((name for name in each if name in shapes), each[0]) for each in names.values()
        }
        """The name in the file of each tensor, by its first name in the model."""
        try:
            check_names({key: state[key] for key in self._keys.values()}, shapes, "", state)
        except CheckpointError as error:
            raise CheckpointError(f"{path}: {error.message}", error.hint) from None
        for key, shape in shapes.items():
            dtype = DTYPES.get(str(state[key].dtype).removeprefix("torch."))
            if shape != tuple(state[key].shape):
                raise CheckpointError(
                    f"{path}: the weights are of another model: '{key}' is {shape} there and "
                    f"{tuple(state[key].shape)} here"
                )
            if dtypes[key] != dtype:
                raise CheckpointError(
                    f"{path}: '{key}' is {dtypes[key]} there and {dtype or state[key].dtype} here",
                    "Build the model in the dtype of the file: with torch.device('meta'): model = Net().to(dtype).",
                )

    def __call__(self, keep: Keep) -> None:
        """Give `keep` the tensors, one after the other."""
        with self._opened() as file:
            for name, key in self._keys.items():
                keep(name, _part_of_slice(file, key))

    def _opened(self) -> Any:
        return safe_open(self._path, framework="pt")  # pyright: ignore[reportUnknownVariableType]


def _part_of_slice(file: Any, key: str) -> Part:
    """The parts of a tensor in a file: the rows that have the elements are read."""
    rows = file.get_slice(key)
    shape = rows.get_shape()
    length = math.prod(shape[1:])
    if not shape or not length:
        whole: Tensor = file.get_tensor(key)
        return lambda start, stop: whole.reshape(-1)[start:stop]

    def part(start: int, stop: int) -> Tensor:
        first = start // length
        return rows[first : -(-stop // length)].reshape(-1)[start - first * length : stop - first * length]

    return part
