"""Clocks of devices, for spans that measure the device's work and not the host's."""

import time
from typing import Any

import torch

from shoal.events.spans import Clock, HostClock


class CudaClock:
    """Marks are CUDA events on the current stream; reading one waits until the stream got there."""

    lane = "cuda"

    def __init__(self) -> None:
        self._zero = self.mark()
        torch.cuda.synchronize()
        self._zero_ns = time.perf_counter_ns()

    def mark(self) -> Any:
        """An event in the current stream."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def nanoseconds(self, mark: Any) -> int:
        """When the stream reached the event, on the host's scale."""
        mark.synchronize()
        return self._zero_ns + int(self._zero.elapsed_time(mark) * 1e6)


def clock_of(device: torch.device) -> Clock:
    """The clock of the device that computes."""
    return CudaClock() if device.type == "cuda" else HostClock()
