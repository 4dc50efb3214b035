"""Off-loads activations: what forward saves waits for backward in the host's memory, or in a file.

::

    forward     operation ─▶ saved tensor ─▶ written, freed
    backward    operation ◀─ read ◀─ the same bytes

Hooks of autograd see every tensor that an operation saves. The memory behind a tensor (its storage) is written once,
however many operations save it or views of it, and read once while backward needs it. Parameters stay where they are.

A file has no name, so it is gone when the process ends, however it ends. It is written and read with calls (`pwrite`,
`pread`): a mapping would count as memory of this process, page by page. What the system has not written to the disk yet
is in its page cache; it writes and drops these pages as it needs memory.

Memory: the storages that one operation saves or reads, and tensors below `SMALLEST` bytes. Time: a copy out and
one back.
"""

import os
import tempfile
import warnings
import weakref
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import IO, Any, Literal, final

import torch
from torch import Tensor, UntypedStorage
from torch.multiprocessing.reductions import StorageWeakRef

from shoal.errors import ConfigError
from shoal.strategies.buckets.plan import MIB
from shoal.strategies.pieces.freed_memory import return_large_memory_at_once
from shoal.strategies.zero.offload import NO_SPACE, allocate_blocks, default_folder, is_in_memory

SMALLEST = 4096
"""Bytes of a page: less is not worth a call."""


@final
class OffloadedActivations:
    """Keeps what forward saves elsewhere, inside `with activations.saving()`."""

    def __init__(
        self, to: Literal["host", "file"], device: torch.device, kept: Iterable[Tensor], folder: str = ""
    ) -> None:
        """`kept` are the model's parameters and buffers, which are not off-loaded."""
        if to == "host" and device.type != "cuda":
            raise ConfigError(
                "--memory.offload host has no effect on a CPU: activations are in the host's memory already",
                "Use --memory.offload file.",
            )
        self._kept = {id(tensor): tensor for tensor in kept}
        self._kept_storages = {_address(tensor.untyped_storage()) for tensor in self._kept.values()}
        self._file = _ActivationFile(folder) if to == "file" else None
        if device.type == "cpu":
            return_large_memory_at_once()  # or it would stay with this process, written and freed
        self._known: dict[tuple[int, int], tuple[StorageWeakRef, weakref.ref[_Stored]]] = {}
        """Stored storages, by address and version. The weak reference keeps an address from being used again."""

    def saving(self) -> AbstractContextManager[object]:
        """Inside, what operations save is off-loaded."""
        return torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)

    def _pack(self, tensor: Tensor) -> "_Saved | Tensor":
        if self._stays(tensor):
            return tensor
        stored = self._stored(tensor)
        return _Saved(stored, tensor.dtype, tensor.shape, tensor.stride(), int(tensor.storage_offset()))

    def _stays(self, tensor: Tensor) -> bool:
        # Parameters that a strategy gathers have other memory in every step: those are known by their identity.
        base = tensor if tensor._base is None else tensor._base
        return (
            tensor.layout != torch.strided
            or type(tensor) is not Tensor
            or tensor.is_conj()
            or tensor.is_neg()
            or id(base) in self._kept
            or tensor.untyped_storage().nbytes() < SMALLEST
            or _address(tensor.untyped_storage()) in self._kept_storages
        )

    def _stored(self, tensor: Tensor) -> "_Stored":
        storage = tensor.untyped_storage()
        key = _address(storage), tensor._version
        if key in self._known and (known := self._known[key][1]()) is not None:
            return known
        stored = _in_file(storage, self._file) if self._file else _on_host(storage)
        self._known[key] = StorageWeakRef(storage), weakref.ref(stored, lambda _: self._known.pop(key, None))
        return stored

    def _unpack(self, saved: "_Saved | Tensor") -> Tensor:
        if isinstance(saved, Tensor):
            return saved
        storage = saved.stored.storage()
        empty = torch.empty(0, dtype=saved.dtype, device=storage.device)
        return empty.set_(storage, saved.offset, saved.shape, saved.stride)  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True)
