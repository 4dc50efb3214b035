"""Pieces: the state of a run, each with its name under `single` and its place in the whole.

A worker holds pieces of parameters, buffers and optimizer state. Checkpoints, the exported model, its fingerprint and
loading under another strategy, mesh or number of workers all follow from pieces, parameter by parameter: no worker
ever has to hold the whole model.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Place:
    """The place of a part in the whole tensor: a box, or a range of the flattened elements.

    ::

        shape (4, 3), start (2, 0)     rows 2 and 3 of a tensor with 4 rows, if the part has shape (2, 3)
        shape (4, 3), start 5          elements 5, 6, … of the 12, if the part is flat
    """

    shape: tuple[int, ...]
    """The shape of the whole."""
    start: tuple[int, ...] | int
    """The first index of a box in each dimension, or the first element of a range."""
    replica: int = 0
    """The number of this copy among workers that hold the same part; copy 0 is saved."""

    @classmethod
    def whole(cls, tensor: Tensor, replica: int = 0) -> "Place":
        """The place of a tensor that is the whole."""
        return cls(tuple(tensor.shape), (0,) * tensor.dim(), replica)

    @property
    def is_first(self) -> bool:
        """Whether the part starts at the beginning of the whole: one worker per replica has such a part."""
        return self.start == 0 or (isinstance(self.start, tuple) and not any(self.start))

    def part(self, whole: Tensor, like: tuple[int, ...]) -> Tensor:
        """The view of the whole that corresponds to a part of shape `like`."""
        if isinstance(self.start, int):
            return whole.reshape(-1)[self.start : self.start + like[0]]
        return whole[tuple(slice(first, first + size) for first, size in zip(self.start, like, strict=True))]


@dataclass(frozen=True)
class Piece:
    """A part of the state: `model.fc1.weight`, `optim.fc1.weight.exp_avg`, `random.cpu`."""

    name: str
    tensor: Tensor
    place: Place

    @classmethod
    def whole(cls, name: str, tensor: Tensor, replica: int = 0) -> "Piece":
        """A piece that is not divided among workers."""
        return cls(name, tensor, Place.whole(tensor, replica))

    @property
    def is_whole(self) -> bool:
        """Whether it is not divided."""
        return tuple(self.tensor.shape) == self.place.shape

    @property
    def is_saved(self) -> bool:
        """Whether this worker saves it."""
        return self.place.replica == 0

    def part_of(self, whole: Tensor) -> Tensor:
        """The view of the whole tensor that corresponds to this piece."""
        return self.place.part(whole, tuple(self.tensor.shape))


def by_name(pieces: Iterable[Piece]) -> dict[str, Tensor]:
    """The tensors of pieces by their names, as this worker holds them."""
    return {piece.name: piece.tensor for piece in pieces}
