"""Holds a run to its `--memory.budget`: the peak of the first steps is measured, and must be below it."""

from collections.abc import Callable
from typing import Any, final

import torch

from shoal.config.schema import RunConfig
from shoal.data.dataset import DataSet
from shoal.errors import ConfigError
from shoal.training.memory.peak import PeakMemory, warm_up

FIRST_STEPS = 3
"""Steps after which every kind of memory has been allocated: optimizer state is there after the first."""


@final
class MemoryLimit:
    """Make it before anything is built."""

    def __init__(self, config: RunConfig, device: torch.device) -> None:
        self._budget = config.memory.budget_bytes
        if self._budget is not None:
            warm_up(device)
            self._peak = PeakMemory(device)
        self._data = 0
        self._first = -1

    def built(self, data: DataSet, record: Callable[[dict[str, Any]], None]) -> "MemoryLimit | None":
        """Measure from now on, the data set not counted; None without a budget."""
        if self._budget is None:
            return None
        self._data, self._record = data.nbytes, record
        return self

    def before_step(self, step: int) -> None:
        """After the first steps, record the peak, and end the run if it is above the budget."""
        assert self._budget is not None
        self._first = step if self._first < 0 else self._first
        if step == self._first + 1:
            self._peak.restart()  # what libraries need once, when they start, is gone
        if step != self._first + FIRST_STEPS:
            return
        peak = self._peak.read() - self._data
        self._record({"event": "memory", "step": step, "budget_bytes": self._budget, "peak_bytes": peak})
        if peak > self._budget:
            raise ConfigError(
                f"the first {FIRST_STEPS} steps took {peak / 1e6:,.1f} MB of memory, more than --memory.budget "
                f"({self._budget / 1e6:,.1f} MB)",
                "`shoal memory` shows what takes less; or use a smaller --batch-size, or a larger budget.",
            )
