"""Holds a run to its `--memory.budget`: the peak of its steps is measured, and must be below it."""

import warnings
from collections.abc import Callable
from typing import Any, final

import torch

from shoal.config.schema import RunConfig
from shoal.data.dataset import DataSet
from shoal.errors import ConfigError
from shoal.training.hooks import Hook
from shoal.training.memory.peak import PeakMemory, warm_up
from shoal.training.progress import Progress

FIRST_STEPS = 3
"""Steps after which every kind of memory has been allocated: optimizer state is there after the first."""


@final
class MemoryLimit(Hook):
    """Make it before anything is built. Validation and checkpoints, between epochs, are not counted."""

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
        """Measure from now on, the data set not counted; whether there is a budget."""
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
