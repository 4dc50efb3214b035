"""What a worker records: tensors as bytes in one file, an index of them and other facts as lines in a second.

Tensors go to the file as they come, so that recording holds one of them in memory at a time.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

Facts = dict[str, Any]


def dense(tensor: Tensor) -> Tensor:
    """The whole tensor on the host: of a DTensor, all workers' shards, which they gather together."""
    tensor = tensor.detach()
    if hasattr(tensor, "full_tensor"):
        tensor = tensor.full_tensor()  # pyright: ignore[reportAttributeAccessIssue]
    return (tensor if tensor.layout is torch.strided else tensor.to_dense()).cpu()


class Writer:
    """The record of one worker, step by step."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._bytes = (folder / f"rank{rank}.bin").open("wb")
        self._lines = (folder / f"rank{rank}.jsonl").open("w")

    def put(self, step: int, key: str, tensor: Tensor) -> None:
        """Add a tensor of a step."""
        whole = dense(tensor).contiguous()
        place = [self._bytes.tell(), str(whole.dtype).removeprefix("torch."), [*whole.shape]]
        self._bytes.write(whole.reshape(-1).view(torch.uint8).numpy().data)
        self.note(step, "tensor", {"key": key, "place": place})

    def note(self, step: int, kind: str, facts: Facts) -> None:
        """Add facts of a step."""
        self._lines.write(json.dumps({"step": step, "kind": kind, **facts}) + "\n")

    def flush(self) -> None:
        """Make what is recorded so far readable."""
        self._bytes.flush()
        self._lines.flush()

    def close(self) -> None:
        """End the record."""
        self._bytes.close()
        self._lines.close()


class Place(NamedTuple):
    """Where a tensor is in the file of bytes."""

    offset: int
    dtype: str
    shape: list[int]


class Step:
    """What one worker recorded in one step."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._places: dict[str, Place] = {}
        self._notes: dict[str, list[Facts]] = {}

    def add(self, line: Facts) -> None:
        """A line of the index."""
        if line["kind"] == "tensor":
            self._places[line["key"]] = Place(*line["place"])
        else:
            self._notes.setdefault(line["kind"], []).append(line)

    def notes(self, kind: str) -> list[Facts]:
        """The facts of a kind, in order."""
        return self._notes.get(kind, [])

    def names(self, kind: str) -> list[str]:
        """Names of the tensors with keys `kind/name`."""
        return [key.partition("/")[2] for key in self._places if key.startswith(f"{kind}/")]

    def all(self, kind: str) -> dict[str, Tensor]:
        """The tensors with keys `kind/name`, by name."""
        found = {name: self.get(f"{kind}/{name}") for name in self.names(kind)}
        return {name: tensor for name, tensor in found.items() if tensor is not None}

    def get(self, key: str) -> Tensor | None:
        """A tensor; None if it was not recorded."""
        if key not in self._places:
            return None
        offset, name, shape = self._places[key]
        dtype: torch.dtype = getattr(torch, name)
        numel = torch.Size(shape).numel()
        if not numel:
            return torch.empty(shape, dtype=dtype)
        with self._path.open("rb") as file:
            file.seek(offset)
            data = bytearray(file.read(numel * dtype.itemsize))
        return torch.frombuffer(data, dtype=dtype).reshape(shape)


def read(folder: Path, rank: int) -> list[Step]:
    """All steps of a worker, the state after the last one included."""
    steps: list[Step] = []
    with (folder / f"rank{rank}.jsonl").open() as file:
        for line in file:
            facts: Mapping[str, Any] = json.loads(line)
            while len(steps) <= facts["step"]:
                steps.append(Step(folder / f"rank{rank}.bin"))
            steps[facts["step"]].add(dict(facts))
    return steps
