"""Units: parameters that are gathered, reduced and released together, and who owns which part of them.

::

    parameters   |fc1.weight················|fc1.bias|fc2.weight·········|fc2.bias|
    units        |············ unit 0 ···············|········· unit 1 ···········|
    in memory    |fc1.weight················|··|fc1.bias|····|       parameters start at chunks (`norms.py`)
    owners       |····· rank 0 ·····|····· rank 1 ·····|             equal pieces, which start at chunks, too

Units are plain data: which parameters, where. All workers derive the same ones from the model.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from shoal.config.checks import GIB
from shoal.errors import ConfigError
from shoal.strategies.buckets.plan import Kind
from shoal.strategies.norms import CHUNK, num_chunks

UnitOf = Callable[[str], Hashable]
"""A user's cut: parameters for whose names it returns the same value are a unit."""

USED_FROM_ABOVE = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
"""Modules that use parameters of the modules inside them without calling these."""
CONTAINERS = (nn.ParameterList, nn.ParameterDict)
"""Modules that are never called: the module above uses their parameters."""


@dataclass(frozen=True)
class Unit:
    """Some parameters of one kind, in one flat memory of `size` equal pieces: one for each worker."""

    index: int
    kind: Kind
    shapes: Mapping[str, torch.Size]
    offsets: Mapping[str, int]
    """Where each parameter starts in the unit's memory."""
    piece: int
    """Elements of a worker's piece. No two units have the same number: it names the unit in the check of group calls,
    so that workers that gather different units get an error instead of other weights."""
    size: int
    """Number of pieces."""

    @property
    def numel(self) -> int:
        """Elements of the unit's memory, gaps included."""
        return self.size * self.piece

    @property
    def num_bytes(self) -> int:
        """Bytes of the unit's memory."""
        return self.numel * self.kind.dtype.itemsize

    def views(self, memory: Tensor) -> list[Tensor]:
        """The unit's parameters in flat memory, each in its shape."""
        return [
            memory[offset : offset + shape.numel()].view(shape)
            for offset, shape in zip(self.offsets.values(), self.shapes.values(), strict=True)
        ]

    def gaps(self, memory: Tensor) -> list[Tensor]:
        """The elements of flat memory between and after the parameters."""
        ends = [
            offset + shape.numel()
            for offset, shape in zip(self.offsets.values(), self.shapes.values(), strict=True)
        ]
        starts = [*list(self.offsets.values())[1:], self.numel]
        return [memory[end:start] for end, start in zip(ends, starts, strict=True) if end < start]

    def piece_of(self, memory: Tensor, rank: int) -> Tensor:
        """A worker's piece of flat memory."""
        return memory[rank * self.piece : (rank + 1) * self.piece]

    def owned_by(self, rank: int) -> Iterator[tuple[str, int, int, int]]:
        """What a worker owns: for each parameter its name, the first element, the one after the last, and where the
        range starts in the unit's memory."""
        first, last = rank * self.piece, (rank + 1) * self.piece
        for name, offset in self.offsets.items():
            start, stop = max(first, offset), min(last, offset + self.shapes[name].numel())
            if start < stop:
                yield name, start - offset, stop - offset, start


def cut(
    model: nn.Module,
    params: Mapping[str, Tensor],
    size: int,
    most_bytes: float,
    unit_of: UnitOf | None = None,
) -> list[Unit]:
    """Cut the parameters into units, in their order: by a user's function, or by size.

    By size, a module is not divided if it fits in a unit, and consecutive modules share a unit while they fit. A
    parameter belongs to one unit, however many modules use it (tied weights).
    """
    items = _by_function(params, unit_of) if unit_of is not None else _by_size(model, params, most_bytes)
    units: list[Unit] = []
    pieces: set[int] = set()
    for names in items:
        kinds: dict[Kind, list[str]] = {}
        for name in names:
            kinds.setdefault(Kind.of(params[name]), []).append(name)
        for kind, alike in kinds.items():
            units.append(_unit(len(units), kind, {name: params[name].shape for name in alike}, size, pieces))
    return units


