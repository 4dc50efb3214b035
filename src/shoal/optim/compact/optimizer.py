"""An optimizer with compact storage: state in 8 bits, parameters in bfloat16, updates in float32 chunk by chunk."""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, final

import torch
from torch import Tensor

from shoal.errors import ConfigError
from shoal.optim.compact.formats import (
    BLOCK,
    SIGNED,
    UNSIGNED,
    DynamicCode,
    Scratch,
    round_stochastically,
    rounding_key,
)
from shoal.optim.elementwise import Elementwise, Group

SMALL = 4096
"""Parameters with fewer elements stay in float32, and so does their state: biases and norms matter much and take
little."""
CHUNK_PER_THREAD, CHUNK_ON_GPU = 2**16, 2**22
"""Elements that are in float32 at a time, for each thread of a CPU: with temporaries 2 MiB, which fit the cache."""
CODES, SCALES = ".codes", ".scales"
"""What follows the name of a state in 8 bits: its bytes, and the scale of each block."""


@dataclass(frozen=True)
class Storage:
    """How parameters and optimizer state are stored between steps."""

    state_bits: Literal[32, 8] = 32
    seed: int = 0
    """Of stochastic rounding."""


class Extent(NamedTuple):
    """Which elements of a whole parameter a tensor has."""

    name: str
    first: int
    whole: int
    """The number of elements of the whole parameter."""


