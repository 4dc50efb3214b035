"""Pieces: the state of a run, each with its name under `single` and its place in the whole.

A worker holds pieces of parameters, buffers and optimizer state. Checkpoints, the exported model, its fingerprint and
loading under another strategy, mesh or number of workers all follow from pieces, parameter by parameter: no worker
ever has to hold the whole model.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Place:
    """The place of a part in the whole tensor: a box, the same box of several blocks, or a range of the elements.

    ::

        shape (4, 3), start (2, 0)             rows 2 and 3 of a tensor with 4 rows, if the part has shape (2, 3)
        shape (4, 3), start 5                  elements 5, 6, … of the 12, if the part is flat
        shape (8, 3), start (1, 0), blocks 2   rows 1, 2 and 5, 6: rows 1 and 2 of each half, if it has shape (4, 3)
        shape (4, 6), start (0, 3), box (4, 3), offset 6
                                               elements 6, 7, … of the right half, flattened, if the part is flat
    """

    shape: tuple[int, ...]
    """The shape of the whole."""
    start: tuple[int, ...] | int
    """The first index of a box in each dimension, or the first element of a range."""
    replica: int = 0
    """The number of this copy among workers that hold the same part; copy 0 is saved."""
    blocks: int = 1
    """The whole has this many blocks of equal height, one below the other (Q, K and V in one matrix), and the part the
    same rows of each; `start` is then the box in the first block."""
    box: tuple[int, ...] | None = None
    """The shape of the box, if the part is a range of its elements: a tensor that is divided twice."""
    offset: int = 0
    """The first element of that range, in the flattened box."""

    @classmethod
    def whole(cls, tensor: Tensor, replica: int = 0) -> "Place":
        """The place of a tensor that is the whole."""
        return cls(tuple(tensor.shape), (0,) * tensor.dim(), replica)

    @property
    def is_first(self) -> bool:
        """Whether the part starts at the beginning of the whole: one worker per replica has such a part."""
        starts = self.start if isinstance(self.start, tuple) else (self.start,)
        return not any(starts) and not self.offset

    def range_of(self, part: tuple[int, ...], first: int) -> "Place":
        """The place of a flat range of the part that is here, of this shape; the range starts at its element `first`.

        >>> Place((4, 3), (2, 0)).range_of((2, 3), 4).start
        10
        >>> Place((4, 6), (0, 3)).range_of((4, 3), 6).offset
        6
        """
        if isinstance(self.start, int):
            return replace(self, start=self.start + first)
        if self.blocks == 1 and part[1:] == self.shape[1:]:  # whole rows follow each other in the whole
            rows = self.start[0] * math.prod(self.shape[1:]) if self.start else 0
            return replace(self, start=rows + first)
        return replace(self, box=part, offset=first)

    def read(self, whole: Tensor, like: tuple[int, ...]) -> Tensor:
        """The part of the whole, of shape `like`: a view, except where it is in several blocks."""
        if self.box is not None:
            return self._whole_box.read(whole, self.box).reshape(-1)[self.offset : self.offset + like[0]]
        boxes = self._boxes(whole, like)
        return boxes[0] if len(boxes) == 1 else torch.cat(boxes)

    def write(self, whole: Tensor, part: Tensor) -> None:
        """Copy a part to its place in the whole."""
        if self.box is not None:
            # The box is not contiguous in the whole: fill in the range, and write all of it.
            box = self._whole_box.read(whole, self.box).contiguous()
            box.view(-1)[self.offset : self.offset + len(part)] = part
            self._whole_box.write(whole, box)
            return
        boxes = self._boxes(whole, tuple(part.shape))
        for box, rows in zip(boxes, part.chunk(self.blocks) if self.blocks > 1 else (part,), strict=True):
            box.copy_(rows)

    @property
    def _whole_box(self) -> "Place":
        return replace(self, box=None, offset=0)

    def record(self) -> dict[str, Any]:
        """The place as JSON; the number of the copy is not in it."""
        within = {} if self.box is None else {"box": self.box, "offset": self.offset}
        return {"shape": self.shape, "start": self.start, "blocks": self.blocks, **within}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Place":
        """The place that `record` has described."""
        start, box = record["start"], record.get("box")
        return cls(
            tuple(record["shape"]),
            tuple(start) if isinstance(start, list) else int(start),
            blocks=int(record.get("blocks", 1)),
            box=None if box is None else tuple(box),
            offset=int(record.get("offset", 0)),
        )

    def _boxes(self, whole: Tensor, like: tuple[int, ...]) -> list[Tensor]:
        """The views of the whole that follow each other in the part."""
        if isinstance(self.start, int):
            return [whole.reshape(-1)[self.start : self.start + like[0]]]
        if self.blocks > 1:
            like = (like[0] // self.blocks, *like[1:])
        box = tuple(slice(first, first + size) for first, size in zip(self.start, like, strict=True))
        return [block[box] for block in (whole.chunk(self.blocks) if self.blocks > 1 else (whole,))]


@dataclass(frozen=True)
class Piece:
    """A part of the state: `model.fc1.weight`, `optim.fc1.weight.exp_avg`, `random.cpu`."""

    name: str
    tensor: Tensor
    place: Place
    decode: Callable[[], Tensor] | None = None
    """Makes the tensor, where it is stored in another form; `tensor` then has its shape and dtype and no memory."""

    @property
    def values(self) -> Tensor:
        """The tensor with its values, decoded where it is stored in another form: to be read, not changed."""
        return self.tensor if self.decode is None else self.decode()

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


def by_name(pieces: Iterable[Piece]) -> dict[str, Tensor]:
    """The tensors of pieces by their names, as this worker holds them."""
    return {piece.name: piece.values for piece in pieces}


def floats_of(pieces: Iterable[Piece]) -> dict[str, Tensor]:
    """The tensors of floating-point (or complex) numbers among pieces, by name: workers can average them."""
    return {piece.name: piece.tensor for piece in pieces if piece.tensor.dtype.to_real().is_floating_point}
