"""The memory of this process: as the system counts it (PSS), and during a step, with the tensors that are there.

PSS (proportional set size) divides a page that several processes map by their number, so all workers' PSS add up to
their common memory. Pages of files are left out: the system can drop them at any time.

On a CPU, `MemoryWatch` samples memory where it is largest: at the ends of spans, whenever backward uses a saved
activation or has computed the gradient of a parameter, and before and after the optimizer's step. On a GPU torch's
allocator knows the peak itself.
"""

import re
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from shoal.config.schema import RunConfig
from shoal.errors import ConfigError
from shoal.strategies.pieces.freed_memory import return_freed_memory

_ROLLUP, _SMAPS = Path("/proc/self/smaps_rollup"), Path("/proc/self/smaps")
_HEADER = re.compile(r"([0-9a-f]+)-([0-9a-f]+) .{4} \S+ \S+ \d+\s*(.*)")


def check_can_measure() -> None:
    """Refuse a system that does not report PSS."""
    if not _ROLLUP.exists():
        raise ConfigError(
            f"this system does not report the memory of a process: there is no {_ROLLUP}",
            "Use Linux 4.14 or newer, --device cuda, or --formula-only.",
        )


def refuse_threads(config: RunConfig) -> None:
    """Refuse thread workers."""
    if config.launch.launcher == "threads" and config.launch.workers > 1:
        raise ConfigError(
            "thread workers share one process, whose memory cannot be divided among them",
            "Use --launcher processes.",
        )


def pss() -> int:
    """Bytes of anonymous and shared memory of this process, shared pages divided among those who map them."""
    fields = dict(line.split(":", 1) for line in _ROLLUP.read_text().splitlines()[1:])
    if "Pss_Anon" not in fields:  # before Linux 5.4
        return 1024 * int(fields["Pss"].split()[0])
    return 1024 * sum(int(fields[name].split()[0]) for name in ("Pss_Anon", "Pss_Shmem"))


@dataclass(frozen=True)
class MemoryMapping:
    """A mapping of the address space."""

    start: int
    stop: int
    pss: int


def shared_mappings() -> dict[int, MemoryMapping]:
    """The memory that this process and other members of its group map, by address."""
    found: dict[int, MemoryMapping] = {}
    start = stop = 0
    name = ""
    for line in _SMAPS.read_text().splitlines():
        if line.startswith("Pss:") and name.startswith("/memfd:shoal"):
            found[start] = MemoryMapping(start, stop, 1024 * int(line.split()[1]))
        elif header := _HEADER.match(line):
            start, stop, name = int(header[1], 16), int(header[2], 16), header[3]
    return found


def storages_of(tensors: Iterable[Tensor]) -> dict[int, int]:
    """Bytes of the tensors' memory by address: tensors that share memory count once."""
    found: dict[int, int] = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        if storage.nbytes():
            found[storage.data_ptr()] = storage.nbytes()
    return found


def memory_id(tensor: Tensor) -> int:
    """The same number for tensors that share memory, also on the meta device, where memory has no address."""
    return tensor.untyped_storage()._cdata  # pyright: ignore[reportPrivateUsage]


@dataclass
class StepMemory:
    """Memory during a step, in bytes; `places` are addresses of memory that a group's members map."""

    peak: int = 0
    gradients: int = 0
    gradient_places: set[int] = field(default_factory=set[int])
    activations: int = 0
    state: dict[int, int] = field(default_factory=dict[int, int])
    """The optimizer's state by address."""


