"""Optimizer state that is not where the parameters are: in the host's memory, or in a mapped file.

::

    in memory of a GPU     parameters │ gradients │ state of one slice at a time
    host memory or file                           │ state of all slices

The state of a slice is copied to the parameters' device for its update and back, so the update is the same, to the bit.
On a CPU nothing is copied: the optimizer works in the mapped file, whose pages the system writes and reads as it needs.
"""

import errno
import mmap
import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, final

import torch
from torch import Tensor

from shoal.errors import ConfigError
from shoal.optim.elementwise import Elementwise
from shoal.optim.over import state_kinds
from shoal.strategies.pieces.state import PlaceOf, load_optimizer
from shoal.strategies.update import MakeKeeper, MakeOptimizer, updates_alone

OffloadTo = Literal["none", "memory", "file"]

_ALIGNMENT = 64
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What a system answers when a file cannot grow."""


@final
class OffloadedState:
    """Keeps the state of an optimizer in memory of the host, all of which is reserved before training.

    `step` is the optimizer's step. State that an optimizer creates in its first step is moved at once: that of one
    slice exists beside the offloaded state, not that of all. `make_optimizer` is called once more, with tensors of one
    element, to learn which state there will be.
    """

    def __init__(
        self,
        to: OffloadTo,
        folder: str,
        optimizer: torch.optim.Optimizer,
        params: Mapping[str, Tensor],
        make_optimizer: MakeOptimizer,
    ) -> None:
        self._optimizer = optimizer
        self._on_gpu = any(param.is_cuda for param in params.values())
        if to == "memory" and not self._on_gpu and params:
            raise ConfigError(
                "offload to memory has no effect on a CPU: optimizer state is in the host's memory already",
                'Use offload "file" (--strategy.offload file), or leave it out.',
            )
        self._one_at_a_time = updates_alone(optimizer)
        if self._on_gpu and not self._one_at_a_time:
            raise ConfigError(
                f"offload on a GPU updates one slice at a time, which {type(optimizer).__name__} may not support",
                "Use one of shoal's or torch's optimizers, or leave offload out.",
            )
        kinds = state_kinds(make_optimizer, [*params.values()]) if params else []
        sizes = [
            (param, key, dtype)
            for param, of_one in zip(params.values(), kinds, strict=True)
            for key, dtype in of_one.items()
        ]
        if params and not sizes:
            raise ConfigError(
                f"offload has no effect: {type(optimizer).__name__} keeps no state for the elements of a parameter",
                "Use an optimizer with momentum, or leave offload out.",
            )
        self._homes: dict[int, dict[str, Tensor]] = {id(param): {} for param in params.values()}
        """The memory of each slice's state, in the slice's shape."""
        memory = _memory(
            to, folder, sum(_aligned(param.numel() * dtype.itemsize) for param, _, dtype in sizes)
        )
        offset = 0
        # All state of one name together, in the order of the slices.
        for param, key, dtype in sorted(sizes, key=lambda size: size[1]):
            num_bytes = param.numel() * dtype.itemsize
            home = memory[offset : offset + num_bytes].view(dtype).view(param.shape)
            self._homes[id(param)][key] = home
            offset += _aligned(num_bytes)
            if isinstance(optimizer, Elementwise) and not self._on_gpu:
                optimizer.state[param][key] = home  # missing state starts at zero
        for param in params.values():
            self._keep(param)  # what the optimizer created when it was built

    def step(self) -> None:
        """Update all slices that have a gradient."""
        groups: Iterable[Sequence[Tensor]] = (group["params"] for group in self._optimizer.param_groups)
        updated = [param for group in groups for param in group if param.grad is not None]
        is_complete = all(
            self._optimizer.state.get(param, {}).get(key) is not None
            for param in updated
            for key in self._homes.get(id(param), ())
        )
        if not self._on_gpu and (is_complete or not self._one_at_a_time):
            self._optimizer.step()
            for param in updated:
                self._keep(param)
            return
        grads = [param.grad for param in updated]
        for param in updated:
            param.grad = None
        try:
            for param, grad in zip(updated, grads, strict=True):
                param.grad = grad
                self._fetch(param)
                self._optimizer.step()
                self._keep(param)
                param.grad = None
        finally:
            for param, grad in zip(updated, grads, strict=True):
                param.grad = grad

    def settle(self) -> None:
        """Return when the state is in host memory: before it is read there."""
        if self._on_gpu:
            torch.cuda.synchronize()

    def load(self, params: Mapping[str, Tensor], place_of: PlaceOf, saved: Mapping[str, Tensor]) -> None:
        """Load the parts of a saved state that belong to these slices, one after the other."""
        self.settle()
        offloaded = {
            f"optim.{name}.{key}": (name, key, home)
            for name, param in params.items()
            for key, home in self._homes[id(param)].items()
        }
        rest = {name: saved[name] for name in saved if name.startswith("optim.") and name not in offloaded}
        load_optimizer(params, place_of, self._optimizer, rest)
        for saved_name, (name, key, home) in offloaded.items():
            if saved_name in saved:
                home.copy_(place_of(name).read(saved[saved_name], tuple(home.shape)))
                self._optimizer.state[params[name]][key] = home

    def _fetch(self, param: Tensor) -> None:
        """Copy the state of a slice to the slice's device, if it is not there."""
        if not self._on_gpu:
            return
        state = self._optimizer.state.get(param, {})
        for key, home in self._homes.get(id(param), {}).items():
            if state.get(key) is home:
                state[key] = home.to(param.device, non_blocking=True)

    def _keep(self, param: Tensor) -> None:
        """Move the state of a slice to its home."""
        state = self._optimizer.state.get(param, {})
        for key, home in self._homes.get(id(param), {}).items():
            value = state.get(key)
            if value is not None and value is not home:
                home.copy_(value, non_blocking=True)
                state[key] = home


