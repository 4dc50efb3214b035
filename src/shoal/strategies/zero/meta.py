"""Values for a model on torch's meta device, from a seed: one module at a time, so that no worker holds the whole.

::

    with torch.device("meta"):             shapes, no memory
        model = Net()
    place                                  trained parameters become placeholders, the rest gets memory
    Shards(…)                              each worker has memory for its part of every unit
    draw                                   module by module: memory, reset_parameters(), keep this worker's part, free
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn

from shoal.errors import ConfigError
from shoal.models.common import random_state_kept

Part = Callable[[int, int], Tensor]
"""The elements from one number to another of a flattened tensor."""
Keep = Callable[[str, Part], None]
"""Keeps what this worker needs of a tensor, given its name in the model."""
Source = Callable[[Keep], None]
"""Goes through all tensors of a model that need values."""


@dataclass(frozen=True, eq=False)
class Slot:
    """An attribute of a module that holds a tensor on the meta device."""

    module: nn.Module
    path: str
    """The module's name in the model."""
    attribute: str
    meta: Tensor

    @property
    def name(self) -> str:
        """The tensor's name in the model."""
        return f"{self.path}.{self.attribute}" if self.path else self.attribute

    @property
    def owner(self) -> str:
        """The module, for an error."""
        where = f"module '{self.path}'" if self.path else "the model"
        return f"{where} ({type(self.module).__name__})"


def part_of(tensor: Tensor) -> Part:
    """The parts of a tensor that is in memory."""
    flat = tensor.detach().reshape(-1)
    return lambda start, stop: flat[start:stop]


def slots_of(model: nn.Module) -> list[Slot]:
    """The places of all tensors on the meta device, in the order of `named_parameters`; tied ones have several."""
    return [
        Slot(module, path, attribute, tensor)
        for path, module in model.named_modules()
        for attribute, tensor in [
            *module.named_parameters(recurse=False, remove_duplicate=False),
            *module.named_buffers(recurse=False, remove_duplicate=False),
        ]
        if tensor.is_meta and not nn.parameter.is_lazy(tensor)
    ]


def check_no_others(model: nn.Module) -> None:
    """Refuse tensors on the meta device that are neither parameters nor buffers: nothing would give them values.

    One that a forward pass on the meta device has left there (it has a `grad_fn`) is no concern.
    """
    for path, module in model.named_modules():
        for attribute, value in vars(module).items():
            if isinstance(value, Tensor) and value.is_meta and value.grad_fn is None:
                owner = Slot(module, path, attribute, value).owner
                raise ConfigError(
                    f"'{attribute}' of {owner} is a tensor on the meta device, and neither a parameter nor a buffer: "
                    "nothing gives it values",
                    f'Make it with device="cpu", or in forward; or self.register_buffer("{attribute}", …).',
                )


def place(slots: Sequence[Slot], device: torch.device) -> dict[str, Tensor]:
    """Replace the tensors by new ones on a device, and return these by their first names. Tied ones stay tied.

    A trained parameter becomes one number that is repeated, so it has no memory until a unit gives it some. Frozen
    ones and buffers, of which every worker has a copy, have memory, and no values yet.
    """
    placed: dict[int, Tensor] = {}
    names: dict[str, Tensor] = {}
    for slot in slots:
        if id(slot.meta) not in placed:
            names[slot.name] = placed[id(slot.meta)] = _on_device(slot.meta, device)
        setattr(slot.module, slot.attribute, placed[id(slot.meta)])
    return names


def _on_device(meta: Tensor, device: torch.device) -> Tensor:
    if meta.requires_grad:
        data = torch.empty((), dtype=meta.dtype, device=device).expand(meta.shape)
    else:
        data = torch.empty(meta.shape, dtype=meta.dtype, device=device)
    if not isinstance(meta, nn.Parameter):
        return data
    param = nn.Parameter(data, requires_grad=meta.requires_grad)
    vars(param).update(vars(meta))  # what a program has noted there
    return param


def reset_of(module: nn.Module) -> Callable[[], Any] | None:
    """The method that gives a module its first values; torch's attention has it under another name."""
    return getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)


def check_drawable(slots: Sequence[Slot]) -> None:
    """Refuse tensors to which no `reset_parameters` gives values, before anything is changed."""
    for slot in slots:
        if reset_of(slot.module) is None:
            raise ConfigError(
                f"{slot.owner} has no reset_parameters(), so a seed gives no values to its '{slot.attribute}'",
                "Write reset_parameters() in its class and call it in __init__; or make this tensor with "
                'device="cpu"; or pass weights=, a safetensors file.',
            )


