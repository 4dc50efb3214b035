"""Activation checkpointing: blocks of a model keep only their inputs, and are computed again during backward.

::

    forward     x0 ─▶ block 1 ─▶ x1 ─▶ block 2 ─▶ x2 ─▶ loss      kept: x0, x1
    backward    loss ─▶ x2: compute block 2 again from x1, go backward through it, free it
                       x1: compute block 1 again from x0, …

Autograd asks for tensors that forward has saved. A recomputed block saves empty holders instead. The first holder that
backward opens repeats the forward pass, which fills the holders in the same order; each is freed with its operation.
The repetition ends as soon as the last holder is full: the block's last matrix product is not computed again.

It computes the same bits: it draws the same random numbers (dropout) and leaves buffers (batch statistics) as they
are.

Memory: the inputs of all blocks, and the activations of one. Time: one more forward pass of the blocks.
"""

import math
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol, final

import torch
from torch import Tensor, nn

from shoal.errors import ConfigError
from shoal.strategies.pipeline.stage import random_state, set_random_state


@dataclass(frozen=True)
class ModelBlock:
    """Consecutive layers that are computed together."""

    name: str
    layers: tuple[nn.Module, ...]
    owner: nn.Sequential | None = None
    """The flat sequence that the layers are a part of; None for a module of its own."""
    start: int = 0
    """The position of the first layer in that sequence: a module may stand there more than once."""


def blocks_of(model: nn.Module) -> list[ModelBlock]:
    """The blocks of a model, in the order of its modules.

    Modules with layers of their own that stand side by side in an `nn.Sequential` or an `nn.ModuleList` are blocks, as
    in a transformer, a residual network and most published models. A flat `nn.Sequential` has none. There, a block is
    √L of its L layers with parameters, and the layers without parameters that follow them: then as many activations are
    kept as a recomputed block has.

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
    """The forward pass of a flat sequence: of layers, or of blocks into which they are grouped."""

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
        forward = SequenceOfBlocks(block.layers)
        steps += [*layers[at : block.start], replaced(block.name, forward, block.layers)]
        at = block.start + len(block.layers)
    owner.forward = SequenceOfBlocks([*steps, *layers[at:]])  # pyright: ignore[reportAttributeAccessIssue]


def checkpoint_blocks(model: nn.Module, every: int) -> None:
    """Recompute every n-th block of a model in backward; 0: none."""
    if not every:
        return
    blocks = blocks_of(model)
    if every > len(blocks):
        raise ConfigError(
            f"--memory.checkpoint {every} recomputes one block of every {every}, but the model has {len(blocks)}",
            f"Use --memory.checkpoint {len(blocks)} or less.",
        )
    # The last of every n: the first block then has its activations, and is the last one backward needs.
    replace_forward(blocks[every - 1 :: every], RecomputedBlock)


class SavedTensors(Protocol):
    """Watches tensors that are saved for backward."""

    def pack(self, tensor: Tensor) -> Any:
        """Take a tensor that is saved."""
        ...

    def unpack(self, saved: Any) -> Tensor:
        """Give it back."""
        ...


@final
class RecomputedBlock:
    """The forward pass of a block whose activations are recomputed in backward."""

    def __init__(self, name: str, forward: Forward, layers: tuple[nn.Module, ...]) -> None:
        self.name, self.forward, self._layers = name, forward, layers
        self.watch: SavedTensors | None = None
        """Sees what a repetition saves, if memory is measured."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The block's output. Without gradients nothing is saved, so nothing has to be recomputed."""
        if not torch.is_grad_enabled():
            return self.forward(*args, **kwargs)
        first_pass = _FirstPass(self, args, kwargs)
        with torch.autograd.graph.saved_tensors_hooks(first_pass.pack, first_pass.unpack):
            output = self.forward(*args, **kwargs)
        first_pass.check_inputs()
        return output

    @contextmanager
    def unchanged_buffers(self) -> Generator[None]:
        """Inside, the block may be computed; on exit its buffers are as before."""
        buffers = [buffer for layer in self._layers for buffer in layer.buffers()]
        before = [buffer.clone() for buffer in buffers]
        try:
            yield
        finally:
            # Through `data`: autograd would take a change of a saved buffer for an error.
            for buffer, value in zip(buffers, before, strict=True):
                buffer.data.copy_(value)


@final
class _Holder:
    """Stands for a tensor that a block would have saved."""

    __slots__ = ("__weakref__", "value")

    def __init__(self) -> None:
        self.value: Any = None