def offload(to: OffloadTo, folder: str = "") -> MakeKeeper | None:
    """How an update keeps its optimizer's state, if not with the parameters."""
    return None if to == "none" else partial(OffloadedState, to, folder)


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT


def _memory(to: OffloadTo, folder: str, num_bytes: int) -> Tensor:
    if not num_bytes:
        return torch.empty(0, dtype=torch.uint8)
    if to == "memory":
        # Pinned: copies to and from a GPU then need no other memory, and the host does not wait for them.
        return torch.zeros(num_bytes, dtype=torch.uint8, pin_memory=True)
    return mapped_file(folder or default_folder(), num_bytes)


def default_folder() -> str:
    """Where offload files are made: $TMPDIR, or /var/tmp, which is on a disk where /tmp may be in memory."""
    return os.environ.get("TMPDIR") or ("/var/tmp" if Path("/var/tmp").is_dir() else tempfile.gettempdir())


def mapped_file(folder: str, num_bytes: int) -> Tensor:
    """Bytes of a file in a folder, filled with zeros. The file has no name: it is gone when the process ends.

    All of it is allocated first, so a full disk is noticed here and not in training. A ConfigError says that it is
    full, or that the folder cannot be used; then nothing is left.
    """
    try:
        with tempfile.TemporaryFile(dir=folder, prefix="shoal-offload-", buffering=0) as file:
            allocate_blocks(file.fileno(), num_bytes)
            mapping = mmap.mmap(file.fileno(), num_bytes)
    except OSError as error:
        if error.errno in NO_SPACE:
            raise ConfigError(
                f"cannot allocate an offload file of {num_bytes / 2**20:,.1f} MiB in {folder}: {error.strerror}",
                "Free some space, or choose another folder with offload_dir (--strategy.offload_dir).",
            ) from None
        raise ConfigError(
            f"cannot create an offload file in {folder}: {error.strerror}",
            "Choose another folder with offload_dir (--strategy.offload_dir).",
        ) from None
    if is_in_memory(folder):
        warnings.warn(f"the offload file is in memory: {folder} is not on a disk", stacklevel=2)
    return torch.frombuffer(mapping, dtype=torch.uint8)


def allocate_blocks(descriptor: int, num_bytes: int) -> None:
    """Allocate a file's blocks; where the system has no call for that, by writing zeros."""
    allocate: Callable[[int, int, int], None] | None = getattr(os, "posix_fallocate", None)
    if allocate is not None:
        allocate(descriptor, 0, num_bytes)
        return
    zeros = bytes(2**20)
    while num_bytes > 0:
        num_bytes -= os.write(descriptor, zeros[: min(len(zeros), num_bytes)])


def is_in_memory(folder: str) -> bool:
    """Whether a folder is on a tmpfs, as far as the system says."""
    try:
        device = os.stat(folder).st_dev
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return False
    number = f"{os.major(device)}:{os.minor(device)}"
    return any(
        fields.split()[2] == number and kind.split()[0] in ("tmpfs", "ramfs")
        for fields, _, kind in (line.partition(" - ") for line in lines)
    )
