"""The peak of a worker's memory while it trains: how much more it has had than before it was built.

On a GPU torch's allocator knows it. On a CPU the kernel does: it keeps the largest resident size of a process (VmHWM).
Pages of files are not counted, because the system can drop them; pages that several workers map are divided among them.
What the C library keeps after it was freed is counted: it is memory that no other program can have.
"""

from pathlib import Path
from typing import final

import torch
from torch import nn
from torch.nn import functional as F

from shoal.errors import ConfigError
from shoal.strategies.pieces.freed_memory import return_freed_memory

_CLEAR, _STATUS, _ROLLUP = (Path("/proc/self") / name for name in ("clear_refs", "status", "smaps_rollup"))
_RESET_PEAK = "5"
"""What `clear_refs` takes for: forget the largest resident size so far."""


@final
class PeakMemory:
    """Measures from the time it is made."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        if device.type == "cuda":
            self._idle = torch.cuda.memory_allocated(device)
        else:
            return_freed_memory()
            self._reset()
            fields = _status()
            self._idle = fields["RssAnon"] + _shared()

    def restart(self) -> None:
        """Forget peaks so far, such as those of building a model: what is there now still counts."""
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
        else:
            return_freed_memory()
            self._reset()

    def read(self) -> int:
        """Bytes at the peak, less those when this object was made."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device) - self._idle
        fields = _status()
        others = fields["RssShmem"] - _shared()  # of pages that several map, the part of the others
        return fields["VmHWM"] - fields["RssFile"] - others - self._idle

    def _reset(self) -> None:
        try:
            _CLEAR.write_text(_RESET_PEAK)
        except OSError as error:
            raise ConfigError(
                f"this system does not measure the peak of a process's memory: {_CLEAR}: {error.strerror}",
                "Leave --memory.budget out, and use the other --memory settings.",
            ) from None


def _status() -> dict[str, int]:
    """The fields of this process's status that are sizes, in bytes."""
    lines = (line.split() for line in _STATUS.read_text().splitlines())
    return {words[0].rstrip(":"): 1024 * int(words[1]) for words in lines if words[-1] == "kB"}


def _shared() -> int:
    """This process's part of the memory that several processes map."""
    for line in _ROLLUP.read_text().splitlines():
        if line.startswith("Pss_Shmem:"):
            return 1024 * int(line.split()[1])
    return 0


def warm_up(device: torch.device) -> None:
    """Load what torch loads when it is first used: no part of training's memory."""
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(2 * 6 * 6, 8)).to(device)
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(2):
        F.cross_entropy(
            net(torch.zeros(2, 1, 8, 8, device=device)), torch.zeros(2, dtype=torch.long, device=device)
        ).backward()
        optimizer.step()