class _Saved:
    """A tensor that is elsewhere: which part of which storage it is."""

    stored: "_Stored"
    dtype: torch.dtype
    shape: torch.Size
    stride: tuple[int, ...]
    offset: int


@final
class _Stored:
    """A storage that is elsewhere. Once it was read, it is here until no operation needs it any more."""

    def __init__(self, read: Callable[[], UntypedStorage]) -> None:
        self._read = read
        self._here: UntypedStorage | None = None

    def storage(self) -> UntypedStorage:
        """The storage on its device."""
        if self._here is None:
            self._here = self._read()
        return self._here


def _on_host(storage: UntypedStorage) -> _Stored:
    """A copy in pinned memory: the GPU copies on its own, in the order of its other work."""
    copy = torch.empty(storage.nbytes(), dtype=torch.uint8, pin_memory=True)
    copy.copy_(_bytes_of(storage), non_blocking=True)
    device = storage.device
    return _Stored(lambda: copy.to(device, non_blocking=True).untyped_storage())


def _in_file(storage: UntypedStorage, file: "_ActivationFile") -> _Stored:
    """A place in the file, which is free again when nothing needs it."""
    device, num_bytes = storage.device, storage.nbytes()
    offset = file.write(_bytes_of(storage).cpu())

    def read() -> UntypedStorage:
        found = torch.empty(num_bytes, dtype=torch.uint8)
        file.read(found, offset)
        return found.to(device).untyped_storage()

    stored = _Stored(read)
    weakref.finalize(stored, file.free)
    return stored


@final
class _ActivationFile:
    """A file without a name. Places are taken one after the other; when all are free, from the beginning again."""

    def __init__(self, folder: str) -> None:
        self._folder = folder or default_folder()
        try:
            self._file: IO[bytes] = tempfile.TemporaryFile(  # noqa: SIM115 (open as long as this object)
                dir=self._folder, prefix="shoal-activations-", buffering=0
            )
        except OSError as error:
            raise ConfigError(
                f"cannot create a file for activations in {self._folder}: {error.strerror}",
                "Choose another folder with --memory.offload_dir.",
            ) from None
        if is_in_memory(self._folder):
            warnings.warn(
                f"the file of activations is in memory: {self._folder} is not on a disk", stacklevel=2
            )
        self._size = self._end = self._num_used = 0

    def write(self, content: Tensor) -> int:
        """Write bytes; returns where. A full disk is an error, and what was written is freed."""
        offset, self._end = self._end, self._end + -(-content.numel() // SMALLEST) * SMALLEST
        try:
            if self._end > self._size:
                allocate_blocks(self._file.fileno(), self._end)
                self._size = self._end
            _in_parts(content, offset, lambda part, at: os.pwrite(self._file.fileno(), part, at))
        except OSError as error:
            self._file.close()
            if error.errno not in NO_SPACE:
                raise
            raise ConfigError(
                f"cannot off-load activations to a file in {self._folder}: {error.strerror} "
                f"(it needs at least {self._end / MIB:,.1f} MiB)",
                "Free some space, or choose another folder with --memory.offload_dir.",
            ) from None
        self._num_used += 1
        return offset

    def read(self, content: Tensor, offset: int) -> None:
        """Read bytes into a tensor."""
        _in_parts(content, offset, lambda part, at: os.preadv(self._file.fileno(), [part], at))

    def free(self) -> None:
        """One place fewer is used."""
        self._num_used -= 1
        if not self._num_used:
            self._end = 0


def _in_parts(content: Tensor, offset: int, move: Callable[[Any, int], int]) -> None:
    """Move all bytes of a tensor; one call of the system may move fewer."""
    left = memoryview(content.numpy())  # pyright: ignore[reportArgumentType]
    while left:
        moved = move(left, offset)
        if not moved:
            raise EOFError("the file of activations is shorter than what was written to it")
        left, offset = left[moved:], offset + moved


def _bytes_of(storage: UntypedStorage) -> Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)  # pyright: ignore[reportArgumentType, reportCallIssue]


def _address(storage: UntypedStorage) -> int:
    return storage._cdata  # pyright: ignore[reportPrivateUsage]
