"""The memory of this process as the system counts it: PSS, as a whole and of single mappings.

PSS (proportional set size) divides a page that several processes map by their number, so the sum over all workers is
what they take together. Pages of files are left out: the system can drop them at any time.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from shoal.errors import ConfigError

_ROLLUP, _SMAPS = Path("/proc/self/smaps_rollup"), Path("/proc/self/smaps")
_HEADER = re.compile(r"([0-9a-f]+)-([0-9a-f]+) .{4} \S+ \S+ \d+\s*(.*)")


def check_can_measure() -> None:
    """Refuse a system that does not report PSS."""
    if not _ROLLUP.exists():
        raise ConfigError(
            f"this system does not report the memory of a process: there is no {_ROLLUP}",
            "Use Linux 4.14 or newer, --device cuda, or --formula-only.",
        )


def pss() -> int:
    """Bytes of anonymous and shared memory of this process, shared pages divided among those who map them."""
    fields = dict(line.split(":", 1) for line in _ROLLUP.read_text().splitlines()[1:])
    if "Pss_Anon" not in fields:  # before Linux 5.4
        return 1024 * int(fields["Pss"].split()[0])
    return 1024 * sum(int(fields[name].split()[0]) for name in ("Pss_Anon", "Pss_Shmem"))


@dataclass(frozen=True)
class Mapping:
    """A mapping of the address space."""

    start: int
    stop: int
    pss: int
    is_shared: bool
    """Whether it is memory that a group's members map."""


def mappings() -> list[Mapping]:
    """All mappings of this process, in order."""
    found: list[Mapping] = []
    start = stop = 0
    name = ""
    for line in _SMAPS.read_text().splitlines():
        if line.startswith("Pss:"):
            found.append(Mapping(start, stop, 1024 * int(line.split()[1]), name.startswith("/memfd:shoal")))
        elif header := _HEADER.match(line):
            start, stop, name = int(header[1], 16), int(header[2], 16), header[3]
    return found


def shared(found: Iterable[Mapping]) -> dict[int, int]:
    """The PSS of the group's mappings, by their addresses."""
    return {each.start: each.pss for each in found if each.is_shared}


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


def gpu_bytes(device: torch.device) -> int:
    """Bytes that torch's allocator has handed out on a GPU."""
    return torch.cuda.memory_allocated(device)
