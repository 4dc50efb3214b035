"""Assembles whole tensors from pieces, one at a time, for the exported model and its fingerprint."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from shoal.comm.agree import gather_texts, share_text
from shoal.comm.group import Group
from shoal.strategies.pieces.piece import Piece, Place


class HeldPart(NamedTuple):
    """A part of a whole tensor, and the rank that holds it."""

    rank: int
    dtype: torch.dtype
    place: Place
    shape: tuple[int, ...]


class WholeTensors:
    """The whole tensors of all workers' pieces. Construction is a collective.

    Going through it is one, too: rank 0 gets the name and the whole tensor of each, sorted by name, and holds one at a
    time; the other workers send it their parts and get nothing.
    """

    def __init__(
        self, pieces: Sequence[Piece], group: Group, prefix: str | tuple[str, ...] = "model."
    ) -> None:
        self._group = group
        self._mine = {
            piece.name: piece for piece in pieces if piece.is_saved and piece.name.startswith(prefix)
        }
        described = [
            (
                piece.name,
                str(piece.tensor.dtype).removeprefix("torch."),
                piece.place.record(),
                tuple(piece.tensor.shape),
            )
            for piece in self._mine.values()
        ]
        self.parts: dict[str, list[HeldPart]] = {}
        """The parts of each whole tensor, by its name."""
        for rank, text in enumerate(gather_texts(group, json.dumps(described))):
            for name, dtype, place, shape in json.loads(text):
                part = HeldPart(rank, getattr(torch, dtype), Place.from_record(place), tuple(shape))
                self.parts.setdefault(name, []).append(part)

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        for name, parts in sorted(self.parts.items()):
            if self._group.rank == 0:
                yield name, self._assembled(name, parts)
            elif name in self._mine:
                self._group.send(_on_host(self._mine[name].values), 0).wait()

    def _assembled(self, name: str, parts: list[HeldPart]) -> Tensor:
        if [part.rank for part in parts] == [0] and self._mine[name].is_whole:
            return _on_host(self._mine[name].values)
        whole = torch.empty(parts[0].place.shape, dtype=parts[0].dtype)
        for part in parts:
            if part.rank == 0:
                part.place.write(whole, _on_host(self._mine[name].values))
            else:
                received = torch.empty(part.shape, dtype=part.dtype)
                self._group.recv(received, part.rank).wait()
                part.place.write(whole, received)
        return whole


class Fingerprint:
    """One sha256 of weights and buffers: names, kinds, shapes and every bit, added in the order of their names."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def add(self, name: str, tensor: Tensor) -> None:
        """Add one whole tensor."""
        self._digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        self._digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())

    def shared(self, group: Group) -> str:
        """Rank 0's fingerprint, on every worker."""
        return share_text(group, self._digest.hexdigest())


def weights_sha256(pieces: Sequence[Piece], group: Group) -> str:
    """The fingerprint of the whole model: a collective, with the same result on all workers."""
    fingerprint = Fingerprint()
    for name, tensor in WholeTensors(pieces, group):
        fingerprint.add(name, tensor)
    return fingerprint.shared(group)


def _on_host(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().contiguous()
