"""The contract of codecs: what they encode, what travels, and what they declare."""

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor

from shoal.errors import ConfigError

Payload = tuple[Tensor, ...]
"""What a worker sends for one gradient: flat tensors whose dtypes and lengths the form alone determines."""


class Form(NamedTuple):
    """What a codec knows of a gradient besides its numbers."""

    shape: tuple[int, ...]
    """In the order of memory: the last dimension is contiguous."""
    dtype: torch.dtype
    device: torch.device = torch.device("cpu")

    @property
    def numel(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    @classmethod
    def of(cls, x: Tensor) -> Self:
        """The form of a contiguous tensor."""
        return cls(tuple(x.shape), x.dtype, x.device)


class Field(NamedTuple):
    """One tensor of a payload."""

    dtype: torch.dtype
    numel: int

    @property
    def num_bytes(self) -> int:
        """Its size on the wire."""
        return self.numel * self.dtype.itemsize


class Codec(ABC):
    """Encodes one parameter's gradient x in a payload of declared size; decode(payload) stands for x.

    A codec is a pure function of x, a seed, and its *memory*: one tensor that it may keep for each parameter from step
    to step. The seed belongs to one parameter, one step and one worker. Workers gather all payloads, and each adds them
    up in rank order, so all hold the same bits. `Linear` codecs have payloads that can be summed instead.

    A codec is *unbiased* if the mean of decode(encode(x)) over all seeds is x. A biased one needs feedback: what it
    dropped, x − decode(encode(x)), is added to the next gradient. That converges if the codec is a *contraction*:
    E‖x − decode(encode(x))‖² ≤ (1 − δ)·‖x‖² with δ > 0 (Stich et al., Sparsified SGD with Memory, 2018).
    """

    MEMORY: ClassVar[str] = ""
    """The bytes of its memories as a formula, for `shoal memory`; empty: it keeps none."""
    shows_nonfinite: ClassVar[bool] = False
    """Whether the payload of a gradient has NaN or infinity if the gradient has."""

    @property
    def is_unbiased(self) -> bool:
        """Whether the mean over all seeds is the gradient."""
        return False

    @abstractmethod
    def fields(self, form: Form) -> tuple[Field, ...]:
        """The tensors of the payload of such a gradient."""

    @abstractmethod
    def encode(self, x: Tensor, seed: int, memory: Tensor | None = None) -> Payload:
        """The payload of a contiguous gradient; x stays as it is."""

    @abstractmethod
    def decode(self, payload: Payload, form: Form, seed: int) -> Tensor:
        """The dense gradient that a payload stands for; `seed` is the encoder's."""

    def num_bytes(self, form: Form) -> int:
        """The bytes that one worker sends for such a gradient."""
        return sum(field.num_bytes for field in fields_of(self, form))

    # What a codec may do differently.

    def fitted(self, form: Form) -> "Codec":
        """The codec to use for such a gradient: this one, unless it cannot encode it."""
        return self

    def remark(self, form: Form) -> str:
        """What a user should know of the codec that was fitted to such a gradient; empty: nothing."""
        return ""

    def warming(self, progress: float) -> "Codec":
        """The codec to use in the warm-up; `progress` rises from 0 to 1. Without a ratio: no compression."""
        return Dense()

    def new_memory(self, form: Form, seed: int) -> Tensor | None:
        """The memory before the first step; every worker gives the same seed."""
        return None

    def correct(self, gradient: Tensor, memory: Tensor | None, workers: int) -> Tensor | None:
        """Change this step's gradient in place before the feedback is added; return the memory for `encode`."""
        return memory

    def remember(self, x: Tensor, payload: Payload, memory: Tensor | None, seed: int) -> Tensor | None:
        """The memory after the step."""
        return memory

    def subtract(self, x: Tensor, payload: Payload, seed: int) -> None:
        """Make x the error x − decode(payload), in place."""
        x.sub_(self.decode(payload, Form.of(x), seed))

    def aggregate(self, payloads: Sequence[Payload], out: Tensor, seeds: Sequence[int]) -> None:
        """Make `out` the sum of all workers' decoded gradients, in rank order."""
        out.zero_()
        for payload, seed in zip(payloads, seeds, strict=True):
            self.add(payload, out, seed)

    def add(self, payload: Payload, out: Tensor, seed: int) -> None:
        """Add a decoded gradient to `out`."""
        out.add_(self.decode(payload, Form.of(out), seed))


def check_payload(codec: Codec, payload: Payload, form: Form, param: str, is_summed: bool = False) -> None:
    """Refuse a payload that is not what the codec declares: its length is counted on, and a server reserves it.

    What workers gather is flat; what they sum, such as coordinates, may have any shape.

    >>> check_payload(Dense(), (torch.zeros(9),), Form((4,), torch.float32), "fc.bias")
    Traceback (most recent call last):
        ...
    shoal.errors.ConfigError: codec shoal.codecs.codec:Dense encodes 'fc.bias' in 36 bytes (9 float32), but declares \
16 bytes (4 float32)
      Let `fields` and `encode` agree; `shoal check codec` tests it.
    """
    declared = fields_of(codec, form)
    is_payload = isinstance(payload, tuple) and all(isinstance(each, Tensor) for each in payload)  # pyright: ignore[reportUnnecessaryIsInstance]
    found = tuple(Field(tensor.dtype, tensor.numel()) for tensor in payload) if is_payload else ()
    named = _named(codec)
    if not is_payload or found != declared:
        made = f"in {_listed(found)}" if is_payload else f"as a {type(payload).__name__}, no tuple of tensors"
        raise ConfigError(
            f"{named} encodes '{param}' {made}, but declares {_listed(declared)}",
            "Let `fields` and `encode` agree; `shoal check codec` tests it.",
        )
    for tensor in payload:
        if tensor.ndim != 1 and not is_summed:
            shape = " × ".join(map(str, tensor.shape)) or "()"
            raise ConfigError(
                f"{named} encodes '{param}' with a tensor of shape {shape}, expected flat ones",
                "Return tensors of one dimension: tensor.reshape(-1).",
            )


def fields_of(codec: Codec, form: Form) -> tuple[Field, ...]:
    """What a codec declares; refused if these are no fields."""
    fields: Any = codec.fields(form)
    if not isinstance(fields, tuple | list) or isinstance(fields, Field):
        found = f"a value of type {type(fields).__name__}"
    elif all(isinstance(each, Field) for each in fields):
        return tuple(fields)
    else:
        wrong = next(each for each in fields if not isinstance(each, Field))
        found = f"a {type(fields).__name__} with a value of type {type(wrong).__name__}"
    raise ConfigError(
        f"`fields` of {_named(codec)} returned {found}, expected a tuple of Field",
        "Return (Field(form.dtype, form.numel),), for example: one Field for each tensor of a payload.",
    )


def _named(codec: Codec) -> str:
    return f"codec {type(codec).__module__}:{type(codec).__qualname__}"


def _listed(fields: Sequence[Field]) -> str:
    """The bytes of a payload, and its tensors."""
    tensors = ", ".join(f"{field.numel} {str(field.dtype).removeprefix('torch.')}" for field in fields)
    return f"{sum(field.num_bytes for field in fields)} bytes ({tensors or 'nothing'})"


class Additive(Codec):
    """A codec whose payload is added to dense memory without a dense copy of its own.

    The first tensor of the payload has the scales or the values: what the payload stands for is proportional to it.
    """

    def decode(self, payload: Payload, form: Form, seed: int) -> Tensor:
        """The payload, added to zero."""
        out = torch.zeros(form.shape, dtype=form.dtype, device=form.device)
        self.add(payload, out, seed)
        return out

    @abstractmethod
    def add(self, payload: Payload, out: Tensor, seed: int) -> None:
        """Add a decoded gradient to `out`."""

    def subtract(self, x: Tensor, payload: Payload, seed: int) -> None:
        """Add what the negative scales stand for."""
        scales, *others = payload
        self.add((-scales, *others), x, seed)


class Linear(Codec):
    """A codec that expresses x in coordinates of a common basis: coordinates of workers can be summed.

    Phase 1, only if the basis depends on the gradients: the workers sum their proposals, and derive the basis from the
    sum. Phase 2: each expresses its gradient in the basis, and the workers sum the coordinates. All workers give the
    same seed.
    """

    def propose(self, x: Tensor, memory: Tensor | None) -> Tensor | None:
        """This worker's summand of what the basis is derived from; none if it needs no gradients."""
        return None

    def basis(self, proposal: Tensor | None, form: Form, seed: int) -> Tensor | None:
        """The common basis; none: the coordinates are the elements."""
        return None

    @abstractmethod
    def express(self, x: Tensor, basis: Tensor | None, workers: int) -> Tensor:
        """The coordinates, in memory of their own."""

    def reconstruct(self, coordinates: Tensor, basis: Tensor | None, out: Tensor) -> None:
        """Make `out` the dense gradient that coordinates stand for: without a basis, they are its elements."""
        out.copy_(coordinates.view(out.shape))

    def encode(self, x: Tensor, seed: int, memory: Tensor | None = None) -> Payload:
        """The payload of one worker alone: the basis, if it depends on the gradient, and the coordinates."""
        proposal = self.propose(x, memory)
        basis = self.basis(proposal, Form.of(x), seed)
        coordinates = self.express(x, basis, workers=1)
        own = () if proposal is None or basis is None else (basis.reshape(-1),)
        return (*own, coordinates.reshape(-1))

    def decode(self, payload: Payload, form: Form, seed: int) -> Tensor:
        """The dense gradient."""
        *own, coordinates = payload
        out = torch.empty(form.shape, dtype=form.dtype, device=form.device)
        self.reconstruct(coordinates, own[0] if own else self.basis(None, form, seed), out)
        return out


class Dense(Linear):
    """No compression: the gradient itself, in its own precision."""

    shows_nonfinite = True

    @property
    def is_unbiased(self) -> bool:
        """Yes."""
        return True

    def fields(self, form: Form) -> tuple[Field, ...]:
        """All elements."""
        return (Field(form.dtype, form.numel),)

    def warming(self, progress: float) -> Codec:
        """The same."""
        return self

    def express(self, x: Tensor, basis: Tensor | None, workers: int) -> Tensor:
        """The elements."""
        return x.reshape(-1).clone()


def seed_of(param: str, step: int, rank: int | None = None) -> int:
    """The seed of one parameter, one step and one worker; without a rank, common to all workers.

    >>> seed_of("fc", step=3, rank=0) == seed_of("fc", step=3, rank=0) != seed_of("fc", step=3, rank=1)
    True
    """
    digest = hashlib.blake2b(f"{param}\n{step}\n{rank}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1


def generator(seed: int, device: torch.device) -> torch.Generator:
    """Random numbers that follow from a seed."""
    return torch.Generator(device).manual_seed(seed)
