"""A clock that advances only when a check advances it, beside a GPU that works through its queue meanwhile."""

import sys
import time
import timeit
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from shoal_labs.check.standins import gpu
from shoal_labs.check.standins.gpu import PENDING

CLOCKS = ("perf_counter", "monotonic", "time", "process_time")
WAITING = ("item", "tolist", "cpu", "numpy", "__float__", "__int__", "__bool__")
"""Methods of a tensor that wait for the GPU which computes it."""
READ_S = 1e-6
"""A reading advances the clock a little, so that a loop which waits for a time ends."""
FEW, FASTER = 50, 1.2
"""After so many readings in a row each advances the clock so many times more: then that loop ends soon."""


class Clock:
    """Time for the student's code alone: other code of the process keeps the real clock.

    Work that is queued takes no time until something waits for it, as on a GPU.
    """

    def __init__(self, note: Callable[..., str], folder: str) -> None:
        """`note` records an event, and says of which kind the one before was."""
        self.now_s, self.queued_s, self.slept_s = 1000.0, 0.0, 0.0
        self._in_a_row = 0
        self._note, self._folder = note, folder

    def sleep(self, seconds: float) -> None:
        """Let time pass; the GPU works meanwhile."""
        if seconds > 0:
            self._note("sleep", seconds)
        self.slept_s += seconds
        self.now_s += seconds
        self.queued_s = max(0.0, self.queued_s - seconds)

    def wait(self, *_: Any, **__: Any) -> None:
        """Until the GPU has done its work."""
        self._note("wait")
        self.now_s += self.queued_s
        self.queued_s = 0.0

    def synchronize(self, *_: Any, **__: Any) -> None:
        """Until the GPU has done all its work, also collectives whose handles nobody has waited for."""
        self.wait()
        PENDING.clear()

    def mark(self) -> float:
        """The time of an event of the GPU: when it has done the work that is queued now."""
        self._note("mark")
        return self.now_s + self.queued_s

    def read(self) -> float:
        """The time."""
        self._in_a_row = self._in_a_row + 1 if self._note("clock") == "clock" else 1
        self.now_s += READ_S * FASTER ** max(0, self._in_a_row - FEW)
        return self.now_s

    def install(self) -> None:
        """Replace Python's clocks, and what waits for a GPU, before the student's files are imported."""
        for name in CLOCKS:
            self._replace(time, name, self.read)
            self._replace(time, f"{name}_ns", lambda: round(1e9 * self.read()))
        self._replace(time, "sleep", self.sleep)
        timeit.default_timer = time.perf_counter
        for name in WAITING:
            self._replace(Tensor, name, self.wait, also=True)
        torch.cuda.synchronize = self.synchronize
        gpu.Event.synchronize = self.wait
        gpu.Event.now = lambda self_: self.mark()  # pyright: ignore[reportAttributeAccessIssue]

    def pretend_gpu(self) -> None:
        """Let the student's code find a GPU."""
        self._replace(torch.cuda, "is_available", lambda: True)
        torch.cuda.current_stream = lambda *_, **__: gpu.Event()

    def _replace(self, owner: Any, name: str, instead: Callable[..., Any], also: bool = False) -> None:
        """Call `instead` for the student; `also`: and then the function itself, with its arguments."""
        original = getattr(owner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            if not self._is_students(sys._getframe(1)):  # pyright: ignore[reportPrivateUsage]
                return original(*args, **kwargs)
            if not also:
                return instead(*args, **kwargs)
            instead()
            return original(*args, **kwargs)

        setattr(owner, name, call)

    def _is_students(self, frame: FrameType) -> bool:
        return frame.f_code.co_filename.startswith(f"{self._folder}/")