@final
class Compact(torch.optim.Optimizer):
    """Updates by the rule of another optimizer, from state and parameters that take less memory.

    For each parameter with a gradient, chunk by chunk. Phase 1, decode: state in 8 bits and parameters in bfloat16
    become float32. Phase 2, update: the rule's own step, readable or fast. Phase 3, encode: state to the nearest code
    and parameters by stochastic rounding (both in `formats.py`).

    State of large parameters takes 1 + 4/256 bytes per number instead of 4; small ones (`SMALL`) have float32. What
    decides about an element (its block, its random numbers, whether its parameter is small) follows from its place in
    the whole parameter alone. So replicas stay equal, and slices of parameters are updated to the bits of the whole.

    `floats_of` and `load_floats` convert the state to float32 and back, with the same bits: a saved state has the form
    of any other optimizer's.

    >>> from shoal.optim.adam import Adam
    >>> weight = torch.ones(64, 64, requires_grad=True)
    >>> optimizer = Compact(Adam([weight], lr=0.25), Storage(state_bits=8))
    >>> weight.sum().backward()
    >>> optimizer.step()
    >>> weight[0, 0].item(), sorted(optimizer.state[weight])[:2]
    (0.75, ['exp_avg.codes', 'exp_avg.scales'])
    """

    elementwise: ClassVar[bool] = True

    def __init__(
        self, rule: torch.optim.Optimizer, storage: Storage, extents: Mapping[int, Extent] | None = None
    ) -> None:
        """`extents` has the place of each parameter, by its id; without one, each is whole."""
        self._rule = _checked(rule, storage)
        self._storage = storage
        self._extents = dict(extents or {})
        self._scratch = Scratch()
        super().__init__(rule.param_groups, {})
        for index, param in enumerate(param for group in self.param_groups for param in group["params"]):
            if param.dtype not in (torch.float32, torch.bfloat16):
                kind = str(param.dtype).removeprefix("torch.")
                raise ConfigError(
                    f"compact storage is for parameters in float32 and bfloat16, but one is {kind}"
                )
            self._extents.setdefault(id(param), Extent(str(index), 0, param.numel()))

    def add_param_group(self, param_group: Group) -> None:
        """Add parameters of the rule."""
        # Unwrapped, because torch's wrapper imports its compiler: a second at the start of every worker.
        inspect.unwrap(torch.optim.Optimizer.add_param_group)(self, param_group)

    @torch.no_grad()
    def step(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, closure: Callable[[], Any] | None = None, *, only: Sequence[Tensor] | None = None
    ) -> Any:
        """Update every parameter that has a gradient, or `only` these; returns the closure's loss, if there is one."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group, params, grads in self._rule.with_gradients(only):
            for param, grad in zip(params, grads, strict=True):
                self._update(group, param, grad)
        return loss

    def _update(self, group: Group, param: Tensor, grad: Tensor) -> None:
        rule, extent = self._rule, self._extents[id(param)]
        names = rule.state_names(group)
        count = self._count(param, names)
        update = rule.fused if rule.fast else rule.readable
        key = rounding_key(self._storage.seed, extent.name, count)
        weights = param.detach().contiguous().view(-1)
        slopes = grad.contiguous().view(-1)
        chunk = self._chunk_of(param)
        columns = [self._in_chunks(param, name, chunk) for name in names]
        first = extent.first
        for weight, slope, *stored in zip(weights.split(chunk), slopes.split(chunk), *columns, strict=True):
            # Decode
            row = [self._as_floats("weight", weight), self._as_floats("slope", slope)]
            row += [self._read(name, each) for name, each in zip(names, stored, strict=True)]
            # Update
            update([tuple(row)], group, count)
            # Encode
            for name, each, values in zip(names, stored, row[2:], strict=True):
                self._write(name, each, values)
            if weight.dtype != torch.float32:
                round_stochastically(row[0], weight, key, first, self._scratch)
            first += len(weight)
        if not param.is_contiguous():
            param.copy_(weights.view(param.shape))

    def _as_floats(self, name: str, values: Tensor) -> Tensor:
        return values if values.dtype == torch.float32 else self._scratch(name, values).copy_(values)

    def _chunk_of(self, param: Tensor) -> int:
        return CHUNK_PER_THREAD * torch.get_num_threads() if param.is_cpu else CHUNK_ON_GPU

    # State.

    def _count(self, param: Tensor, names: Sequence[str]) -> int:
        """Count an update of a parameter, whose state exists then."""
        state = self.state[param]
        for name in names:
            if name not in state and name + CODES not in state:
                self._create(param, name)
        state["step"] = state.get("step", torch.zeros(())) + 1
        return int(state["step"])

    def _create(self, param: Tensor, name: str) -> None:
        state, numel = self.state[param], param.numel()
        if self._storage.state_bits == 8 and self._extents[id(param)].whole >= SMALL:
            state[name + CODES] = torch.zeros(numel, dtype=torch.uint8, device=param.device)
            state[name + SCALES] = torch.zeros(-(-numel // BLOCK), device=param.device)
        else:
            state[name] = torch.zeros(numel, device=param.device)

    def _code_of(self, name: str) -> DynamicCode:
        return UNSIGNED if name in self._rule.nonnegative else SIGNED

    def _in_chunks(self, param: Tensor, name: str, chunk: int) -> "Sequence[_Stored]":
        """A state in chunks: as float32, or as bytes and scales."""
        state = self.state[param]
        if name in state:
            return state[name].split(chunk)
        codes, scales = state[name + CODES].split(chunk), state[name + SCALES].split(chunk // BLOCK)
        return [*zip(codes, scales, strict=True)]

    def _read(self, name: str, stored: "_Stored") -> Tensor:
        """Values of a state as float32: to be updated in place, and written back."""
        if isinstance(stored, Tensor):
            return stored
        codes, scales = stored
        return self._code_of(name).decode(codes, scales, self._scratch(name, codes), self._scratch)

    def _write(self, name: str, stored: "_Stored", values: Tensor) -> None:
        if not isinstance(stored, Tensor):
            codes, scales = stored
            self._code_of(name).encode(values, codes, scales, self._scratch)
        elif values is not stored:
            stored.copy_(values)

    def floats_of(self, param: Tensor) -> dict[str, Callable[[], Tensor]]:
        """The state of a parameter as any optimizer has it, by name; each is decoded when it is called for."""
        state = self.state.get(param, {})
        names = [key.removesuffix(CODES) for key in state if not key.endswith(SCALES)]

        def floats(name: str) -> Tensor:
            if name == "step":
                return state[name]
            if name in state:
                return state[name].view(param.shape)
            out = torch.empty(param.numel(), device=param.device)
            decoded = self._code_of(name).decode(state[name + CODES], state[name + SCALES], out)
            return decoded.view(param.shape)

        return {name: lambda name=name: floats(name) for name in names}

    def load_floats(self, param: Tensor, floats: Mapping[str, Callable[[], Tensor]]) -> None:
        """Load the state of a parameter as any optimizer has it; what is not given starts at zero."""
        self.state[param].clear()
        group = next(group for group in self.param_groups if any(each is param for each in group["params"]))
        for name in self._rule.state_names(group):
            if name in floats:
                self._create(param, name)
                values = floats[name]().to(device=param.device, dtype=torch.float32).reshape(-1)
                chunk = self._chunk_of(param)
                chunks = zip(self._in_chunks(param, name, chunk), values.split(chunk), strict=True)
                for stored, part in chunks:
                    self._write(name, stored, part)
        if "step" in floats:
            self.state[param]["step"] = torch.tensor(float(floats["step"]()))


_Stored = Tensor | tuple[Tensor, Tensor]
"""A chunk of a state: its float32, or its bytes and scales."""


def _checked(rule: torch.optim.Optimizer, storage: Storage) -> Elementwise:
    if not isinstance(rule, Elementwise):
        raise ConfigError(
            f"compact storage is for shoal's optimizers, and {type(rule).__name__} is another",
            "Use sgd, adam or adamw.",
        )
    if storage.state_bits == 8 and not any(rule.state_names(group) for group in rule.param_groups):
        raise ConfigError(
            f"{type(rule).__name__} has no state to store in 8 bits without momentum",
            "Set --momentum 0.9, or use 32 bits.",
        )
    return rule


def encoded_bytes(numel: int) -> int:
    """Bytes of one state of a parameter in 8 bits.

    >>> encoded_bytes(8192), encoded_bytes(10)
    (8320, 40)
    """
    return numel + 4 * math.ceil(numel / BLOCK) if numel >= SMALL else 4 * numel