@final
class MemoryWatch:
    """A clock for spans that also samples memory, while `watching`."""

    lane = "main"

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._params: list[Tensor] = []
        self._updated: list[Tensor] = []
        self._shared: list[MemoryMapping] = []
        self._activations = 0
        self._num_saved: dict[int, int] = {}
        self._only_in_use = False
        self._known: set[int] = set()
        """Addresses of the parameters' memory."""
        self._param_ids: set[int] = set()
        self._seen: StepMemory | None = None

    # The clock.

    def mark(self) -> int:
        """The time; takes a sample."""
        self._sample()
        return time.monotonic_ns()

    def nanoseconds(self, mark: int) -> int:
        """The mark itself."""
        return mark

    # Memory.

    def now(self) -> int:
        """Bytes that this worker has."""
        return torch.cuda.memory_allocated(self._device) if self._device.type == "cuda" else pss()

    @contextmanager
    def watching(self, params: Iterable[Tensor], only_in_use: bool = False) -> Generator[StepMemory]:
        """Watch what is there inside, during one step that trains these parameters.

        With `only_in_use`, the C library gives freed memory back to the system before every sample.
        """
        self._only_in_use = only_in_use
        self._params, self._updated = [*params], []
        self._param_ids = {id(param) for param in self._params}
        self._known = set(storages_of(self._params))
        self._seen = seen = StepMemory()
        is_gpu = self._device.type == "cuda"
        if is_gpu:
            torch.cuda.reset_peak_memory_stats(self._device)
        else:
            self._shared = [*shared_mappings().values()]
        # A fresh gradient, before a bucket has it: nothing else is called while it is there. A hook of the parameter
        # would keep layers from computing the gradient in the bucket itself.
        trained = (param for param in self._params if param.requires_grad and param.is_leaf)
        nodes = [torch.autograd.graph.get_gradient_edge(param).node for param in trained]
        handles = [
            register_optimizer_step_pre_hook(self._before_update),
            register_optimizer_step_post_hook(self._after_update),
            *(node.register_prehook(lambda _: self._sample()) for node in nodes),
        ]
        try:
            with torch.autograd.graph.saved_tensors_hooks(self.pack, self.unpack):
                yield seen
            if is_gpu:
                torch.cuda.synchronize(self._device)
                seen.peak = torch.cuda.max_memory_allocated(self._device)
        finally:
            self._seen = None
            for handle in handles:
                handle.remove()

    def _sample(self) -> None:
        seen = self._seen
        if seen is None:
            return
        if self._device.type != "cuda":
            if self._only_in_use:
                return_freed_memory()
            seen.peak = max(seen.peak, pss())
        private = 0
        there = storages_of(param.grad for param in (*self._params, *self._updated) if param.grad is not None)
        for address, num_bytes in there.items():
            place = next((each for each in self._shared if each.start <= address < each.stop), None)
            if place is None:
                private += num_bytes
            else:
                seen.gradient_places.add(place.start)
        seen.gradients = max(seen.gradients, private)

    # Activations.

    def pack(self, tensor: Tensor) -> "_CountedTensor":
        """Count a tensor that is saved for backward."""
        saved = _CountedTensor(tensor, self)
        # Gathered parameters have other addresses in every step.
        is_param = id(tensor if tensor._base is None else tensor._base) in self._param_ids
        if not is_param and saved.address not in self._known:
            self._num_saved[saved.address] = count = self._num_saved.get(saved.address, 0) + 1
            self._activations += saved.num_bytes if count == 1 else 0
            if self._seen is not None:
                self._seen.activations = max(self._seen.activations, self._activations)
        return saved

    def unpack(self, saved: "_CountedTensor") -> Tensor:
        """Give it back."""
        self._sample()
        return saved.tensor

    def freed(self, saved: "_CountedTensor") -> None:
        """Count that an activation is no longer saved; another operation may have saved the same memory."""
        if saved.address in self._num_saved:
            self._num_saved[saved.address] -= 1
            if not self._num_saved[saved.address]:
                del self._num_saved[saved.address]
                self._activations -= saved.num_bytes

    # The optimizer.

    def _before_update(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._updated = [param for group in optimizer.param_groups for param in group["params"]]
        self._sample()

    def _after_update(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._sample()
        if self._seen is not None:
            tensors = (
                value
                for state in optimizer.state.values()
                for value in state.values()
                if isinstance(value, Tensor) and value.device.type == self._device.type
            )
            self._seen.state |= storages_of(tensors)


@final
class _CountedTensor:
    """A tensor that autograd saves; counted as long as it is."""

    __slots__ = ("_watch", "address", "num_bytes", "tensor")

    def __init__(self, tensor: Tensor, watch: MemoryWatch) -> None:
        storage = tensor.untyped_storage()
        self.tensor, self.address, self.num_bytes = tensor, storage.data_ptr(), storage.nbytes()
        self._watch = watch

    def __del__(self) -> None:
        self._watch.freed(self)