@final
class Draw:
    """The values that building the model on the CPU gives after `torch.manual_seed(seed)`.

    Building a model runs constructors from the inside out, and those of torch's layers call `reset_parameters()`. This
    is repeated for every module that has tensors of its own: memory for them, `reset_parameters()`, `keep`, and the
    memory is free again. Torch's global random state is restored afterwards. Every worker draws all numbers: in torch's
    default dtype, as constructors do, and converted to the dtype that the model has since.

    Torch counts how often a tensor is written. A tensor that the constructor wrote more or less often than
    `reset_parameters()` does has other values on one machine, and is refused. Where a module with tensors of its own
    also writes into modules inside it (torch's attention), these wait for it in memory. Of tied tensors, the first
    one's values are drawn and kept; the other ones' are drawn and dropped.

    Not seen, because torch does not count it: values that a constructor writes through `param.data`, and a first tensor
    that was replaced by a later one.
    """

    def __init__(self, model: nn.Module, slots: Sequence[Slot], seed: int) -> None:
        self._model, self._seed = model, seed
        self._written = {id(slot.meta): slot.meta._version for slot in slots}  # pyright: ignore[reportPrivateUsage]
        self._slots = slots
        self._of_module: dict[nn.Module, list[Slot]] = {}
        self._first: dict[int, Slot] = {}
        for slot in slots:
            self._of_module.setdefault(slot.module, []).append(slot)
            self._first.setdefault(id(slot.meta), slot)
        self._open: dict[Slot, Tensor] = {}
        """Tensors in memory, which modules above still write."""
        self._done: list[Slot] = []

    def __call__(self, keep: Keep) -> None:
        """Draw all tensors; `keep` is given one after the other."""
        placed = {slot: getattr(slot.module, slot.attribute) for slot in self._slots}
        try:
            # What reset_parameters() should leave alone has no memory to be changed.
            for slot in self._slots:
                setattr(slot.module, slot.attribute, slot.meta)
            with random_state_kept(), torch.no_grad():
                torch.default_generator.manual_seed(self._seed)
                self._visit(self._model, set(), False, keep)
        finally:
            for slot, tensor in placed.items():
                setattr(slot.module, slot.attribute, tensor)

    def _visit(self, module: nn.Module, seen: set[nn.Module], is_followed: bool, keep: Keep) -> None:
        """Draw what is inside a module, then its own tensors. `is_followed`: a module above is drawn later."""
        seen.add(module)
        own = self._of_module.get(module, [])
        for child in module.children():
            if child not in seen:
                self._visit(child, seen, is_followed or bool(own), keep)
        if own:
            self._reset(module, own)
        for slot, tensor in [*self._open.items()]:
            expected, found = self._written[id(slot.meta)], tensor._version  # pyright: ignore[reportPrivateUsage]
            is_first = self._first[id(slot.meta)] is slot
            is_lost = not expected and not isinstance(slot.meta, nn.Parameter)  # .to(dtype) makes new buffers
            if not is_first or (found and (found == expected or is_lost)):
                del self._open[slot]
                setattr(slot.module, slot.attribute, slot.meta)
                if is_first:
                    self._done.append(slot)
                    keep(slot.name, part_of(tensor))
            elif not is_followed:
                raise _other_values(slot, expected, found)

    def _reset(self, module: nn.Module, own: Sequence[Slot]) -> None:
        for slot in own:
            is_float = slot.meta.dtype.is_floating_point
            dtype = torch.get_default_dtype() if is_float else slot.meta.dtype
            tensor = torch.empty(slot.meta.shape, dtype=dtype, device="cpu")
            if isinstance(slot.meta, nn.Parameter):
                tensor = nn.Parameter(tensor, requires_grad=slot.meta.requires_grad)
            self._open[slot] = tensor
            setattr(module, slot.attribute, tensor)
        reset = reset_of(module)
        assert reset is not None  # check_drawable
        with torch.device("cpu"):
            reset()
        for slot in self._done if [*module.children()] else ():
            if slot.meta._version != self._written[id(slot.meta)]:  # pyright: ignore[reportPrivateUsage]
                raise _other_values(slot, self._written[id(slot.meta)], slot.meta._version)


def _other_values(slot: Slot, expected: int, found: int) -> ConfigError:
    """A tensor was not written as often as when the model was built."""
    times = f"{expected} {'time' if expected == 1 else 'times'}"
    return ConfigError(
        f"'{slot.attribute}' of {slot.owner} was written {times} when the model was built, and reset_parameters() "
        f"writes it {found}, so a seed would give it other values than on one machine",
        "Give all first values in reset_parameters() of the module that has the tensor, called once in its __init__, "
        'and build every layer under torch.device("meta"), without copies; or pass weights=, a safetensors file.',
    )
