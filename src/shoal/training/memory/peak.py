"""The peak of a worker's memory while it trains, and the limit that `--memory.budget` sets.

The peak is how much more memory the worker has had than before it was built.

On a GPU torch's allocator knows it. On a CPU the kernel does: it keeps the largest resident size of a process (VmHWM).
Pages of files are not counted, because the system can drop them; pages that several workers map are divided among them.
What the C library keeps after it was freed is counted: it is memory that no other program can have.
"""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

import torch
from torch import nn
from torch.nn import functional as F

from shoal.config.schema import RunConfig
from shoal.data.dataset import DataSet
from shoal.errors import ConfigError
from shoal.strategies.pieces.freed_memory import return_freed_memory
from shoal.training.hooks.hook import Hook
from shoal.training.progress import Progress

_CLEAR, _STATUS, _ROLLUP = (Path("/proc/self") / name for name in ("clear_refs", "status", "smaps_rollup"))
_RESET_PEAK = "5"
"""Written to `clear_refs`, it makes the kernel forget the largest resident size so far."""
FIRST_STEPS = 3
"""Steps after which every kind of memory has been allocated: optimizer state is there after the first."""


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
        """Forget peaks so far, for example while a model was built; memory that is still in use counts."""
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
    for _ in range(2):
        F.cross_entropy(
            net(torch.zeros(2, 1, 8, 8, device=device)), torch.zeros(2, dtype=torch.long, device=device)
        ).backward()
    torch.optim.Adam(net.parameters()).step()


@final
class MemoryLimit(Hook):
    """Holds a run to its budget. Make it before anything is built; validation and checkpoints are not counted."""

    def __init__(self, config: RunConfig, device: torch.device) -> None:
        self._budget = config.memory.budget_bytes
        if self._budget is not None:
            warm_up(device)
            self._meter = PeakMemory(device)
        self._data = 0
        self._steps = 0
        self._highest = 0
        self._is_paused = False

    def begin(self, data: DataSet, record: Callable[[dict[str, Any]], None]) -> bool:
        """Measure from now on, without the data set; return whether there is a budget."""
        self._data, self._record = data.nbytes, record
        return self._budget is not None

    def before_step(self, progress: Progress, num_samples: int) -> None:
        """End the run if its first steps have had a peak above the budget."""
        assert self._budget is not None
        if self._steps == 1 or self._is_paused:
            self._meter.restart()  # in the first step libraries start, which need memory once
            self._is_paused = False
        if self._steps == FIRST_STEPS and (peak := self._peak()) > self._budget:
            self._write(peak)
            raise ConfigError(
                f"the first {FIRST_STEPS} steps took {_text(peak)} of memory, more than --memory.budget "
                f"({_text(self._budget)})",
                "`shoal memory` shows what takes less; or use a smaller --batch-size, or a larger budget.",
            )
        self._steps += 1

    def after_steps(self) -> None:
        """Count nothing until the next step."""
        if self._steps > 1 and not self._is_paused:
            self._highest = self._peak()
        self._is_paused = True

    def end(self) -> None:
        """Record the peak of all steps but the first; warn if it is above the budget."""
        assert self._budget is not None
        self.after_steps()
        if not self._highest:
            return  # a run of one step
        self._write(self._highest)
        if self._highest > self._budget:
            warnings.warn(
                f"memory grew to {_text(self._highest)}, above --memory.budget ({_text(self._budget)}); "
                "use --memory.return_freed, or a larger budget",
                stacklevel=2,
            )

    def _peak(self) -> int:
        return max(self._highest, self._meter.read() - self._data)

    def _write(self, peak: int) -> None:
        sizes = {"budget_bytes": self._budget, "peak_bytes": peak}
        self._record({"event": "memory", "steps": self._steps, **sizes})


def _text(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:,.1f} MB"