def check_fits(units: Sequence[Unit], workers_here: int, memory: float) -> None:
    """Refuse a unit that does not fit in memory: two are sent at a time, and backward produces a third.

    `workers_here` share `memory`, in bytes; what may fit is tried.
    """
    largest = max(units, key=lambda unit: unit.num_bytes)
    num_units = workers_here * (min(2, len(units)) + 1)
    if num_units * largest.num_bytes <= memory:
        return
    names = [*largest.shapes]
    of = f"'{names[0]}'" if len(names) == 1 else f"{len(names)} parameters from '{names[0]}' on"
    raise ConfigError(
        f"the unit of {of} is {largest.num_bytes / GIB:.3g} GiB, and a step needs memory for {num_units} of its size; "
        f"there are {memory / GIB:.3g} GiB",
        "Divide the layer in two: a parameter is not divided."
        if len(names) == 1
        else "Use a smaller unit_mib (--strategy.unit_mib), or a unit_of that cuts the model more often.",
    )


def _unit(index: int, kind: Kind, shapes: Mapping[str, torch.Size], size: int, pieces: set[int]) -> Unit:
    offsets: dict[str, int] = {}
    chunks = 0
    for name, shape in shapes.items():
        offsets[name] = chunks * CHUNK
        chunks += num_chunks(shape.numel())
    piece = max(1, -(-chunks // size)) * CHUNK
    while piece in pieces:
        piece += CHUNK
    pieces.add(piece)
    return Unit(index, kind, shapes, offsets, piece, size)


def _by_function(params: Mapping[str, Tensor], unit_of: UnitOf) -> Iterable[list[str]]:
    units: dict[Hashable, list[str]] = {}
    for name in params:
        key = unit_of(name)
        try:
            units.setdefault(key, []).append(name)
        except TypeError:
            raise ConfigError(
                f"the function that cuts the model into units returned {key!r} for '{name}', which cannot be compared",
                "Return a number, a text or a tuple: parameters with the same value are a unit.",
            ) from None
    return units.values()


def _by_size(model: nn.Module, params: Mapping[str, Tensor], most_bytes: float) -> Iterable[list[str]]:
    units: list[list[str]] = [[]]
    filled = 0
    for item in _indivisible(model, {id(param): name for name, param in params.items()}, params, most_bytes):
        num_bytes = sum(params[name].nbytes for name in item)
        if units[-1] and filled + num_bytes > most_bytes:
            units.append([])
            filled = 0
        units[-1] += item
        filled += num_bytes
    return units


def _indivisible(
    module: nn.Module, names: dict[int, str], params: Mapping[str, Tensor], most_bytes: float
) -> Iterator[list[str]]:
    """The parameters of modules that fit in a unit, and of larger ones those that are theirs directly."""
    inside = [names[id(param)] for param in module.parameters() if id(param) in names]
    fits = sum(params[name].nbytes for name in inside) <= most_bytes
    if fits or isinstance(module, USED_FROM_ABOVE):
        own = inside
    else:
        own = [*dict.fromkeys(names[id(param)] for param in direct_params(module) if id(param) in names)]
    for name in own:
        del names[id(params[name])]  # tied weights belong to the first module
    if own:
        yield own
    for child in module.children():
        yield from _indivisible(child, names, params, most_bytes)


def direct_params(module: nn.Module) -> Iterator[nn.Parameter]:
    """The parameters that a module uses itself: its own, and those in lists of parameters."""
    yield from module.parameters(recurse=False)
    for child in module.children():
        if isinstance(child, CONTAINERS):
            yield from child.parameters()


def users_of(
    model: nn.Module, params: Mapping[str, Tensor], units: Sequence[Unit]
) -> dict[nn.Module, list[int]]:
    """The units that each module needs when it is called.

    A module whose parameters are all in one unit needs that unit, whichever of the modules inside it uses them. Any
    other module needs those units that have parameters of its own.
    """
    unit_of = {id(params[name]): unit.index for unit in units for name in unit.shapes}
    users: dict[nn.Module, list[int]] = {}
    for module in model.modules():
        inside = {unit_of[id(param)] for param in module.parameters() if id(param) in unit_of}
        own = {unit_of[id(param)] for param in direct_params(module) if id(param) in unit_of}
        needed = inside if len(inside) == 1 or isinstance(module, USED_FROM_ABOVE) else own
        if needed:
            users[module] = sorted(needed)
    return users
