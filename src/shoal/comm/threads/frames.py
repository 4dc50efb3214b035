"""The frames of another thread, which may be running."""

import gc
import sys
from types import FrameType


def frames_of(thread: int | None) -> list[FrameType]:
    """The frames of a thread, the innermost first; none if it has ended.

    Garbage is not collected meanwhile. In Python 3.11 a collection may begin while an object is made for a frame, and
    let the thread leave that frame: then the object points to memory that is used otherwise, and the process crashes.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        frame = sys._current_frames().get(thread or 0)  # pyright: ignore[reportPrivateUsage]
        frames: list[FrameType] = []
        while frame is not None:
            frames.append(frame)
            frame = frame.f_back
        return frames
    finally:
        if was_enabled:
            gc.enable()
