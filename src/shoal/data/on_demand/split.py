"""A split whose samples are read when a batch asks for them."""

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from shoal import nested
from shoal.data.dataset import EVALUATION, Draw, Split, checksum
from shoal.data.on_demand.loaders import Loaders
from shoal.data.on_demand.read import Form, Part, read, read_or_fault
from shoal.data.on_demand.source import Source
from shoal.nested import Nested

FIRST = 4
"""Samples that are read at once, for shapes and types."""
FOR_STATISTICS = 1000
"""Samples from which mean and standard deviation are computed, if there are more."""


class Reader(NamedTuple):
    """How the samples of all splits of a source are read."""

    source: Source
    form: Form
    num_loaders: int

    def split(self, numbers: Tensor) -> "OnDemand":
        """The samples with these numbers."""
        first = read(self.source, numbers[:FIRST].tolist(), EVALUATION, self.form)
        loaders = None
        if self.num_loaders:
            called = partial(read_or_fault, self.source, self.form)
            loaders = Loaders(called, self.num_loaders, self.source.name)
        return OnDemand(first.inputs, first.labels, self, numbers, loaders)


def on_demand(source: Source, outputs: int | None, num_loaders: int) -> "OnDemand":
    """All samples of a source; `outputs` is the number of classes or tokens, where it is known."""
    if outputs is None and source.labels is not None:
        outputs = max(1, 1 + int(source.labels.max()))
    return Reader(source, Form.of(source, outputs), num_loaders).split(torch.arange(len(source)))


@dataclass(frozen=True, eq=False)
class OnDemand(Split):
    """Samples of a source by their numbers there; `inputs` and `labels` are those of the first few."""

    reader: Reader
    numbers: Tensor
    loaders: Loaders | None

    def __len__(self) -> int:
        return len(self.numbers)

    def __repr__(self) -> str:
        return f"OnDemand({len(self):,} samples of {self.reader.source.name})"

    def to(self, device: torch.device | str) -> "OnDemand":
        """The same samples; what is read arrives on the device."""
        first = super().to(device)
        return replace(self, inputs=first.inputs, labels=first.labels)

    def take(self, indices: Tensor) -> "OnDemand":
        """A split of these samples only, in ascending order where the source is a stream."""
        return self.reader.split(self.numbers[indices])

    @property
    def is_stream(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether the source is one."""
        return self.reader.source.is_stream

    @property
    def classes(self) -> Tensor | None:
        """The labels that the source knows."""
        known = self.reader.source.labels
        return None if known is None else known[self.numbers]

    @property
    def signature(self) -> str:
        """Of the first samples and of what the source knows of its files."""
        known, source = self.classes, self.reader.source
        tensors = (*self.columns, self.numbers, *(() if known is None else (known,)))
        return f"{zlib.crc32(source.signature.encode()):08x}" + "".join(
            f"{checksum(leaf):08x}" for _, leaf in nested.leaves(tensors)
        )

    def read(self, indices: Tensor, draw: Draw = EVALUATION) -> Split:
        """From the loaders if they have read ahead, else here."""
        if not len(indices):
            return Split(self.inputs, self.labels).take(indices)
        numbers = self.numbers[indices.cpu()]
        found = None if self.loaders is None else self.loaders.take(numbers, draw)
        if found is None:
            here = read(self.reader.source, numbers.tolist(), draw, self.reader.form)
            found = here.inputs, here.labels
        return Split(*found).to(self.device)

    def representative(self) -> Nested:
        """Samples evenly spread over all, or the first ones of a stream."""
        count = min(len(self), FOR_STATISTICS)
        indices = torch.arange(count) if self.is_stream else torch.arange(count) * len(self) // count
        return self.read(indices).inputs

    def read_ahead(self, parts: Callable[[], Iterable[Tensor]], draw: Draw = EVALUATION) -> None:
        """Have the loaders read these parts from now on."""
        if self.loaders is None:
            return

        def plan() -> Iterator[Part]:
            return ((self.numbers[indices], draw) for indices in parts())

        self.loaders.follow(plan)

    def close(self) -> None:
        """End the loaders."""
        if self.loaders is not None:
            self.loaders.close()