_TENSOR = object()
"""Stands for a tensor among the inputs of a block."""


class _CompleteError(Exception):
    """All holders are full: the rest of the block need not be computed."""


@final
class _FirstPass:
    """One forward pass of a block, and all that is needed to repeat it."""

    def __init__(self, block: RecomputedBlock, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._block = block
        values = [*args, *kwargs.values()]
        tensors = [value for value in values if isinstance(value, Tensor)]
        self._versions = [(tensor, tensor._version) for tensor in tensors]
        # Saved like any tensor for backward: hooks around the block see the inputs, and may move them elsewhere.
        started = torch.empty(0, requires_grad=True)
        # The result is kept, too: before torch 2.13, what a function saved is gone with it.
        self._inputs: Any = _KeepInputs.apply(started, *tensors)
        self._values: list[Any] = [_TENSOR if isinstance(value, Tensor) else value for value in values]
        self._keys = tuple(kwargs)
        """The names of the last values."""
        self._device = tensors[0].device if tensors else torch.device("cpu")
        self._random_state = random_state(self._device)
        self._autocast = _autocast_now(self._device.type)
        self._holders: list[weakref.ref[_Holder]] = []
        self._num_filled = 0

    def pack(self, tensor: Tensor) -> _Holder:
        """Save a holder in place of a tensor."""
        del tensor
        holder = _Holder()
        self._holders.append(weakref.ref(holder))
        return holder

    def unpack(self, holder: _Holder) -> Tensor:
        """The tensor, which the first call of a pass computes together with all others."""
        if holder.value is None:
            self._repeat()
        watch = self._block.watch
        value: Any = holder.value
        return value if watch is None else watch.unpack(value)

    def check_inputs(self) -> None:
        """Refuse a block that has written into its inputs: it cannot be computed from them again."""
        changed = any(tensor._version != version for tensor, version in self._versions)
        self._versions.clear()  # and with it, references to the inputs
        if changed:
            raise ConfigError(
                f"--memory.checkpoint cannot compute block '{self._block.name}' again: it writes into its input",
                "Use inplace=False in its first layer, or --memory.offload file.",
            )

    def _repeat(self) -> None:
        tensors = iter(self._inputs.grad_fn.saved_tensors[1:])
        values = [next(tensors) if value is _TENSOR else value for value in self._values]
        at = len(values) - len(self._keys)
        kwargs = dict(zip(self._keys, values[at:], strict=True))
        self._num_filled = 0
        is_gpu = self._device.type == "cuda"
        with (
            self._block.unchanged_buffers(),
            torch.random.fork_rng(devices=[self._device] if is_gpu else []),
            torch.enable_grad(),
            self._autocast,
            torch.autograd.graph.saved_tensors_hooks(self._fill, _never),
        ):
            set_random_state(self._random_state, self._device)
            try:
                self._block.forward(*values[:at], **kwargs)
            except _CompleteError:
                return
        raise ConfigError(
            f"--memory.checkpoint cannot compute block '{self._block.name}' again: it saved {len(self._holders)} "
            f"tensors for backward, and {self._num_filled} when it was repeated",
            "Does it keep a cache, or count its calls? Switch that off, or use --memory.offload file.",
        )

    def _fill(self, tensor: Tensor) -> None:
        holder = self._holders[self._num_filled]()
        self._num_filled += 1
        if holder is not None:  # its operation has not gone backward
            watch = self._block.watch
            holder.value = tensor.detach() if watch is None else watch.pack(tensor.detach())
        if self._num_filled == len(self._holders):
            raise _CompleteError


def _autocast_now(kind: str) -> AbstractContextManager[object]:
    """The autocast of this moment, for later: backward runs outside of it."""
    if kind == "meta" or not torch.is_autocast_enabled(kind):
        return nullcontext()
    return torch.autocast(kind, dtype=torch.get_autocast_dtype(kind))


def _never(saved: None) -> Tensor:
    raise AssertionError("nothing goes backward through a repetition")


class _KeepInputs(torch.autograd.Function):
    """Saves tensors as an operation would."""

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.save_for_backward(*tensors)
        return torch.empty(0)


def recomputed_blocks(model: nn.Module) -> list[RecomputedBlock]:
    """The blocks of a model that are recomputed."""
    own = [vars(module).get("forward") for module in model.modules()]
    found = [each for each in own if isinstance(each, RecomputedBlock)]
    sequences = [each for each in own if isinstance(each, SequenceOfBlocks)]
    return found + [step for each in sequences for step in each.steps if isinstance(step, RecomputedBlock)]
