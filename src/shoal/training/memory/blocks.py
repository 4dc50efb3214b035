"""Finds the blocks of a model: what activation checkpointing recomputes as one."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

from torch import Tensor, nn

from shoal.errors import ConfigError


@dataclass(frozen=True)
class ModelBlock:
    """Consecutive layers that are computed together."""

    name: str
    layers: tuple[nn.Module, ...]
    owner: nn.Sequential | None = None
    """The flat sequence that the layers are a part of; None for a module of its own."""
    start: int = 0
    """The position of the first layer in that sequence: a module may stand there more than once."""

    @property
    def stop(self) -> int:
        """The position after the last layer."""
        return self.start + len(self.layers)

    def forward(self, value: Tensor) -> Tensor:
        """The layers of a flat sequence, one after the other."""
        for layer in self.layers:
            value = layer(value)
        return value


def blocks_of(model: nn.Module) -> list[ModelBlock]:
    """The blocks of a model, in the order of its modules.

    Modules with layers of their own that stand side by side in an `nn.Sequential` or an `nn.ModuleList` are blocks:
    those of a transformer, of a residual network, of most published models. A flat `nn.Sequential` has none. There, a
    block is √L of its L layers with parameters, and the layers without parameters that follow them: the activations
    that are kept, and those of the block that is being recomputed, are then about equally many.

    >>> layers = [nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)]
    >>> [block.name for block in blocks_of(nn.Sequential(*layers))]
    ['0…3', '4…6']
    """
    found = [ModelBlock(name, (module,)) for name, module in _composite("", model)]
    if not found and type(model) is nn.Sequential:
        found = list(_segments(model))
    if not found:
        raise ConfigError(
            f"--memory.checkpoint finds no blocks in {type(model).__name__}: it looks for modules in an "
            "nn.Sequential or an nn.ModuleList",
            "Put the blocks of the model into an nn.Sequential, or use --memory.offload file.",
        )
    return found


def _composite(name: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The outermost modules with layers of their own that are side by side in a container."""
    children = list(module.named_children())
    in_container = type(module) in (nn.Sequential, nn.ModuleList)
    blocks = [key for key, child in children if _is_block(child)] if in_container else []
    for key, child in children:
        path = f"{name}.{key}" if name else key
        if len(blocks) > 1 and key in blocks:
            yield path, child
        else:
            yield from _composite(path, child)


def _is_block(module: nn.Module) -> bool:
    has_layers = next(module.children(), None) is not None and type(module) is not nn.ModuleList
    return has_layers and any(param.requires_grad for param in module.parameters())


def _segments(model: nn.Sequential) -> Iterator[ModelBlock]:
    """The layers of a flat sequence in groups; all but the first begin with a layer that has parameters."""
    names, layers = list(model._modules), list(model)  # pyright: ignore[reportPrivateUsage]
    with_params = [at for at, layer in enumerate(layers) if next(layer.parameters(), None) is not None]
    each = math.ceil(math.sqrt(len(with_params))) if with_params else 1
    starts = [0, *with_params[each::each]]
    for start, stop in zip(starts, [*starts[1:], len(layers)], strict=True):
        yield ModelBlock(f"{names[start]}…{names[stop - 1]}", tuple(layers[start:stop]), model, start)


Forward = Callable[..., Any]


@final
class SequenceOfBlocks:
    """The forward pass of a flat sequence whose layers are grouped into blocks."""

    def __init__(self, steps: Sequence[Forward]) -> None:
        self.steps = steps

    def __call__(self, value: Tensor) -> Tensor:
        """Call one step after the other."""
        for step in self.steps:
            value = step(value)
        return value


def replace_forward(
    blocks: list[ModelBlock], replaced: Callable[[str, Forward, tuple[nn.Module, ...]], Forward]
) -> None:
    """Give blocks another forward pass: `replaced(name, forward, layers)`. Names and parameters stay as they are.

    Blocks are in the order of `blocks_of`.
    """
    for block in blocks:
        if block.owner is None:
            (module,) = block.layers
            module.forward = replaced(block.name, module.forward, block.layers)
    segments = [block for block in blocks if block.owner is not None]
    if not segments:
        return
    owner = segments[0].owner
    assert owner is not None
    # Layers of a flat sequence are called in their groups; the sequence itself is still the model.
    layers = list(owner)
    steps: list[Forward] = []
    at = 0
    for block in segments:
        steps += [*layers[at : block.start], replaced(block.name, block.forward, block.layers)]
        at = block.stop
    owner.forward = SequenceOfBlocks([*steps, *layers[at:]])  # pyright: ignore[reportAttributeAccessIssue]
